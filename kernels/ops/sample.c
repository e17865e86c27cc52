/* Choosing tokens: sample; what it chooses from: truncate. */
#include "kernels/sample.h"

#include "kernels/ops/family.h"

struct sample_options {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, context;
    bool shares;
    bool equal; /* all logits */
};

#define SAMPLE(...) OPTIONS(sample_options, __VA_ARGS__)

static const char *check_sample(const struct ax_sample *a) {
    NEED(a->logits.ndim == 2 && sums(&a->logits) && a->logits.shape[1] >= 1);
    const int64_t rows = a->logits.shape[0];
    NEED(is_2d(&a->logits, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(a->temperature == 0 || is_dense_2d(&a->keys, AX_I32, rows, AX_SAMPLE_KEY));
    NEED(!ax_sample_penalises(a) || (a->context.ndim == 2 && is_index(&a->context, rows)));
    NEED(is_1d(&a->index, AX_I32, rows));
    NEED(!given(&a->shares) ||
         (a->temperature > 0 && is_2d(&a->shares, a->logits.dtype, rows, a->logits.shape[1])));
    NEED(a->temperature >= 0 && a->top_k >= 0 && a->top_p >= 0 && a->top_p <= 1);
    NEED(a->min_p >= 0 && a->min_p <= 1 && a->repetition_penalty >= 0);
    return NULL;
}

/* As softmax_stats and the probabilities; searching and drawing are the smaller part. */
PER_ELEMENT(sample, 14, logits)

/* The tokens of a row are distinct, as callers give them. */
static void make_distinct(const struct ax_case_builder *b, const struct ax_tensor *context,
                          int32_t cols) {
    for (int64_t t = 0; t < context->shape[0] && b->memory != NULL; t++) {
        int32_t *row = ax_tensor_row(context, t);
        for (int64_t i = 0; i < context->shape[1]; i++)
            for (int64_t before = 0; before < i && row[i] >= 0; before++)
                if (row[i] == row[before]) {
                    row[i] = (row[i] + 1) % cols;
                    before = -1; /* from the first again */
                }
    }
}

static void build_sample(struct ax_case_builder *b, struct ax_sample *a) {
    const struct sample_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->logits = ax_case_out2(b, b->accum, s->rows, s->cols);
    ax_case_randomize(b, &a->logits, o->equal ? 2 : -8, o->equal ? 2 : 8);
    if (o->temperature > 0) {
        a->keys = ax_case_ids(b, s->rows * AX_SAMPLE_KEY, 0, 1 << 20);
        a->keys = ax_tensor_2d(AX_I32, a->keys.data, s->rows, AX_SAMPLE_KEY);
    }
    if (o->context > 0) { /* some end early */
        a->context = ax_case_ids(b, s->rows * o->context, -1, s->cols);
        a->context = ax_tensor_2d(AX_I32, a->context.data, s->rows, o->context);
        make_distinct(b, &a->context, (int32_t)s->cols);
    }
    a->index = ax_case_out1(b, AX_I32, s->rows);
    if (o->shares)
        a->shares = ax_case_out2(b, b->accum, s->rows, s->cols);
    a->temperature = o->temperature;
    a->top_k = o->top_k;
    a->top_p = o->top_p;
    a->min_p = o->min_p;
    a->repetition_penalty = o->repetition_penalty;
    a->seed = 7;
}

static const struct ax_shape shapes_sample[] = {
    {"one", .rows = 1, .cols = 1, SAMPLE(.temperature = 1, .shares = true)},
    {"greedy", .rows = 9, .cols = 37, .pad = 3, SAMPLE(0)},
    {"greedy with penalty", .rows = 9, .cols = 37,
     SAMPLE(.repetition_penalty = 1.3, .context = 12)},
    {"all tokens", .rows = 40, .cols = 300, .pad = 6, SAMPLE(.temperature = 1.5, .shares = true)},
    {"top-k", .rows = 40, .cols = 300, SAMPLE(.temperature = 0.7, .top_k = 5, .shares = true)},
    {"top-p", .rows = 40, .cols = 300, SAMPLE(.temperature = 2, .top_p = 0.9, .shares = true)},
    {"min-p", .rows = 40, .cols = 300, SAMPLE(.temperature = 2, .min_p = 0.1, .shares = true)},
    {"everything", .rows = 40, .cols = 300,
     SAMPLE(.temperature = 1.2, .top_k = 50, .top_p = 0.8, .min_p = 0.02, .repetition_penalty = 1.2,
            .context = 20, .shares = true)},
    {"top-p, few left", .rows = 40, .cols = 300,
     SAMPLE(.temperature = 0.5, .top_p = 0.9, .shares = true)},
    {"all filters, few left", .rows = 20, .cols = 3001, .pad = 1,
     SAMPLE(.temperature = 1.2, .top_k = 40, .top_p = 0.9, .min_p = 0.2, .shares = true)},
    {"top-p, many left", .rows = 2, .cols = 4500,
     SAMPLE(.temperature = 3, .top_p = 0.9, .shares = true)},
    {"top-p, all equal", .rows = 3, .cols = 4500,
     SAMPLE(.temperature = 1, .top_p = 0.4001, .shares = true, .equal = true)},
    {"all tokens, long row", .rows = 6, .cols = 17000, .pad = 2, SAMPLE(.temperature = 1.5)},
    {"vocabulary", .big = true, .rows = 16, .cols = 49152,
     SAMPLE(.temperature = 1, .top_k = 50, .top_p = 0.95)},
    {"8B vocabulary", .huge = true, .rows = 256, .cols = 128256, SAMPLE(.temperature = 1)},
    {"8B vocabulary, one row", .huge = true, .rows = 1, .cols = 128256, SAMPLE(.temperature = 1)},
    {"8B vocabulary, top-k and top-p", .huge = true, .rows = 64, .cols = 128256,
     SAMPLE(.temperature = 1, .top_k = 50, .top_p = 0.95)},
    {"8B vocabulary, top-p, few left", .huge = true, .rows = 64, .cols = 128256,
     SAMPLE(.temperature = 0.02, .top_p = 0.95)},
    {"8B vocabulary, top-p, many left", .huge = true, .rows = 64, .cols = 128256,
     SAMPLE(.temperature = 1, .top_p = 0.95)},
};

AX_OP_INFO(sample, IN_ROWS(logits), IN_ROWS(keys), IN_ROWS(context), OUT_ROWS(index),
           OUT_ROWS(shares));

static const char *check_truncate(const struct ax_truncate *a) {
    NEED(a->all.ndim == 2 && sums(&a->all) && a->logits.ndim == 2 && a->first_col >= 0);
    const int64_t rows = a->all.shape[0];
    NEED(is_2d(&a->all, a->all.dtype, rows, a->all.shape[1]));
    NEED(is_2d(&a->logits, a->all.dtype, rows, a->logits.shape[1]));
    NEED(a->first_col + a->logits.shape[1] <= a->all.shape[1]);
    NEED(is_1d(&a->labels, AX_I32, rows) && a->temperature > 0 && a->top_k >= 0);
    NEED(a->top_p >= 0 && a->top_p <= 1 && a->min_p >= 0 && a->min_p <= 1);
    return NULL;
}

PER_ELEMENT(truncate, 14, all)

static void build_truncate(struct ax_case_builder *b, struct ax_truncate *a) {
    const struct sample_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->all = ax_case_out2(b, b->accum, s->rows, s->cols);
    ax_case_randomize(b, &a->all, -8, 8);
    a->labels = ax_case_ids(b, s->rows, -1, s->cols);
    a->first_col = s->first;
    a->logits = ax_case_out2(b, b->accum, s->rows, s->inner > 0 ? s->inner : s->cols);
    ax_case_randomize(b, &a->logits, -8, 8);
    a->temperature = o->temperature;
    a->top_k = o->top_k;
    a->top_p = o->top_p;
    a->min_p = o->min_p;
}

static const struct ax_shape shapes_truncate[] = {
    {"one", .rows = 1, .cols = 1, SAMPLE(.temperature = 1, .top_k = 1)},
    {"top-k", .rows = 40, .cols = 300, .pad = 5, SAMPLE(.temperature = 0.7, .top_k = 5)},
    {"top-p", .rows = 40, .cols = 300, SAMPLE(.temperature = 2, .top_p = 0.9)},
    {"min-p", .rows = 40, .cols = 300, SAMPLE(.temperature = 2, .min_p = 0.1)},
    {"shard", .rows = 30, .cols = 300, .inner = 100, .first = 130,
     SAMPLE(.temperature = 1.2, .top_k = 50, .top_p = 0.8, .min_p = 0.02)},
    {"few left, long row", .rows = 3, .cols = 17000, .inner = 9000, .first = 7001,
     SAMPLE(.temperature = 0.02, .top_p = 0.9)},
    {"vocabulary", .big = true, .rows = 64, .cols = 49152,
     SAMPLE(.temperature = 1, .top_k = 50, .top_p = 0.95)},
    {"8B vocabulary", .huge = true, .rows = 512, .cols = 128256,
     SAMPLE(.temperature = 1, .top_k = 50, .top_p = 0.95)},
};

AX_OP_INFO(truncate, IN_ROWS(all), IN_ROWS(labels), INOUT_ROWS(logits));
