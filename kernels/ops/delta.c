/* The gated delta rule, with a decay per head or per channel, forward and backward. */
#include "kernels/ops/delta.h"

#include <math.h>

#include "kernels/ops/family.h"

#define DELTA(...) OPTIONS(ax_delta_options, __VA_ARGS__)
#define CHUNK      AX_DELTA_CHUNK

static bool is_4d(tensor t, enum ax_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
    return given(t) && t->ndim == 4 && t->dtype == dtype && t->shape[0] == a && t->shape[1] == b &&
           t->shape[2] == c && t->shape[3] == d && rows_apart(t);
}

/* A decay per head, or per channel. */
static bool is_decay(tensor g, enum ax_dtype dtype, int64_t tokens, int64_t values,
                     int64_t channels) {
    return g->ndim == 3 ? is_3d(g, dtype, tokens, values, channels)
                        : is_2d(g, dtype, tokens, values);
}

static const char *check_delta(const struct ax_delta_rule *a) {
    NEED(a->q.ndim == 3 && a->k.ndim == 3 && a->v.ndim == 3 && real(&a->q));
    const int64_t tokens = a->q.shape[0], keys = a->q.shape[1], values = a->v.shape[1];
    const int64_t key_dim = a->q.shape[2], value_dim = a->v.shape[2];
    NEED(is_3d(&a->q, a->q.dtype, tokens, keys, key_dim));
    NEED(is_3d(&a->k, a->q.dtype, tokens, keys, key_dim));
    NEED(is_3d(&a->v, a->q.dtype, tokens, values, value_dim));
    NEED(keys > 0 && values % keys == 0);
    NEED(is_decay(&a->g, accum(&a->q), tokens, values, key_dim));
    NEED(!a->additive || !ax_delta_by_channel(a));
    NEED(is_2d(&a->beta, accum(&a->q), tokens, values));
    NEED(!given(&a->skip) || (a->additive && is_1d(&a->skip, a->q.dtype, values)));
    NEED(a->cu.shape[0] >= 1 && is_1d(&a->cu, AX_I32, a->cu.shape[0]));
    if (!given(&a->states))
        return NULL;
    NEED(is_4d(&a->states, accum(&a->q), a->states.shape[0], values, key_dim, value_dim));
    NEED(is_1d(&a->enters, AX_I32, a->cu.shape[0] - 1));
    NEED(is_1d(&a->leaves, AX_I32, a->cu.shape[0] - 1));
    return NULL;
}

static int64_t value_dim(const struct ax_shape *s, const struct ax_delta_options *o) {
    return o->value_dim > 0 ? o->value_dim : s->head_dim;
}

/* As v. */
static struct ax_tensor values_out(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    const int64_t size = value_dim(s, ax_case_options(b));
    return ax_case_place(b, b->real, s->pad, 3, (const int64_t[]){s->rows, s->heads, size});
}

static struct ax_tensor uniform2(struct ax_case_builder *b, double low, double high) {
    struct ax_tensor t = ax_case_out2(b, b->accum, b->shape->rows, b->shape->heads);
    ax_case_randomize(b, &t, low, high);
    return t;
}

/* As the decay. */
static struct ax_tensor decays_out(struct ax_case_builder *b) {
    const struct ax_delta_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    return o->channels ? ax_case_place(b, b->accum, s->pad, 3,
                                       (const int64_t[]){s->rows, s->heads, s->head_dim})
                       : ax_case_out2(b, b->accum, s->rows, s->heads);
}

