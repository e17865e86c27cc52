/* fp8_codes: read quant.h first. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/quant/quant.h"

#define STRIP 64 /* rows per task */

/* Codes of elements [first, first + n) of a row, n ≤ BUFFER. */
AX_INLINE void codes_of_piece(enum ax_quant kind, const struct ax_fp8_codes *a, int64_t row,
                              int64_t first, int64_t n, const struct ax_quant_block *block) {
    float x[BUFFER];
    unsigned char code[BUFFER];
    AX_BY_DTYPE(a->x.dtype, read_floats, ax_tensor_row(&a->x, row), first, n, x);
    for (int64_t i = 0; i < n; i++)
        code[i] = (unsigned char)ax_fp8_code(kind, x[i], block);
    if (a->rows.data)
        memcpy((char *)ax_tensor_row(&a->rows, row) + first, code, (size_t)n);
    for (int64_t i = 0; i < n && a->columns.data; i++)
        ((unsigned char *)ax_tensor_row(&a->columns, first + i))[row] = code[i];
}

static void codes_of_rows(const struct ax_fp8_codes *a, int64_t first, int64_t end,
                          const struct ax_quant_block *block) {
    const int64_t cols = a->x.shape[1];
    for (int64_t c = 0; c < cols; c += BUFFER)
        for (int64_t r = first; r < end; r++)
            if (a->kind == AX_QUANT_E5M2)
                codes_of_piece(AX_QUANT_E5M2, a, r, c, least(BUFFER, cols - c), block);
            else
                codes_of_piece(AX_QUANT_FP8, a, r, c, least(BUFFER, cols - c), block);
}

enum ax_status AX_VEC(ax_cpu_fp8_codes)(struct ax_queue *q, const struct ax_fp8_codes *a,
                                        void *work) {
    (void)work;
    const float *range = a->range.data;
    const int64_t rows = a->x.shape[0];
    const struct ax_quant_block block = ax_quant_block_of(a->kind, -range[0], range[1], 0);
    ((float *)a->scale.data)[0] = block.scale;
    for (int64_t c = 0; c < a->x.shape[1] && a->columns.data; c++)
        memset((char *)ax_tensor_row(&a->columns, c) + rows, 0,
               (size_t)(a->columns.shape[1] - rows));
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(rows, STRIP))
        codes_of_rows(a, t * STRIP, least((t + 1) * STRIP, rows), &block);
    return AX_OK;
}
