/* Cases of the head, and of the gradient norm. */
#include <math.h>

#include "kernels/cases_builder.h"

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

void ax_case_build_softmax_stats(struct ax_case_builder *b, struct ax_softmax_stats *a) {
    a->logits = logits(b);
    a->labels = labels(b);
    a->stats = ax_case_dense2(b, b->accum, b->shape->rows, AX_SOFTMAX_STATS);
    a->first_col = b->shape->first;
    a->inv_temperature = 0.8;
}

/* Stats as softmax_stats could give them: Σ exp(z − max)·z lies between ±Σ·8, sums are ≥ 1. */
void ax_case_build_softmax_merge(struct ax_case_builder *b, struct ax_softmax_merge *a) {
    const struct ax_shape *s = b->shape;
    a->stats =
        ax_case_place(b, b->accum, 0, 3, (const int64_t[]){s->shards, s->rows, AX_SOFTMAX_STATS});
    ax_case_randomize(b, &a->stats, 1, 8);
    a->labels = ax_case_ids(b, s->rows, -1, 5);
    a->logprob = ax_case_out1(b, b->accum, s->rows);
    a->lse = ax_case_out1(b, b->accum, s->rows);
    a->entropy = ax_case_out1(b, b->accum, s->rows);
    a->vocab = 16;
    if (ax_case_has(b, AX_SHAPE_SMOOTHING)) {
        a->mean_logprob = ax_case_out1(b, b->accum, s->rows);
    }
}

/* lse is above every logit, as a real one is. */
void ax_case_build_softmax_backward(struct ax_case_builder *b, struct ax_softmax_backward *a) {
    const struct ax_shape *s = b->shape;
    a->logits = logits(b);
    a->labels = labels(b);
    a->lse = ax_case_out1(b, b->accum, s->rows);
    ax_case_randomize(b, &a->lse, 7, 9);
    a->entropy = ax_case_out1(b, b->accum, s->rows);
    ax_case_randomize(b, &a->entropy, 0, 4);
    a->g_logprob = ax_case_in1(b, b->accum, s->rows);
    if (ax_case_has(b, AX_SHAPE_ALL_GRADS)) {
        a->g_lse = ax_case_in1(b, b->accum, s->rows);
        a->g_entropy = ax_case_in1(b, b->accum, s->rows);
    }
    if (ax_case_has(b, AX_SHAPE_SMOOTHING)) {
        a->g_mean = ax_case_in1(b, b->accum, s->rows);
    }
    a->vocab = s->first + s->cols;
    enum ax_dtype to = ax_case_has(b, AX_SHAPE_ACCUM_OUT) ? b->accum : b->real;
    a->dlogits =
        ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->logits : ax_case_out2(b, to, s->rows, s->cols);
    a->first_col = s->first;
    a->inv_temperature = 0.8;
}

void ax_case_build_nll_loss(struct ax_case_builder *b, struct ax_nll_loss *a) {
    int64_t n = b->shape->rows;
    a->logprob = ax_case_out1(b, b->accum, n);
    ax_case_randomize(b, &a->logprob, -6, 0);
    a->labels = ax_case_ids(b, n, -1, 3);
    a->weight = ax_case_out1(b, AX_F32, n);
    ax_case_randomize(b, &a->weight, 0, 2);
    a->g_logprob = ax_case_out1(b, b->accum, n);
    if (ax_case_has(b, AX_SHAPE_SMOOTHING)) {
        a->label_smoothing = 0.125;
        a->mean_logprob = ax_case_in1(b, b->accum, n);
        a->g_mean = ax_case_out1(b, b->accum, n);
    }
    if (ax_case_has(b, AX_SHAPE_Z_LOSS)) {
        a->z_loss = 0.01;
        a->lse = ax_case_in1(b, b->accum, n);
        a->g_lse = ax_case_out1(b, b->accum, n);
    }
    a->scalars = b->scalars;
}

/* Whole numbers from −8 to 7, so that long rows have ties. */
void ax_case_build_argmax(struct ax_case_builder *b, struct ax_argmax *a) {
    const struct ax_shape *s = b->shape;
    a->logits = logits(b);
    for (int64_t i = 0; i < s->rows * s->cols && b->memory != NULL; i++) {
        int64_t at = i / s->cols * a->logits.row_stride + i % s->cols;
        ax_store(a->logits.dtype, a->logits.data, at,
                 floor(ax_load(a->logits.dtype, a->logits.data, at)));
    }
    a->index = ax_case_out1(b, AX_I32, s->rows);
}

void ax_case_build_sumsq(struct ax_case_builder *b, struct ax_sumsq *a) {
    a->x = ax_case_in1(b, b->accum, b->shape->cols);
    a->scalars = b->scalars;
}

void ax_case_build_clip(struct ax_case_builder *b, struct ax_clip *a) {
    a->scalars = b->scalars;
}
