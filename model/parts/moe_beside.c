/* An MLP and a mixture of experts side by side, each between norms of its own (Gemma 4):
 *
 *   y = out₁(mlp(in₁(x))) + out₂(moe(in₂(x))), where the router reads norm(x) / √hidden
 *
 * x is the residual stream itself: the branch has no norm on its input. */
#include <math.h>

#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/parts/mlp.h"
#include "model/parts/moe.h"

#define MLP_SAVED 2 /* n_saved of ax_ffn_swiglu */
enum {
    MOE,
    MLP = AX_MOE_SAVED,
    MLP_IN =
        MLP +
        MLP_SAVED, /* rows after a norm, or before the one that follows; and its rstd, the next */
    MLP_IN_RSTD,
    MLP_OUT,
    MLP_OUT_RSTD,
    MOE_IN,
    MOE_IN_RSTD,
    MOE_OUT,
    MOE_OUT_RSTD,
    ROUTED,
    ROUTED_RSTD,
    N_SAVED
};

#define NORM(tail) "model.layers.%d." tail ".weight"

static void beside_init(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = b->arch->hidden_size;
    const struct {
        const struct ax_param **to;
        const char *name;
    } norms[] = {{&l->beside.mlp_in, NORM("pre_feedforward_layernorm")},
                 {&l->beside.mlp_out, NORM("post_feedforward_layernorm_1")},
                 {&l->beside.moe_in, NORM("pre_feedforward_layernorm_2")},
                 {&l->beside.moe_out, NORM("post_feedforward_layernorm_2")},
                 {&l->beside.router, "model.layers.%d.router.scale"}};
    ax_ffn_moe.init(b, l);
    ax_ffn_swiglu.init(b, l);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        *norms[i].to = ax_builder_add_norm(b, l->index, norms[i].name, D);
}

static int beside_linears(struct ax_layer *l, struct ax_linear **out) {
    return ax_ffn_swiglu.linears(l, out);
}

static struct ax_part_size beside_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    struct ax_part_size size = ax_ffn_moe.size(a, spec);
    const struct ax_part_size mlp = ax_ffn_swiglu.size(a, spec);
    size.matrices += mlp.matrices;
    size.active += mlp.active;
    size.vectors += mlp.vectors + 5 * a->hidden_size;
    return size;
}

static void beside_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    const struct ax_tensor rows = ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size);
    ax_ffn_moe.declare(l, p, s + MOE);
    ax_ffn_swiglu.declare(l, p, s + MLP);
    for (int i = MLP_IN; i < N_SAVED; i += 2) {
        const bool made = i == MLP_OUT || i == MOE_OUT;
        ax_saved_declare(&s[i], made ? "branch output" : "norm output",
                         made ? AX_KEEP_COSTLY : AX_KEEP_CHEAP, rows);
        ax_saved_declare(&s[i + 1], "norm rstd", AX_KEEP_CHEAP, ax_tensor_1d(m->accum, NULL, T));
    }
}

static enum ax_status norm_in(const struct ax_layer *l, struct ax_pass *p,
                              const struct ax_param *norm, const struct ax_tensor *x,
                              struct ax_saved *to) {
    return ax_saved_make(to) ? ax_norm_forward(p, l->unit, norm, x, &to->t, &to[1].t) : AX_OK;
}

