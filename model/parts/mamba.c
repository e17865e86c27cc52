/* Mamba-2 (Dao and Gu 2024):
 *
 *   z, x, B, C, dt = parts of h·Winᵀ, each perhaps times a factor;
 *   x, B, C = silu(conv(x)), silu(conv(B)), silu(conv(C))
 *   step, g from dt (ssd_gates_forward);  o = the recurrence of C, B, x, g, step (additive in kernels/delta_ops.h)
 *   y = norm(o ∘ silu(z))·Woutᵀ
 *
 * with heads in groups that share B and C, and an RMSNorm of each group's elements of a token, or none. tp splits heads: a
 * rank has its groups, or, if there are more ranks than groups, the one of its heads. A norm then has elements on
 * several ranks, which exchange: each norms some rows, of all columns. */
#include "model/core/builder.h"
#include "model/core/own_columns.h"
#include "model/core/pass.h"
#include "model/parts/convolve.h"
#include "model/parts/recur.h"

enum {
    IN, /* [z | x | B | C | dt] */
    X,
    B,
    C, /* after the convolution */
    STEP,
    DECAY,
    ENTERED,
    OUT,
    GATED,
    ROWS, /* where ranks exchange: rows of all ranks' columns of it */
    NORMED,
    RSTD, /* [groups][rows] */
    N_SAVED
};
_Static_assert(N_SAVED == AX_MAMBA_SAVED, "of a part that has this one inside it");

/* Heads and groups from the first on, and their sizes. */
struct sizes {
    int64_t heads, groups, first_head, first_group, head_dim, state;
    int64_t inner, bc; /* elements of x, and of B or C, of a token */
};
static struct sizes sizes_of(const struct ax_ssd_config *c, int tp, int rank) {
    struct sizes z = {.heads = c->heads / tp, .head_dim = c->head_dim, .state = c->state};
    z.groups = c->groups > tp ? c->groups / tp : 1;
    z.first_head = rank * z.heads;
    z.first_group = z.first_head / (c->heads / c->groups);
    z.inner = z.heads * z.head_dim;
    z.bc = z.groups * z.state;
    return z;
}
static struct sizes all_sizes(const struct ax_arch *a) {
    struct sizes z = sizes_of(&a->ssd, 1, 0);
    z.groups = a->ssd.groups;
    z.bc = z.groups * z.state;
    return z;
}
static struct sizes mesh_sizes(const struct ax_arch *a, const struct ax_mesh *mesh) {
    return sizes_of(&a->ssd, mesh->size[AX_ROLE_TP], mesh->coord[AX_ROLE_TP]);
}
static struct sizes own_sizes(const struct ax_pass *p) {
    return mesh_sizes(&p->model->arch, &p->model->rt->mesh);
}

static int64_t projected(const struct sizes *z) {
    return 2 * z->inner + 2 * z->bc + z->heads;
}
static int64_t convolved(const struct sizes *z) {
    return z->inner + 2 * z->bc;
}

/* True if norms have elements on several ranks. */
static bool exchanges(const struct ax_pass *p) {
    const struct ax_ssd_config *c = &p->model->arch.ssd;
    return c->norm && c->groups < p->model->rt->mesh.size[AX_ROLE_TP];
}

/* Which tensor the last projection reads. */
static int last_of(const struct ax_pass *p) {
    return p->model->arch.ssd.norm ? NORMED : GATED;
}

/* ---- parameters ---- */

#define NAME(tail) "model.layers.%d.mamba." tail

static const struct ax_param *add(struct ax_builder *b, const struct ax_layer *l,
                                  struct ax_param_decl decl) {
    return ax_builder_add(b, l->index, &decl);
}

/* Whose rows are of several kinds, which tp splits apart: every rank has all of it. */
static const struct ax_param *add_joined(struct ax_builder *b, const struct ax_layer *l,
                                         struct ax_param_decl decl) {
    decl.tp_dim = -1;
    decl.grad_partial_over = AX_TP_PARTIAL;
    return ax_builder_add(b, l->index, &decl);
}

