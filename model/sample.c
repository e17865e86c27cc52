/* Ops compute the probabilities of all rows; the host filters them and draws. */
#include "model/sample.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { LOGPROB, LSE, ENTROPY, NOTHING, TEMPERATURE, COLUMNS };

/* A filter first considers tokens down to this fraction of the largest probability, and then ever
 * less probable ones until there are enough. */
#define STEP 0x1p-7f

enum ax_status ax_sampling_check(const struct ax_sampling *s) {
    if (!(s->temperature >= 0 && s->temperature <= 1e6))
        return ax_error(AX_ERR_CONFIG, "temperature: expected 0 (greedy) or more, got %g",
                        s->temperature);
    if (s->top_k < 0)
        return ax_error(AX_ERR_CONFIG, "top_k: expected 0 (off) or more, got %lld",
                        (long long)s->top_k);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return ax_error(AX_ERR_CONFIG, "top_p: expected a number from 0 to 1, got %g", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return ax_error(AX_ERR_CONFIG, "min_p: expected a number from 0 to 1, got %g", s->min_p);
    if (!(s->repetition_penalty >= 0 && s->repetition_penalty <= 1e6))
        return ax_error(AX_ERR_CONFIG,
                        "repetition_penalty: expected a number above 0 (1 = off), got %g",
                        s->repetition_penalty);
    return AX_OK;
}

bool ax_sampling_penalises(const struct ax_sampling *s) {
    return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

/* ---- memory ---- */

static struct ax_tensor take(struct ax_stack *stack, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    struct ax_tensor t = ax_tensor_2d(dtype, NULL, rows, cols);
    t.data = ax_stack_push(stack, "sampling", ax_tensor_bytes(&t));
    return t;
}

static struct ax_tensor take_column(struct ax_stack *stack, enum ax_dtype dtype, int64_t n) {
    const struct ax_tensor t = take(stack, dtype, n, 1);
    return ax_tensor_1d(dtype, t.data, n);
}

static enum ax_status fill_constants(struct ax_sampler *s, int64_t cap) {
    int32_t *none;
    AX_TRY(ax_run_fill(s->q, &(struct ax_fill){s->columns[NOTHING], 0}));
    AX_TRY(ax_run_fill(s->q, &(struct ax_fill){s->columns[TEMPERATURE], s->o.temperature}));
    AX_TRY(ax_alloc(&none, (size_t)cap, sizeof *none));
    for (int64_t i = 0; i < cap; i++)
        none[i] = -1;
    const enum ax_status st =
        ax_queue_write(s->q, s->labels.data, none, (size_t)cap * sizeof *none);
    ax_free(none);
    return st;
}

enum ax_status ax_sampler_create(struct ax_sampler *s, const struct ax_sampling *o,
                                 struct ax_queue *q, struct ax_stack *stack, enum ax_dtype accum,
                                 int64_t cap, int64_t V, int64_t max_context) {
    *s = (struct ax_sampler){.o = *o, .q = q, .V = V};
    AX_TRY(ax_sampling_check(o));
    s->index = take_column(stack, AX_I32, cap);
    s->labels = take_column(stack, AX_I32, cap);
    s->stats = take(stack, accum, cap, AX_SOFTMAX_STATS);
    for (int i = 0; i < COLUMNS; i++)
        s->columns[i] = take_column(stack, accum, cap);
    enum ax_status st;
    if (ax_sampling_penalises(o)) {
        s->undo_cap = cap * max_context;
        AX_TRY_GOTO(ax_alloc(&s->undo, (size_t)s->undo_cap, sizeof *s->undo), st, fail);
    }
    if (o->temperature == 0)
        return AX_OK;
    s->probs = take(stack, accum, cap, V);
    AX_TRY_GOTO(ax_alloc(&s->candidates, (size_t)V, sizeof *s->candidates), st, fail);
    AX_TRY_GOTO(ax_alloc(&s->row, (size_t)V, sizeof *s->row), st, fail);
    if (accum == AX_F64)
        AX_TRY_GOTO(ax_alloc(&s->wide, (size_t)V, sizeof *s->wide), st, fail);
    AX_TRY_GOTO(fill_constants(s, cap), st, fail);
    return AX_OK;
fail:
    ax_sampler_free(s);
    return st;
}

void ax_sampler_free(struct ax_sampler *s) {
    ax_free(s->candidates);
    ax_free(s->row);
    ax_free(s->wide);
    ax_free(s->undo);
    *s = (struct ax_sampler){0};
}

/* ---- the repetition penalty ---- */

/* Reads one number of a device tensor. */
static enum ax_status get(struct ax_sampler *s, const struct ax_tensor *t, int64_t row, int64_t col,
                          double *value) {
    unsigned char raw[8];
    const size_t size = ax_dtype_size(t->dtype);
    const char *at = (const char *)ax_tensor_row(t, row) + (size_t)col * size;
    AX_TRY(ax_queue_read(s->q, at, raw, size, NULL));
    *value = ax_load(t->dtype, raw, 0);
    return AX_OK;
}

static enum ax_status set(struct ax_sampler *s, const struct ax_tensor *t, int64_t row, int64_t col,
                          double value) {
    unsigned char raw[8];
    const size_t size = ax_dtype_size(t->dtype);
    ax_store(t->dtype, raw, 0, value);
    return ax_queue_write(s->q, (char *)ax_tensor_row(t, row) + (size_t)col * size, raw, size);
}

static enum ax_status penalise(struct ax_sampler *s, const struct ax_tensor *logits,
                               const struct ax_sample_row *rows) {
    const double r = s->o.repetition_penalty;
    int64_t k = 0;
    for (int64_t i = 0; i < logits->shape[0]; i++) {
        for (int64_t j = 0; j < rows[i].n_context; j++, k++) {
            AX_ASSERT(k < s->undo_cap);
            const int64_t col = rows[i].context[j];
            AX_TRY(get(s, logits, i, col, &s->undo[k]));
            AX_TRY(set(s, logits, i, col, s->undo[k] < 0 ? s->undo[k] * r : s->undo[k] / r));
        }
    }
    return AX_OK;
}

static enum ax_status restore(struct ax_sampler *s, const struct ax_tensor *logits,
                              const struct ax_sample_row *rows) {
    int64_t k = 0;
    for (int64_t i = 0; i < logits->shape[0]; i++)
        for (int64_t j = 0; j < rows[i].n_context; j++, k++)
            AX_TRY(set(s, logits, i, rows[i].context[j], s->undo[k]));
    return AX_OK;
}

/* ---- the ops ---- */

/* First n of column c. */
static struct ax_tensor column(const struct ax_sampler *s, int c, int64_t n) {
    return ax_tensor_rows(&s->columns[c], 0, n);
}

/* Writes log-prob of the labels, lse and entropy of logits / T to their columns. */
static enum ax_status statistics(struct ax_sampler *s, const struct ax_tensor *logits,
                                 const struct ax_tensor *labels) {
    const int64_t n = logits->shape[0];
    const struct ax_tensor stats = ax_tensor_rows(&s->stats, 0, n);
    const double T = s->o.temperature;
    AX_TRY(ax_run_softmax_stats(s->q,
                                &(struct ax_softmax_stats){.logits = *logits,
                                                           .labels = *labels,
                                                           .stats = stats,
                                                           .inv_temperature = T > 0 ? 1 / T : 1}));
    return ax_run_softmax_merge(
        s->q, &(struct ax_softmax_merge){
                  .stats = ax_tensor_3d(stats.dtype, stats.data, 1, n, AX_SOFTMAX_STATS),
                  .labels = *labels,
                  .logprob = column(s, LOGPROB, n),
                  .lse = column(s, LSE, n),
                  .entropy = column(s, ENTROPY, n)});
}

/* probs = softmax(logits / T): T times the gradient of lse for the logits, which is (1/T)·p. */
static enum ax_status probabilities(struct ax_sampler *s, const struct ax_tensor *logits) {
    const int64_t n = logits->shape[0];
    const struct ax_tensor none = ax_tensor_rows(&s->labels, 0, n);
    AX_TRY(statistics(s, logits, &none));
    return ax_run_softmax_backward(
        s->q, &(struct ax_softmax_backward){.logits = *logits,
                                            .labels = none,
                                            .lse = column(s, LSE, n),
                                            .entropy = column(s, ENTROPY, n),
                                            .g_logprob = column(s, NOTHING, n),
                                            .g_lse = column(s, TEMPERATURE, n),
                                            .dlogits = ax_tensor_rows(&s->probs, 0, n),
                                            .inv_temperature = 1 / s->o.temperature});
}

/* ---- filters, on one row of probabilities ---- */

static enum ax_status read_row(struct ax_sampler *s, int64_t i) {
    const bool wide = s->wide != NULL;
    AX_TRY(ax_queue_read(s->q, ax_tensor_row(&s->probs, i), wide ? (void *)s->wide : s->row,
                         (size_t)s->V * ax_dtype_size(s->probs.dtype), NULL));
    if (wide)
        ax_convert(AX_F32, s->row, AX_F64, s->wide, s->V);
    return AX_OK;
}

static bool filters(const struct ax_sampler *s) {
    const struct ax_sampling *o = &s->o;
    return (o->top_k > 0 && o->top_k < s->V) || (o->top_p > 0 && o->top_p < 1) || o->min_p > 0;
}

/* Most probable first; ties by later id, like a stable ascending sort read backwards. */
static int by_probability(const void *x, const void *y) {
    const struct ax_candidate *a = x, *b = y;
    if (a->p != b->p)
        return a->p > b->p ? -1 : 1;
    return a->id > b->id ? -1 : 1;
}

/* Collects tokens with p ≥ least as candidates, and their mass. */
static int64_t collect(struct ax_sampler *s, float least, double *mass) {
    int64_t n = 0;
    *mass = 0;
    for (int64_t i = 0; i < s->V; i++) {
        if (s->row[i] >= least) {
            s->candidates[n++] = (struct ax_candidate){(int32_t)i, s->row[i]};
            *mass += (double)s->row[i];
        }
    }
    return n;
}

/* Collects all tokens that top-k and top-p may keep, possibly more; `most` is the largest
 * probability. */
static int64_t gather(struct ax_sampler *s, float most) {
    const struct ax_sampling *o = &s->o;
    const bool by_k = o->top_k > 0 && o->top_k<s->V, by_p = o->top_p> 0 && o->top_p < 1;
    double mass;
    if (!by_k && !by_p) /* min-p alone */
        return collect(s, (float)(o->min_p * (double)most), &mass);
    for (float least = most * STEP;; least *= STEP) {
        const int64_t n = collect(s, least >= FLT_MIN ? least : 0, &mass);
        if (!(least >= FLT_MIN) || (by_k && n >= o->top_k) || (!by_k && mass >= o->top_p))
            return n;
    }
}

/* Applies top-k, top-p and min-p to the sorted candidates; returns how many are left. */
static int64_t keep(const struct ax_sampler *s, int64_t n) {
    const struct ax_candidate *c = s->candidates;
    const struct ax_sampling *o = &s->o;
    int64_t kept = n;
    double total = 1, mass = 0;
    if (o->top_k > 0 && o->top_k < n) {
        kept = o->top_k;
        while (kept < n && c[kept].p == c[o->top_k - 1].p)
            kept++;
    }
    if (o->top_k > 0) {
        total = 0;
        for (int64_t i = 0; i < kept; i++)
            total += (double)c[i].p;
    }
    if (o->top_p > 0 && o->top_p < 1) {
        int64_t i = 0;
        while (i < kept && (i == 0 || mass < o->top_p * total))
            mass += (double)c[i++].p;
        kept = i;
    }
    while (kept > 1 && (double)c[kept - 1].p < o->min_p * (double)c[0].p)
        kept--;
    return kept;
}

/* The candidates of a row with their mass; `top` is the most probable token. */
static int64_t filter(struct ax_sampler *s, int32_t top, double *mass) {
    const int64_t n = gather(s, s->row[top]);
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_probability);
    const int64_t kept = keep(s, n);
    *mass = 0;
    for (int64_t i = 0; i < kept; i++)
        *mass += (double)s->candidates[i].p;
    return kept;
}

/* ---- drawing ---- */

/* Uniform in [0, 1), 53 bits. */
static double uniform(const struct ax_sampler *s, const struct ax_sample_row *row) {
    uint32_t w[4];
    const struct ax_rng_key key = {.seed = s->o.seed,
                                   .step = (uint32_t)row->stream,
                                   .tensor = (uint32_t)(row->stream >> 32) ^ ax_hash32("sample")};
    ax_rng_block(key, (uint64_t)row->position, w);
    return (double)((uint64_t)w[0] << 21 | w[1] >> 11) * 0x1p-53;
}

static int32_t draw_candidate(const struct ax_sampler *s, int64_t n, double at) {
    double sum = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
        sum += (double)s->candidates[i].p;
        if (at < sum)
            return s->candidates[i].id;
    }
    return s->candidates[n - 1].id;
}

