#include "model/score.h"

#include "base/mem.h"

static void take(struct ax_stack *stack, struct ax_tensor *t) {
    t->data = ax_stack_push(stack, "scored tokens", ax_tensor_bytes(t));
}

enum ax_status ax_scorer_create(struct ax_scorer *s, struct ax_model *m, struct ax_stack *stack,
                                int64_t window) {
    *s = (struct ax_scorer){.model = m, .window = window};
    s->hidden = ax_tensor_2d(m->dtype, NULL, window, m->arch.hidden_size);
    s->logits = ax_tensor_2d(m->accum, NULL, window, m->arch.vocab_size);
    s->labels = ax_tensor_1d(AX_I32, NULL, window);
    s->index = ax_tensor_1d(AX_I32, NULL, window);
    s->stats = ax_tensor_2d(m->accum, NULL, window, AX_SOFTMAX_STATS);
    s->columns = ax_tensor_2d(m->accum, NULL, 3, window);
    take(stack, &s->hidden);
    take(stack, &s->logits);
    take(stack, &s->labels);
    take(stack, &s->index);
    take(stack, &s->stats);
    take(stack, &s->columns);
    AX_TRY(ax_alloc(&s->best, (size_t)window, sizeof *s->best));
    AX_TRY(ax_alloc(&s->logprobs, (size_t)window, sizeof *s->logprobs));
    return ax_alloc(&s->raw, (size_t)window, 8);
}

void ax_scorer_free(struct ax_scorer *s) {
    ax_free(s->best);
    ax_free(s->logprobs);
    ax_free(s->raw);
    *s = (struct ax_scorer){0};
}

enum ax_status ax_scorer_run(struct ax_scorer *s, struct ax_pass *p, int64_t n, const int32_t *rows,
                             const int32_t *labels) {
    struct ax_queue *q = s->model->rt->q;
    const struct ax_tensor hidden = ax_tensor_rows(&s->hidden, 0, n),
                           logits = ax_tensor_rows(&s->logits, 0, n),
                           stats = ax_tensor_rows(&s->stats, 0, n),
                           index = ax_tensor_rows(&s->index, 0, n),
                           wanted = ax_tensor_rows(&s->labels, 0, n);
    struct ax_tensor out[3];
    for (int i = 0; i < 3; i++)
        out[i] = ax_tensor_1d(s->columns.dtype, ax_tensor_row(&s->columns, i), n);
    AX_TRY(ax_queue_write(q, wanted.data, labels, (size_t)n * sizeof *labels));
    AX_TRY(ax_pass_logits_of(p, rows, &hidden, &logits));
    AX_TRY(ax_run_argmax(q, &(struct ax_argmax){logits, index}));
    AX_TRY(ax_run_softmax_stats(
        q, &(struct ax_softmax_stats){
               .logits = logits, .labels = wanted, .stats = stats, .inv_temperature = 1}));
    const struct ax_softmax_merge merge = {
        .stats = ax_tensor_3d(stats.dtype, stats.data, 1, n, AX_SOFTMAX_STATS),
        .labels = wanted,
        .logprob = out[0],
        .lse = out[1],
        .entropy = out[2]};
    AX_TRY(ax_run_softmax_merge(q, &merge));
    AX_TRY(ax_queue_read(q, index.data, s->best, (size_t)n * sizeof *s->best, NULL));
    AX_TRY(ax_queue_read(q, out[0].data, s->raw, ax_tensor_bytes(&out[0]), NULL));
    for (int64_t i = 0; i < n; i++)
        s->logprobs[i] = ax_load(out[0].dtype, s->raw, i);
    return AX_OK;
}