static void mamba_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const struct sizes z = all_sizes(a);
    struct ax_mamba_part *m = &l->mamba;
    const int64_t D = a->hidden_size;
    m->in.unit = m->out.unit = l->unit;
    m->in.n_parts = m->out.n_parts = 1;
    m->in.split = AX_SPLIT_NONE;
    m->out.split = AX_SPLIT_INPUTS;
    m->in.weight[0] = add_joined(
        b, l,
        (struct ax_param_decl){.name = NAME("in_proj.weight"), .rows = projected(&z), .cols = D});
    m->taps = add_joined(b, l,
                         (struct ax_param_decl){.name = NAME("conv1d.weight"),
                                                .rows = convolved(&z),
                                                .cols = a->conv.taps,
                                                .middle = true});
    m->log = add(b, l, (struct ax_param_decl){.name = NAME("A_log"), .rows = z.heads});
    m->bias =
        add(b, l, (struct ax_param_decl){.name = NAME("dt_bias"), .rows = z.heads, .start = 1});
    m->skip = add(b, l, (struct ax_param_decl){.name = NAME("D"), .rows = z.heads, .start = 1});
    if (a->ssd.norm)
        m->norm = add_joined(
            b, l, (struct ax_param_decl){.name = NAME("norm.weight"), .rows = z.inner, .start = 1});
    m->out.weight[0] =
        add(b, l,
            (struct ax_param_decl){
                .name = NAME("out_proj.weight"), .rows = D, .cols = z.inner, .tp_dim = 1});
    if (a->ssd.conv_bias)
        m->conv_bias = add_joined(
            b, l, (struct ax_param_decl){.name = NAME("conv1d.bias"), .rows = convolved(&z)});
    if (!a->ssd.bias)
        return;
    m->in.bias[0] = add_joined(
        b, l, (struct ax_param_decl){.name = NAME("in_proj.bias"), .rows = projected(&z)});
    m->out.bias[0] =
        add_joined(b, l, (struct ax_param_decl){.name = NAME("out_proj.bias"), .rows = D});
}

static int mamba_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->mamba.in;
    out[1] = &l->mamba.out;
    return 2;
}

static struct ax_part_size mamba_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)spec;
    const struct sizes z = all_sizes(a);
    const int64_t D = a->hidden_size;
    const int64_t matrices = D * (projected(&z) + z.inner) + convolved(&z) * a->conv.taps;
    const int64_t biases =
        (a->ssd.conv_bias ? convolved(&z) : 0) + (a->ssd.bias ? projected(&z) + D : 0);
    return (struct ax_part_size){matrices, matrices,
                                 3 * z.heads + (a->ssd.norm ? z.inner : 0) + biases};
}

/* Of forward: a token's pairs with half of its chunk, and its products with states. */
static double mamba_mixing(const struct ax_arch *a, const struct ax_layer_spec *spec, int64_t seq) {
    (void)spec;
    (void)seq;
    const struct sizes z = all_sizes(a);
    return (double)z.heads *
           (double)((AX_DELTA_CHUNK + 1) * (z.state + z.head_dim) + 4 * z.state * z.head_dim);
}

static struct ax_state_size mamba_state(const struct ax_arch *a, const struct ax_mesh *mesh) {
    const struct sizes z = mesh_sizes(a, mesh);
    return (struct ax_state_size){.rows = a->conv.taps - 1,
                                  .channels = convolved(&z),
                                  .key_heads = z.groups,
                                  .value_heads = z.heads,
                                  .key_dim = z.state,
                                  .value_dim = z.head_dim};
}

/* ---- tensors ---- */

