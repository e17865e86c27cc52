/* From two models' logits to the loss of distillation and back, per row. */
#include <math.h>

#include "kernels/ops/family.h"
#include "kernels/ops/head.h"

#define BETA(...) OPTIONS(ax_head_options, __VA_ARGS__)
#define TWO       OPTIONS(ax_head_options, .two = true)

static const char *check_scatter_topk(const struct ax_scatter_topk *a) {
    NEED(a->logits.ndim == 2 && sums(&a->logits) && rows_apart(&a->logits) && given(&a->logits));
    NEED(a->ids.ndim == 2 && a->ids.shape[1] >= 1);
    NEED(is_dense_2d(&a->ids, AX_I32, a->logits.shape[0], a->ids.shape[1]));
    NEED(is_dense_2d(&a->values, AX_F32, a->logits.shape[0], a->ids.shape[1]));
    return NULL;
}

/* Of the logits only what is written. */
static struct ax_op_cost cost_scatter_topk(const struct ax_scatter_topk *a) {
    return (struct ax_op_cost){0, 2 * bytes_of(&a->values) + bytes_of(&a->ids)};
}

/* Distinct ids of a row, some of them before and after the shard; every fifth is −1. */
static void build_scatter_topk(struct ax_case_builder *b, struct ax_scatter_topk *a) {
    const struct ax_shape *s = b->shape;
    a->logits = ax_case_in2(b, b->accum, s->rows, s->cols);
    a->ids = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    for (int64_t i = 0; i < s->rows * s->choices && b->memory != NULL; i++) {
        const int64_t id = (i / s->choices * 5 + i % s->choices * 7) % (s->first + s->cols + 9);
        ((int32_t *)a->ids.data)[i] = i % 5 == 4 ? -1 : (int32_t)id;
    }
    a->values = ax_case_dense_in2(b, AX_F32, s->rows, s->choices);
    a->first_col = s->first;
}

static const struct ax_shape shapes_scatter_topk[] = {
    {"one", .rows = 1, .cols = 1, .choices = 1},
    {"odd", .rows = 5, .cols = 37, .choices = 6},
    {"shard, strided", .rows = 30, .cols = 24, .pad = 8, .first = 16, .choices = 7},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, .choices = 64},
};

AX_OP_INFO(scatter_topk, INOUT_ROWS(logits), IN_ROWS(ids), IN_ROWS(values));

static bool is_support(const struct ax_tensor *marks, const struct ax_tensor *more,
                       const struct ax_tensor *logits) {
    const int64_t rows = logits->shape[0], cols = logits->shape[1];
    return sums(logits) && is_2d(marks, logits->dtype, rows, cols) &&
           (!given(more) || is_2d(more, logits->dtype, rows, cols));
}

static const char *check_support_logits(const struct ax_support_logits *a) {
    NEED(a->logits.ndim == 2 && a->logits.shape[1] >= 1 && rows_apart(&a->logits));
    NEED(is_support(&a->marks, &a->more, &a->logits));
    return NULL;
}

PER_ELEMENT(support_logits, 1, logits)

/* Every third token, from the at-th on. */
static struct ax_tensor marks(struct ax_case_builder *b, int64_t at) {
    struct ax_tensor t = ax_case_in2(b, b->accum, b->shape->rows, b->shape->cols);
    for (int64_t i = 0; i < t.shape[0] * t.shape[1] && b->memory != NULL; i++) {
        void *row = ax_tensor_row(&t, i / t.shape[1]);
        if (i % 3 == at)
            continue;
        if (t.dtype == AX_F64)
            ((double *)row)[i % t.shape[1]] = AX_TRUNCATED;
        else
            ((float *)row)[i % t.shape[1]] = (float)AX_TRUNCATED;
    }
    return t;
}

static void build_support_logits(struct ax_case_builder *b, struct ax_support_logits *a) {
    const struct ax_head_options *o = ax_case_options(b);
    a->marks = marks(b, 0);
    if (o->two)
        a->more = marks(b, 1);
    a->logits = ax_case_in2(b, b->accum, b->shape->rows, b->shape->cols);
    a->inside = o->two;
}

static const struct ax_shape shapes_support_logits[] = {
    {"one", .rows = 1, .cols = 1},
    {"outside", .rows = 5, .cols = 37},
    {"inside of two, strided", .rows = 30, .cols = 24, .pad = 8, TWO},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152},
};

