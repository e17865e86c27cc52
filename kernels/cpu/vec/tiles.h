/* Tiles: eight registers of 16 rows × 64 bytes per thread, as Intel's AMX has them, and the product
 * of two of them. Only the sets "amx" and "amx_emulated" have tiles (AX_TILES): the first by
 * instructions, the second in plain C that gives the same bits (emulated_tiles.c), so that machines
 * without AMX test all of the code that uses them.
 *
 *   AX_TILE_DOT(c, a, b): c[m][n] += Σ_u a[m][u]·b[u][n] over 16 units, m, n < 16
 *
 * A row of a and b has 16 units, pairs of bf16; a row of c has 16 floats. As in Intel's Software
 * Developer's Manual (TDPBF16PS), the first numbers of all pairs are summed by fused multiply-adds
 * from 0 in ascending order, the second numbers likewise, and then (first + second) is added to c.
 * Every step rounds to nearest even; denormals count as zero, as operands and as results. a and b
 * can be swapped, with c transposed.
 *
 * A tile is named by a literal number, 0 … 7. Strides are in bytes. Tiles exist between
 * ax_tiles_begin and ax_tiles_end of the same thread. */
#ifndef AX_KERNELS_CPU_VEC_TILES_H
#define AX_KERNELS_CPU_VEC_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/vec/vec.h"

#define AX_TILE_ROWS  16
#define AX_TILE_UNITS 16 /* units per row */
#define AX_TILE_SIZE  (AX_TILE_ROWS * AX_TILE_UNITS)

#if !defined(AX_TILES)

static inline void ax_tiles_begin(void) {
}
static inline void ax_tiles_end(void) {
}

#elif defined(__AMX_BF16__)

#include <immintrin.h>

/* Palette 1, all tiles full. */
static inline void ax_tiles_begin(void) {
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } all __attribute__((aligned(64))) = {.palette = 1,
                                          .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                          .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&all);
}

static inline void ax_tiles_end(void) {
    _tile_release();
}

#define AX_TILE_ZERO(t) _tile_zero(t)
/* gcc does not know that a tile load reads memory, so stores before it must be done. */
#define AX_TILE_LOAD(t, from, stride)                                                              \
    do {                                                                                           \
        __asm__ volatile("" ::: "memory");                                                         \
        _tile_loadd(t, from, stride);                                                              \
    } while (0)
/* The same, of what is read once: it displaces nothing in the L1 cache. */
#define AX_TILE_LOAD_ONCE(t, from, stride)                                                         \
    do {                                                                                           \
        __asm__ volatile("" ::: "memory");                                                         \
        _tile_stream_loadd(t, from, stride);                                                       \
    } while (0)
#define AX_TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define AX_TILE_DOT(c, a, b)         _tile_dpbf16ps(c, a, b)

#else

void AX_VEC(ax_tiles_begin)(void);
void AX_VEC(ax_tiles_end)(void);
void AX_VEC(ax_tile_zero)(int t);
void AX_VEC(ax_tile_load)(int t, const void *from, int64_t stride);
void AX_VEC(ax_tile_store)(int t, void *to, int64_t stride);
void AX_VEC(ax_tile_dot)(int c, int a, int b);
bool AX_VEC(ax_tiles_exist)(void); /* true between _begin and _end on this thread */

static inline void ax_tiles_begin(void) {
    AX_VEC(ax_tiles_begin)();
}

static inline void ax_tiles_end(void) {
    AX_VEC(ax_tiles_end)();
}

#define AX_TILE_ZERO(t)               AX_VEC(ax_tile_zero)(t)
#define AX_TILE_LOAD(t, from, stride) AX_VEC(ax_tile_load)(t, from, stride)
#define AX_TILE_LOAD_ONCE             AX_TILE_LOAD
#define AX_TILE_STORE(t, to, stride)  AX_VEC(ax_tile_store)(t, to, stride)
#define AX_TILE_DOT(c, a, b)          AX_VEC(ax_tile_dot)(c, a, b)

#endif
#endif