/* Draws from the full row, 64 tokens at a time. */
static int32_t draw_any(const struct ax_sampler *s, int32_t top, double u) {
    enum { PIECE = 64 };
    double sums[4], total = 0;
    for (int turn = 0; turn < 2; turn++) { /* first the total, then as far as u · total */
        double sum = 0;
        for (int64_t i = 0; i < s->V; i += PIECE) {
            const int64_t n = s->V - i < PIECE ? s->V - i : PIECE;
            memset(sums, 0, sizeof sums);
            for (int64_t j = 0; j < n; j++)
                sums[j & 3] += (double)s->row[i + j];
            const double piece = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            if (turn == 1 && u * total < sum + piece) {
                for (int64_t j = 0; j < n; j++) {
                    sum += (double)s->row[i + j];
                    if (u * total < sum)
                        return (int32_t)(i + j);
                }
            }
            sum += piece;
        }
        total = sum;
    }
    return top; /* rounding left less than u · total */
}

static enum ax_status draw(struct ax_sampler *s, const struct ax_sample_row *row, int64_t i,
                           int32_t top, int32_t *id) {
    AX_TRY(read_row(s, i));
    const double u = uniform(s, row);
    if (!(s->row[top] > 0)) /* NaN logits: greedy, since there is no distribution */
        *id = top;
    else if (!filters(s))
        *id = draw_any(s, top, u);
    else {
        double mass;
        const int64_t n = filter(s, top, &mass);
        *id = draw_candidate(s, n, u * mass);
    }
    return AX_OK;
}

