/* From logits to the loss and back, per row. */
#include "kernels/ops/head.h"

#include <math.h>

#include "kernels/ops/family.h"

#define HEAD(...) OPTIONS(ax_head_options, __VA_ARGS__)

/* Labels from one below the shard (−1 = none when it starts at 0) to one beyond it. */
static struct ax_tensor labels(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    return ax_case_ids(b, s->rows, s->first - 1, s->first + s->cols + (s->first > 0 ? 1 : 0));
}

static struct ax_tensor logits(struct ax_case_builder *b) {
    enum ax_dtype dtype = ax_case_has(b, AX_SHAPE_ACCUM_IN) ? b->accum : b->real;
    struct ax_tensor t = ax_case_out2(b, dtype, b->shape->rows, b->shape->cols);
    ax_case_randomize(b, &t, -8, 8);
    return t;
}

static const char *check_softmax_stats(const struct ax_softmax_stats *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    NEED(is_2d(&a->logits, a->logits.dtype, a->logits.shape[0], a->logits.shape[1]));
    NEED(is_1d(&a->labels, AX_I32, a->logits.shape[0]));
    NEED(is_2d(&a->stats, accum(&a->logits), a->logits.shape[0], AX_SOFTMAX_STATS));
    return NULL;
}

PER_ELEMENT(softmax_stats, 8, logits) /* ·t, max, −, exp, +, +, 2 */

static void build_softmax_stats(struct ax_case_builder *b, struct ax_softmax_stats *a) {
    a->logits = logits(b);
    a->labels = labels(b);
    a->stats = ax_case_dense2(b, b->accum, b->shape->rows, AX_SOFTMAX_STATS);
    a->first_col = b->shape->first;
    a->inv_temperature = 0.8;
}

static const struct ax_shape shapes_softmax_stats[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"sums", .rows = 4, .cols = 130, .flags = IN32},
    {"shard, strided", .rows = 30, .cols = 24, .pad = 8, .first = 16},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152},
    {"8B vocabulary", .huge = true, .rows = 4096, .cols = 128256, .flags = IN32},
};

AX_OP_INFO(softmax_stats, IN_ROWS(logits), IN_ROWS(labels), OUT_ROWS(stats));

static const char *check_softmax_merge(const struct ax_softmax_merge *a) {
    NEED(a->stats.ndim == 3 && a->stats.shape[0] >= 1);
    int64_t rows = a->stats.shape[1];
    NEED(a->stats.dtype == AX_F32 || a->stats.dtype == AX_F64);
    NEED(is_3d(&a->stats, a->stats.dtype, a->stats.shape[0], rows, AX_SOFTMAX_STATS));
    NEED(is_1d(&a->labels, AX_I32, rows));
    NEED(is_1d(&a->logprob, a->stats.dtype, rows));
    NEED(is_1d(&a->lse, a->stats.dtype, rows));
    NEED(is_1d(&a->entropy, a->stats.dtype, rows));
    NEED(!given(&a->mean_logprob) ||
         (is_1d(&a->mean_logprob, a->stats.dtype, rows) && a->vocab > 0));
    NEED(!given(&a->lse_rest) || is_1d(&a->lse_rest, a->stats.dtype, rows));
    NEED(a->inv_temperature > 0);
    return NULL;
}

PER_ELEMENT(softmax_merge, 2, stats)

/* Sums of the order of what softmax_stats returns. */
static void build_softmax_merge(struct ax_case_builder *b, struct ax_softmax_merge *a) {
    const struct ax_head_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->stats =
        ax_case_place(b, b->accum, 0, 3, (const int64_t[]){o->shards, s->rows, AX_SOFTMAX_STATS});
    ax_case_randomize(b, &a->stats, 1, 8);
    a->labels = ax_case_ids(b, s->rows, -1, 5);
    a->logprob = ax_case_out1(b, b->accum, s->rows);
    a->lse = ax_case_out1(b, b->accum, s->rows);
    a->entropy = ax_case_out1(b, b->accum, s->rows);
    a->vocab = 16;
    if (o->smoothing)
        a->mean_logprob = ax_case_out1(b, b->accum, s->rows);
    if (o->all_grads)
        a->lse_rest = ax_case_out1(b, b->accum, s->rows);
    a->inv_temperature = 0.8;
}

static const struct ax_shape shapes_softmax_merge[] = {
    {"one", .rows = 1, HEAD(.shards = 1)},
    {"odd", .rows = 7, HEAD(.shards = 3)},
    {"mean", .rows = 5, HEAD(.smoothing = true, .shards = 2)},
    {"rest", .rows = 5, HEAD(.all_grads = true, .shards = 2)},
    {"head chunk", .big = true, .rows = 2048, HEAD(.shards = 1)},
};