/* A state for each document and one that is nobody's. */
static struct ax_tensor slots(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    const int64_t shape[] = {s->n_documents + 1, s->heads, s->head_dim,
                             value_dim(s, ax_case_options(b))};
    struct ax_tensor t = ax_case_place(b, b->accum, s->pad, 4, shape);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

/* Slots from the last to the first; every third document has none, beginning with number `none`. */
static struct ax_tensor slot_numbers(struct ax_case_builder *b, int none) {
    const int n = b->shape->n_documents;
    struct ax_tensor t = ax_case_out1(b, AX_I32, n);
    for (int d = 0; d < n && b->memory != NULL; d++)
        ((int32_t *)t.data)[d] = d % 3 == none ? -1 : n - d;
    return t;
}

/* Decays of e^−1 … 1 a token. */
static void build_delta(struct ax_case_builder *b, struct ax_delta_rule *a) {
    const struct ax_delta_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->q = ax_case_in3(b, s->rows, s->kv_heads);
    a->k = ax_case_in3(b, s->rows, s->kv_heads);
    a->v = values_out(b);
    ax_case_randomize(b, &a->v, -1, 1);
    a->g = decays_out(b);
    ax_case_randomize(b, &a->g, -1, 0);
    a->beta = uniform2(b, 0, 1);
    a->cu = ax_case_cumulative(b, false);
    a->scale = 1 / sqrt((double)s->head_dim);
    a->additive = o->additive;
    if (o->additive)
        a->skip = ax_case_in1(b, b->real, s->heads);
    if (o->states || o->pieces) {
        a->states = slots(b);
        a->enters = slot_numbers(b, 1);
        a->leaves = o->pieces ? a->enters : slot_numbers(b, 2);
    }
}

/* FLOPs of products: `pairs` is the sizes of those of pairs of a chunk's tokens, for half of the pairs each, and
 * `states` the number of those with states. */
static double products(const struct ax_delta_rule *a, double pairs, double states) {
    const double size = (double)a->q.shape[2] * (double)a->v.shape[2];
    return (double)(a->v.shape[0] * a->v.shape[1]) * ((CHUNK + 1) * pairs + 2 * states * size);
}

static const char *check_delta_forward(const struct ax_delta_forward *f) {
    const struct ax_delta_rule *a = &f->a;
    const char *broken = check_delta(a);
    if (broken)
        return broken;
    NEED(same_shape(&a->out, &a->v) && a->out.dtype == a->q.dtype);
    if (!given(&f->past))
        return NULL;
    const int64_t slots = a->states.shape[0], values = a->v.shape[1];
    NEED(given(&a->states) && a->enters.data == a->leaves.data);
    NEED(is_1d(&f->past, AX_I32, a->cu.shape[0] - 1));
    NEED(is_4d(&f->keys, a->q.dtype, slots, CHUNK, a->k.shape[1], a->k.shape[2]));
    NEED(is_4d(&f->updates, accum(&a->q), slots, CHUNK, values, a->v.shape[2]));
    NEED(ax_delta_by_channel(a)
             ? is_4d(&f->decays, accum(&a->q), slots, CHUNK, values, a->k.shape[2])
             : is_3d(&f->decays, accum(&a->q), slots, CHUNK, values));
    return NULL;
}

/* k̂·k̂, q̂·k̂, and u and out of the tokens before; Sᵀ·k̂, Sᵀ·q̂, the next S: additive without k̂·k̂, u and Sᵀ·k̂. */
static struct ax_op_cost cost_delta_forward(const struct ax_delta_forward *f) {
    const double pairs = (double)(f->a.q.shape[2] + f->a.v.shape[2]);
    return (struct ax_op_cost){f->a.additive ? products(&f->a, pairs, 2)
                                             : products(&f->a, 2 * pairs, 3),
                               ax_op_operand_bytes(ax_operands_delta_forward(), f)};
}

/* [slots][CHUNK]…, with numbers uniform in [low, high). */
static struct ax_tensor running(struct ax_case_builder *b, enum ax_dtype dtype, int ndim,
                                int64_t heads, int64_t size, double low, double high) {
    struct ax_tensor t =
        ax_case_place(b, dtype, b->shape->pad, ndim,
                      (const int64_t[]){b->shape->n_documents + 1, CHUNK, heads, size});
    ax_case_randomize(b, &t, low, high);
    return t;
}

static void build_delta_forward(struct ax_case_builder *b, struct ax_delta_forward *f) {
    const struct ax_delta_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    build_delta(b, &f->a);
    f->a.out = values_out(b);
    if (!o->pieces)
        return;
    f->past = ax_case_out1(b, AX_I32, s->n_documents);
    for (int d = 0; d < s->n_documents && b->memory != NULL; d++)
        ((int32_t *)f->past.data)[d] = s->documents[d].nk;
    f->keys = running(b, b->real, 4, s->kv_heads, s->head_dim, -1, 1);
    f->updates = running(b, b->accum, 4, s->heads, value_dim(s, o), -1, 1);
    f->decays =
        running(b, b->accum, o->channels ? 4 : 3, s->heads, o->channels ? s->head_dim : 1, -1, 0);
}

static const struct ax_shape_document one[] = {{1, 0}};
static const struct ax_shape_document packed[] = {{5, 0}, {0, 0}, {1, 0}, {17, 0}, {0, 0}, {0, 0}};
static const struct ax_shape_document chunks[] = {{70, 0}, {1, 0}, {64, 0}, {131, 0}};
static const struct ax_shape_document pieces[] = {{3, 0},  {2, 0},  {7, 5},   {66, 63}, {9, 0},
                                                  {1, 64}, {0, 70}, {64, 64}, {1, 0},   {140, 100}};
static const struct ax_shape_document decoding[] = {{1, 9},  {1, 0}, {0, 6},
                                                    {1, 63}, {1, 0}, {1, 200}};
static const struct ax_shape_document row_of_2048[] = {{2048, 0}};
static const struct ax_shape_document row_of_4096[] = {{4096, 0}};
static const struct ax_shape_document rows_of_4096[] = {{4096, 0}, {4096, 0}, {4096, 0}, {4096, 0}};
static const struct ax_shape_document sequence_of_1000[] = {{1, 1000}};

#define TRAINING .rows = 2048, .heads = 8, .kv_heads = 4, .head_dim = 64

/* Of both directions. */
/* clang-format off */
#define TO_TRAIN \
    {"one", DOCUMENTS(one), .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 1}, \
    {"packed", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13}, \
    {"strided", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 2, .head_dim = 16, .pad = 32, DELTA(.states = true)}, \
    {"chunks", DOCUMENTS(chunks), .rows = 266, .heads = 4, .kv_heads = 2, .head_dim = 8, DELTA(.value_dim = 6)}, \
    {"chunks, states", DOCUMENTS(chunks), .rows = 268, .heads = 2, .kv_heads = 1, .head_dim = 24, \
     DELTA(.value_dim = 40, .states = true)}, \
    {"large heads", DOCUMENTS(chunks), .rows = 266, .heads = 1, .kv_heads = 1, .head_dim = 100, DELTA(.value_dim = 130)}, \
    {"additive", DOCUMENTS(chunks), .rows = 268, .heads = 4, .kv_heads = 2, .head_dim = 24, .pad = 8, \
     DELTA(.value_dim = 10, .states = true, .additive = true)}, \
    {"channels", DOCUMENTS(chunks), .rows = 268, .heads = 4, .kv_heads = 2, .head_dim = 20, .pad = 4, \
     DELTA(.value_dim = 10, .states = true, .channels = true)}, \
    {"large heads of channels", DOCUMENTS(chunks), .rows = 266, .heads = 1, .kv_heads = 1, .head_dim = 130, \
     DELTA(.value_dim = 100, .channels = true)}, \
    {"tiles", DOCUMENTS(chunks), .rows = 268, .heads = 2, .kv_heads = 1, .head_dim = 128, DELTA(.value_dim = 72, .states = true)}, \
    {"additive tiles", DOCUMENTS(chunks), .rows = 268, .heads = 2, .kv_heads = 1, .head_dim = 128, \
     DELTA(.value_dim = 40, .states = true, .additive = true)}, \
    {"training", .big = true, DOCUMENTS(row_of_2048), TRAINING, .pad = 512}, \
    {"training of channels", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, .heads = 8, .kv_heads = 8, \
     .head_dim = 128, DELTA(.channels = true)}, \
    {"additive training", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, .heads = 24, .kv_heads = 1, \
     .head_dim = 128, DELTA(.value_dim = 64, .additive = true)}
/* clang-format on */

/* Of both directions, for GPUs: layers of Qwen3-Next, Kimi-Linear, Granite 4.0 H Micro, and docs/results/hybrids.md. */
/* clang-format off */
#define PUBLISHED \
    {"32 heads", .huge = true, DOCUMENTS(row_of_4096), .rows = 4096, .heads = 32, .kv_heads = 16, .head_dim = 128}, \
    {"32 heads of channels", .huge = true, DOCUMENTS(row_of_4096), .rows = 4096, .heads = 32, .kv_heads = 32, \
     .head_dim = 128, DELTA(.channels = true)}, \
    {"48 heads, additive", .huge = true, DOCUMENTS(row_of_4096), .rows = 4096, .heads = 48, .kv_heads = 1, \
     .head_dim = 128, DELTA(.value_dim = 64, .additive = true)}, \
    {"6 heads, 4 rows", .huge = true, DOCUMENTS(rows_of_4096), .rows = 16384, .heads = 6, .kv_heads = 6, \
     .head_dim = 64, DELTA(.value_dim = 128)}
/* clang-format on */

static const struct ax_shape shapes_delta_forward[] = {
    TO_TRAIN,
    {"pieces", DOCUMENTS(pieces), .rows = 295, .heads = 4, .kv_heads = 2, .head_dim = 16, .pad = 5,
     DELTA(.value_dim = 24, .pieces = true)},
    {"decoding", DOCUMENTS(decoding), .rows = 5, .heads = 3, .kv_heads = 1, .head_dim = 32,
     DELTA(.pieces = true)},
    {"additive pieces", DOCUMENTS(pieces), .rows = 295, .heads = 4, .kv_heads = 2, .head_dim = 16,
     DELTA(.value_dim = 24, .pieces = true, .additive = true)},
    {"pieces of channels", DOCUMENTS(pieces), .rows = 295, .heads = 4, .kv_heads = 2,
     .head_dim = 16, .pad = 5, DELTA(.value_dim = 24, .pieces = true, .channels = true)},
    {"decoding of channels", DOCUMENTS(decoding), .rows = 5, .heads = 3, .kv_heads = 3,
     .head_dim = 32, DELTA(.pieces = true, .channels = true)},
    {"one token", .big = true, DOCUMENTS(sequence_of_1000), .rows = 1, .heads = 8, .kv_heads = 4,
     .head_dim = 64, DELTA(.pieces = true)},
    PUBLISHED,
};

AX_OP_INFO(delta_forward, IN(a.q), IN(a.k), IN(a.v), IN(a.g), IN(a.beta), IN(a.skip), OUT(a.out),
           IN(a.cu), INOUT(a.states), IN(a.enters), IN(a.leaves), IN(past), INOUT(keys),
           INOUT(updates), INOUT(decays));

static const char *check_delta_backward(const struct ax_delta_backward *b) {
    const struct ax_delta_rule *a = &b->a;
    const char *broken = check_delta(a);
    if (broken)
        return broken;
    NEED(same_shape(&b->dout, &a->v) && b->dout.dtype == a->q.dtype);
    NEED(same_shape(&b->dq, &a->q) && b->dq.dtype == a->q.dtype);
    NEED(same_shape(&b->dk, &a->k) && b->dk.dtype == a->q.dtype);
    NEED(same_shape(&b->dv, &a->v) && b->dv.dtype == a->q.dtype);
    NEED(same_shape(&b->dg, &a->g) && b->dg.dtype == a->g.dtype);
    NEED(same_shape(&b->dbeta, &a->beta) && b->dbeta.dtype == a->beta.dtype);
    NEED(!given(&b->dskip) || given(&a->skip));
    NEED(!given(&b->dskip) || is_2d(&b->dskip, accum(&a->q), a->v.shape[0], a->v.shape[1]));
    NEED(!given(&b->dstates) || given(&a->states));
    NEED(!given(&b->dstates) ||
         (same_shape(&b->dstates, &a->states) && b->dstates.dtype == a->states.dtype));
    return NULL;
}

/* Forward without out, and once more with q̂·k̂ and without the next S; then for du 1 and 1 product, for the
 * triangular system 1, for the gradients of k̂·k̂ and q̂·k̂ 1 each, for dq̂ 1 and 1, for dk̂ 3 and 2, for dS 2.
 * Additive: the next S; q̂·k̂ and its gradient; for du 1 and 1, for dq̂ and dk̂ 1 and 1 each, for dS 1. */
static struct ax_op_cost cost_delta_backward(const struct ax_delta_backward *b) {
    const double dk = (double)b->a.q.shape[2], dv = (double)b->a.v.shape[2];
    return (struct ax_op_cost){b->a.additive ? products(&b->a, 3 * dk + 2 * dv, 5)
                                             : products(&b->a, 7 * dk + 6 * dv, 9),
                               ax_op_operand_bytes(ax_operands_delta_backward(), b)};
}

static void build_delta_backward(struct ax_case_builder *b, struct ax_delta_backward *d) {
    const struct ax_delta_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    build_delta(b, &d->a);
    d->dout = values_out(b);
    ax_case_randomize(b, &d->dout, -1, 1);
    d->dq = ax_case_out3(b, s->rows, s->kv_heads);
    d->dk = ax_case_out3(b, s->rows, s->kv_heads);
    d->dv = values_out(b);
    d->dg = decays_out(b);
    d->dbeta = ax_case_out2(b, b->accum, s->rows, s->heads);
    if (o->additive)
        d->dskip = ax_case_out2(b, b->accum, s->rows, s->heads);
    if (o->states)
        d->dstates = slots(b);
}

static const struct ax_shape shapes_delta_backward[] = {
    TO_TRAIN,
    PUBLISHED,
};

AX_OP_INFO(delta_backward, IN(a.q), IN(a.k), IN(a.v), IN(a.g), IN(a.beta), IN(a.skip), IN(a.cu),
           IN(a.states), IN(a.enters), IN(a.leaves), IN(dout), OUT(dq), OUT(dk), OUT(dv), OUT(dg),
           OUT(dbeta), OUT(dskip), INOUT(dstates));