static void mamba_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    (void)l;
    const struct ax_model *m = p->model;
    const struct sizes z = own_sizes(p);
    const int64_t T = p->batch->T, rows = exchanges(p) ? ax_tp_rows(m->rt, T) : T;
    const int64_t groups = exchanges(p) ? m->arch.ssd.groups : z.groups;
    const enum ax_keep keep = exchanges(p) ? AX_KEEP_COSTLY : AX_KEEP_CHEAP;
    const struct ax_tensor inner = ax_tensor_2d(m->dtype, NULL, T, z.inner);
    const struct ax_tensor bc = ax_tensor_2d(m->dtype, NULL, T, z.bc);
    const struct ax_tensor per_head = ax_tensor_2d(m->accum, NULL, T, z.heads);
    ax_saved_declare(&s[IN], "mamba's projections", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, projected(&z)));
    ax_saved_declare(&s[X], "mamba's x, B, C", AX_KEEP_CHEAP, inner);
    ax_saved_declare(&s[B], "mamba's x, B, C", AX_KEEP_CHEAP, bc);
    ax_saved_declare(&s[C], "mamba's x, B, C", AX_KEEP_CHEAP, bc);
    ax_saved_declare(&s[STEP], "mamba's time steps", AX_KEEP_CHEAP, per_head);
    ax_saved_declare(&s[DECAY], "mamba's time steps", AX_KEEP_CHEAP, per_head);
    ax_recur_declare(p, &s[ENTERED], z.inner * z.state);
    ax_saved_declare(&s[OUT], "mamba's output", AX_KEEP_COSTLY, inner);
    ax_saved_declare(&s[GATED], "mamba's gated output", AX_KEEP_CHEAP, inner);
    if (!m->arch.ssd.norm)
        return;
    if (exchanges(p))
        ax_saved_declare(
            &s[ROWS], "mamba's gated rows", AX_KEEP_COSTLY,
            ax_tensor_2d(m->dtype, NULL, rows, z.inner * (m->arch.ssd.heads / z.heads)));
    ax_saved_declare(&s[NORMED], "mamba's normed output", keep, inner);
    ax_saved_declare(&s[RSTD], "norm rstd", keep, ax_tensor_2d(m->accum, NULL, groups, rows));
}

/* Views of the projections, or of their gradients. */
struct views {
    struct ax_tensor z, mixed[3], dt;
};
static struct views views_of(const struct ax_pass *p, const struct ax_tensor *in) {
    const struct sizes z = own_sizes(p);
    return (struct views){.z = ax_tensor_cols(in, 0, z.inner),
                          .mixed = {ax_tensor_cols(in, z.inner, z.inner),
                                    ax_tensor_cols(in, 2 * z.inner, z.bc),
                                    ax_tensor_cols(in, 2 * z.inner + z.bc, z.bc)},
                          .dt = ax_tensor_cols(in, 2 * z.inner + 2 * z.bc, z.heads)};
}

static struct ax_own_columns own_columns(const struct ax_pass *p) {
    const struct sizes all = all_sizes(&p->model->arch), z = own_sizes(p);
    const int64_t head = z.first_head * z.head_dim, group = z.first_group * z.state;
    return (struct ax_own_columns){5,
                                   {{head, z.inner},
                                    {all.inner + head, z.inner},
                                    {2 * all.inner + group, z.bc},
                                    {2 * all.inner + all.bc + group, z.bc},
                                    {2 * all.inner + 2 * all.bc + z.first_head, z.heads}}};
}

/* The convolution of x, B or C. */
static struct ax_convolution convolution(const struct ax_layer *l, const struct ax_pass *p,
                                         int which) {
    const struct sizes all = all_sizes(&p->model->arch), z = own_sizes(p);
    const int64_t group = z.first_group * z.state;
    const int64_t first[] = {z.first_head * z.head_dim, all.inner + group,
                             all.inner + all.bc + group};
    const int64_t at[] = {0, z.inner, z.inner + z.bc};
    return (struct ax_convolution){.taps = l->mamba.taps,
                                   .bias = l->mamba.conv_bias,
                                   .first = first[which],
                                   .n = which == 0 ? z.inner : z.bc,
                                   .at = at[which],
                                   .silu = true};
}