AX_OP_INFO(support_logits, IN_ROWS(marks), IN_ROWS(more), INOUT_ROWS(logits));

static const char *check_tail_logits(const struct ax_tail_logits *a) {
    NEED(a->logits.ndim == 2 && a->logits.shape[1] >= 1 && rows_apart(&a->teacher));
    NEED(is_support(&a->marks, &a->more, &a->logits));
    const int64_t rows = a->logits.shape[0];
    NEED(is_2d(&a->teacher, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_1d(&a->tail, a->logits.dtype, rows) && is_1d(&a->teacher_tail, a->logits.dtype, rows));
    NEED(a->temperature > 0);
    return NULL;
}

PER_ELEMENT(tail_logits, 2, teacher)

static void build_tail_logits(struct ax_case_builder *b, struct ax_tail_logits *a) {
    const struct ax_head_options *o = ax_case_options(b);
    a->marks = marks(b, 0);
    if (o->two)
        a->more = marks(b, 1);
    a->logits = ax_case_in2(b, b->accum, b->shape->rows, b->shape->cols);
    a->teacher = ax_case_in2(b, b->accum, b->shape->rows, b->shape->cols);
    a->tail = ax_case_in1(b, b->accum, b->shape->rows);
    a->teacher_tail = ax_case_in1(b, b->accum, b->shape->rows);
    a->temperature = 1.25;
}

static const struct ax_shape shapes_tail_logits[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"two, strided", .rows = 30, .cols = 24, .pad = 8, TWO},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152},
};

AX_OP_INFO(tail_logits, IN_ROWS(marks), IN_ROWS(more), IN_ROWS(logits), IN_ROWS(tail),
           IN_ROWS(teacher_tail), INOUT_ROWS(teacher));

