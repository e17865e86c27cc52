/* Grouped-query attention with rotary positions:
 *
 *   q, k, v = h·Wqkvᵀ (+ b);  in families with q/k norms: q, k = norm(q), norm(k)
 *   q, k = rope(q), rope(k);  o = softmax attention over the document;  y = o·Woᵀ
 *
 * Heads of v may have another size than those of q and k, and a factor. How many there are, which rope, a window, a cap of the scores
 * and sinks are the layer's and the family's to say (arch.h). With a KV cache, k and v are first
 * written to it, and attention reads the cache. */
#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/core/own_columns.h"
#include "model/core/pass.h"
#include "model/parts/attend.h"

/* ---- q, k and v ---- */

/* The projections to q, k and v of this rank's heads: from a matrix each, or from one for all
 * three (model/core/own_columns.h). */

/* How many heads this rank computes: all heads of k and v if there are fewer than ranks of tp. */
static int64_t qkv_q_heads(const struct ax_layer *l, const struct ax_arch *a) {
    return l->attention.o.weight[0]->local_shape[1] / a->v_head_dim;
}
static int64_t qkv_kv_heads(const struct ax_layer *l, const struct ax_arch *a) {
    const int64_t tp = a->n_heads / qkv_q_heads(l, a), all = ax_layer_kv_heads(a, &l->spec);
    return all < tp ? all : all / tp;
}

/* Columns of these heads in the one matrix for q, k and v. */
static struct ax_own_columns own_heads(const struct ax_layer *l, const struct ax_pass *p) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    const int64_t rank = mesh->coord[AX_ROLE_TP], Hq = qkv_q_heads(l, a), Hk = qkv_kv_heads(l, a);
    const int64_t hd = a->head_dim, vd = a->v_head_dim, k = a->n_heads * hd;
    const int64_t kv = ax_layer_kv_heads(a, &l->spec);
    const int64_t first_kv = ax_tp_kv_replicated(mesh, kv) ? 0 : rank * Hk;
    return (struct ax_own_columns){3,
                                   {{rank * Hq * hd, Hq * hd},
                                    {k + first_kv * hd, Hk * hd},
                                    {k + kv * hd + first_kv * vd, Hk * vd}}};
}

/* ---- parameters ---- */

enum { QKV, QK, Q_RSTD, K_RSTD, OUT, LSE, N_SAVED };
_Static_assert(N_SAVED == AX_ATTENTION_SAVED, "of a part that has this one inside it");

static void add_linear(struct ax_builder *b, struct ax_layer *l, struct ax_linear *lin, int n,
                       const struct ax_param_decl *decls, bool bias) {
    lin->unit = l->unit;
    lin->n_parts = n;
    for (int i = 0; i < n; i++)
        *(bias ? &lin->bias[i] : &lin->weight[i]) = ax_builder_add(b, l->index, &decls[i]);
}

/* q, k and v, each with its matrix, or all in one. */
static void add_qkv(struct ax_builder *b, struct ax_layer *l, bool bias) {
#define OF(tail, n)                                                                                \
    { .name = "model.layers.%d.self_attn." tail, .rows = (n), .cols = bias ? 0 : a->hidden_size }
    const struct ax_arch *a = b->arch;
    const int64_t kv_heads = ax_layer_kv_heads(a, &l->spec);
    const int64_t Q = a->n_heads * a->head_dim, K = kv_heads * a->head_dim,
                  V = kv_heads * a->v_head_dim;
    struct ax_param_decl apart[2][3] = {
        {OF("q_proj.weight", Q), OF("k_proj.weight", K), OF("v_proj.weight", V)},
        {OF("q_proj.bias", Q), OF("k_proj.bias", K), OF("v_proj.bias", V)}};
    struct ax_param_decl joined = OF("qkv_proj.weight", Q + K + V);
#undef OF
    joined.tp_dim = -1;
    joined.grad_partial_over = AX_TP_PARTIAL;
    const bool whole = ax_tp_kv_replicated(b->mesh, kv_heads);
    for (int i = 1; i < 3; i++) {
        struct ax_param_decl *kv = &apart[bias][i];
        kv->glue = true;
        kv->tp_dim = whole ? -1 : 0;
        kv->grad_partial_over = whole ? AX_TP_PARTIAL : 0;
    }
    if (a->fused_qkv) {
        add_linear(b, l, &l->attention.qkv, 1, &joined, false);
        l->attention.qkv.split = AX_SPLIT_NONE;
    } else {
        add_linear(b, l, &l->attention.qkv, 3, apart[bias], bias);
    }
}