static struct ax_delta_rule rule_of(const struct ax_layer *l, const struct ax_pass *p,
                                    const struct ax_saved *s) {
    const struct sizes z = own_sizes(p);
    return (struct ax_delta_rule){.q = ax_tensor_heads(&s[C].t, z.groups, z.state),
                                  .k = ax_tensor_heads(&s[B].t, z.groups, z.state),
                                  .v = ax_tensor_heads(&s[X].t, z.heads, z.head_dim),
                                  .g = s[DECAY].t,
                                  .beta = s[STEP].t,
                                  .skip = ax_unit_weight(l->unit, l->mamba.skip),
                                  .out = ax_tensor_heads(&s[OUT].t, z.heads, z.head_dim),
                                  .scale = 1,
                                  .additive = true};
}

/* ---- norms of groups ---- */

static struct ax_tensor take_like(const struct ax_pass *p, const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, "mamba's rows",
                         ax_tensor_2d(like->dtype, NULL, like->shape[0], like->shape[1]));
}

/* A group's columns of rows, its weight, and the rows' rstd. */
struct group {
    struct ax_tensor x, rstd;
    int64_t first, n; /* of the weight */
};
static struct group group_of(const struct ax_pass *p, const struct ax_tensor *x,
                             const struct ax_tensor *rstd, int64_t i) {
    const struct sizes z = own_sizes(p);
    const int64_t n = x->shape[1] / rstd->shape[0];
    const struct ax_tensor row = ax_tensor_rows(rstd, i, 1);
    return (struct group){ax_tensor_cols(x, i * n, n),
                          ax_tensor_1d(rstd->dtype, row.data, rstd->shape[1]),
                          (exchanges(p) ? 0 : z.first_head * z.head_dim) + i * n, n};
}

static enum ax_status norm_groups(const struct ax_layer *l, const struct ax_pass *p,
                                  const struct ax_tensor *x, const struct ax_tensor *rstd,
                                  const struct ax_tensor *y) {
    const struct ax_tensor weight = ax_unit_weight(l->unit, l->mamba.norm);
    for (int64_t i = 0; i < rstd->shape[0]; i++) {
        const struct group g = group_of(p, x, rstd, i);
        AX_TRY(ax_run_rmsnorm_forward(
            p->model->rt->q,
            &(struct ax_rmsnorm_forward){.x = g.x,
                                         .weight = ax_tensor_rows(&weight, g.first, g.n),
                                         .y = ax_tensor_cols(y, i * g.n, g.n),
                                         .rstd = g.rstd,
                                         .eps = p->model->arch.norm_eps}));
    }
    return AX_OK;
}

/* d: in, the gradient of y; out, that of x. */
static enum ax_status norm_groups_backward(const struct ax_layer *l, const struct ax_pass *p,
                                           const struct ax_tensor *x, const struct ax_tensor *rstd,
                                           const struct ax_tensor *d) {
    const struct ax_tensor weight = ax_unit_weight(l->unit, l->mamba.norm);
    const struct ax_tensor dweight = ax_unit_grad(l->unit, l->mamba.norm);
    for (int64_t i = 0; i < rstd->shape[0]; i++) {
        const struct group g = group_of(p, x, rstd, i);
        const struct ax_tensor dg = ax_tensor_cols(d, i * g.n, g.n);
        struct ax_rmsnorm_backward b = {.dy = dg,
                                        .x = g.x,
                                        .weight = ax_tensor_rows(&weight, g.first, g.n),
                                        .rstd = g.rstd,
                                        .dx = dg};
        if (dweight.data)
            b.dweight = ax_tensor_rows(&dweight, g.first, g.n);
        AX_TRY(ax_run_rmsnorm_backward(p->model->rt->q, &b));
    }
    return AX_OK;
}

