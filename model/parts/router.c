#include "model/parts/router.h"

#include "model/parts/balance.h"
#include "model/core/builder.h"
#include "model/parts/sequence_balance.h"

void ax_router_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_config *c = &b->arch->moe;
    const struct ax_param_decl weight = {.name = c->names->router,
                                         .rows = c->n_experts,
                                         .cols = b->arch->hidden_size,
                                         .tp_dim = -1,
                                         .grad_partial_over = AX_TP_PARTIAL};
    const struct ax_param_decl bias = {.name = c->names->bias,
                                       .rows = c->n_experts,
                                       .tp_dim = -1,
                                       .buffer = true,
                                       .grad_partial_over = AX_TP_PARTIAL};
    l->moe.router = ax_builder_add(b, l->index, &weight);
    if (c->names->bias)
        l->moe.bias = ax_builder_add(b, l->index, &bias);
    const struct ax_param_decl added = {.name = c->names->router_bias,
                                        .rows = c->n_experts,
                                        .tp_dim = -1,
                                        .grad_partial_over = AX_TP_PARTIAL};
    if (c->names->router_bias)
        l->moe.router_bias = ax_builder_add(b, l->index, &added);
}

static void tap(const struct ax_layer *l, struct ax_pass *p, const char *what,
                const struct ax_tensor *t) {
    if (p->tap)
        p->tap(p->tap_ctx, what, l->index, t);
}

static enum ax_status add_loads(struct ax_queue *q, const void *args, void *const *at) {
    const int64_t *n = args;
    const int32_t *experts = at[0];
    double *loads = at[1];
    (void)q;
    for (int64_t i = 0; i < *n; i++)
        if (experts[i] >= 0)
            loads[experts[i]] += 1;
    return AX_OK;
}

/* Once per pass: the choice is never made again. */
static enum ax_status count_loads(const struct ax_layer *l, const struct ax_pass *p,
                                  const struct ax_tensor *experts) {
    const struct ax_model *m = p->model;
    if (!m->expert_loads.data || p->recompute == AX_RECOMPUTE_INFERENCE)
        return AX_OK;
    const struct ax_tensor row = ax_tensor_rows(&m->expert_loads, l->index, 1);
    const int64_t n = ax_tensor_numel(experts);
    const struct ax_view views[] = {ax_view_of(experts, AX_VIEW_READ),
                                    ax_view_of(&row, AX_VIEW_UPDATE)};
    return ax_queue_call(m->rt->q, add_loads, &n, sizeof n, views, 2);
}

/* Logits in accumulation dtype: one GEMM of rounded inputs, not rounded again. */
enum ax_status ax_router_choose(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *h, const struct ax_router_choice *c) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_batch *b = p->batch;
    struct ax_tensor logits = c->probs;
    logits.data = ax_stack_push(scratch, "router logits", ax_tensor_bytes(&logits));
    struct ax_gemm gemm = {.a = *h,
                           .b = ax_unit_weight(l->unit, l->moe.router),
                           .c = logits,
                           .trans_b = true,
                           .alpha = 1};
    if (l->moe.router_bias)
        gemm.bias = ax_unit_weight(l->unit, l->moe.router_bias);
    struct ax_router_forward router = {
        .logits = logits,
        .probs = c->probs,
        .weights = c->weights,
        .experts = c->experts,
        .valid =
            b->used.data ? b->used : ax_tensor_rows(&b->cu_seqlens, b->cu_seqlens.shape[0] - 1, 1),
        .load = ax_balance_load(p),
        .first = ax_tp_first(m->rt, b->T),
        .routing = m->arch.moe.routing};
    if (l->moe.bias)
        router.bias = ax_unit_weight(l->unit, l->moe.bias);
    AX_TRY(ax_run_gemm(m->rt->q, &gemm));
    AX_TRY(ax_run_router_forward(m->rt->q, &router));
    AX_TRY(count_loads(l, p, &router.experts));
    tap(l, p, "router_logits", &logits);
    tap(l, p, "router_experts", &router.experts);
    tap(l, p, "router_weights", &router.weights);
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_router_gradient(const struct ax_layer *l, struct ax_pass *p,
                                  const struct ax_router_choice *c,
                                  const struct ax_tensor *dweights, const struct ax_tensor *h,
                                  const struct ax_tensor *dh) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_router_backward back = {.probs = c->probs,
                                      .experts = c->experts,
                                      .dweights = *dweights,
                                      .routing = m->arch.moe.routing};
    back.dlogits = ax_tensor_2d(m->dtype, NULL, h->shape[0], m->arch.moe.n_experts);
    back.dlogits.data =
        ax_stack_push(scratch, "gradient of router logits", ax_tensor_bytes(&back.dlogits));
    AX_TRY(ax_balance_slope(p, &back.slope));
    AX_TRY(ax_sequence_balance(p, c, &back.slopes));
    AX_TRY(ax_run_router_backward(m->rt->q, &back));
    const struct ax_tensor dw = ax_unit_grad(l->unit, l->moe.router);
    struct ax_gemm to_w = {
        .a = back.dlogits, .b = *h, .c = dw, .trans_a = true, .accumulate = true, .alpha = 1};
    struct ax_gemm to_h = {.a = back.dlogits,
                           .b = ax_unit_weight(l->unit, l->moe.router),
                           .c = *dh,
                           .accumulate = true,
                           .alpha = 1};
    if (dw.data)
        AX_TRY(ax_run_gemm(m->rt->q, &to_w));
    struct ax_tensor db = {0};
    if (l->moe.router_bias)
        db = ax_unit_grad(l->unit, l->moe.router_bias);
    if (db.data)
        AX_TRY(ax_run_colsum(m->rt->q, &(struct ax_colsum){back.dlogits, db}));
    AX_TRY(ax_run_gemm(m->rt->q, &to_h));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