static void attention_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    struct ax_attention_part *att = &l->attention;
    const struct ax_param_decl o = {.name = "model.layers.%d.self_attn.o_proj.weight",
                                    .rows = a->hidden_size,
                                    .cols = a->n_heads * a->v_head_dim,
                                    .tp_dim = 1};
    const struct ax_param_decl o_bias = {.name = "model.layers.%d.self_attn.o_proj.bias",
                                         .rows = a->hidden_size,
                                         .tp_dim = -1,
                                         .grad_partial_over = AX_TP_PARTIAL};
    const struct ax_param_decl sinks = {.name = "model.layers.%d.self_attn.sinks",
                                        .rows = a->n_heads};
    const bool full = a->qk_norm == AX_QK_NORM_FULL;
    add_qkv(b, l, false);
    if (a->qkv_bias)
        add_qkv(b, l, true);
    add_linear(b, l, &att->o, 1, &o, false);
    att->o.split = AX_SPLIT_INPUTS;
    if (a->o_bias)
        add_linear(b, l, &att->o, 1, &o_bias, true);
    if (l->spec.sinks)
        att->sinks = ax_builder_add(b, l->index, &sinks);
    if (!a->qk_norm || a->qk_norm == AX_QK_NORM_UNIT)
        return;
    att->q_norm =
        ax_builder_add_norm(b, l->index, a->q_norm, a->head_dim * (full ? a->n_heads : 1));
    att->k_norm = ax_builder_add_norm(b, l->index, a->k_norm,
                                      a->head_dim * (full ? ax_layer_kv_heads(a, &l->spec) : 1));
}

static int attention_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->attention.qkv;
    out[1] = &l->attention.o;
    return 2;
}

static struct ax_part_size attention_size(const struct ax_arch *a,
                                          const struct ax_layer_spec *spec) {
    const int64_t kv_heads = ax_layer_kv_heads(a, spec);
    const int64_t qk = (a->n_heads + kv_heads) * a->head_dim;
    const int64_t v = kv_heads * a->v_head_dim, o = a->n_heads * a->v_head_dim;
    const int64_t qk_norm[] = {
        [AX_QK_NORM_HEAD] = 2 * a->head_dim, [AX_QK_NORM_FULL] = qk, [AX_QK_NORM_UNIT] = 0};
    const int64_t matrices = a->hidden_size * (qk + v + o);
    return (struct ax_part_size){matrices, matrices,
                                 (a->qkv_bias ? qk + v : 0) + (a->o_bias ? a->hidden_size : 0) +
                                     qk_norm[a->qk_norm] + (spec->sinks ? a->n_heads : 0)};
}

static bool norms_heads(const struct ax_layer *l, const struct ax_arch *a) {
    return a->qk_norm && !(a->qk_norm == AX_QK_NORM_UNIT && l->spec.rope == AX_ROPE_NONE);
}

/* True if a norm of all of these heads has some on other ranks: then each rank norms some rows, of all heads. */
static bool exchanges(const struct ax_model *m, int64_t heads, int64_t all) {
    return m->arch.qk_norm == AX_QK_NORM_FULL && heads < all;
}