/* to += or, first, = norm(made), or only its rstd (to NULL). */
static enum ax_status norm_out(const struct ax_layer *l, struct ax_pass *p,
                               const struct ax_param *norm, struct ax_saved *made, bool first,
                               const struct ax_tensor *to) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    if (!ax_saved_make(&made[1]) && !to)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor y = to && first ? *to : ax_stack_take(scratch, "norm output", made->t);
    AX_TRY(ax_norm_forward(p, l->unit, norm, &made->t, &y, &made[1].t));
    if (to && !first)
        AX_TRY(ax_run_add(p->model->rt->q, &(struct ax_add){*to, y, 1}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static double router_factor(const struct ax_pass *p) {
    return 1 / sqrt((double)p->model->arch.hidden_size);
}

static enum ax_status norms_in(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                               const struct ax_tensor *x) {
    const struct ax_tensor *routed = &s[ROUTED].t;
    AX_TRY(norm_in(l, p, l->beside.mlp_in, x, &s[MLP_IN]));
    AX_TRY(norm_in(l, p, l->beside.moe_in, x, &s[MOE_IN]));
    if (s[ROUTED].ready)
        return AX_OK;
    AX_TRY(norm_in(l, p, l->beside.router, x, &s[ROUTED]));
    return ax_run_scale(p->model->rt->q,
                        &(struct ax_scale){.y = *routed, .x = *routed, .alpha = router_factor(p)});
}

/* The sum itself is needed only where there is an out: a norm follows it. */
static enum ax_status beside_forward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *x, const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_moe_flight f;
    AX_ASSERT(!x);
    AX_TRY(norms_in(l, p, s, h));
    AX_TRY(ax_moe_choose(l, p, s + MOE, &s[ROUTED].t));
    AX_TRY(ax_moe_begin(l, p, s + MOE, &s[MOE_IN].t, &f));
    AX_TRY(ax_ffn_swiglu.forward(l, p, s + MLP, &s[MLP_IN].t, NULL,
                                 ax_saved_make(&s[MLP_OUT]) ? &s[MLP_OUT].t : NULL));
    AX_TRY(ax_moe_compute(l, p, s + MOE, &f));
    AX_TRY(ax_moe_end(l, p, s + MOE, &f, NULL, ax_saved_make(&s[MOE_OUT]) ? &s[MOE_OUT].t : NULL));
    AX_TRY(norm_out(l, p, l->beside.mlp_out, &s[MLP_OUT], true, out));
    AX_TRY(norm_out(l, p, l->beside.moe_out, &s[MOE_OUT], false, out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static enum ax_status norm_back(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_param *norm, const struct ax_tensor *dy,
                                const struct ax_tensor *x, const struct ax_saved *rstd,
                                const struct ax_tensor *dx, bool accumulate) {
    return ax_norm_backward(p, l->unit, norm, dy, x, &rstd->t, dx, accumulate);
}

static struct ax_tensor take(const struct ax_pass *p, const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, "gradient of branch input",
                         ax_tensor_2d(like->dtype, NULL, like->shape[0], like->shape[1]));
}

/* The experts' rows travel behind the MLP's backward. */
static enum ax_status beside_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_queue *q = p->model->rt->q;
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const struct ax_beside_part *part = &l->beside;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor d_mlp = take(p, dy), d_moe = take(p, dy), d_in = take(p, dy);
    struct ax_moe_flight f;
    AX_TRY(norm_back(l, p, part->moe_out, dy, &s[MOE_OUT].t, &s[MOE_OUT_RSTD], &d_moe, false));
    AX_TRY(ax_moe_backward_begin(l, p, s + MOE, &d_moe, &f));
    AX_TRY(norm_back(l, p, part->mlp_out, dy, &s[MLP_OUT].t, &s[MLP_OUT_RSTD], &d_mlp, false));
    AX_TRY(ax_ffn_swiglu.backward(l, p, s + MLP, &s[MLP_IN].t, &d_mlp, &d_in));
    AX_TRY(norm_back(l, p, part->mlp_in, &d_in, h, &s[MLP_IN_RSTD], dh, false));
    AX_TRY(ax_moe_backward_rows(l, p, s + MOE, &s[MOE_IN].t, &d_in, &f));
    AX_TRY(norm_back(l, p, part->moe_in, &d_in, h, &s[MOE_IN_RSTD], dh, true));
    AX_TRY(ax_run_fill(q, &(struct ax_fill){d_in, 0}));
    AX_TRY(ax_moe_backward_router(l, p, s + MOE, &s[ROUTED].t, &d_in, &f));
    AX_TRY(ax_run_scale(q, &(struct ax_scale){.y = d_in, .x = d_in, .alpha = router_factor(p)}));
    AX_TRY(norm_back(l, p, part->router, &d_in, h, &s[ROUTED_RSTD], dh, true));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_ffn_moe_beside = {
    .name = "moe beside an mlp",
    .n_saved = N_SAVED,
    .init = beside_init,
    .linears = beside_linears,
    .size = beside_size,
    .declare = beside_declare,
    .forward = beside_forward,
    .backward = beside_backward,
};