static const char *check_divergence(const struct ax_divergence *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    int64_t rows = a->logits.shape[0];
    enum ax_dtype sums = accum(&a->logits);
    NEED(is_2d(&a->logits, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_2d(&a->teacher, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_1d(&a->lse, sums, rows) && is_1d(&a->teacher_lse, sums, rows));
    NEED(is_2d(&a->parts, sums, rows, 2));
    NEED(a->beta >= 0 && a->beta <= 1 && a->inv_temperature > 0);
    return NULL;
}

PER_ELEMENT(divergence, 20, logits) /* 2 exp; of a mixture also log m; 2 products */

static struct ax_tensor logits(struct ax_case_builder *b) {
    enum ax_dtype dtype = ax_case_has(b, AX_SHAPE_ACCUM_IN) ? b->accum : b->real;
    struct ax_tensor t = ax_case_out2(b, dtype, b->shape->rows, b->shape->cols);
    ax_case_randomize(b, &t, -8, 8);
    return t;
}

/* Above every logit, as in practice. */
static struct ax_tensor lse(struct ax_case_builder *b) {
    struct ax_tensor t = ax_case_out1(b, b->accum, b->shape->rows);
    ax_case_randomize(b, &t, 7, 9);
    return t;
}

static struct ax_tensor teacher_lse(struct ax_case_builder *b) {
    const struct ax_tensor t = lse(b);
    if (ax_case_has(b, AX_SHAPE_NAN) && b->memory != NULL)
        ax_store(t.dtype, t.data, 1, NAN);
    return t;
}

static void build_divergence(struct ax_case_builder *b, struct ax_divergence *a) {
    const struct ax_head_options *o = ax_case_options(b);
    a->logits = logits(b);
    a->teacher = logits(b);
    a->lse = lse(b);
    a->teacher_lse = teacher_lse(b);
    a->parts = ax_case_dense2(b, b->accum, b->shape->rows, 2);
    a->beta = o->beta;
    a->inv_temperature = 0.8;
}

static const struct ax_shape shapes_divergence[] = {
    {"one", .rows = 1, .cols = 1, BETA(.beta = 0.5)},
    {"forward", .rows = 5, .cols = 37, BETA(.beta = 0)},
    {"reverse", .rows = 5, .cols = 37, BETA(.beta = 1)},
    {"NaN", .rows = 3, .cols = 37, .flags = AX_SHAPE_NAN, BETA(.beta = 0)},
    {"NaN, mixed", .rows = 3, .cols = 37, .flags = AX_SHAPE_NAN, BETA(.beta = 0.5)},
    {"sums", .rows = 4, .cols = 130, .flags = IN32, BETA(.beta = 0.3)},
    {"strided", .rows = 30, .cols = 24, .pad = 8, BETA(.beta = 0.9)},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, BETA(.beta = 0.5)},
};

AX_OP_INFO(divergence, IN_ROWS(logits), IN_ROWS(teacher), IN_ROWS(lse), IN_ROWS(teacher_lse),
           OUT_ROWS(parts));

static const char *check_divergence_merge(const struct ax_divergence_merge *a) {
    NEED(a->parts.ndim == 3 && a->parts.shape[0] >= 1);
    int64_t rows = a->parts.shape[1];
    NEED(a->parts.dtype == AX_F32 || a->parts.dtype == AX_F64);
    NEED(is_3d(&a->parts, a->parts.dtype, a->parts.shape[0], rows, 2));
    NEED(is_1d(&a->divergence, a->parts.dtype, rows));
    NEED(is_1d(&a->student_kl, a->parts.dtype, rows));
    NEED(a->beta >= 0 && a->beta <= 1);
    return NULL;
}

PER_ELEMENT(divergence_merge, 2, parts)

static void build_divergence_merge(struct ax_case_builder *b, struct ax_divergence_merge *a) {
    const struct ax_head_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->parts = ax_case_place(b, b->accum, 0, 3, (const int64_t[]){o->shards, s->rows, 2});
    ax_case_randomize(b, &a->parts, 0, 2);
    a->divergence = ax_case_out1(b, b->accum, s->rows);
    a->student_kl = ax_case_out1(b, b->accum, s->rows);
    a->beta = o->beta;
}

static const struct ax_shape shapes_divergence_merge[] = {
    {"forward", .rows = 1, BETA(.shards = 1)},
    {"reverse", .rows = 7, BETA(.shards = 3, .beta = 1)},
    {"mixture", .rows = 5, BETA(.shards = 2, .beta = 0.3)},
    {"head chunk", .big = true, .rows = 2048, BETA(.shards = 1, .beta = 0.5)},
};

AX_OP_INFO(divergence_merge, IN(parts), OUT(divergence), OUT(student_kl));

static const char *check_distill_loss(const struct ax_distill_loss *a) {
    int64_t rows = a->logprob.shape[0];
    NEED(a->logprob.dtype == AX_F32 || a->logprob.dtype == AX_F64);
    NEED(is_1d(&a->logprob, a->logprob.dtype, rows));
    NEED(is_1d(&a->divergence, a->logprob.dtype, rows));
    NEED(is_1d(&a->labels, AX_I32, rows) && is_1d(&a->weight, AX_F32, rows));
    NEED(is_1d(&a->g_logprob, a->logprob.dtype, rows));
    NEED(is_1d(&a->g_divergence, a->logprob.dtype, rows));
    NEED(!given(&a->entropy) || is_1d(&a->entropy, a->logprob.dtype, rows));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(distill_loss, 5, logprob)

static void build_distill_loss(struct ax_case_builder *b, struct ax_distill_loss *a) {
    const struct ax_head_options *o = ax_case_options(b);
    int64_t n = b->shape->rows;
    a->logprob = ax_case_out1(b, b->accum, n);
    ax_case_randomize(b, &a->logprob, -6, 0);
    a->divergence = ax_case_out1(b, b->accum, n);
    ax_case_randomize(b, &a->divergence, 0, 3);
    a->labels = ax_case_ids(b, n, -1, 3);
    a->weight = ax_case_out1(b, AX_F32, n);
    ax_case_randomize(b, &a->weight, 0, 2);
    if (o->entropy) {
        a->entropy = ax_case_out1(b, b->accum, n);
        ax_case_randomize(b, &a->entropy, 0, 5);
    }
    a->g_logprob = ax_case_out1(b, b->accum, n);
    a->g_divergence = ax_case_out1(b, b->accum, n);
    a->divergence_weight = 0.75;
    a->nll_weight = 0.5;
    a->scalars = b->scalars;
    a->measures = n > 1 ? b->measures : NULL;
}

static const struct ax_shape shapes_distill_loss[] = {
    {"one", .rows = 1},
    {"odd", .rows = 37},
    {"entropies", .rows = 20, OPTIONS(ax_head_options, .entropy = true)},
    {"row", .big = true, .rows = 2048},
};

AX_OP_INFO(distill_loss, IN_ROWS(logprob), IN_ROWS(divergence), IN_ROWS(labels), IN_ROWS(weight),
           IN_ROWS(entropy), OUT_ROWS(g_logprob), OUT_ROWS(g_divergence));

static const char *check_distill_backward(const struct ax_distill_backward *a) {
    NEED(a->logits.ndim == 2 && real_or_accum(&a->dlogits, &a->logits));
    int64_t rows = a->logits.shape[0];
    enum ax_dtype sums = accum(&a->logits);
    NEED(is_2d(&a->logits, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_2d(&a->teacher, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_2d(&a->dlogits, a->dlogits.dtype, rows, a->logits.shape[1]));
    NEED(apart_or_over(&a->dlogits, &a->logits));
    NEED(is_1d(&a->labels, AX_I32, rows) && is_1d(&a->nll_lse, sums, rows));
    NEED(is_1d(&a->lse, sums, rows) && is_1d(&a->teacher_lse, sums, rows));
    NEED(is_1d(&a->student_kl, sums, rows));
    NEED(is_1d(&a->g_logprob, sums, rows) && is_1d(&a->g_divergence, sums, rows));
    NEED(a->beta >= 0 && a->beta <= 1 && a->inv_temperature > 0);
    return NULL;
}

PER_ELEMENT(distill_backward, 24, logits)

static void build_distill_backward(struct ax_case_builder *b, struct ax_distill_backward *a) {
    const struct ax_head_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->logits = logits(b);
    a->teacher = logits(b);
    a->labels = ax_case_ids(b, s->rows, s->first - 1, s->first + s->cols + (s->first > 0 ? 1 : 0));
    a->nll_lse = lse(b);
    a->lse = lse(b);
    a->teacher_lse = teacher_lse(b);
    a->student_kl = ax_case_in1(b, b->accum, s->rows);
    a->g_logprob = ax_case_in1(b, b->accum, s->rows);
    a->g_divergence = ax_case_in1(b, b->accum, s->rows);
    enum ax_dtype to = ax_case_has(b, AX_SHAPE_ACCUM_OUT) ? b->accum : b->real;
    a->dlogits = ax_case_has(b, AX_SHAPE_IN_PLACE) ? ax_tensor_over(&a->logits, to)
                                                   : ax_case_out2(b, to, s->rows, s->cols);
    a->first_col = s->first;
    a->beta = o->beta;
    a->inv_temperature = 0.8;
}

static const struct ax_shape shapes_distill_backward[] = {
    {"one", .rows = 1, .cols = 1, BETA(.beta = 0.5)},
    {"forward", .rows = 5, .cols = 37, BETA(.beta = 0)},
    {"reverse", .rows = 5, .cols = 37, BETA(.beta = 1)},
    {"NaN", .rows = 3, .cols = 37, .flags = AX_SHAPE_NAN, BETA(.beta = 0)},
    {"NaN, mixed", .rows = 3, .cols = 37, .flags = AX_SHAPE_NAN, BETA(.beta = 0.5)},
    {"in place", .rows = 4, .cols = 66, .flags = AX_SHAPE_IN_PLACE, BETA(.beta = 0.3)},
    {"sums to real", .rows = 4, .cols = 130, .flags = IN32, BETA(.beta = 0.9)},
    {"sums to real, in place", .rows = 3, .cols = 603, .pad = 5, .flags = IN32 | AX_SHAPE_IN_PLACE,
     BETA(.beta = 0.3)},
    {"real to sums", .rows = 4, .cols = 50, .flags = OUT32, BETA(.beta = 0.5)},
    {"shard, strided", .rows = 30, .cols = 24, .pad = 8, .first = 16, BETA(.beta = 0.5)},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, .flags = AX_SHAPE_IN_PLACE,
     BETA(.beta = 0.5)},
};

AX_OP_INFO(distill_backward, IN_ROWS(logits), IN_ROWS(teacher), IN_ROWS(labels), IN_ROWS(nll_lse),
           IN_ROWS(lse), IN_ROWS(teacher_lse), IN_ROWS(student_kl), IN_ROWS(g_logprob),
           IN_ROWS(g_divergence), OUT_ROWS(dlogits));