/* Shape of the rstd of a norm of `heads` of all of a token's heads: per head, or per token. */
static struct ax_tensor norm_rstd(const struct ax_pass *p, int64_t heads, int64_t all) {
    const struct ax_model *m = p->model;
    const int64_t T = p->batch->T;
    if (m->arch.qk_norm != AX_QK_NORM_FULL)
        return ax_tensor_2d(m->accum, NULL, T, heads);
    return ax_tensor_1d(m->accum, NULL, exchanges(m, heads, all) ? ax_tp_rows(m->rt, T) : T);
}
/* [T][H][hd] as its norm reads it: unchanged, or as [T][H·hd]. */
static struct ax_tensor norm_rows(const struct ax_model *m, const struct ax_tensor *heads) {
    if (m->arch.qk_norm != AX_QK_NORM_FULL)
        return *heads;
    struct ax_tensor rows =
        ax_tensor_2d(heads->dtype, heads->data, heads->shape[0], heads->shape[1] * heads->shape[2]);
    rows.row_stride = heads->row_stride;
    return rows;
}

static void attention_declare(const struct ax_layer *l, const struct ax_pass *p,
                              struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const struct ax_arch *a = &m->arch;
    const int64_t T = p->batch->T, hd = a->head_dim, vd = a->v_head_dim;
    const int64_t Hq = qkv_q_heads(l, a), Hk = qkv_kv_heads(l, a);
    ax_saved_declare(&s[QKV], "attention q, k, v", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, (Hq + Hk) * hd + Hk * vd));
    if (norms_heads(l, a)) {
        /* all of them in one go: what was exchanged is kept */
        const enum ax_keep keep = exchanges(m, Hq, a->n_heads) ? AX_KEEP_COSTLY : AX_KEEP_CHEAP;
        ax_saved_declare(&s[QK], "attention normed q, k", keep,
                         ax_tensor_2d(m->dtype, NULL, T, (Hq + Hk) * hd));
        ax_saved_declare(&s[Q_RSTD], "norm rstd", keep, norm_rstd(p, Hq, a->n_heads));
        ax_saved_declare(&s[K_RSTD], "norm rstd", keep, norm_rstd(p, Hk, a->n_kv_heads));
    }
    ax_saved_declare(&s[OUT], "attention output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, Hq * vd));
    ax_linear_declare_input(m->rt, &l->attention.o, &s[OUT]);
    ax_saved_declare(&s[LSE], "attention lse", AX_KEEP_COSTLY, ax_tensor_2d(m->accum, NULL, T, Hq));
}

/* q, k, v as [T][H][…] views of [q | k | v] (of [q | k], v is not set). */
struct heads {
    struct ax_tensor q, k, v;
};
static struct heads split_heads(const struct ax_layer *l, const struct ax_arch *a,
                                const struct ax_tensor *joined) {
    const int64_t hd = a->head_dim, Hq = qkv_q_heads(l, a), Hk = qkv_kv_heads(l, a);
    struct heads h = {0};
    struct ax_tensor t = ax_tensor_cols(joined, 0, Hq * hd);
    h.q = ax_tensor_heads(&t, Hq, hd);
    t = ax_tensor_cols(joined, Hq * hd, Hk * hd);
    h.k = ax_tensor_heads(&t, Hk, hd);
    if (joined->shape[1] > (Hq + Hk) * hd) {
        t = ax_tensor_cols(joined, (Hq + Hk) * hd, Hk * a->v_head_dim);
        h.v = ax_tensor_heads(&t, Hk, a->v_head_dim);
    }
    return h;
}

/* Applies a rope to heads [first, first + heads) of `joined`. */
static enum ax_status rotate_heads(struct ax_pass *p, const struct ax_tensor *joined, int64_t first,
                                   int64_t heads, int use, bool inverse) {
    const struct ax_model *m = p->model;
    const int64_t hd = m->arch.head_dim;
    const struct ax_tensor part = ax_tensor_cols(joined, first * hd, heads * hd);
    return ax_run_rope(m->rt->q, &(struct ax_rope){.x = ax_tensor_heads(&part, heads, hd),
                                                   .cos = m->ropes[use].cos,
                                                   .sin = m->ropes[use].sin,
                                                   .positions = p->batch->positions,
                                                   .interleaved = m->arch.rope.interleaved,
                                                   .inverse = inverse});
}