static enum ax_status norm_forward(const struct ax_layer *l, struct ax_pass *p,
                                   struct ax_saved *s) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    if (!exchanges(p))
        return norm_groups(l, p, &s[GATED].t, &s[RSTD].t, &s[NORMED].t);
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor normed = take_like(p, &s[ROWS].t);
    AX_TRY(ax_tp_to_rows(p->model->rt, &s[GATED].t, &s[ROWS].t));
    AX_TRY(norm_groups(l, p, &s[ROWS].t, &s[RSTD].t, &normed));
    AX_TRY(ax_tp_to_columns(p->model->rt, &normed, &s[NORMED].t));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static enum ax_status norm_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *d) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    if (!exchanges(p))
        return norm_groups_backward(l, p, &s[GATED].t, &s[RSTD].t, d);
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor rows = take_like(p, &s[ROWS].t);
    AX_TRY(ax_tp_to_rows(p->model->rt, d, &rows));
    AX_TRY(norm_groups_backward(l, p, &s[ROWS].t, &s[RSTD].t, &rows));
    AX_TRY(ax_tp_to_columns(p->model->rt, &rows, d));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- forward ---- */

static const struct ax_gating silu = {.gate = AX_GATE_SILU};

static enum ax_status convolve(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    const struct views v = views_of(p, &s[IN].t);
    for (int i = 0; i < 3; i++) {
        const struct ax_convolution c = convolution(l, p, i);
        if (ax_saved_make(&s[X + i]))
            AX_TRY(ax_convolve_forward(p, l, &c, &v.mixed[i], &s[X + i].t));
    }
    return AX_OK;
}

static enum ax_status make_steps(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    const struct views v = views_of(p, &s[IN].t);
    if (!ax_saved_make(&s[DECAY]))
        return AX_OK;
    return ax_run_ssd_gates_forward(
        p->model->rt->q,
        &(struct ax_ssd_gates_forward){.a = v.dt,
                                       .log = ax_unit_weight(l->unit, l->mamba.log),
                                       .bias = ax_unit_weight(l->unit, l->mamba.bias),
                                       .g = s[DECAY].t,
                                       .step = s[STEP].t,
                                       .low = p->model->arch.ssd.low,
                                       .high = p->model->arch.ssd.high});
}

static enum ax_status gate(struct ax_pass *p, struct ax_saved *s) {
    const struct views v = views_of(p, &s[IN].t);
    if (!ax_saved_make(&s[GATED]))
        return AX_OK;
    return ax_run_swiglu_forward(
        p->model->rt->q,
        &(struct ax_swiglu_forward){.gate_up = v.z, .up = s[OUT].t, .y = s[GATED].t, .how = silu});
}

static enum ax_status mamba_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *h, const struct ax_tensor *x,
                                    const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_own_columns own = own_columns(p);
    if (ax_saved_make(&s[IN])) {
        AX_TRY(ax_own_columns_forward(rt, &l->mamba.in, &own, h, &s[IN].t));
        AX_TRY(ax_own_columns_scale(rt, &own, p->model->arch.ssd.scale, &s[IN].t));
    }
    AX_TRY(convolve(l, p, s));
    AX_TRY(make_steps(l, p, s));
    if (ax_saved_make(&s[OUT])) {
        const struct ax_delta_rule rule = rule_of(l, p, s);
        AX_TRY(ax_recur_forward(p, l, &rule, &s[ENTERED]));
    }
    AX_TRY(gate(p, s));
    if (l->mamba.norm && ax_saved_make(&s[NORMED]))
        AX_TRY(norm_forward(l, p, s));
    return out ? ax_linear_forward(rt, &l->mamba.out, &s[last_of(p)].t, x, out) : AX_OK;
}

/* ---- backward ---- */

struct gradients {
    struct ax_tensor gated, out, mixed[3], decay, step, skip;
};

