/* Attention of layers that differ in their heads, some of which use the keys and values of an earlier one (Gemma 3n and 4):
 *
 *   q = rope(norm(h·Wqᵀ));  k = rope(norm(h·Wkᵀ));  v = h·Wvᵀ, or h·Wkᵀ where there is no Wv, normed without a weight
 *   o = softmax attention over the document;  y = o·Woᵀ
 *
 * Norms are of each head. A layer that borrows has no k and v; those of a layer that lends are kept until all later layers
 * have used them (lent.h): in a pass with a cache they are there. In backward a borrower adds its gradient of k and v to
 * two sums of the lender, last layer first, from which the lender's backward goes on. */
#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/core/pass.h"
#include "model/parts/attend.h"
#include "model/core/lent.h"

enum { QKV, Q, K, V, Q_RSTD, K_RSTD, V_RSTD, OUT, LSE, N_SAVED };

_Static_assert(N_SAVED == AX_LENDING_SAVED, "the number is in part.h, too");

#define NAME(tail) "model.layers.%d.self_attn." tail

static void lending_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const struct ax_layer_spec *spec = &l->spec;
    const int64_t D = a->hidden_size, hd = spec->head_dim;
    const bool whole = ax_tp_kv_replicated(b->mesh, spec->kv_heads);
    struct ax_attention_part *att = &l->attention;
    const struct ax_param_decl q = {
        .name = NAME("q_proj.weight"), .rows = a->n_heads * hd, .cols = D};
    const struct ax_param_decl o = {
        .name = NAME("o_proj.weight"), .rows = D, .cols = a->n_heads * hd, .tp_dim = 1};
    struct ax_param_decl kv = {.name = NAME("k_proj.weight"),
                               .rows = spec->kv_heads * hd,
                               .cols = D,
                               .glue = true,
                               .tp_dim = whole ? -1 : 0,
                               .grad_partial_over = whole ? AX_TP_PARTIAL : 0};
    att->qkv.unit = att->o.unit = l->unit;
    att->qkv.n_parts = spec->borrows ? 1 : spec->values_of_keys ? 2 : 3;
    att->qkv.weight[0] = ax_builder_add(b, l->index, &q);
    if (att->qkv.n_parts > 1)
        att->qkv.weight[1] = ax_builder_add(b, l->index, &kv);
    kv.name = NAME("v_proj.weight");
    if (att->qkv.n_parts > 2)
        att->qkv.weight[2] = ax_builder_add(b, l->index, &kv);
    att->o.n_parts = 1;
    att->o.split = AX_SPLIT_INPUTS;
    att->o.weight[0] = ax_builder_add(b, l->index, &o);
    att->q_norm = ax_builder_add_norm(b, l->index, a->q_norm, hd);
    if (!spec->borrows)
        att->k_norm = ax_builder_add_norm(b, l->index, a->k_norm, hd);
}

static int lending_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->attention.qkv;
    out[1] = &l->attention.o;
    return 2;
}

static struct ax_part_size lending_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    const int64_t kinds = spec->borrows ? 0 : spec->values_of_keys ? 1 : 2;
    const int64_t heads = 2 * a->n_heads + kinds * spec->kv_heads;
    const int64_t matrices = a->hidden_size * heads * spec->head_dim;
    return (struct ax_part_size){matrices, matrices, (spec->borrows ? 1 : 2) * spec->head_dim};
}

static int64_t q_heads(const struct ax_layer *l) {
    return l->attention.o.weight[0]->local_shape[1] / l->spec.head_dim;
}

/* The layer's keys and values that others use, or NULL. */
static const struct ax_lent *lent_by(const struct ax_layer *l, const struct ax_pass *p) {
    const struct ax_lent *lent = &p->slot->lent[l->index];
    return l->spec.lends && lent->k.data ? lent : NULL;
}