/* Applies rope to the heads of q and k, which are contiguous in `joined`. */
static enum ax_status rotate(const struct ax_layer *l, struct ax_pass *p,
                             const struct ax_tensor *joined, bool inverse) {
    const struct ax_arch *a = &p->model->arch;
    const int64_t q = qkv_q_heads(l, a), k = qkv_kv_heads(l, a);
    const bool keys = l->spec.rope != AX_ROPE_NONE;
    if (!l->spec.own_queries)
        return keys ? rotate_heads(p, joined, 0, q + k, l->spec.rope, inverse) : AX_OK;
    AX_TRY(rotate_heads(p, joined, 0, q, AX_ROPE_QUERIES, inverse));
    return keys ? rotate_heads(p, joined, q, k, l->spec.rope, inverse) : AX_OK;
}

/* v, or its gradient, times the family's factor, in place. */
static enum ax_status scale_values(const struct ax_layer *l, const struct ax_pass *p,
                                   const struct ax_tensor *joined) {
    const struct ax_arch *a = &p->model->arch;
    const int64_t n = qkv_kv_heads(l, a) * a->v_head_dim;
    const struct ax_tensor v = ax_tensor_cols(joined, joined->shape[1] - n, n);
    return a->value_scale == 1
               ? AX_OK
               : ax_run_scale(p->model->rt->q,
                              &(struct ax_scale){.y = v, .x = v, .alpha = a->value_scale});
}

/* The layer's sinks in accumulation dtype, in scratch; no data without. */
static enum ax_status sinks_of(const struct ax_layer *l, const struct ax_pass *p,
                               struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    if (!l->attention.sinks)
        return AX_OK;
    const struct ax_tensor stored = ax_unit_weight(l->unit, l->attention.sinks);
    *out = ax_stack_take(&m->rt->arena.scratch, "attention sinks",
                         ax_tensor_1d(m->accum, NULL, stored.shape[0]));
    return ax_run_copy(m->rt->q, &(struct ax_copy){.dst = *out, .src = stored});
}

/* Attention's operands: q and k ready for the dot product, and v; sinks in scratch. */
static enum ax_status operands(const struct ax_layer *l, const struct ax_pass *p,
                               const struct ax_saved *s, struct ax_attention *out) {
    const struct ax_arch *a = &p->model->arch;
    struct heads h = split_heads(l, a, &s[QKV].t);
    if (norms_heads(l, a)) {
        const struct heads normed = split_heads(l, a, &s[QK].t);
        h.q = normed.q;
        h.k = normed.k;
    }
    *out =
        (struct ax_attention){.q = h.q,
                              .k = ax_own_kv_heads(p, l, &h.k),
                              .v = ax_own_kv_heads(p, l, &h.v),
                              .out = ax_tensor_heads(&s[OUT].t, qkv_q_heads(l, a), a->v_head_dim),
                              .lse = s[LSE].t,
                              .window = l->spec.window,
                              .scale = a->softmax_scale,
                              .softcap = a->score_softcap};
    return sinks_of(l, p, &out->sink);
}

/* Memory for this rank's rows of all heads, in scratch. */
static struct ax_tensor take_rows(const struct ax_pass *p, const struct ax_tensor *x) {
    const struct ax_runtime *rt = p->model->rt;
    const int64_t rows = ax_tp_rows(rt, x->shape[0]);
    return ax_stack_take(&p->model->rt->arena.scratch, "rows of all heads",
                         ax_tensor_2d(x->dtype, NULL, rows, x->shape[1] * x->shape[0] / rows));
}

