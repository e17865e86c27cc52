/* A mixture of experts with one more MLP that all tokens go to (DeepSeek-AI 2024):
 *
 *   y = moe(h) + mlp(h), or, gated (Qwen2-MoE), moe(h) + sigmoid(h·Wᵀ)·mlp(h)
 *
 * The MLP is the layer's own (mlp.c). Its gate is a router with one expert, whose weight is its
 * probability. */
#include "model/core/builder.h"
#include "model/parts/mlp.h"
#include "model/parts/moe.h"

#define MLP_SAVED 2 /* n_saved of ax_ffn_swiglu */
enum { MOE, MLP = AX_MOE_SAVED, GATE = MLP + MLP_SAVED, PLACES, MADE, N_SAVED };

static bool is_gated(const struct ax_layer *l) {
    return l->moe.gate.n_parts > 0;
}

static void shared_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_config *c = &b->arch->moe;
    const struct ax_param_decl gate = {.name = c->names->shared_gate,
                                       .rows = 1,
                                       .cols = b->arch->hidden_size,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL};
    ax_ffn_moe.init(b, l);
    ax_mlp_init(b, l, c->names->shared, c->shared_width);
    if (!c->names->shared_gate)
        return;
    l->moe.gate = (struct ax_linear){.unit = l->unit, .split = AX_SPLIT_NONE, .n_parts = 1};
    l->moe.gate.weight[0] = ax_builder_add(b, l->index, &gate);
}

static int shared_linears(struct ax_layer *l, struct ax_linear **out) {
    int n = ax_ffn_moe.linears(l, out);
    n += ax_ffn_swiglu.linears(l, out + n);
    if (is_gated(l))
        out[n++] = &l->moe.gate;
    return n;
}

static struct ax_part_size shared_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    struct ax_part_size size = ax_ffn_moe.size(a, spec);
    const int64_t gate = a->moe.names->shared_gate ? 1 : 0;
    const int64_t more = a->hidden_size * ((ax_arch_ups(a) + 1) * a->moe.shared_width + gate);
    size.matrices += more;
    size.active += more;
    return size;
}

static void shared_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    ax_ffn_moe.declare(l, p, s + MOE);
    ax_ffn_swiglu.declare(l, p, s + MLP);
    if (!is_gated(l))
        return;
    ax_saved_declare(&s[GATE], "shared expert gate", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->accum, NULL, T, 1));
    ax_saved_declare(&s[PLACES], "shared expert gate", AX_KEEP_COSTLY,
                     ax_tensor_2d(AX_I32, NULL, T, 1));
    ax_saved_declare(&s[MADE], "shared expert output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size));
}

static struct ax_tensor take(const struct ax_pass *p, const char *name,
                             const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, name,
                         ax_tensor_2d(like->dtype, NULL, like->shape[0], like->shape[1]));
}

static const struct ax_routing sigmoid = {.sigmoid = true, .scale = 1};

