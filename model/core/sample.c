#include "model/core/sample.h"

#include "base/mem.h"
#include "kernels/sample.h"
#include "model/parallel/tensor_parallel.h"

enum ax_status ax_sampling_check(const struct ax_sampling *s) {
    if (!(s->temperature >= 0 && s->temperature <= 1e6))
        return ax_error(AX_ERR_CONFIG, "temperature: expected 0 (greedy) to 1000000, got %g",
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
                        "repetition_penalty: expected a number above 0 (1 = off) and up to "
                        "1000000, got %g",
                        s->repetition_penalty);
    return AX_OK;
}

bool ax_sampling_penalises(const struct ax_sampling *s) {
    return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

static bool sampling_truncates(const struct ax_sampling *s) {
    return s->truncated && s->temperature > 0;
}

static struct ax_truncate truncate_of(const struct ax_sampling *s) {
    return (struct ax_truncate){
        .temperature = s->temperature, .top_p = s->top_p, .min_p = s->min_p, .top_k = s->top_k};
}

/* ---- memory ---- */

static struct ax_tensor take(struct ax_stack *stack, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    return ax_stack_take(stack, "sampling", ax_tensor_2d(dtype, NULL, rows, cols));
}

static struct ax_tensor take_column(struct ax_stack *stack, enum ax_dtype dtype, int64_t n) {
    const struct ax_tensor t = take(stack, dtype, n, 1);
    return ax_tensor_1d(dtype, t.data, n);
}

enum ax_status ax_sampler_create(struct ax_sampler *s, const struct ax_sampling *o,
                                 struct ax_queue *q, struct ax_stack *stack, enum ax_dtype accum,
                                 int64_t cap, int64_t max_context, int64_t biased) {
    *s = (struct ax_sampler){.o = *o, .q = q, .max_context = max_context};
    AX_TRY(ax_sampling_check(o));
    int64_t row = AX_SAMPLE_KEY; /* words that the host writes at a time */
    if (o->temperature > 0)
        s->keys = take(stack, AX_I32, cap, AX_SAMPLE_KEY);
    s->stats = take(stack, accum, cap, AX_SOFTMAX_STATS);
    s->lse = take_column(stack, accum, cap);
    if (biased > 0) {
        s->biased = take(stack, accum, 1, biased);
        AX_TRY(ax_alloc(&s->bias, (size_t)biased, sizeof *s->bias));
        if (accum == AX_F64)
            AX_TRY(ax_alloc(&s->wide_bias, (size_t)biased, sizeof *s->wide_bias));
    }
    if (ax_sampling_penalises(o)) {
        s->context = take(stack, AX_I32, cap, max_context);
        row = max_context > row ? max_context : row;
    }
    return ax_alloc(&s->host, (size_t)(cap * row), sizeof *s->host);
}

void ax_sampler_free(struct ax_sampler *s) {
    ax_free(s->host);
    ax_free(s->bias);
    ax_free(s->wide_bias);
    *s = (struct ax_sampler){0};
}

size_t ax_choice_bytes(enum ax_dtype accum, int64_t n) {
    return ax_results_bytes(AX_I32, n) + 2 * ax_results_bytes(accum, n);
}

size_t ax_choice_best_bytes(enum ax_dtype accum, int64_t n) {
    return ax_choice_bytes(accum, n) + ax_likeliest_bytes(accum, n, AX_LIKELIEST_MAX);
}

/* ---- what the op reads ---- */

static enum ax_status send_keys(struct ax_sampler *s, const struct ax_sample_row *rows, int64_t n,
                                struct ax_tensor *keys) {
    *keys = ax_tensor_rows(&s->keys, 0, n);
    for (int64_t i = 0; i < n; i++)
        ax_sample_key(rows[i].stream, rows[i].position, s->host + i * AX_SAMPLE_KEY);
    return ax_queue_write(s->q, keys->data, s->host, ax_tensor_bytes(keys));
}

/* The contexts as rows of the longest one's length; −1 follows shorter ones. */
static enum ax_status send_context(struct ax_sampler *s, const struct ax_sample_row *rows,
                                   int64_t n, struct ax_tensor *context) {
    int64_t longest = 1;
    for (int64_t i = 0; i < n; i++)
        longest = rows[i].n_context > longest ? rows[i].n_context : longest;
    AX_ASSERT(longest <= s->max_context);
    *context = ax_tensor_2d(AX_I32, s->context.data, n, longest);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < longest; k++)
            s->host[i * longest + k] = k < rows[i].n_context ? rows[i].context[k] : -1;
    return ax_queue_write(s->q, context->data, s->host, ax_tensor_bytes(context));
}

