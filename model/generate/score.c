#include "model/generate/score.h"

#include "model/parts/head.h"
#include "model/parallel/tensor_parallel.h"

static void take(struct ax_stack *stack, struct ax_tensor *t) {
    *t = ax_stack_take(stack, "scored tokens", *t);
}

/* Shards of the vocabulary. */
static int64_t shards_of(const struct ax_scorer *s) {
    return ax_tp_shards(s->model->rt, s->model->lm_head);
}

/* True if the head has one label: its logit is the log-sum-exp. */
static bool is_score(const struct ax_scorer *s) {
    return s->model->lm_head->shape[0] == 1;
}

void ax_scorer_create(struct ax_scorer *s, struct ax_model *m, struct ax_stack *stack,
                      int64_t window) {
    *s = (struct ax_scorer){.model = m, .window = window};
    s->hidden = ax_tensor_2d(m->dtype, NULL, window, m->arch.hidden_size);
    s->logits = ax_tensor_2d(m->accum, NULL, window, m->lm_head->local_shape[0]);
    s->stats = ax_tensor_2d(m->accum, NULL, window, AX_SOFTMAX_STATS);
    s->lse = ax_tensor_1d(m->accum, NULL, window);
    s->entropy = ax_tensor_1d(m->accum, NULL, window);
    take(stack, &s->hidden);
    take(stack, &s->logits);
    take(stack, &s->stats);
    take(stack, &s->lse);
    take(stack, &s->entropy);
}

void ax_scorer_add_teacher(struct ax_scorer *s, const struct ax_teacher_states *states,
                           const struct ax_distill_options *o, struct ax_stack *stack) {
    s->teacher = states;
    s->distill = o;
    ax_distill_take(&s->taught, o, s->model, states, stack, s->window);
}

size_t ax_scores_bytes(const struct ax_scorer *s, int64_t n) {
    const int64_t windows = (n + s->window - 1) / s->window, shards = shards_of(s);
    const size_t best = ax_results_bytes(AX_I32, shards * s->window);
    const size_t shard = shards > 1 ? ax_results_bytes(AX_I32, s->window) : 0;
    const size_t value = ax_results_bytes(s->model->accum, s->window);
    const size_t values = 1 + (size_t)is_score(s) + (s->distill != NULL);
    const size_t tops = ax_likeliest_bytes(s->model->accum, s->window, s->most_likeliest);
    return (size_t)windows * (best + shard + values * value + tops);
}

