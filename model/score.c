#include "model/score.h"

static void take(struct ax_stack *stack, struct ax_tensor *t) {
    t->data = ax_stack_push(stack, "scored tokens", ax_tensor_bytes(t));
}

void ax_scorer_create(struct ax_scorer *s, struct ax_model *m, struct ax_stack *stack,
                      int64_t window) {
    *s = (struct ax_scorer){.model = m, .window = window};
    s->hidden = ax_tensor_2d(m->dtype, NULL, window, m->arch.hidden_size);
    s->logits = ax_tensor_2d(m->accum, NULL, window, m->arch.vocab_size);
    s->stats = ax_tensor_2d(m->accum, NULL, window, AX_SOFTMAX_STATS);
    s->lse = ax_tensor_1d(m->accum, NULL, window);
    s->entropy = ax_tensor_1d(m->accum, NULL, window);
    take(stack, &s->hidden);
    take(stack, &s->logits);
    take(stack, &s->stats);
    take(stack, &s->lse);
    take(stack, &s->entropy);
}

size_t ax_scores_bytes(const struct ax_scorer *s, int64_t n) {
    const int64_t windows = (n + s->window - 1) / s->window;
    return (size_t)windows *
           (ax_results_bytes(AX_I32, s->window) + ax_results_bytes(s->model->accum, s->window));
}

enum ax_status ax_scorer_run(struct ax_scorer *s, struct ax_pass *p, const struct ax_tensor *rows,
                             const struct ax_tensor *labels, struct ax_results *results,
                             struct ax_scores *out) {
    struct ax_queue *q = s->model->rt->q;
    const int64_t n = rows->shape[0];
    const struct ax_tensor logits = ax_tensor_rows(&s->logits, 0, n),
                           stats = ax_tensor_rows(&s->stats, 0, n);
    out->best = ax_results_take(results, AX_I32, n);
    out->logprob = ax_results_take(results, s->model->accum, n);
    AX_TRY(ax_pass_logits_of(p, rows, &s->hidden, &logits));
    AX_TRY(ax_run_argmax(q, &(struct ax_argmax){logits, out->best}));
    AX_TRY(ax_run_softmax_stats(
        q, &(struct ax_softmax_stats){
               .logits = logits, .labels = *labels, .stats = stats, .inv_temperature = 1}));
    return ax_run_softmax_merge(
        q, &(struct ax_softmax_merge){
               .stats = ax_tensor_3d(stats.dtype, stats.data, 1, n, AX_SOFTMAX_STATS),
               .labels = *labels,
               .logprob = out->logprob,
               .lse = ax_tensor_rows(&s->lse, 0, n),
               .entropy = ax_tensor_rows(&s->entropy, 0, n)});
}