/* Of rows, unless rstd is of fewer: then of all ranks' columns (see exchanges). */
static enum ax_status norm_forward(const struct ax_layer *l, struct ax_pass *p,
                                   const struct ax_param *w, const struct ax_tensor *x,
                                   const struct ax_tensor *y, const struct ax_tensor *rstd) {
    struct ax_runtime *rt = p->model->rt;
    if (rstd->shape[0] == x->shape[0])
        return ax_norm_forward(p, l->unit, w, x, y, rstd);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor rows = take_rows(p, x), normed = take_rows(p, x);
    AX_TRY(ax_tp_to_rows(rt, x, &rows));
    AX_TRY(ax_norm_forward(p, l->unit, w, &rows, &normed, rstd));
    AX_TRY(ax_tp_to_columns(rt, &normed, y));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* d: in, the gradient of y; out, that of x. */
static enum ax_status norm_backward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_param *w, const struct ax_tensor *x,
                                    const struct ax_tensor *rstd, const struct ax_tensor *d) {
    struct ax_runtime *rt = p->model->rt;
    if (rstd->shape[0] == x->shape[0])
        return ax_norm_backward(p, l->unit, w, d, x, rstd, d, false);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor rows = take_rows(p, x), d_rows = take_rows(p, x);
    AX_TRY(ax_tp_to_rows(rt, x, &rows));
    AX_TRY(ax_tp_to_rows(rt, d, &d_rows));
    AX_TRY(ax_norm_backward(p, l->unit, w, &d_rows, &rows, rstd, &d_rows, false));
    AX_TRY(ax_tp_to_columns(rt, &d_rows, d));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* Normalizes the heads of q and k from raw into normed. */
static enum ax_status norm_heads(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                 const struct heads *raw, const struct heads *normed) {
    const struct ax_model *m = p->model;
    const struct ax_attention_part *att = &l->attention;
    const struct ax_tensor q = norm_rows(m, &raw->q), k = norm_rows(m, &raw->k);
    const struct ax_tensor to_q = norm_rows(m, &normed->q), to_k = norm_rows(m, &normed->k);
    AX_TRY(norm_forward(l, p, att->q_norm, &q, &to_q, &s[Q_RSTD].t));
    return norm_forward(l, p, att->k_norm, &k, &to_k, &s[K_RSTD].t);
}

/* Their gradients, in place. */
static enum ax_status norm_heads_backward(const struct ax_layer *l, struct ax_pass *p,
                                          struct ax_saved *s, const struct heads *raw,
                                          const struct heads *d) {
    const struct ax_model *m = p->model;
    const struct ax_attention_part *att = &l->attention;
    const struct ax_tensor q = norm_rows(m, &raw->q), k = norm_rows(m, &raw->k);
    const struct ax_tensor dq = norm_rows(m, &d->q), dk = norm_rows(m, &d->k);
    AX_TRY(norm_backward(l, p, att->q_norm, &q, &s[Q_RSTD].t, &dq));
    return norm_backward(l, p, att->k_norm, &k, &s[K_RSTD].t, &dk);
}

static enum ax_status project(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                              const struct ax_tensor *h) {
    const struct ax_arch *a = &p->model->arch;
    const struct heads raw = split_heads(l, a, &s[QKV].t);
    const bool norms = norms_heads(l, a);
    if (ax_saved_make(&s[QKV])) {
        const struct ax_own_columns own = own_heads(l, p);
        AX_TRY(ax_own_columns_forward(p->model->rt, &l->attention.qkv, &own, h, &s[QKV].t));
        AX_TRY(scale_values(l, p, &s[QKV].t));
        if (!norms || a->qk_norm_after)
            AX_TRY(rotate(l, p, &s[QKV].t, false));
    }
    if (!norms || !ax_saved_make(&s[QK]))
        return AX_OK;
    const struct heads normed = split_heads(l, a, &s[QK].t);
    AX_TRY(norm_heads(l, p, s, &raw, &normed));
    return a->qk_norm_after ? AX_OK : rotate(l, p, &s[QK].t, false);
}

/* The range of attention's output, which no op of attention leaves: once for forward and backward. */
static enum ax_status find_range(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_range_of range = ax_linear_input_range(rt, &l->attention.o, out);
    const struct ax_quant_range a = {.x = ax_tensor_rows(out, 0, range.rows), .range = range.t};
    if (!range.t.data)
        return AX_OK;
    return range.rows > 0 ? ax_run_quant_range(rt->q, &a)
                          : ax_run_fill(rt->q, &(struct ax_fill){range.t, 0});
}

static enum ax_status attend(const struct ax_layer *l, struct ax_pass *p,
                             const struct ax_saved *s) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_attention all;
    AX_TRY(operands(l, p, s, &all));
    AX_TRY(ax_attend_forward(p, l, &all));
    ax_stack_release(scratch, mark);
    return find_range(l, p, &s[OUT].t);
}

