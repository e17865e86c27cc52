#include "model/core/truncation.h"

#include "model/parallel/tensor_parallel.h"

enum ax_status ax_truncate_logits(struct ax_runtime *rt, const struct ax_sampling *sampling,
                                  int64_t vocab, int64_t first_col, const struct ax_tensor *labels,
                                  const struct ax_tensor *logits) {
    if (!ax_sampling_truncates(sampling))
        return AX_OK;
    struct ax_truncate op = ax_sampling_truncate(sampling);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    op.labels = *labels;
    op.logits = *logits;
    op.first_col = first_col;
    AX_TRY(ax_tp_gather_cols(rt, logits, vocab, &op.all));
    AX_TRY(ax_run_truncate(rt->q, &op));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
