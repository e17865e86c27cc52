/* Sums a micro-batch's routing counts layer by layer, and computes their gradient for backward. */
#include "model/parts/balance.h"

#include "model/parallel/context_parallel.h"

static bool wanted(const struct ax_pass *p) {
    return p->balance_coef > 0 && p->model->arch.moe.n_experts > 0 &&
           p->recompute != AX_RECOMPUTE_INFERENCE;
}

enum ax_status ax_balance_begin(struct ax_pass *p) {
    const int64_t E = p->model->arch.moe.n_experts;
    struct ax_slot *s = p->slot;
    s->load = ax_tensor_2d(p->model->accum, NULL, 2, E);
    s->slope = ax_tensor_1d(p->model->accum, NULL, E);
    s->balanced = false;
    if (!wanted(p))
        return AX_OK;
    s->load.data = ax_stack_push(s->stack, "router load", ax_tensor_bytes(&s->load));
    s->slope.data = ax_stack_push(s->stack, "router load", ax_tensor_bytes(&s->slope));
    return ax_run_fill(p->model->rt->q, &(struct ax_fill){s->load, 0});
}

struct ax_tensor ax_balance_load(const struct ax_pass *p) {
    return p->slot->load;
}

enum ax_status ax_balance_slope(struct ax_pass *p, struct ax_tensor *slope) {
    struct ax_slot *s = p->slot;
    struct ax_runtime *rt = p->model->rt;
    *slope = s->slope;
    if (!slope->data || s->balanced)
        return AX_OK;
    s->balanced = true;
    AX_TRY(ax_tp_sum(rt, &s->load)); /* ranks with other rows of this micro-batch */
    AX_TRY(ax_cp_sum(rt, &s->load));
    const struct ax_router_balance balance = {.load = s->load,
                                              .slope = s->slope,
                                              .k = p->model->arch.moe.n_active,
                                              .weight = p->batch->loss_weight,
                                              .coef = p->balance_coef,
                                              .counts = ax_cp_adds(rt),
                                              .scalars = p->scalars};
    return ax_run_router_balance(rt->q, &balance);
}
