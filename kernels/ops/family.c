/* Counts an op's operands, and lays them out for a case. */
#include "kernels/ops/family.h"

#include <string.h>

static const struct ax_tensor *tensor_of(const struct ax_operand *operand, const void *args) {
    return (const struct ax_tensor *)((const char *)args + operand->offset);
}

double ax_op_operand_bytes(const struct ax_operand *list, const void *args) {
    double sum = 0;
    for (const struct ax_operand *o = list; o->name != NULL; o++) {
        double bytes = bytes_of(tensor_of(o, args));
        sum += o->use == AX_OPERAND_INOUT ? 2 * bytes : bytes;
    }
    return sum;
}

struct ax_op_cost ax_op_per_element(const struct ax_operand *list, const void *args,
                                    double flops_per, tensor t) {
    return (struct ax_op_cost){flops_per * elements(t), ax_op_operand_bytes(list, args)};
}

bool ax_case_has(const struct ax_case_builder *b, unsigned flag) {
    return (b->shape->flags & flag) != 0;
}

const void *ax_case_options(const struct ax_case_builder *b) {
    static const double none[16];
    return b->shape->options != NULL ? b->shape->options : none;
}

enum ax_dtype ax_case_stream(const struct ax_case_builder *b, unsigned flag) {
    return ax_case_has(b, flag) ? b->accum : b->real;
}

struct ax_tensor ax_case_place(struct ax_case_builder *b, enum ax_dtype dtype, int64_t pad,
                               int ndim, const int64_t *shape) {
    struct ax_tensor t = ax_tensor_nd(dtype, NULL, ndim, shape);
    t.row_stride += pad;
    size_t bytes = (size_t)(t.shape[0] * t.row_stride) * ax_dtype_size(dtype);
    if (b->memory != NULL)
        t.data = b->memory + b->used;
    b->used += (bytes + AX_CASE_GAP - 1) / AX_CASE_GAP * AX_CASE_GAP + AX_CASE_GAP;
    b->key.tensor++;
    return t;
}

/* Each counter block gives four numbers. */
static double word_to_uniform(uint32_t word, double low, double high) {
    return low + (high - low) * (double)(word >> 8) * 0x1p-24;
}

double ax_case_uniform(const struct ax_case_builder *b, int64_t i, double low, double high) {
    uint32_t words[4];
    ax_rng_block(b->key, (uint64_t)i / 4, words);
    return word_to_uniform(words[i % 4], low, high);
}

/* Rows from `first` on are a copy of those before, in turn. */
static void repeat_rows(const struct ax_tensor *t, int64_t first) {
    const size_t row = (size_t)t->row_stride * ax_dtype_size(t->dtype);
    for (int64_t at = first; at < t->shape[0]; at += first) {
        const int64_t n = t->shape[0] - at < first ? t->shape[0] - at : first;
        memcpy((char *)t->data + (size_t)at * row, t->data, (size_t)n * row);
    }
}

/* A larger operand repeats its first rows: to draw all of them takes ten times as long. */
#define DRAWN (1 << 20)

void ax_case_randomize(const struct ax_case_builder *b, const struct ax_tensor *t, double low,
                       double high) {
    const int64_t cols = ax_tensor_row_len(t);
    const bool repeats = t->shape[0] * cols > DRAWN;
    const int64_t rows = repeats ? DRAWN / cols + 1 : t->shape[0];
    uint32_t words[4] = {0};
    uint64_t i = 0;
    if (b->memory == NULL)
        return;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < cols; col++, i++) {
            if (i % 4 == 0)
                ax_rng_block(b->key, i / 4, words);
            ax_store(t->dtype, t->data, row * t->row_stride + col,
                     word_to_uniform(words[i % 4], low, high));
        }
    repeat_rows(t, rows);
}

struct ax_tensor ax_case_out1(struct ax_case_builder *b, enum ax_dtype dtype, int64_t n) {
    return ax_case_place(b, dtype, 0, 1, &n);
}

struct ax_tensor ax_case_out2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                              int64_t cols) {
    return ax_case_place(b, dtype, b->shape->pad, 2, (const int64_t[]){rows, cols});
}

struct ax_tensor ax_case_dense2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                int64_t cols) {
    return ax_case_place(b, dtype, 0, 2, (const int64_t[]){rows, cols});
}

struct ax_range_of ax_case_range(struct ax_case_builder *b, int64_t n) {
    return (struct ax_range_of){ax_case_dense2(b, AX_F32, n, 2), b->shape->rows * 2 / 3};
}

/* Random in [−1, 1). */
struct ax_tensor ax_case_in1(struct ax_case_builder *b, enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = ax_case_out1(b, dtype, n);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

struct ax_tensor ax_case_in2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    struct ax_tensor t = ax_case_out2(b, dtype, rows, cols);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

struct ax_tensor ax_case_dense_in2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                   int64_t cols) {
    struct ax_tensor t = ax_case_dense2(b, dtype, rows, cols);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

struct ax_tensor ax_case_out3(struct ax_case_builder *b, int64_t rows, int64_t heads) {
    const struct ax_shape *s = b->shape;
    return ax_case_place(b, b->real, s->pad, 3, (const int64_t[]){rows, heads, s->head_dim});
}

struct ax_tensor ax_case_in3(struct ax_case_builder *b, int64_t rows, int64_t heads) {
    struct ax_tensor t = ax_case_out3(b, rows, heads);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

/* Integers in [low, high). */
struct ax_tensor ax_case_ids(struct ax_case_builder *b, int64_t n, int64_t low, int64_t high) {
    struct ax_tensor t = ax_case_out1(b, AX_I32, n);
    for (int64_t i = 0; i < n && b->memory != NULL; i++) {
        uint64_t below = ax_rng_below(b->key, (uint64_t)i, (uint64_t)(high - low));
        ((int32_t *)t.data)[i] = (int32_t)(low + (int64_t)below);
    }
    return t;
}

struct ax_tensor ax_case_cumulative(struct ax_case_builder *b, bool keys) {
    const struct ax_shape *s = b->shape;
    struct ax_tensor t = ax_case_out1(b, AX_I32, s->n_documents + 1);
    int32_t sum = 0;
    for (int i = 0; i <= s->n_documents && b->memory != NULL; i++) {
        ((int32_t *)t.data)[i] = sum;
        if (i < s->n_documents)
            sum += keys ? s->documents[i].nk : s->documents[i].nq;
    }
    return t;
}
