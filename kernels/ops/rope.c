/* Rotary embedding. */
#include <math.h>

#include "kernels/ops/family.h"

struct rope_options {
    int64_t first;
    bool interleaved, inverse;
};
#define ROPE(...) OPTIONS(rope_options, __VA_ARGS__)

static const char *check_rope(const struct ax_rope *a) {
    NEED(a->x.ndim == 3 && real(&a->x) && given(&a->x) && rows_apart(&a->x));
    NEED(is_2d(&a->cos, accum(&a->x), a->cos.shape[0], a->cos.shape[1]));
    NEED(is_2d(&a->sin, accum(&a->x), a->cos.shape[0], a->cos.shape[1]));
    NEED(a->first >= 0 && a->first + 2 * a->cos.shape[1] <= a->x.shape[2]);
    NEED(is_1d(&a->positions, AX_I32, a->x.shape[0]));
    return NULL;
}

/* Counts only the rotated part of each head, and one row of the tables per token. */
static struct ax_op_cost cost_rope(const struct ax_rope *a) {
    double tokens = (double)a->x.shape[0];
    double half = (double)a->cos.shape[1];
    double pairs = tokens * (double)a->x.shape[1] * half;
    return (struct ax_op_cost){6 * pairs,
                               4 * pairs * (double)ax_dtype_size(a->x.dtype) +
                                   2 * tokens * half * (double)ax_dtype_size(a->cos.dtype) +
                                   bytes_of(&a->positions)};
}

static void build_rope(struct ax_case_builder *b, struct ax_rope *a) {
    const struct rope_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->x = ax_case_in3(b, s->rows, s->heads);
    a->cos = ax_case_dense2(b, b->accum, s->inner, s->cols);
    a->sin = ax_case_dense2(b, b->accum, s->inner, s->cols);
    for (int64_t i = 0; i < s->inner * s->cols && b->memory != NULL; i++) {
        double angle = ax_case_uniform(b, i, -3, 3);
        ax_store(b->accum, a->cos.data, i, cos(angle));
        ax_store(b->accum, a->sin.data, i, sin(angle));
    }
    a->positions = ax_case_ids(b, s->rows, 0, s->inner);
    a->first = o->first;
    a->interleaved = o->interleaved;
    a->inverse = o->inverse;
}

static const struct ax_shape shapes_rope[] = {
    {"one", .rows = 1, .heads = 1, .head_dim = 2, .cols = 1, .inner = 4},
    {"odd half", .rows = 5, .heads = 3, .head_dim = 14, .cols = 7, .inner = 9},
    {"part of a head", .rows = 4, .heads = 2, .head_dim = 24, .cols = 8, .inner = 16},
    {"strided", .rows = 6, .heads = 2, .head_dim = 16, .cols = 8, .inner = 32, .pad = 64},
    {"inverse", .rows = 6, .heads = 2, .head_dim = 64, .cols = 32, .inner = 32,
     ROPE(.inverse = true)},
    {"end of a head", .rows = 4, .heads = 2, .head_dim = 24, .cols = 8, .inner = 16,
     ROPE(.first = 8)},
    {"neighbors", .rows = 5, .heads = 3, .head_dim = 14, .cols = 7, .inner = 9,
     ROPE(.interleaved = true)},
    {"inverse neighbors", .rows = 6, .heads = 2, .head_dim = 75, .cols = 31, .inner = 32, .pad = 5,
     ROPE(.first = 12, .interleaved = true, .inverse = true)},
    {"queries", .big = true, .rows = 2048, .heads = 9, .head_dim = 64, .cols = 32, .inner = 2048,
     .pad = 384},
    {"latent queries", .big = true, .rows = 2048, .heads = 16, .head_dim = 192, .cols = 32,
     .inner = 2048, ROPE(.first = 128, .interleaved = true)},
};

AX_OP_INFO(rope, INOUT_ROWS(x), IN(cos), IN(sin), IN_ROWS(positions));