AX_OP_INFO(softmax_merge, IN(stats), IN(labels), OUT(logprob), OUT(lse), OUT(entropy),
           OUT(mean_logprob), OUT(lse_rest));

static const char *check_softmax_backward(const struct ax_softmax_backward *a) {
    NEED(a->logits.ndim == 2 && real_or_accum(&a->dlogits, &a->logits));
    int64_t rows = a->logits.shape[0];
    enum ax_dtype sums = accum(&a->logits);
    NEED(is_2d(&a->logits, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_2d(&a->dlogits, a->dlogits.dtype, rows, a->logits.shape[1]));
    NEED(apart_or_over(&a->dlogits, &a->logits));
    NEED(is_1d(&a->labels, AX_I32, rows));
    NEED(is_1d(&a->lse, sums, rows) && is_1d(&a->entropy, sums, rows));
    NEED(is_1d(&a->g_logprob, sums, rows));
    NEED(!given(&a->g_lse) || is_1d(&a->g_lse, sums, rows));
    NEED(!given(&a->g_entropy) || is_1d(&a->g_entropy, sums, rows));
    NEED(!given(&a->g_mean) || (is_1d(&a->g_mean, sums, rows) && a->vocab > 0));
    NEED(!given(&a->lse_rest) || is_1d(&a->lse_rest, sums, rows));
    return NULL;
}

static struct ax_op_cost cost_softmax_backward(const struct ax_softmax_backward *a) {
    double flops = a->g_entropy.data != NULL ? 10 : a->g_lse.data != NULL ? 6 : 5;
    return ax_op_per_element(ax_operands_softmax_backward(), a, flops, &a->logits);
}

/* lse is above every logit, as in practice. */
static void build_softmax_backward(struct ax_case_builder *b, struct ax_softmax_backward *a) {
    const struct ax_head_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->logits = logits(b);
    a->labels = labels(b);
    a->lse = ax_case_out1(b, b->accum, s->rows);
    ax_case_randomize(b, &a->lse, 7, 9);
    a->entropy = ax_case_out1(b, b->accum, s->rows);
    ax_case_randomize(b, &a->entropy, 0, 4);
    a->g_logprob = ax_case_in1(b, b->accum, s->rows);
    if (o->all_grads) {
        a->g_lse = ax_case_in1(b, b->accum, s->rows);
        a->g_entropy = ax_case_in1(b, b->accum, s->rows);
        a->lse_rest = ax_case_out1(b, b->accum, s->rows);
        ax_case_randomize(b, &a->lse_rest, -0.1, 0.1);
    }
    if (o->smoothing)
        a->g_mean = ax_case_in1(b, b->accum, s->rows);
    a->vocab = s->first + s->cols;
    enum ax_dtype to = ax_case_has(b, AX_SHAPE_ACCUM_OUT) ? b->accum : b->real;
    a->dlogits = ax_case_has(b, AX_SHAPE_IN_PLACE) ? ax_tensor_over(&a->logits, to)
                                                   : ax_case_out2(b, to, s->rows, s->cols);
    a->first_col = s->first;
    a->inv_temperature = 0.8;
}

static const struct ax_shape shapes_softmax_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"all gradients", .rows = 5, .cols = 37, HEAD(.all_grads = true)},
    {"in place", .rows = 4, .cols = 66, .flags = AX_SHAPE_IN_PLACE, HEAD(.smoothing = true)},
    {"sums to real", .rows = 4, .cols = 130, .flags = IN32},
    {"sums to real, in place", .rows = 3, .cols = 4203, .pad = 5, .flags = IN32 | AX_SHAPE_IN_PLACE,
     HEAD(.all_grads = true)},
    {"sums to real, in place, tiles", .rows = 2, .cols = 8200, .flags = IN32 | AX_SHAPE_IN_PLACE},
    {"real to sums", .rows = 4, .cols = 50, .flags = OUT32},
    {"shard, strided", .rows = 30, .cols = 24, .pad = 8, .first = 16,
     HEAD(.all_grads = true, .smoothing = true)},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, .flags = AX_SHAPE_IN_PLACE},
    {"8B vocabulary", .huge = true, .rows = 4096, .cols = 128256,
     .flags = IN32 | AX_SHAPE_IN_PLACE},
};