static enum ax_status choose_ids(struct ax_sampler *s, const struct ax_tensor *logits,
                                 const struct ax_sample_row *rows, int32_t *ids) {
    const int64_t n = logits->shape[0];
    const struct ax_tensor index = ax_tensor_rows(&s->index, 0, n);
    AX_TRY(ax_run_argmax(s->q, &(struct ax_argmax){*logits, index}));
    if (s->o.temperature > 0)
        AX_TRY(probabilities(s, logits));
    AX_TRY(ax_queue_read(s->q, index.data, ids, (size_t)n * sizeof *ids, NULL));
    if (s->o.temperature == 0 || ax_queue_is_meta(s->q))
        return AX_OK;
    for (int64_t i = 0; i < n; i++)
        AX_TRY(draw(s, &rows[i], i, ids[i], &ids[i]));
    return ax_queue_write(s->q, index.data, ids, (size_t)n * sizeof *ids);
}

enum ax_status ax_sampler_choose(struct ax_sampler *s, const struct ax_tensor *logits,
                                 const struct ax_sample_row *rows, int32_t *ids, double *logprobs) {
    const bool penalty = ax_sampling_penalises(&s->o);
    if (penalty)
        AX_TRY(penalise(s, logits, rows));
    AX_TRY(choose_ids(s, logits, rows, ids));
    if (penalty)
        AX_TRY(restore(s, logits, rows));
    if (!logprobs)
        return AX_OK;
    const struct ax_tensor chosen = ax_tensor_rows(&s->index, 0, logits->shape[0]);
    AX_TRY(statistics(s, logits, &chosen));
    for (int64_t i = 0; i < logits->shape[0]; i++) {
        const struct ax_tensor value =
            ax_tensor_2d(s->columns[LOGPROB].dtype, s->columns[LOGPROB].data, logits->shape[0], 1);
        AX_TRY(get(s, &value, i, 0, &logprobs[i]));
    }
    return AX_OK;
}

enum ax_status ax_sampler_shares(struct ax_sampler *s, int64_t i, const struct ax_candidate **out,
                                 int64_t *n) {
    AX_ASSERT(s->o.temperature > 0);
    double mass;
    int32_t top = 0;
    AX_TRY(read_row(s, i));
    for (int64_t c = 1; c < s->V; c++)
        top = s->row[c] > s->row[top] ? (int32_t)c : top;
    *n = filters(s) ? filter(s, top, &mass) : collect(s, 0, &mass);
    for (int64_t k = 0; k < *n; k++)
        s->candidates[k].p = (float)((double)s->candidates[k].p / mass);
    *out = s->candidates;
    return AX_OK;
}
