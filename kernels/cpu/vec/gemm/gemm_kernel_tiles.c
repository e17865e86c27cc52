/* The micro-kernel on tiles: 2 × 2 tiles of sums, two of each operand. Edges have one tile instead of
 * two, in either direction. */
#include "kernels/cpu/vec/gemm/gemm.h"

#define ROW   (AX_GEMM_NR * (int64_t)sizeof(float))
#define RIGHT AX_TILE_ROWS                /* the second tile of a row */
#define BELOW (AX_TILE_ROWS * AX_GEMM_NR) /* of a column */

static void load_sums(const float *acc, bool tall, bool wide, bool first) {
    if (first) {
        AX_TILE_ZERO(0);
        AX_TILE_ZERO(1);
        AX_TILE_ZERO(2);
        AX_TILE_ZERO(3);
        return;
    }
    AX_TILE_LOAD(0, acc, ROW);
    if (wide)
        AX_TILE_LOAD(1, acc + RIGHT, ROW);
    if (tall)
        AX_TILE_LOAD(2, acc + BELOW, ROW);
    if (tall && wide)
        AX_TILE_LOAD(3, acc + BELOW + RIGHT, ROW);
}

static void store_sums(float *acc, bool tall, bool wide) {
    AX_TILE_STORE(0, acc, ROW);
    if (wide)
        AX_TILE_STORE(1, acc + RIGHT, ROW);
    if (tall)
        AX_TILE_STORE(2, acc + BELOW, ROW);
    if (tall && wide)
        AX_TILE_STORE(3, acc + BELOW + RIGHT, ROW);
}

void AX_VEC(ax_gemm_kernel)(bool pairs, int64_t rows, int64_t cols, int64_t units, const float *a,
                            const float *b, float *acc, bool first) {
    AX_ASSERT(pairs && units % AX_TILE_UNITS == 0);
    const bool tall = rows > AX_TILE_ROWS, wide = cols > AX_TILE_ROWS;
    load_sums(acc, tall, wide, first);
    for (int64_t u = 0; u < units; u += AX_TILE_UNITS) {
        AX_TILE_LOAD(4, a, 64);
        AX_TILE_LOAD(6, b, 64);
        AX_TILE_DOT(0, 4, 6);
        if (wide) {
            AX_TILE_LOAD(7, b + AX_TILE_SIZE, 64);
            AX_TILE_DOT(1, 4, 7);
        }
        if (tall) {
            AX_TILE_LOAD(5, a + AX_TILE_SIZE, 64);
            AX_TILE_DOT(2, 5, 6);
        }
        if (tall && wide)
            AX_TILE_DOT(3, 5, 7);
        a += 2 * AX_TILE_SIZE;
        b += 2 * AX_TILE_SIZE;
    }
    store_sums(acc, tall, wide);
}
