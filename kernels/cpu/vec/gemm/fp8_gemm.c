/* fp8_gemm: the values of codes without their scales, which are exact in bfloat16, and a product with them; its sums, to
 * which scales of rows come afterwards, as do bias and addend. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/quant/quant_block.h"

#define LINE 64 /* bytes; where operands begin in the workspace */

/* The compute dtype, which a product's bias has. */
static enum ax_dtype values_dtype(const struct ax_fp8_gemm *a) {
    return a->bias.data ? a->bias.dtype : a->c.dtype;
}

static size_t bytes_of(const struct ax_fp8_gemm *a, const struct ax_tensor *codes) {
    const size_t n = (size_t)ax_tensor_numel(codes) * ax_dtype_size(values_dtype(a));
    return (n + LINE - 1) / LINE * LINE;
}

static size_t bytes_of_sums(const struct ax_fp8_gemm *a) {
    const size_t n = (size_t)ax_tensor_numel(&a->c) * sizeof(float);
    return ax_fp8_gemm_by_rows(a) ? (n + LINE - 1) / LINE * LINE : 0;
}

/* The product of values, which are in the workspace: first a's, then b's, then its sums if it is not c. */
static struct ax_gemm gemm_of(const struct ax_fp8_gemm *a, char *work, double scale) {
    const enum ax_dtype dtype = values_dtype(a);
    const int64_t m = a->c.shape[0], n = a->c.shape[1];
    void *b = work ? work + bytes_of(a, &a->a) : NULL;
    void *sums = work ? (char *)b + bytes_of(a, &a->b) : NULL;
    struct ax_gemm g = {.a = ax_tensor_2d(dtype, work, m, a->a.shape[1]),
                        .b = ax_tensor_2d(dtype, b, n, a->b.shape[1]),
                        .c = ax_tensor_2d(AX_F32, sums, m, n),
                        .trans_b = true,
                        .alpha = scale};
    if (!ax_fp8_gemm_by_rows(a)) {
        g.c = a->c;
        g.bias = a->bias;
        g.addend = a->addend;
        g.accumulate = a->accumulate;
    }
    return g;
}

bool AX_VEC(ax_cpu_fp8_gemm_supports)(const struct ax_queue *q, const struct ax_fp8_gemm *a) {
    const struct ax_gemm g = gemm_of(a, NULL, 1);
    return AX_VEC(ax_cpu_gemm_supports)(q, &g);
}

size_t AX_VEC(ax_cpu_fp8_gemm_workspace)(struct ax_queue *q, const struct ax_fp8_gemm *a) {
    const struct ax_gemm g = gemm_of(a, NULL, 1);
    return bytes_of(a, &a->a) + bytes_of(a, &a->b) + bytes_of_sums(a) +
           AX_VEC(ax_cpu_gemm_workspace)(q, &g);
}

static void unpack(struct ax_queue *q, const struct ax_tensor *codes, enum ax_quant kind,
                   const struct ax_tensor *values) {
    const int64_t cols = codes->shape[1];
    float value[256];
    for (uint32_t i = 0; i < 256; i++)
        value[i] = ax_fp8_value(kind, i);
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(codes)), r, codes->shape[0]) {
        const unsigned char *from = ax_tensor_row(codes, r);
        void *to = ax_tensor_row(values, r);
        for (int64_t i = 0; i < cols; i++)
            if (values->dtype == AX_BF16)
                ((uint16_t *)to)[i] = ax_f32_to_bf16(value[from[i]]);
            else
                ((float *)to)[i] = value[from[i]];
    }
}

/* c from the sums. */
static void scale_rows(struct ax_queue *q, const struct ax_fp8_gemm *a,
                       const struct ax_tensor *sums) {
    const struct ax_tensor *to = a->accumulate ? &a->c : &a->addend;
    const int64_t n = a->c.shape[1];
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->c)), r, a->c.shape[0]) {
        const float *from = ax_tensor_row(sums, r);
        const double scale = ax_load(AX_F32, a->a_scale.data, r);
        for (int64_t i = 0; i < n; i++) {
            double y = scale * ax_load(AX_F32, a->b_scale.data, i) * (double)from[i];
            y += a->bias.data ? ax_load(a->bias.dtype, a->bias.data, i) : 0;
            y += to->data ? ax_load(to->dtype, ax_tensor_row(to, r), i) : 0;
            ax_store(a->c.dtype, ax_tensor_row(&a->c, r), i, y);
        }
    }
}

enum ax_status AX_VEC(ax_cpu_fp8_gemm)(struct ax_queue *q, const struct ax_fp8_gemm *a,
                                       void *work) {
    const bool by_rows = ax_fp8_gemm_by_rows(a);
    const double scale =
        by_rows ? 1 : ax_load(AX_F32, a->a_scale.data, 0) * ax_load(AX_F32, a->b_scale.data, 0);
    const struct ax_gemm g = gemm_of(a, work, scale);
    unpack(q, &a->a, a->a_kind, &g.a);
    unpack(q, &a->b, a->b_kind, &g.b);
    char *rest = (char *)work + bytes_of(a, &a->a) + bytes_of(a, &a->b) + bytes_of_sums(a);
    AX_TRY(AX_VEC(ax_cpu_gemm)(q, &g, rest));
    if (by_rows)
        scale_rows(q, a, &g.c);
    return AX_OK;
}
