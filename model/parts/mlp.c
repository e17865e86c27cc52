/* Gated MLP:  y = (act(h·Wgᵀ) ∘ (h·Wuᵀ))·Wdᵀ, gate and up as one GEMM, each perhaps times a factor; or, without a gate
 * (Nemotron-H, Arcee):  y = max(0, h·Wuᵀ)²·Wdᵀ. Of sparse gates (Gemma 3n), those far above the mean stay. Where they are one matrix of the
 * file, every rank of tp has all of the MLP, and computes its own rows. */
#include <stdio.h>

#include "model/core/builder.h"
#include "model/core/own_columns.h"
#include "model/core/pass.h"
#include "model/parts/activate.h"
#include "model/parts/mlp.h"
#include "model/parts/sparse_gate.h"

enum { GATE_UP, ACT, N_SAVED };

static const struct ax_param *add(struct ax_builder *b, const struct ax_layer *l,
                                  const char *module, struct ax_param_decl decl) {
    char name[AX_NAME_MAX];
    snprintf(name, sizeof name, "%s.%s", module, decl.name);
    decl.name = name;
    return ax_builder_add(b, l->index, &decl);
}

void ax_mlp_init(struct ax_builder *b, struct ax_layer *l, const char *module, int64_t F) {
#define OF(tail, n, m, ...)                                                                        \
    { .name = tail, .rows = (n), .cols = (m), __VA_ARGS__ }
    const int64_t D = b->arch->hidden_size;
    const bool fused = b->arch->fused_gate_up;
    const int ups = ax_arch_ups(b->arch);
    struct ax_mlp_part *mlp = &l->mlp;
    const struct ax_param_decl weights[] = {
        OF("gate_proj.weight", F, D, .tp_dim = 0),
        OF("up_proj.weight", F, D, .tp_dim = 0, .glue = true),
        OF("down_proj.weight", D, F, .tp_dim = 1),
    };
    const struct ax_param_decl up = OF("up_proj.weight", F, D, .tp_dim = 0);
    const struct ax_param_decl joined =
        OF("gate_up_proj.weight", 2 * F, D, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL);
    const struct ax_param_decl down =
        OF("down_proj.weight", D, F, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL);
    const struct ax_param_decl up_bias = OF("up_proj.bias", F, 0, .tp_dim = 0);
    const struct ax_param_decl biases[] = {
        OF("gate_proj.bias", F, 0, .tp_dim = 0),
        OF("up_proj.bias", F, 0, .tp_dim = 0, .glue = true),
        OF("down_proj.bias", D, 0, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL),
    };
#undef OF
    mlp->gate_up.unit = mlp->down.unit = l->unit;
    mlp->gate_up.n_parts = fused ? 1 : ups;
    mlp->down.n_parts = 1;
    mlp->gate_up.split = fused ? AX_SPLIT_NONE : AX_SPLIT_OUTPUTS;
    mlp->down.split = fused ? AX_SPLIT_NONE : AX_SPLIT_INPUTS;
    mlp->gate_up.weight[0] = add(b, l, module, fused ? joined : ups == 1 ? up : weights[0]);
    if (!fused && ups == 2)
        mlp->gate_up.weight[1] = add(b, l, module, weights[1]);
    mlp->down.weight[0] = add(b, l, module, fused ? down : weights[2]);
    if (!b->arch->mlp_bias)
        return;
    mlp->gate_up.bias[0] = add(b, l, module, ups == 1 ? up_bias : biases[0]);
    if (ups == 2)
        mlp->gate_up.bias[1] = add(b, l, module, biases[1]);
    mlp->down.bias[0] = add(b, l, module, biases[2]);
}

static void mlp_init(struct ax_builder *b, struct ax_layer *l) {
    ax_mlp_init(b, l, "model.layers.%d.mlp", ax_spec_width(b->arch, &l->spec));
}

static struct ax_part_size mlp_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    const int64_t width = ax_spec_width(a, spec), ups = ax_arch_ups(a),
                  matrices = (ups + 1) * a->hidden_size * width;
    return (struct ax_part_size){matrices, matrices,
                                 a->mlp_bias ? ups * width + a->hidden_size : 0};
}

static int mlp_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->mlp.gate_up;
    out[1] = &l->mlp.down;
    return 2;
}

static void mlp_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const bool own_rows = l->mlp.gate_up.split == AX_SPLIT_NONE;
    const int64_t T = own_rows ? ax_tp_rows(p->model->rt, p->batch->T) : p->batch->T;
    const int64_t F2 = ax_linear_out(&l->mlp.gate_up);
    const enum ax_dtype dtype = p->model->dtype;
    ax_saved_declare(&s[GATE_UP], "mlp gate and up", AX_KEEP_COSTLY,
                     ax_tensor_2d(dtype, NULL, T, F2));
    ax_saved_declare(&s[ACT], "mlp activation", AX_KEEP_CHEAP,
                     ax_tensor_2d(dtype, NULL, T, F2 / ax_arch_ups(&p->model->arch)));
    if (!p->model->arch.ungated)
        ax_linear_declare_input(p->model->rt, &l->mlp.down, &s[ACT]);
}

