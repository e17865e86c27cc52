/* Making and running cases. An op's build runs twice: first without memory, to count bytes, then to
 * lay the operands out and fill them, with the helpers at the end of this file. */
#include "kernels/cases.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kernels/ops/family.h"

/* A step in the middle of training. Large lr: an update worth checking to the last bits. */
static struct ax_step_scalars scalars_of(const struct ax_case_builder *b) {
    bool skip = ax_case_has(b, AX_SHAPE_SKIP);
    return (struct ax_step_scalars){.lr = 0.1,
                                    .inv_weight = skip ? 0 : 0.125,
                                    .max_norm = 1,
                                    .sumsq = 7.5,
                                    .clip = 0.6,
                                    .loss = 0.25,
                                    .step = ax_case_has(b, AX_SHAPE_FIRST_STEP) ? 1 : 5,
                                    .skip = skip ? 1 : 0};
}

enum ax_status ax_case_create(struct ax_case *c, enum ax_op op, const struct ax_shape *shape,
                              enum ax_dtype dtype, uint64_t seed) {
    struct ax_case_builder b = {.shape = shape,
                                .real = dtype,
                                .accum = ax_dtype_accum(dtype),
                                .key = {.seed = seed, .step = ax_hash32(ax_op_name(op))}};
    size_t scalars_room =
        AX_CASE_GAP * ((sizeof(struct ax_step_scalars) + AX_CASE_GAP - 1) / AX_CASE_GAP);
    *c = (struct ax_case){.op = op, .shape = shape, .dtype = dtype};
    AX_TRY(ax_alloc(&c->args, 1, ax_op_args_size(op)));
    ax_op_info(op)->build(&b, c->args);
    c->bytes = scalars_room + b.used;
    enum ax_status st = ax_alloc(&c->memory, c->bytes, 1);
    if (st != AX_OK) {
        ax_case_free(c);
        return st;
    }
    memset(c->memory, 0xff, c->bytes);
    memset(c->args, 0, ax_op_args_size(op));
    c->scalars = (struct ax_step_scalars *)(void *)c->memory;
    *c->scalars = scalars_of(&b);
    b.key.tensor = 0;
    b.memory = c->memory + scalars_room;
    b.used = 0;
    b.scalars = c->scalars;
    ax_op_info(op)->build(&b, c->args);
    return AX_OK;
}

void ax_case_free(struct ax_case *c) {
    ax_free(c->args);
    ax_free(c->memory);
    *c = (struct ax_case){.op = c->op};
}

enum ax_status ax_case_prepare(const struct ax_case *c, struct ax_queue *q) {
    if (c->op != AX_OP_attention_backward) {
        return AX_OK;
    }
    const struct ax_attention_backward *b = c->args;
    return ax_run_attention_forward(q, &(struct ax_attention_forward){b->a});
}

enum ax_status ax_case_run(const struct ax_case *c, struct ax_queue *q) {
    return ax_run_op(q, c->op, c->args);
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
    if (b->memory != NULL) {
        t.data = b->memory + b->used;
    }
    b->used += (bytes + AX_CASE_GAP - 1) / AX_CASE_GAP * AX_CASE_GAP + AX_CASE_GAP;
    b->key.tensor++;
    return t;
}

/* Four numbers come from each counter block. */
static double word_to_uniform(uint32_t word, double low, double high) {
    return low + (high - low) * (double)(word >> 8) * 0x1p-24;
}

double ax_case_uniform(const struct ax_case_builder *b, int64_t i, double low, double high) {
    uint32_t words[4];
    ax_rng_block(b->key, (uint64_t)i / 4, words);
    return word_to_uniform(words[i % 4], low, high);
}

void ax_case_randomize(const struct ax_case_builder *b, const struct ax_tensor *t, double low,
                       double high) {
    int64_t cols = ax_tensor_row_len(t);
    uint32_t words[4] = {0};
    for (int64_t i = 0; i < t->shape[0] * cols && b->memory != NULL; i++) {
        if (i % 4 == 0) {
            ax_rng_block(b->key, (uint64_t)i / 4, words);
        }
        ax_store(t->dtype, t->data, i / cols * t->row_stride + i % cols,
                 word_to_uniform(words[i % 4], low, high));
    }
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
        if (i < s->n_documents) {
            sum += keys ? s->documents[i].nk : s->documents[i].nq;
        }
    }
    return t;
}
