/* The SFT objective is linear in log-prob: the head makes loss and gradient in one walk. */
#include "optim/objective.h"

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    (void)ctx;
    const struct ax_nll_loss loss = {.logprob = c->logprob,
                                     .labels = ax_tensor_rows(&p->batch->labels, c->first, c->n),
                                     .weight = ax_tensor_rows(&p->batch->weight, c->first, c->n),
                                     .g_logprob = c->g_logprob,
                                     .scalars = p->scalars};
    return ax_run_nll_loss(p->model->rt->q, &loss);
}

const struct ax_objective ax_objective_sft = {
    .name = "sft",
    .head = {.linear = true, .token_grad = token_grad},
};
