/* Packing for tiles: panels of two tiles side by side, zeros beyond the edges. What the full tiles of
 * an operand's inside have in common is constant there, so that their loads need no masks. */
#include "kernels/cpu/vec/gemm/gemm_tiles.h"

/* The tile in the same place of the next panel: the processor does not foresee that many rows by itself. */
AX_INLINE void fetch_tile(const struct ax_gemm_operand *op, int64_t outer, int64_t unit) {
    const char *at = ax_gemm_tile_at(op, outer, unit);
    if (op->panels)
        return;
    if (op->k_inside) {
#pragma GCC unroll 16
        for (int64_t r = 0; r < AX_TILE_ROWS; r++)
            __builtin_prefetch(at + r * op->stride, 0, 2);
    } else if (outer % (2 * AX_TILE_ROWS) == 0) {
#pragma GCC unroll 16
        for (int64_t u = 0; u < 2 * AX_TILE_UNITS; u++)
            __builtin_prefetch(at + u * op->stride, 0, 2);
    }
}

AX_INLINE void pack_by(float *dst, const struct ax_gemm_operand *op, bool right, int64_t first,
                       int64_t n, int64_t u0, int64_t units) {
    for (int64_t r = 0; r < n; r += 2 * AX_TILE_ROWS) {
        for (int64_t u = 0; u < units; u += AX_TILE_UNITS) {
            for (int64_t i = r; i < r + 2 * AX_TILE_ROWS; i += AX_TILE_ROWS, dst += AX_TILE_SIZE) {
                if (n - i >= 3 * AX_TILE_ROWS)
                    fetch_tile(op, first + i + 2 * AX_TILE_ROWS, u0 + u);
                if (n - i >= AX_TILE_ROWS && op->k - 2 * (u0 + u) >= 2 * AX_TILE_UNITS) {
                    struct ax_gemm_operand inside = *op;
                    inside.k = 2 * (u0 + u + AX_TILE_UNITS);
                    ax_gemm_pack_tile(dst, &inside, right, first + i, AX_TILE_ROWS, u0 + u);
                } else if (n > i) {
                    ax_gemm_pack_tile(dst, op, right, first + i, n - i, u0 + u);
                } else {
                    memset(dst, 0, AX_TILE_SIZE * sizeof *dst);
                }
            }
        }
    }
}

/* `right` and the layout are constants after inlining. */
static void pack(float *dst, const struct ax_gemm_operand *op, bool right, int64_t first, int64_t n,
                 int64_t u0, int64_t units) {
    struct ax_gemm_operand known = *op;
    if (op->panels) {
        known.panels = true;
        pack_by(dst, &known, right, first, n, u0, units);
    } else if (op->k_inside) {
        known.panels = false, known.k_inside = true;
        pack_by(dst, &known, right, first, n, u0, units);
    } else {
        known.panels = false, known.k_inside = false;
        pack_by(dst, &known, right, first, n, u0, units);
    }
}

void AX_VEC(ax_gemm_pack_a)(float *dst, const struct ax_gemm_operand *op, int64_t first, int64_t n,
                            int64_t u0, int64_t units) {
    pack(dst, op, false, first, n, u0, units);
}

void AX_VEC(ax_gemm_pack_b)(float *dst, const struct ax_gemm_operand *op, int64_t first, int64_t n,
                            int64_t u0, int64_t units) {
    pack(dst, op, true, first, n, u0, units);
}
