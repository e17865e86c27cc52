#include "model/truncation.h"

#include "model/tensor_parallel.h"

struct ax_truncation ax_truncation_of(const struct ax_sampling *s) {
    if (!s->truncated || s->temperature == 0)
        return (struct ax_truncation){0};
    return (struct ax_truncation){s->temperature, s->top_p, s->min_p, s->top_k};
}

enum ax_status ax_truncate_logits(struct ax_runtime *rt, const struct ax_truncation *t,
                                  int64_t vocab, int64_t first_col, const struct ax_tensor *labels,
                                  const struct ax_tensor *logits) {
    if (t->temperature == 0)
        return AX_OK;
    struct ax_truncate op = {.labels = *labels,
                             .logits = *logits,
                             .first_col = first_col,
                             .temperature = t->temperature,
                             .top_p = t->top_p,
                             .min_p = t->min_p,
                             .top_k = t->top_k};
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(ax_tp_gather_cols(rt, logits, vocab, &op.all));
    AX_TRY(ax_run_truncate(rt->q, &op));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
