/* fp8_codes: read quant.h first. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/quant/quant.h"

#define STRIP 64 /* rows per task */

/* By what numbers are divided: all by one block's scale, those of a row by one, or each by its column's. */
struct divisors {
    struct ax_quant_block block;
    const float *columns; /* or NULL */
};

/* Codes of elements [first, first + n) of a row, n ≤ BUFFER. */
AX_INLINE void codes_of_piece(enum ax_quant kind, const struct ax_fp8_codes *a, int64_t row,
                              int64_t first, int64_t n, const struct divisors *by) {
    struct ax_quant_block block = by->block;
    float x[BUFFER];
    unsigned char code[BUFFER];
    AX_BY_DTYPE(a->x.dtype, read_floats, ax_tensor_row(&a->x, row), first, n, x);
    for (int64_t i = 0; i < n; i++) {
        if (by->columns)
            block.scale = by->columns[first + i];
        code[i] = (unsigned char)ax_fp8_code(kind, x[i], &block);
    }
    if (a->rows.data)
        memcpy((char *)ax_tensor_row(&a->rows, row) + first, code, (size_t)n);
    for (int64_t i = 0; i < n && a->columns.data; i++)
        ((unsigned char *)ax_tensor_row(&a->columns, first + i))[row] = code[i];
}

static void codes_of_rows(const struct ax_fp8_codes *a, int64_t first, int64_t end,
                          const struct divisors *by) {
    const int64_t cols = a->x.shape[1];
    for (int64_t c = 0; c < cols; c += BUFFER)
        for (int64_t r = first; r < end; r++)
            if (a->kind == AX_QUANT_E5M2)
                codes_of_piece(AX_QUANT_E5M2, a, r, c, least(BUFFER, cols - c), by);
            else
                codes_of_piece(AX_QUANT_FP8, a, r, c, least(BUFFER, cols - c), by);
}

/* The block of row i of the ranges; without ranges, of row i of x. */
static struct ax_quant_block block_at(const struct ax_fp8_codes *a, int64_t i) {
    float buffer[BUFFER];
    struct extremes e = {0, 0};
    if (a->range.data == NULL)
        e = extremes_of(a->x.dtype, ax_tensor_row(&a->x, i), 0, a->x.shape[1], buffer);
    return block_of(a->kind, e, &a->range, i);
}

/* A scale for each row. */
static void codes_by_row(const struct ax_fp8_codes *a, int64_t first, int64_t end) {
    for (int64_t r = first; r < end; r++) {
        const struct divisors by = {.block = block_at(a, r)};
        ((float *)a->scale.data)[r] = by.block.scale;
        codes_of_rows(a, r, r + 1, &by);
    }
}

enum ax_status AX_VEC(ax_cpu_fp8_codes)(struct ax_queue *q, const struct ax_fp8_codes *a,
                                        void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0];
    const bool by_row = ax_fp8_codes_by_row(a);
    float *scale = a->scale.data;
    struct divisors by = {.columns = ax_fp8_codes_by_column(a) ? scale : NULL};
    for (int64_t i = 0; i < a->scale.shape[0] && !by_row; i++) {
        by.block = block_at(a, i);
        scale[i] = by.block.scale;
    }
    for (int64_t c = 0; c < a->x.shape[1] && a->columns.data; c++)
        memset((char *)ax_tensor_row(&a->columns, c) + rows, 0,
               (size_t)(a->columns.shape[1] - rows));
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(rows, STRIP))
        by_row ? codes_by_row(a, t * STRIP, least((t + 1) * STRIP, rows))
               : codes_of_rows(a, t * STRIP, least((t + 1) * STRIP, rows), &by);
    return AX_OK;
}
