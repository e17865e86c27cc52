/* Products with packed weights in panels (kernels/panels.h), part of packed_gemm.c. */
#ifndef AX_KERNELS_CPU_VEC_GEMM_PACKED_PANELS_H
#define AX_KERNELS_CPU_VEC_GEMM_PACKED_PANELS_H

#include "kernels/cpu/vec/gemm/gemm.h"

/* The product with W's values, which are in the codes' order. */
static inline struct ax_gemm ax_packed_gemm_of(const struct ax_packed_gemm *a, void *values) {
    struct ax_gemm g = {.a = a->a,
                        .b = ax_tensor_2d(a->a.dtype, values, a->c.shape[1], a->a.shape[1]),
                        .c = a->c,
                        .bias = a->bias,
                        .addend = a->addend,
                        .trans_b = true,
                        .alpha = 1};
    g.b.panels = a->codes.panels;
    return g;
}

/* True if the machine multiplies bf16 and x is bf16, however many rows it has. */
bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a);
/* Multiplies with packed weights in panels. `vbmi`: codes of integers are looked up by byte
 * instructions; the bits are the same. */
void AX_VEC(ax_packed_panels)(const struct ax_packed_gemm *a, const struct ax_gemm *g, bool vbmi,
                              int threads);
#ifdef AX_TILES
bool ax_packed_panels_supports_avx512bf16(const struct ax_packed_gemm *a);
void ax_packed_panels_avx512bf16(const struct ax_packed_gemm *a, const struct ax_gemm *g, bool vbmi,
                                 int threads);
#endif

#endif