static enum ax_status attention_forward(const struct ax_layer *l, struct ax_pass *p,
                                        struct ax_saved *s, const struct ax_tensor *h,
                                        const struct ax_tensor *x, const struct ax_tensor *out) {
    AX_TRY(project(l, p, s, h));
    if (ax_saved_make(&s[OUT]))
        AX_TRY(attend(l, p, s));
    return out ? ax_linear_forward(p->model->rt, &l->attention.o, &s[OUT].t, x, out) : AX_OK;
}

/* d_qkv from d_out. KV heads that other ranks' queries use get no gradient here. */
static enum ax_status attend_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *d_out,
                                      const struct ax_tensor *d_qkv) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_arch *a = &p->model->arch;
    const struct heads d = split_heads(l, a, d_qkv);
    if (ax_tp_kv_replicated(&rt->mesh, ax_layer_kv_heads(a, &l->spec)))
        AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){*d_qkv, 0}));
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_attention_backward back = {
        .dout = ax_tensor_heads(d_out, qkv_q_heads(l, a), a->v_head_dim),
        .dq = d.q,
        .dk = ax_own_kv_heads(p, l, &d.k),
        .dv = ax_own_kv_heads(p, l, &d.v)};
    if (l->attention.sinks)
        back.dsink = ax_unit_grad(l->unit, l->attention.sinks);
    AX_TRY(operands(l, p, s, &back.a));
    AX_TRY(ax_attend_backward(p, l, &back));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status attention_backward(const struct ax_layer *l, struct ax_pass *p,
                                         struct ax_saved *s, const struct ax_tensor *h,
                                         const struct ax_tensor *dy, const struct ax_tensor *dh) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_attention_part *att = &l->attention;
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor d_out = s[OUT].t, d_qkv = s[QKV].t;
    d_out = ax_stack_take(scratch, "gradient of attention output", d_out);
    d_qkv = ax_stack_take(scratch, "gradient of q, k, v", d_qkv);
    const struct heads d = split_heads(l, a, &d_qkv);

    AX_TRY(ax_linear_backward(p->model->rt, &att->o, &s[OUT].t, dy, &d_out));
    AX_TRY(attend_backward(l, p, s, &d_out, &d_qkv));
    AX_TRY(scale_values(l, p, &d_qkv));
    const struct heads raw = split_heads(l, a, &s[QKV].t);
    if (norms_heads(l, a) && a->qk_norm_after)
        AX_TRY(norm_heads_backward(l, p, s, &raw, &d));
    AX_TRY(rotate(l, p, &d_qkv, true));
    if (norms_heads(l, a) && !a->qk_norm_after)
        AX_TRY(norm_heads_backward(l, p, s, &raw, &d));
    const struct ax_own_columns own = own_heads(l, p);
    AX_TRY(ax_own_columns_backward(p->model->rt, &att->qkv, &own, h, &d_qkv, dh));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_attention = {
    .name = "attention",
    .n_saved = N_SAVED,
    .keys = true,
    .two_linears = true,
    .between = OUT,
    .init = attention_init,
    .linears = attention_linears,
    .size = attention_size,
    .mixing = ax_attention_flops,
    .declare = attention_declare,
    .forward = attention_forward,
    .backward = attention_backward,
};
