/* The SFT objective is linear in log-prob (and, with label smoothing and z-loss, a function of each
 * token alone): the head computes loss and gradient in one pass. */
#include "optim/objective.h"

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    const struct ax_sft_options *o = ctx;
    const struct ax_nll_loss loss = {.logprob = c->logprob,
                                     .labels = ax_tensor_rows(&p->batch->labels, c->first, c->n),
                                     .weight = ax_tensor_rows(&p->batch->weight, c->first, c->n),
                                     .g_logprob = c->g_logprob,
                                     .scalars = p->scalars,
                                     .mean_logprob = c->mean_logprob,
                                     .g_mean = c->g_mean,
                                     .lse = c->lse,
                                     .g_lse = c->g_lse,
                                     .label_smoothing = o ? o->label_smoothing : 0,
                                     .z_loss = o ? o->z_loss : 0};
    return ax_run_nll_loss(p->model->rt->q, &loss);
}

const struct ax_objective ax_objective_sft = {
    .name = "sft",
    .head = {.linear = true, .token_grad = token_grad},
};

struct ax_objective ax_objective_sft_with(struct ax_sft_options *o) {
    struct ax_objective objective = ax_objective_sft;
    objective.head.needs_mean = o->label_smoothing != 0;
    objective.head.needs_lse = o->z_loss != 0;
    objective.head.ctx = o;
    return objective;
}