/* The likeliest token: of each shard, and in which shard it is; of equal ones the first. */
static enum ax_status find_best(const struct ax_scorer *s, const struct ax_tensor *logits,
                                struct ax_scores *out) {
    struct ax_runtime *rt = s->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    struct ax_tensor own = ax_tensor_1d(AX_I32, NULL, logits->shape[0]), all, top;
    if (shards_of(s) == 1)
        return ax_run_argmax(rt->q, &(struct ax_argmax){.logits = *logits, .index = out->best});
    const size_t mark = ax_stack_mark(scratch);
    take(scratch, &own);
    AX_TRY(ax_run_argmax(rt->q, &(struct ax_argmax){.logits = *logits, .index = own}));
    AX_TRY(ax_tp_gather(rt, &own, &all));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){out->best, all}));
    AX_TRY(ax_tp_gather_top(rt, s->model->lm_head, logits, 1, &top));
    AX_TRY(ax_run_argmax(rt->q, &(struct ax_argmax){.logits = top, .index = out->shard}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* The divergences of the window whose logits have been computed. */
static enum ax_status compare(struct ax_scorer *s, const struct ax_tensor *rows,
                              const struct ax_tensor *labels, const struct ax_tensor *out) {
    const int64_t n = rows->shape[0];
    const struct ax_distill_rows r = {.student = s->model,
                                      .teacher = s->teacher,
                                      .o = s->distill,
                                      .rows = *rows,
                                      .labels = *labels,
                                      .logits = ax_tensor_rows(&s->logits, 0, n),
                                      .stored = s->stored};
    if (s->teacher)
        AX_TRY(ax_teacher_gather_head(s->teacher->teacher));
    AX_TRY(ax_distill_compare(&s->taught, &r));
    if (s->teacher)
        ax_teacher_release_head(s->teacher->teacher);
    return ax_run_copy(s->model->rt->q,
                       &(struct ax_copy){*out, ax_tensor_rows(&s->taught.divergence, 0, n)});
}

/* The likeliest tokens of rows whose statistics have been merged, in the logits of all shards. */
static enum ax_status find_likeliest(struct ax_scorer *s, const struct ax_tensor *logits,
                                     const struct ax_softmax_merge *merge,
                                     struct ax_results *results, struct ax_likeliest *out) {
    struct ax_runtime *rt = s->model->rt;
    struct ax_likeliest_rows rows = {.logits = *logits,
                                     .stats = merge->stats,
                                     .lse = merge->lse,
                                     .entropy = merge->entropy,
                                     .inv_temperature = merge->inv_temperature};
    if (s->likeliest > 0 && shards_of(s) > 1)
        AX_TRY(ax_tp_gather_cols(rt, logits, s->model->lm_head->shape[0], &rows.logits));
    return ax_likeliest_run(rt->q, results, &rows, s->likeliest, out);
}

/* The log-softmax of labels, into `merge`'s outputs; its inputs are in scratch. */
static enum ax_status log_softmax(struct ax_scorer *s, const struct ax_pass *p,
                                  const struct ax_tensor *logits, struct ax_softmax_merge *merge) {
    struct ax_runtime *rt = s->model->rt;
    const struct ax_tensor stats = ax_tensor_rows(&s->stats, 0, logits->shape[0]);
    merge->inv_temperature = p->inv_temperature;
    merge->entropy = ax_tensor_rows(&s->entropy, 0, logits->shape[0]);
    AX_TRY(ax_run_softmax_stats(
        rt->q, &(struct ax_softmax_stats){.logits = *logits,
                                          .labels = merge->labels,
                                          .stats = stats,
                                          .first_col = ax_tp_first_row(rt, s->model->lm_head),
                                          .inv_temperature = p->inv_temperature}));
    AX_TRY(ax_tp_gather_stats(rt, s->model->lm_head, &stats, &merge->stats));
    return ax_run_softmax_merge(rt->q, merge);
}

enum ax_status ax_scorer_run(struct ax_scorer *s, struct ax_pass *p, const struct ax_tensor *rows,
                             const struct ax_tensor *labels, struct ax_results *results,
                             struct ax_scores *out) {
    struct ax_runtime *rt = s->model->rt;
    const int64_t n = rows->shape[0];
    const struct ax_tensor logits = ax_tensor_rows(&s->logits, 0, n);
    struct ax_softmax_merge merge = {.labels = *labels, .lse = ax_tensor_rows(&s->lse, 0, n)};
    out->best = ax_results_take(results, AX_I32, shards_of(s) * n);
    if (shards_of(s) > 1)
        out->shard = ax_results_take(results, AX_I32, n);
    merge.logprob = out->logprob = ax_results_take(results, s->model->accum, n);
    out->logit = out->divergence = (struct ax_tensor){0};
    if (is_score(s))
        merge.lse = out->logit = ax_results_take(results, s->model->accum, n);
    if (s->distill)
        out->divergence = ax_results_take(results, s->model->accum, n);
    AX_TRY(ax_pass_logits_of(p, rows, &s->hidden, &logits));
    AX_TRY(find_best(s, &logits, out));
    AX_TRY(ax_truncate_logits(rt, &p->sampling, s->model->lm_head->shape[0],
                              ax_tp_first_row(rt, s->model->lm_head), labels, &logits));
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(log_softmax(s, p, &logits, &merge));
    AX_TRY(find_likeliest(s, &logits, &merge, results, &out->likeliest));
    ax_stack_release(&rt->arena.scratch, mark);
    return s->distill ? compare(s, rows, labels, &out->divergence) : AX_OK;
}

int32_t ax_scores_best(const struct ax_scorer *s, const struct ax_results *results,
                       const struct ax_scores *scores, int64_t i) {
    const int shards = (int)shards_of(s);
    const int64_t n = scores->best.shape[0] / shards;
    const int shard = shards > 1 ? (int)ax_results_get(results, &scores->shard, i) : 0;
    int64_t first, len;
    ax_split_range(s->model->lm_head->shape[0], shards, shard, &first, &len);
    return (int32_t)(first + (int64_t)ax_results_get(results, &scores->best, shard * n + i));
}
