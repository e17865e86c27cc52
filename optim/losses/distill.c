#include "optim/losses/distill.h"

static const char *const names[] = {
    [AX_DISTILL_DIVERGENCE] = "kd_loss", [AX_DISTILL_NLL] = "ce_loss", NULL};
static const char *const names_with_entropy[] = {[AX_DISTILL_DIVERGENCE] = "kd_loss",
                                                 [AX_DISTILL_NLL] = "ce_loss",
                                                 [AX_DISTILL_ENTROPY] = "entropy",
                                                 NULL};

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    const struct ax_distill_options *o = ctx;
    const struct ax_distill_loss loss = {
        .logprob = c->logprob,
        .divergence = c->divergence,
        .labels = ax_tensor_rows(&p->batch->labels, c->first, c->n),
        .weight = ax_tensor_rows(&p->batch->weight, c->first, c->n),
        .g_logprob = c->g_logprob,
        .g_divergence = c->g_divergence,
        .divergence_weight = o->divergence_weight,
        .nll_weight = o->nll_weight,
        .scalars = p->scalars,
        .measures = p->measures,
        .entropy = o->entropy ? c->entropy : (struct ax_tensor){0}};
    return ax_run_distill_loss(p->model->rt->q, &loss);
}

const struct ax_columns *ax_distill_columns(const struct ax_distill_options *o) {
    return o->stored > 0 ? &o->columns : NULL;
}

struct ax_objective ax_objective_distill(struct ax_distill_options *o) {
    o->columns = (struct ax_columns){
        .list = {[AX_DISTILL_IDS] = {"target_ids", false, AX_OF_LABEL, o->stored},
                 [AX_DISTILL_LOGITS] = {"target_logits", true, AX_OF_LABEL, o->stored},
                 [AX_DISTILL_TAIL_ID] = {"tail_id", false, AX_OF_LABEL, 1},
                 [AX_DISTILL_TAIL] = {"tail_logit", true, AX_OF_LABEL, 1}},
        .n = o->asked && o->tail ? 4 : 2};
    return (struct ax_objective){
        .name = "distill",
        .columns = ax_distill_columns(o),
        .measures = o->entropy ? names_with_entropy : names,
        .head = {.linear = true, .distill = o, .token_grad = token_grad, .ctx = o}};
}
