/* Operands of the GEMM as tiles (tiles.h), private to this folder: how 16 rows of op(a) or columns
 * of op(b), here "outer", by 16 units are read from a tensor. */
#ifndef AX_KERNELS_CPU_VEC_GEMM_GEMM_TILES_H
#define AX_KERNELS_CPU_VEC_GEMM_GEMM_TILES_H

#include "kernels/cpu/vec/gemm/gemm_pack.h"
#include "kernels/panels.h"

_Static_assert(AX_TILE_ROWS == AX_LANES && AX_TILE_UNITS == AX_LANES, "a row is a vector");
_Static_assert(AX_PANEL_ROWS == AX_TILE_ROWS, "panels consist of tiles");

/* True if memory has neighboring units of an outer together; else neighboring outers of a unit. */
AX_INLINE bool ax_gemm_outer_rows(const struct ax_gemm_operand *op) {
    return op->k_inside && !op->panels;
}

/* Where the tile from `outer` and `unit` on starts in memory. */
AX_INLINE const char *ax_gemm_tile_at(const struct ax_gemm_operand *op, int64_t outer,
                                      int64_t unit) {
    if (op->panels)
        return op->data + outer * op->stride + unit * AX_PANEL_ROWS * 4;
    return op->k_inside ? op->data + outer * op->stride + unit * 4
                        : op->data + 2 * unit * op->stride + outer * 2;
}

/* The tile from `outer` (of which there are n more) and `unit` on, as rows in the order of memory;
 * zeros beyond n and k. */
AX_INLINE void ax_gemm_read_tile(const struct ax_gemm_operand *op, int64_t outer, int64_t n,
                                 int64_t unit, v_float x[AX_LANES]) {
    const char *at = ax_gemm_tile_at(op, outer, unit);
    const int64_t left = op->k - 2 * unit;
    if (ax_gemm_outer_rows(op)) {
        for (int64_t r = 0; r < AX_LANES; r++)
            x[r] = r < n ? load_along_k(AX_BF16, at + r * op->stride, left) : v_set(0);
    } else if (op->panels) {
        for (int64_t u = 0; u < AX_LANES; u++, at += AX_PANEL_ROWS * 4)
            x[u] = 2 * u < left ? v_load_f32((const float *)at, AX_LANES) : v_set(0);
    } else {
        for (int64_t u = 0; u < AX_LANES; u++, at += 2 * op->stride) {
            const char *second = 2 * u + 1 < left ? at + op->stride : NULL;
            x[u] = 2 * u < left ? load_across_k(AX_BF16, at, second, n) : v_set(0);
        }
    }
}

/* Writes it as the left operand of AX_TILE_DOT, or as the right one. */
AX_INLINE void ax_gemm_pack_tile(float *dst, const struct ax_gemm_operand *op, bool right,
                                 int64_t outer, int64_t n, int64_t unit) {
    v_float x[AX_LANES];
    ax_gemm_read_tile(op, outer, n, unit, x);
    if (ax_gemm_outer_rows(op) == right)
        transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < AX_LANES; i++)
        v_store_f32(dst + i * AX_LANES, AX_LANES, x[i]);
}

#endif