/* The gate's sigmoid, and row t as the place of token t. */
static enum ax_status gate(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                           const struct ax_tensor *h) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor logits = take(p, "shared expert gate", &s[GATE].t);
    const struct ax_tensor weights = take(p, "shared expert gate", &s[GATE].t);
    const struct ax_tensor experts = take(p, "shared expert gate", &s[PLACES].t);
    struct ax_tensor offsets =
        ax_stack_take(&rt->arena.scratch, "shared expert gate", ax_tensor_1d(AX_I32, NULL, 2));
    AX_TRY(ax_linear_forward(rt, &l->moe.gate, h, NULL, &logits));
    AX_TRY(ax_run_router_forward(rt->q, &(struct ax_router_forward){.logits = logits,
                                                                    .probs = s[GATE].t,
                                                                    .weights = weights,
                                                                    .experts = experts,
                                                                    .routing = sigmoid}));
    AX_TRY(ax_run_group_rows(
        rt->q,
        &(struct ax_group_rows){.keys = experts, .places = s[PLACES].t, .offsets = offsets}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* out = gate·mlp(h) [+ x]; out NULL: only what backward needs. */
static enum ax_status gated_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *h, const struct ax_tensor *x,
                                    const struct ax_tensor *out) {
    const struct ax_tensor *made = ax_saved_make(&s[MADE]) ? &s[MADE].t : NULL;
    if (ax_saved_make(&s[GATE]))
        AX_TRY(gate(l, p, s, h));
    AX_TRY(ax_ffn_swiglu.forward(l, p, s + MLP, h, NULL, made));
    if (!out)
        return AX_OK;
    struct ax_combine_forward combine = {
        .src = s[MADE].t, .rows = s[PLACES].t, .weights = s[GATE].t, .out = *out};
    if (x)
        combine.addend = *x;
    return ax_run_combine_forward(p->model->rt->q, &combine);
}

/* Rows travel to experts behind gate and up, and back behind down. */
static enum ax_status shared_forward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *x, const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_moe_flight f;
    struct ax_tensor sum, *shared = NULL;
    if (out) {
        sum = take(p, "output of shared expert", out);
        shared = &sum;
    }
    AX_TRY(ax_moe_begin(l, p, s + MOE, h, &f));
    AX_TRY(ax_ffn_swiglu.forward(l, p, s + MLP, h, NULL, NULL));
    AX_TRY(ax_moe_compute(l, p, s + MOE, &f));
    AX_TRY(is_gated(l) ? gated_forward(l, p, s, h, x, shared)
                       : ax_ffn_swiglu.forward(l, p, s + MLP, h, x, shared));
    AX_TRY(ax_moe_end(l, p, s + MOE, &f, shared, out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* d = the gradient of mlp's output; dh = the gate's. */
static enum ax_status gate_backward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s, const struct ax_tensor *h,
                                    const struct ax_tensor *dy, const struct ax_tensor *d,
                                    const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor dweights = take(p, "gradient of shared expert gate", &s[GATE].t);
    const struct ax_tensor experts = take(p, "shared expert gate", &s[PLACES].t);
    struct ax_tensor dlogits = ax_stack_take(&rt->arena.scratch, "gradient of shared expert gate",
                                             ax_tensor_2d(p->model->dtype, NULL, h->shape[0], 1));
    AX_TRY(ax_run_combine_backward(rt->q, &(struct ax_combine_backward){.dout = *dy,
                                                                        .src = s[MADE].t,
                                                                        .rows = s[PLACES].t,
                                                                        .weights = s[GATE].t,
                                                                        .dsrc = *d,
                                                                        .dweights = dweights}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){experts, 0}));
    AX_TRY(ax_run_router_backward(rt->q, &(struct ax_router_backward){.probs = s[GATE].t,
                                                                      .experts = experts,
                                                                      .dweights = dweights,
                                                                      .dlogits = dlogits,
                                                                      .routing = sigmoid}));
    AX_TRY(ax_linear_backward(rt, &l->moe.gate, h, &dlogits, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* Rows travel to experts behind all of the shared one's backward. */
static enum ax_status shared_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor more = take(p, "gradient of branch input", dh);
    struct ax_tensor d = *dy, gated = {0};
    struct ax_moe_flight f;
    AX_TRY(ax_moe_backward_begin(l, p, s + MOE, dy, &f));
    if (is_gated(l)) {
        gated = take(p, "gradient of branch input", dh);
        d = take(p, "gradient of shared expert output", &s[MADE].t);
        AX_TRY(gate_backward(l, p, s, h, dy, &d, &gated));
    }
    AX_TRY(ax_ffn_swiglu.backward(l, p, s + MLP, h, &d, &more));
    if (is_gated(l))
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){more, gated, 1}));
    AX_TRY(ax_moe_backward_end(l, p, s + MOE, h, dh, &f));
    AX_TRY(ax_run_add(rt->q, &(struct ax_add){*dh, more, 1}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_ffn_moe_shared = {
    .name = "moe with a shared expert",
    .n_saved = N_SAVED,
    .init = shared_init,
    .linears = shared_linears,
    .size = shared_size,
    .declare = shared_declare,
    .forward = shared_forward,
    .backward = shared_backward,
};
