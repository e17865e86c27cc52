/* Products of 8-bit floats and their operands, as the formulas of kernels/quant/quant_ops.h. */
#include "kernels/quant/quant_block.h"
#include "kernels/ref/ref.h"

/* Row i of the ranges; absent: that of row i of x. */
static struct ax_quant_block block_of(const struct ax_fp8_codes *a, int64_t i) {
    const float *range = a->range.data;
    float less = 0, more = 0;
    if (range)
        return ax_quant_block_of(a->kind, -range[2 * i], range[2 * i + 1], 0);
    for (int64_t c = 0; c < a->x.shape[1]; c++) {
        const float x = (float)ax_ref_get(&a->x, i, c);
        less = -x > less ? -x : less;
        more = x > more ? x : more;
    }
    return ax_quant_block_of(a->kind, -less, more, 0);
}

enum ax_status ax_ref_fp8_codes(struct ax_queue *q, const struct ax_fp8_codes *a, void *work) {
    (void)q;
    (void)work;
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    const bool by_row = ax_fp8_codes_by_row(a), by_column = ax_fp8_codes_by_column(a);
    for (int64_t i = 0; i < a->scale.shape[0]; i++)
        ((float *)a->scale.data)[i] = block_of(a, i).scale;
    for (int64_t r = 0; r < rows; r++) {
        struct ax_quant_block block = block_of(a, by_row ? r : 0);
        for (int64_t c = 0; c < cols; c++) {
            if (by_column)
                block = block_of(a, c);
            const float x = (float)ax_ref_get(&a->x, r, c);
            const unsigned char code = (unsigned char)ax_fp8_code(a->kind, x, &block);
            if (ax_ref_given(&a->rows))
                ((unsigned char *)a->rows.data)[r * cols + c] = code;
            if (ax_ref_given(&a->columns))
                ((unsigned char *)ax_tensor_row(&a->columns, c))[r] = code;
        }
    }
    for (int64_t c = 0; c < cols && ax_ref_given(&a->columns); c++)
        memset((char *)ax_tensor_row(&a->columns, c) + rows, 0,
               (size_t)(a->columns.shape[1] - rows));
    return AX_OK;
}

static double value_at(const struct ax_tensor *codes, enum ax_quant kind, int64_t row, int64_t k) {
    return (double)ax_fp8_value(kind, ((unsigned char *)codes->data)[row * codes->shape[1] + k]);
}

enum ax_status ax_ref_fp8_gemm(struct ax_queue *q, const struct ax_fp8_gemm *g, void *work) {
    (void)q;
    (void)work;
    const bool by_rows = ax_fp8_gemm_by_rows(g);
    const struct ax_tensor *to = g->accumulate ? &g->c : &g->addend;
    for (int64_t m = 0; m < g->c.shape[0]; m++)
        for (int64_t n = 0; n < g->c.shape[1]; n++) {
            double sum = 0;
            for (int64_t k = 0; k < g->a.shape[1]; k++)
                sum += value_at(&g->a, g->a_kind, m, k) * value_at(&g->b, g->b_kind, n, k);
            sum *= ax_load(AX_F32, g->a_scale.data, by_rows ? m : 0) *
                   ax_load(AX_F32, g->b_scale.data, by_rows ? n : 0);
            sum += ax_ref_given(&g->bias) ? ax_ref_get(&g->bias, n, 0) : 0;
            sum += ax_ref_given(to) ? ax_ref_get(to, m, n) : 0;
            ax_ref_set(&g->c, m, n, sum);
        }
    return AX_OK;
}