static void lending_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const struct ax_layer_spec *spec = &l->spec;
    const int64_t T = p->batch->T, hd = spec->head_dim, Hq = q_heads(l),
                  Hk = ax_lent_heads(m, spec);
    const struct ax_tensor kv = ax_tensor_2d(m->dtype, NULL, T, Hk * hd);
    ax_saved_declare(&s[QKV], "attention q, k, v", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, ax_linear_out(&l->attention.qkv)));
    ax_saved_declare(&s[Q], "attention normed q", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, T, Hq * hd));
    ax_saved_declare(&s[Q_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_2d(m->accum, NULL, T, Hq));
    ax_saved_declare(&s[OUT], "attention output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, Hq * hd));
    ax_saved_declare(&s[LSE], "attention lse", AX_KEEP_COSTLY, ax_tensor_2d(m->accum, NULL, T, Hq));
    if (spec->borrows)
        return;
    if (!lent_by(l, p)) {
        ax_saved_declare(&s[K], "attention normed k", AX_KEEP_CHEAP, kv);
        ax_saved_declare(&s[V], "attention normed v", AX_KEEP_CHEAP, kv);
    }
    ax_saved_declare(&s[K_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_2d(m->accum, NULL, T, Hk));
    ax_saved_declare(&s[V_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_2d(m->accum, NULL, T, Hk));
}

/* Views of what the matrices give, or of its gradient, [T][H][hd]; v is k where there is no v_proj. A borrower has
 * only q. */
struct views {
    struct ax_tensor q, k, v;
};
static struct views views_of(const struct ax_layer *l, const struct ax_model *m,
                             const struct ax_tensor *joined) {
    const int64_t hd = l->spec.head_dim, Hq = q_heads(l), Hk = ax_lent_heads(m, &l->spec);
    struct ax_tensor t = ax_tensor_cols(joined, 0, Hq * hd);
    struct views views = {.q = ax_tensor_heads(&t, Hq, hd)};
    if (l->spec.borrows)
        return views;
    t = ax_tensor_cols(joined, Hq * hd, Hk * hd);
    views.k = views.v = ax_tensor_heads(&t, Hk, hd);
    if (l->spec.values_of_keys)
        return views;
    t = ax_tensor_cols(joined, (Hq + Hk) * hd, Hk * hd);
    views.v = ax_tensor_heads(&t, Hk, hd);
    return views;
}

static enum ax_status rotate(const struct ax_layer *l, const struct ax_pass *p,
                             const struct ax_tensor *heads, bool inverse) {
    const struct ax_model *m = p->model;
    const struct ax_rope_table *rope = &m->ropes[l->spec.rope];
    return ax_run_rope(m->rt->q, &(struct ax_rope){.x = *heads,
                                                   .cos = rope->cos,
                                                   .sin = rope->sin,
                                                   .positions = p->batch->positions,
                                                   .inverse = inverse});
}

/* The weight of a norm without one. */
static struct ax_tensor ones(const struct ax_layer *l, const struct ax_pass *p) {
    return ax_tensor_rows(&p->model->ones, 0, l->spec.head_dim);
}

static enum ax_status norm_values(const struct ax_layer *l, const struct ax_pass *p,
                                  const struct ax_tensor *x, const struct ax_tensor *y,
                                  const struct ax_tensor *rstd) {
    const struct ax_arch *a = &p->model->arch;
    return ax_run_rmsnorm_forward(p->model->rt->q,
                                  &(struct ax_rmsnorm_forward){.x = *x,
                                                               .weight = ones(l, p),
                                                               .y = *y,
                                                               .rstd = *rstd,
                                                               .eps = a->norm_eps,
                                                               .once = true});
}

/* Keys and values that a layer makes, or uses; in a pass with a cache those that others make are there. */
struct keys {
    struct ax_tensor k, v; /* [T][H][hd] */
};
static struct keys keys_of(const struct ax_layer *l, const struct ax_pass *p,
                           const struct ax_saved *s) {
    const int64_t hd = l->spec.head_dim, Hk = ax_lent_heads(p->model, &l->spec);
    const struct ax_lent *lent = l->spec.borrows ? &p->slot->lent[l->spec.source] : lent_by(l, p);
    return (struct keys){.k = ax_tensor_heads(lent ? &lent->k : &s[K].t, Hk, hd),
                         .v = ax_tensor_heads(lent ? &lent->v : &s[V].t, Hk, hd)};
}

/* What is missing of q, k and v. Those that were kept for borrowers come out again as they were. */
static enum ax_status project(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                              const struct ax_tensor *h) {
    const struct ax_model *m = p->model;
    const struct ax_attention_part *att = &l->attention;
    const struct views raw = views_of(l, m, &s[QKV].t);
    if (ax_saved_make(&s[QKV]))
        AX_TRY(ax_linear_forward(m->rt, &att->qkv, h, NULL, &s[QKV].t));
    if (ax_saved_make(&s[Q])) {
        const struct ax_tensor q = ax_tensor_heads(&s[Q].t, q_heads(l), l->spec.head_dim);
        AX_TRY(ax_norm_forward(p, l->unit, att->q_norm, &raw.q, &q, &s[Q_RSTD].t));
        AX_TRY(rotate(l, p, &q, false));
    }
    if (l->spec.borrows || !ax_saved_make(&s[K_RSTD]))
        return AX_OK;
    const struct keys own = keys_of(l, p, s);
    AX_TRY(ax_norm_forward(p, l->unit, att->k_norm, &raw.k, &own.k, &s[K_RSTD].t));
    AX_TRY(rotate(l, p, &own.k, false));
    return norm_values(l, p, &raw.v, &own.v, &s[V_RSTD].t);
}

static struct ax_attention operands(const struct ax_layer *l, const struct ax_pass *p,
                                    const struct ax_saved *s) {
    const int64_t hd = l->spec.head_dim, Hq = q_heads(l);
    struct ax_attention att = {.q = ax_tensor_heads(&s[Q].t, Hq, hd),
                               .out = ax_tensor_heads(&s[OUT].t, Hq, hd),
                               .lse = s[LSE].t,
                               .window = l->spec.window,
                               .scale = p->model->arch.softmax_scale};
    if (p->cache && l->spec.borrows)
        return att;
    const struct keys used = keys_of(l, p, s);
    att.k = ax_own_kv_heads(p, l, &used.k);
    att.v = ax_own_kv_heads(p, l, &used.v);
    return att;
}

static enum ax_status lending_forward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *x, const struct ax_tensor *out) {
    AX_TRY(project(l, p, s, h));
    if (ax_saved_make(&s[OUT])) {
        const struct ax_attention all = operands(l, p, s);
        AX_TRY(p->cache && l->spec.borrows ? ax_attend_cached(p, l, &all)
                                           : ax_attend_forward(p, l, &all));
    }
    return out ? ax_linear_forward(p->model->rt, &l->attention.o, &s[OUT].t, x, out) : AX_OK;
}

/* Gradients of normed heads, dense [T][H·hd] in scratch; to which keys of other ranks' queries add nothing. */
struct gradients {
    struct ax_tensor q, k, v;
};

static enum ax_status attend_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *d_out,
                                      const struct gradients *d) {
    struct ax_queue *q = p->model->rt->q;
    const int64_t hd = l->spec.head_dim, Hq = q_heads(l), Hk = ax_lent_heads(p->model, &l->spec);
    const struct ax_tensor k = ax_tensor_heads(&d->k, Hk, hd), v = ax_tensor_heads(&d->v, Hk, hd);
    if (ax_tp_kv_replicated(&p->model->rt->mesh, l->spec.kv_heads)) {
        AX_TRY(ax_run_fill(q, &(struct ax_fill){d->k, 0}));
        AX_TRY(ax_run_fill(q, &(struct ax_fill){d->v, 0}));
    }
    const struct ax_attention_backward back = {.a = operands(l, p, s),
                                               .dout = ax_tensor_heads(d_out, Hq, hd),
                                               .dq = ax_tensor_heads(&d->q, Hq, hd),
                                               .dk = ax_own_kv_heads(p, l, &k),
                                               .dv = ax_own_kv_heads(p, l, &v)};
    return ax_attend_backward(p, l, &back);
}

/* Of a lender, what its borrowers have returned; of a borrower, this returns it. */
static enum ax_status exchange(const struct ax_layer *l, const struct ax_pass *p,
                               const struct gradients *d) {
    struct ax_queue *q = p->model->rt->q;
    const struct ax_lent *lent = &p->slot->lent[l->spec.borrows ? l->spec.source : l->index];
    if (l->spec.borrows) {
        AX_TRY(ax_run_add(q, &(struct ax_add){lent->dk, d->k, 1}));
        return ax_run_add(q, &(struct ax_add){lent->dv, d->v, 1});
    }
    if (!l->spec.lends)
        return AX_OK;
    AX_TRY(ax_run_add(q, &(struct ax_add){d->k, lent->dk, 1}));
    return ax_run_add(q, &(struct ax_add){d->v, lent->dv, 1});
}

/* From gradients of normed heads to those of what the matrices gave. */
static enum ax_status norms_backward(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct gradients *d,
                                     const struct ax_tensor *d_joined) {
    const struct ax_model *m = p->model;
    const struct ax_attention_part *att = &l->attention;
    const int64_t hd = l->spec.head_dim, Hk = ax_lent_heads(m, &l->spec);
    const struct views raw = views_of(l, m, &s[QKV].t), to = views_of(l, m, d_joined);
    const struct ax_tensor q = ax_tensor_heads(&d->q, q_heads(l), hd);
    AX_TRY(rotate(l, p, &q, true));
    AX_TRY(ax_norm_backward(p, l->unit, att->q_norm, &q, &raw.q, &s[Q_RSTD].t, &to.q, false));
    if (l->spec.borrows)
        return AX_OK;
    const struct ax_tensor k = ax_tensor_heads(&d->k, Hk, hd), v = ax_tensor_heads(&d->v, Hk, hd);
    AX_TRY(rotate(l, p, &k, true));
    AX_TRY(ax_norm_backward(p, l->unit, att->k_norm, &k, &raw.k, &s[K_RSTD].t, &to.k, false));
    return ax_run_rmsnorm_backward(
        m->rt->q, &(struct ax_rmsnorm_backward){.dy = v,
                                                .x = raw.v,
                                                .weight = ones(l, p),
                                                .rstd = s[V_RSTD].t,
                                                .dx = to.v,
                                                .accumulate = l->spec.values_of_keys});
}

static enum ax_status lending_backward(const struct ax_layer *l, struct ax_pass *p,
                                       struct ax_saved *s, const struct ax_tensor *h,
                                       const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t Hk = ax_lent_heads(p->model, &l->spec);
    const struct ax_tensor kv =
        ax_tensor_2d(p->model->dtype, NULL, p->batch->T, Hk * l->spec.head_dim);
    const struct ax_tensor d_joined = ax_stack_take(scratch, "gradient of q, k, v", s[QKV].t);
    const size_t inner = ax_stack_mark(scratch);
    const struct ax_tensor d_out = ax_stack_take(scratch, "gradient of attention", s[OUT].t);
    const struct gradients d = {.q = ax_stack_take(scratch, "gradient of attention", s[Q].t),
                                .k = ax_stack_take(scratch, "gradient of attention", kv),
                                .v = ax_stack_take(scratch, "gradient of attention", kv)};
    AX_TRY(ax_linear_backward(rt, &l->attention.o, &s[OUT].t, dy, &d_out));
    AX_TRY(attend_backward(l, p, s, &d_out, &d));
    AX_TRY(exchange(l, p, &d));
    AX_TRY(norms_backward(l, p, s, &d, &d_joined));
    ax_stack_release(scratch, inner);
    AX_TRY(ax_linear_backward(rt, &l->attention.qkv, h, &d_joined, dh));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_lending = {
    .name = "lending attention",
    .n_saved = N_SAVED,
    .keys = true,
    .two_linears = true,
    .between = OUT,
    .init = lending_init,
    .linears = lending_linears,
    .size = lending_size,
    .mixing = ax_attention_flops,
    .declare = lending_declare,
    .forward = lending_forward,
    .backward = lending_backward,
};