/* The logits of one row with its bias: a copy, as log-probs are of those without. */
static enum ax_status add_bias(struct ax_sampler *s, const struct ax_sample_row *row,
                               const struct ax_tensor *logits, struct ax_tensor *biased) {
    const int64_t V = logits->shape[1];
    AX_ASSERT(logits->shape[0] == 1 && s->biased.shape[1] == V);
    *biased = s->biased;
    AX_TRY(ax_bias_fill(row->bias, V, row->n_new, row->generated, s->bias));
    if (s->wide_bias)
        ax_convert(AX_F64, s->wide_bias, AX_F32, s->bias, V);
    AX_TRY(ax_queue_write(s->q, biased->data, s->wide_bias ? (void *)s->wide_bias : s->bias,
                          ax_tensor_bytes(biased)));
    return ax_run_add(s->q, &(struct ax_add){.dst = *biased, .src = *logits, .alpha = 1});
}

/* ---- choosing ---- */

/* What divides by the temperature of log-probs. */
static double log_prob_scale(const struct ax_sampling *o) {
    return o->temperature > 0 && !o->raw ? 1 / o->temperature : 1;
}

/* The softmax statistics of n rows, as those of one shard. */
static struct ax_tensor stats_of(const struct ax_sampler *s, int64_t n) {
    return ax_tensor_3d(s->stats.dtype, s->stats.data, 1, n, AX_SOFTMAX_STATS);
}

/* The log-softmax of the chosen tokens, and the entropies, from logits without the penalty. */
static enum ax_status log_softmax(struct ax_sampler *s, const struct ax_choice *c,
                                  const struct ax_sampling *o) {
    const int64_t n = c->logits.shape[0];
    const struct ax_tensor stats = ax_tensor_rows(&s->stats, 0, n);
    const double inv_temperature = log_prob_scale(o);
    AX_TRY(
        ax_run_softmax_stats(s->q, &(struct ax_softmax_stats){.logits = c->logits,
                                                              .labels = c->index,
                                                              .stats = stats,
                                                              .inv_temperature = inv_temperature}));
    return ax_run_softmax_merge(s->q,
                                &(struct ax_softmax_merge){.stats = stats_of(s, n),
                                                           .labels = c->index,
                                                           .logprob = c->logprob,
                                                           .lse = ax_tensor_rows(&s->lse, 0, n),
                                                           .entropy = c->entropy,
                                                           .inv_temperature = inv_temperature});
}

static enum ax_status log_probs(struct ax_sampler *s, struct ax_results *results,
                                struct ax_choice *c, const struct ax_sampling *o) {
    struct ax_truncate truncate = truncate_of(o);
    truncate.all = truncate.logits = c->logits;
    truncate.labels = c->index;
    if (sampling_truncates(o))
        AX_TRY(ax_run_truncate(s->q, &truncate));
    AX_TRY(log_softmax(s, c, o));
    const int64_t n = c->logits.shape[0];
    const struct ax_likeliest_rows rows = {.logits = c->logits,
                                           .stats = stats_of(s, n),
                                           .lse = ax_tensor_rows(&s->lse, 0, n),
                                           .entropy = c->entropy,
                                           .inv_temperature = log_prob_scale(o)};
    return ax_likeliest_run(s->q, results, &rows, c->best, &c->likeliest);
}

enum ax_status ax_sampler_choose(struct ax_sampler *s, struct ax_results *results,
                                 struct ax_choice *c) {
    const int64_t n = c->logits.shape[0];
    const struct ax_sampling *o = c->sampling ? c->sampling : &s->o;
    struct ax_sample op = {.logits = c->logits,
                           .shares = c->shares,
                           .temperature = o->temperature,
                           .top_k = o->top_k,
                           .top_p = o->top_p,
                           .min_p = o->min_p,
                           .repetition_penalty = o->repetition_penalty,
                           .seed = o->seed};
    op.index = c->index = ax_results_take(results, AX_I32, n);
    if (o->temperature > 0)
        AX_TRY(send_keys(s, c->rows, n, &op.keys));
    if (ax_sampling_penalises(o))
        AX_TRY(send_context(s, c->rows, n, &op.context));
    if (c->rows[0].bias)
        AX_TRY(add_bias(s, &c->rows[0], &c->logits, &op.logits));
    AX_TRY(ax_run_sample(s->q, &op));
    if (!c->logprobs)
        return AX_OK;
    c->logprob = ax_results_take(results, c->logits.dtype, n);
    c->entropy = ax_results_take(results, c->logits.dtype, n);
    return log_probs(s, results, c, o);
}

/* ---- in training ---- */

enum ax_status ax_truncate_logits(struct ax_runtime *rt, const struct ax_sampling *sampling,
                                  int64_t vocab, int64_t first_col, const struct ax_tensor *labels,
                                  const struct ax_tensor *logits) {
    if (!sampling_truncates(sampling))
        return AX_OK;
    struct ax_truncate op = truncate_of(sampling);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    op.labels = *labels;
    op.logits = *logits;
    op.first_col = first_col;
    AX_TRY(ax_tp_gather_cols(rt, logits, vocab, &op.all));
    AX_TRY(ax_run_truncate(rt->q, &op));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
