/* The SFT objective is linear in log-prob (and, with label smoothing, z-loss and entropy weights, a
 * function of each token alone): the head computes loss and gradient in one pass. */
#include "optim/losses/objective.h"

#include "model/parallel/tensor_parallel.h"

enum { TARGET };
static const char *const prm_names[] = {"accuracy", NULL};
static const struct ax_columns prm_columns = {.list = {[TARGET] = {"target", true, AX_OF_LABEL, 0}},
                                              .n = 1};

/* Computes EAFT's weights, in scratch. */
static enum ax_status weigh(const struct ax_sft_options *o, struct ax_pass *p,
                            const struct ax_head_chunk *c, struct ax_tensor *weight) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_tensor out = ax_tensor_1d(
        AX_F32, ax_stack_push(&rt->arena.scratch, "entropy weights", (size_t)c->n * sizeof(float)),
        c->n);
    struct ax_top_entropy top = {.weight = *weight,
                                 .out = out,
                                 .k = o->entropy_k,
                                 .alpha = o->entropy_alpha,
                                 .inv_temperature = p->inv_temperature};
    AX_TRY(ax_tp_gather_top(rt, p->model->lm_head, &c->logits, o->entropy_k, &top.logits));
    AX_TRY(ax_run_top_entropy(rt->q, &top));
    *weight = out;
    return AX_OK;
}

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    const struct ax_sft_options *o = ctx;
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor weight = ax_tensor_rows(&p->batch->weight, c->first, c->n);
    if (o && o->entropy_k > 0)
        AX_TRY(weigh(o, p, c, &weight));
    struct ax_tensor targets = {0};
    if (o && o->prm)
        targets = ax_tensor_rows(&p->batch->columns[TARGET], c->first, c->n);
    const struct ax_nll_loss loss = {.logprob = c->logprob,
                                     .labels = ax_tensor_rows(&p->batch->labels, c->first, c->n),
                                     .weight = weight,
                                     .g_logprob = c->g_logprob,
                                     .scalars = p->scalars,
                                     .mean_logprob = c->mean_logprob,
                                     .g_mean = c->g_mean,
                                     .lse = c->lse,
                                     .g_lse = c->g_lse,
                                     .label_smoothing = o ? o->label_smoothing : 0,
                                     .z_loss = o ? o->z_loss : 0,
                                     .dynamic = o && o->dynamic,
                                     .targets = targets,
                                     .measures = o && o->prm ? p->measures : NULL};
    AX_TRY(ax_run_nll_loss(p->model->rt->q, &loss));
    ax_stack_release(scratch, mark);
    return AX_OK;
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

struct ax_objective ax_objective_prm(struct ax_sft_options *o) {
    *o = (struct ax_sft_options){.prm = true};
    struct ax_objective objective = ax_objective_sft_with(o);
    objective.name = "prm";
    objective.labels_in_place = true;
    objective.columns = &prm_columns;
    objective.measures = prm_names;
    objective.head.needs_mean = true;
    return objective;
}