AX_OP_INFO(softmax_backward, IN_ROWS(logits), IN_ROWS(labels), IN_ROWS(lse), IN_ROWS(entropy),
           IN_ROWS(g_logprob), IN_ROWS(g_lse), IN_ROWS(g_entropy), IN_ROWS(g_mean),
           IN_ROWS(lse_rest), OUT_ROWS(dlogits));

static const char *check_nll_loss(const struct ax_nll_loss *a) {
    int64_t rows = a->logprob.shape[0];
    NEED(a->logprob.dtype == AX_F32 || a->logprob.dtype == AX_F64);
    NEED(is_1d(&a->logprob, a->logprob.dtype, rows));
    NEED(is_1d(&a->g_logprob, a->logprob.dtype, rows));
    NEED(is_1d(&a->labels, AX_I32, rows) && is_1d(&a->weight, AX_F32, rows));
    NEED(!given(&a->targets) || (is_1d(&a->targets, AX_F32, rows) && a->label_smoothing == 0));
    NEED((a->label_smoothing == 0 && !given(&a->targets)) ||
         (is_1d(&a->mean_logprob, a->logprob.dtype, rows) &&
          is_1d(&a->g_mean, a->logprob.dtype, rows)));
    NEED(a->z_loss == 0 ||
         (is_1d(&a->lse, a->logprob.dtype, rows) && is_1d(&a->g_lse, a->logprob.dtype, rows)));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(nll_loss, 3, logprob)

static void build_nll_loss(struct ax_case_builder *b, struct ax_nll_loss *a) {
    const struct ax_head_options *o = ax_case_options(b);
    int64_t n = b->shape->rows;
    a->logprob = ax_case_out1(b, b->accum, n);
    ax_case_randomize(b, &a->logprob, -6, 0);
    a->labels = ax_case_ids(b, n, -1, 3);
    a->weight = ax_case_out1(b, AX_F32, n);
    ax_case_randomize(b, &a->weight, 0, 2);
    a->g_logprob = ax_case_out1(b, b->accum, n);
    if (o->soft) {
        a->targets = ax_case_out1(b, AX_F32, n);
        ax_case_randomize(b, &a->targets, 0, 1);
    }
    if (o->smoothing || o->soft) {
        a->label_smoothing = o->smoothing ? 0.125 : 0;
        a->mean_logprob = ax_case_in1(b, b->accum, n);
        a->g_mean = ax_case_out1(b, b->accum, n);
    }
    if (o->z_loss) {
        a->z_loss = 0.01;
        a->lse = ax_case_in1(b, b->accum, n);
        a->g_lse = ax_case_out1(b, b->accum, n);
    }
    a->dynamic = o->dynamic;
    a->scalars = b->scalars;
    a->measures = n > 1 ? b->measures : NULL;
}

static const struct ax_shape shapes_nll_loss[] = {
    {"one", .rows = 1},
    {"odd", .rows = 37},
    {"dynamic", .rows = 20, HEAD(.dynamic = true)},
    {"smoothing", .rows = 20, HEAD(.smoothing = true)},
    {"z-loss", .rows = 20, HEAD(.z_loss = true)},
    {"targets", .rows = 20, HEAD(.soft = true)},
    {"both", .rows = 20, HEAD(.smoothing = true, .z_loss = true)},
    {"row", .big = true, .rows = 2048},
};

AX_OP_INFO(nll_loss, IN_ROWS(logprob), IN_ROWS(labels), IN_ROWS(weight), IN_ROWS(mean_logprob),
           IN_ROWS(lse), IN_ROWS(targets), OUT_ROWS(g_logprob), OUT_ROWS(g_mean), OUT_ROWS(g_lse));

static const char *check_argmax(const struct ax_argmax *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    NEED(is_2d(&a->logits, a->logits.dtype, a->logits.shape[0], a->logits.shape[1]));
    NEED(is_1d(&a->index, AX_I32, a->logits.shape[0]));
    NEED(!given(&a->after) || is_1d(&a->after, AX_I32, a->logits.shape[0]));
    return NULL;
}

PER_ELEMENT(argmax, 1, logits)

/* Integers from −8 to 7, so that long rows have ties. */
static void build_argmax(struct ax_case_builder *b, struct ax_argmax *a) {
    const struct ax_shape *s = b->shape;
    a->logits = logits(b);
    for (int64_t i = 0; i < s->rows * s->cols && b->memory != NULL; i++) {
        int64_t at = i / s->cols * a->logits.row_stride + i % s->cols;
        ax_store(a->logits.dtype, a->logits.data, at,
                 floor(ax_load(a->logits.dtype, a->logits.data, at)));
    }
    a->index = ax_case_out1(b, AX_I32, s->rows);
    if (s->first > 0) {
        a->after = ax_case_ids(b, s->rows, 1, s->cols);
        for (int64_t t = 0; t < s->rows && b->memory != NULL; t++) /* it follows all others */
            ax_store(a->logits.dtype, a->logits.data, t * a->logits.row_stride, -9);
    }
}

static const struct ax_shape shapes_argmax[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 9, .cols = 37},
    {"ties", .rows = 40, .cols = 300},
    {"sums, strided", .rows = 5, .cols = 130, .pad = 6, .flags = IN32},
    {"after another one", .rows = 60, .cols = 37, .first = 1},
    {"after another one, strided", .rows = 40, .cols = 1030, .pad = 6, .first = 1, .flags = IN32},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152},
    {"vocabulary, after another one", .big = true, .rows = 256, .cols = 49152, .first = 1},
};