/* Gradients of the recurrence, its gates and the convolutions: d of the projections. */
static enum ax_status recurrence_backward(const struct ax_layer *l, struct ax_pass *p,
                                          struct ax_saved *s, const struct gradients *g,
                                          const struct views *d) {
    const struct sizes z = own_sizes(p);
    const struct ax_ssd_config *c = &p->model->arch.ssd;
    const struct views v = views_of(p, &s[IN].t);
    const struct ax_delta_backward back = {.a = rule_of(l, p, s),
                                           .dout = ax_tensor_heads(&g->out, z.heads, z.head_dim),
                                           .dq = ax_tensor_heads(&g->mixed[2], z.groups, z.state),
                                           .dk = ax_tensor_heads(&g->mixed[1], z.groups, z.state),
                                           .dv = ax_tensor_heads(&g->mixed[0], z.heads, z.head_dim),
                                           .dg = g->decay,
                                           .dbeta = g->step,
                                           .dskip = g->skip};
    AX_TRY(ax_recur_backward(p, &back, &s[ENTERED]));
    AX_TRY(ax_run_ssd_gates_backward(
        p->model->rt->q,
        &(struct ax_ssd_gates_backward){.dg = g->decay,
                                        .dstep = g->step,
                                        .shares = g->skip,
                                        .a = v.dt,
                                        .log = ax_unit_weight(l->unit, l->mamba.log),
                                        .bias = ax_unit_weight(l->unit, l->mamba.bias),
                                        .da = d->dt,
                                        .dlog = ax_unit_grad(l->unit, l->mamba.log),
                                        .dbias = ax_unit_grad(l->unit, l->mamba.bias),
                                        .dskip = ax_unit_grad(l->unit, l->mamba.skip),
                                        .low = c->low,
                                        .high = c->high}));
    for (int i = 0; i < 3; i++) {
        const struct ax_convolution conv = convolution(l, p, i);
        AX_TRY(ax_convolve_backward(p, l, &conv, &v.mixed[i], &g->mixed[i], &d->mixed[i]));
    }
    return AX_OK;
}

static enum ax_status mamba_backward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_own_columns own = own_columns(p);
    const struct ax_tensor d_in = take_like(p, &s[IN].t);
    const struct views v = views_of(p, &s[IN].t), d = views_of(p, &d_in);
    struct gradients g = {.gated = take_like(p, &s[GATED].t),
                          .out = take_like(p, &s[OUT].t),
                          .decay = take_like(p, &s[DECAY].t),
                          .step = take_like(p, &s[STEP].t),
                          .skip = take_like(p, &s[STEP].t)};
    for (int i = 0; i < 3; i++)
        g.mixed[i] = take_like(p, &s[X + i].t);
    AX_TRY(ax_linear_backward(rt, &l->mamba.out, &s[last_of(p)].t, dy, &g.gated));
    if (l->mamba.norm)
        AX_TRY(norm_backward(l, p, s, &g.gated));
    AX_TRY(ax_run_swiglu_backward(rt->q, &(struct ax_swiglu_backward){.dy = g.gated,
                                                                      .gate_up = v.z,
                                                                      .up = s[OUT].t,
                                                                      .dgate_up = d.z,
                                                                      .dup = g.out,
                                                                      .how = silu}));
    AX_TRY(recurrence_backward(l, p, s, &g, &d));
    AX_TRY(ax_own_columns_scale(rt, &own, p->model->arch.ssd.scale, &d_in));
    AX_TRY(ax_own_columns_backward(rt, &l->mamba.in, &own, h, &d_in, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_mamba = {
    .name = "mamba",
    .n_saved = N_SAVED,
    .init = mamba_init,
    .linears = mamba_linears,
    .size = mamba_size,
    .mixing = mamba_mixing,
    .state = mamba_state,
    .declare = mamba_declare,
    .forward = mamba_forward,
    .backward = mamba_backward,
};