/* Multiplies gate and up, or their gradients, by the family's factors. */
static enum ax_status scale(const struct ax_pass *p, const struct ax_tensor *gate_up) {
    const int64_t F = gate_up->shape[1] / 2;
    const struct ax_own_columns halves = {2, {{0, F}, {F, F}}};
    return ax_own_columns_scale(p->model->rt, &halves, p->model->arch.mlp_scale, gate_up);
}

/* Views of gate and up, or of their gradients. */
static struct ax_tensor half(const struct ax_tensor *gate_up, int i) {
    const int64_t F = gate_up->shape[1] / 2;
    return ax_tensor_cols(gate_up, i * F, F);
}

/* The gates that stay, in scratch. */
static enum ax_status sparse_gate(const struct ax_layer *l, struct ax_pass *p,
                                  const struct ax_tensor *gate_up, struct ax_tensor *gate) {
    const struct ax_tensor all = half(gate_up, 0);
    *gate = ax_stack_take(&p->model->rt->arena.scratch, "sparse gate",
                          ax_tensor_2d(all.dtype, NULL, all.shape[0], all.shape[1]));
    return ax_sparse_gate_forward(l, p, &all, gate);
}

static enum ax_status activate(const struct ax_layer *l, struct ax_pass *p,
                               const struct ax_tensor *gate_up, const struct ax_tensor *act) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_range_of range = ax_linear_input_range(rt, &l->mlp.down, act);
    struct ax_tensor gate;
    if (!l->spec.sparse)
        return ax_activate_forward(p, gate_up, act, range);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(sparse_gate(l, p, gate_up, &gate));
    AX_TRY(ax_run_swiglu_forward(rt->q, &(struct ax_swiglu_forward){.gate_up = gate,
                                                                    .up = half(gate_up, 1),
                                                                    .y = *act,
                                                                    .how = p->model->arch.gating,
                                                                    .range = range}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* gate_up becomes its gradient, with its range if that is what the product reads. */
static enum ax_status activate_backward(const struct ax_layer *l, struct ax_pass *p,
                                        const struct ax_tensor *d_act, struct ax_tensor *gate_up) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_tensor all = half(gate_up, 0), up = half(gate_up, 1);
    const double *factor = p->model->arch.mlp_scale;
    struct ax_range_of range = {0};
    struct ax_tensor gate;
    if (!l->spec.sparse) {
        if (!p->model->arch.ungated && factor[0] == 1 && factor[1] == 1)
            range = ax_linear_take_grad_range(rt, &l->mlp.gate_up, gate_up);
        return ax_activate_backward(p, d_act, gate_up, range);
    }
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(sparse_gate(l, p, gate_up, &gate));
    AX_TRY(
        ax_run_swiglu_backward(rt->q, &(struct ax_swiglu_backward){.dy = *d_act,
                                                                   .gate_up = gate,
                                                                   .up = up,
                                                                   .dgate_up = gate,
                                                                   .dup = up,
                                                                   .how = p->model->arch.gating}));
    AX_TRY(ax_sparse_gate_backward(l, p, &all, &gate));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){all, gate}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status mlp_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                  const struct ax_tensor *h, const struct ax_tensor *x,
                                  const struct ax_tensor *out) {
    const struct ax_tensor *gate_up = &s[GATE_UP].t, *act = &s[ACT].t;
    if (ax_saved_make(&s[GATE_UP])) {
        AX_TRY(ax_linear_forward(p->model->rt, &l->mlp.gate_up, h, NULL, gate_up));
        AX_TRY(scale(p, gate_up));
    }
    if (ax_saved_make(&s[ACT]))
        AX_TRY(activate(l, p, gate_up, act));
    return out ? ax_linear_forward(p->model->rt, &l->mlp.down, act, x, out) : AX_OK;
}

/* d_act = dy·Wd;  (d_gate, d_up) from it, written over gate_up, which is not needed afterwards. */
static enum ax_status mlp_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                   const struct ax_tensor *h, const struct ax_tensor *dy,
                                   const struct ax_tensor *dh) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor gate_up = s[GATE_UP].t;
    struct ax_tensor d_act = ax_stack_take(scratch, "gradient of mlp activation", s[ACT].t);
    AX_TRY(ax_linear_backward(p->model->rt, &l->mlp.down, &s[ACT].t, dy, &d_act));
    AX_TRY(activate_backward(l, p, &d_act, &gate_up));
    AX_TRY(scale(p, &gate_up));
    AX_TRY(ax_linear_backward(p->model->rt, &l->mlp.gate_up, h, &gate_up, dh));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_ffn_swiglu = {
    .name = "swiglu",
    .n_saved = N_SAVED,
    .two_linears = true,
    .between = ACT,
    .init = mlp_init,
    .linears = mlp_linears,
    .size = mlp_size,
    .declare = mlp_declare,
    .forward = mlp_forward,
    .backward = mlp_backward,
};