AX_OP_INFO(argmax, IN_ROWS(logits), IN_ROWS(after), OUT_ROWS(index));

static const char *check_top_entropy(const struct ax_top_entropy *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    NEED(is_2d(&a->logits, a->logits.dtype, a->logits.shape[0], a->logits.shape[1]));
    NEED(is_1d(&a->weight, AX_F32, a->logits.shape[0]));
    NEED(is_1d(&a->out, AX_F32, a->logits.shape[0]));
    NEED(a->k >= 1 && a->k <= AX_TOP_MAX && a->alpha >= 0);
    return NULL;
}

PER_ELEMENT(top_entropy, 1, logits)

static void build_top_entropy(struct ax_case_builder *b, struct ax_top_entropy *a) {
    const struct ax_head_options *o = ax_case_options(b);
    a->logits = logits(b);
    a->weight = ax_case_out1(b, AX_F32, b->shape->rows);
    ax_case_randomize(b, &a->weight, 0, 2);
    a->out = ax_case_out1(b, AX_F32, b->shape->rows);
    a->k = o->top;
    a->alpha = o->alpha;
    a->inv_temperature = 0.8;
}

static const struct ax_shape shapes_top_entropy[] = {
    {"one", .rows = 1, .cols = 1, HEAD(.top = 20, .alpha = 1)},
    {"fewer than k", .rows = 5, .cols = 37, HEAD(.top = 64, .alpha = 2)},
    {"root", .rows = 40, .cols = 300, HEAD(.top = 20, .alpha = 0.5)},
    {"sums, strided", .rows = 5, .cols = 130, .pad = 6, .flags = IN32, HEAD(.top = 3, .alpha = 1)},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, HEAD(.top = 20, .alpha = 1)},
    {"8B vocabulary", .huge = true, .rows = 1024, .cols = 128256, HEAD(.top = 20, .alpha = 1)},
};

AX_OP_INFO(top_entropy, IN_ROWS(logits), IN_ROWS(weight), OUT_ROWS(out));

static const char *check_top_logits(const struct ax_top_logits *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    NEED(is_2d(&a->logits, a->logits.dtype, a->logits.shape[0], a->logits.shape[1]));
    NEED(a->out.ndim == 2 && a->out.shape[1] >= 1 && a->out.shape[1] <= AX_TOP_MAX);
    NEED(is_2d(&a->out, accum(&a->logits), a->logits.shape[0], a->out.shape[1]));
    return NULL;
}

PER_ELEMENT(top_logits, 1, logits)

static void build_top_logits(struct ax_case_builder *b, struct ax_top_logits *a) {
    const struct ax_head_options *o = ax_case_options(b);
    a->logits = logits(b);
    if (o->equal)
        ax_case_randomize(b, &a->logits, 2, 2);
    a->out = ax_case_dense2(b, b->accum, b->shape->rows, o->top);
}

static const struct ax_shape shapes_top_logits[] = {
    {"one", .rows = 1, .cols = 1, HEAD(.top = 1)},
    {"fewer than k", .rows = 5, .cols = 37, HEAD(.top = 64)},
    {"sums, strided", .rows = 40, .cols = 300, .pad = 6, .flags = IN32, HEAD(.top = 20)},
    {"long row", .rows = 3, .cols = 17001, .pad = 3, HEAD(.top = 64)},
    {"equal ones", .rows = 2, .cols = 4500, HEAD(.top = 256, .equal = true)},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, HEAD(.top = 20)},
    {"8B vocabulary", .huge = true, .rows = 1024, .cols = 128256, HEAD(.top = 64)},
};

AX_OP_INFO(top_logits, IN_ROWS(logits), OUT_ROWS(out));
