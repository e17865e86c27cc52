/* packed_gemm: of few rows by a kernel of its own; else W's values into the workspace, then a product with
 * them, so that its bits are gemm's. Moves the codes once, the values twice. */
#include "kernels/cuda/quant/packed_few.h"

#define ALIGNMENT 256 /* of what follows the values */

static size_t values_bytes(const struct ax_packed_gemm *a) {
    const size_t n = (size_t)(a->c.shape[1] * a->a.shape[1]) * ax_dtype_size(a->a.dtype);
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static struct ax_gemm gemm_of(const struct ax_packed_gemm *a, void *values) {
    return (struct ax_gemm){.a = a->a,
                            .b = ax_tensor_2d(a->a.dtype, values, a->c.shape[1], a->a.shape[1]),
                            .c = a->c,
                            .bias = a->bias,
                            .addend = a->addend,
                            .trans_b = true,
                            .alpha = 1};
}

size_t ax_cuda_packed_gemm_work(const struct ax_packed_gemm *a) {
    const struct ax_gemm g = gemm_of(a, NULL);
    if (ax_cuda_packed_few_fits(a))
        return 0;
    return values_bytes(a) + ax_cuda_gemm_work(&g);
}

enum ax_status ax_cuda_packed_gemm(struct ax_queue *q, const struct ax_packed_gemm *a, void *work) {
    const struct ax_gemm g = gemm_of(a, work);
    const struct ax_dequantize unpack = {
        .out = g.b, .codes = a->codes, .scale = a->scale, .block = a->block, .kind = a->kind};
    if (ax_cuda_packed_few_fits(a))
        return ax_cuda_packed_few(q, a);
    AX_TRY(ax_cuda_dequantize(q, &unpack, NULL));
    return ax_cuda_gemm(q, &g, (char *)work + values_bytes(a));
}
