/* Grouped-query attention whose output is gated, element by element (Qiu et al. 2025, "Gated Attention for Large
 * Language Models"), as in Qwen3-Next:
 *
 *   [q | gate] of each head = h·Wqᵀ;  k, v = h·Wkᵀ, h·Wvᵀ;  q, k = rope(norm(q)), rope(norm(k))
 *   o = softmax attention over the document;  y = (o ∘ σ(gate))·Woᵀ
 *
 * Norms are of each head. Where the gate has a matrix of its own, as in AFMoE, all of q come before all gates. */
#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/core/pass.h"
#include "model/parts/attend.h"

enum { QUERIES, KV, Q_NORMED, K_NORMED, Q_RSTD, K_RSTD, OUT, LSE, GATED, N_SAVED };

#define NAME(tail) "model.layers.%d.self_attn." tail

static void gated_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const int64_t D = a->hidden_size, hd = a->head_dim;
    const bool whole = ax_tp_kv_replicated(b->mesh, a->n_kv_heads);
    struct ax_attention_part *att = &l->attention;
    struct ax_param_decl kv = {.name = NAME("k_proj.weight"),
                               .rows = a->n_kv_heads * hd,
                               .cols = D,
                               .tp_dim = whole ? -1 : 0,
                               .grad_partial_over = whole ? AX_TP_PARTIAL : 0};
    att->q.unit = att->qkv.unit = att->o.unit = l->unit;
    att->o.n_parts = 1;
    att->q.n_parts = a->gate_apart ? 2 : 1;
    att->qkv.n_parts = 2;
    att->o.split = AX_SPLIT_INPUTS;
    struct ax_param_decl q = {.name = NAME("q_proj.weight"),
                              .rows = (a->gate_apart ? 1 : 2) * a->n_heads * hd,
                              .cols = D};
    att->q.weight[0] = ax_builder_add(b, l->index, &q);
    q.name = NAME("gate_proj.weight");
    q.glue = true;
    if (a->gate_apart)
        att->q.weight[1] = ax_builder_add(b, l->index, &q);
    att->qkv.weight[0] = ax_builder_add(b, l->index, &kv);
    kv.name = NAME("v_proj.weight");
    kv.glue = true;
    att->qkv.weight[1] = ax_builder_add(b, l->index, &kv);
    att->o.weight[0] = ax_builder_add(
        b, l->index,
        &(struct ax_param_decl){
            .name = NAME("o_proj.weight"), .rows = D, .cols = a->n_heads * hd, .tp_dim = 1});
    att->q_norm = ax_builder_add_norm(b, l->index, a->q_norm, hd);
    att->k_norm = ax_builder_add_norm(b, l->index, a->k_norm, hd);
}

static int gated_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->attention.q;
    out[1] = &l->attention.qkv;
    out[2] = &l->attention.o;
    return 3;
}

static struct ax_part_size gated_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)spec;
    const int64_t matrices = a->hidden_size * (3 * a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
    return (struct ax_part_size){matrices, matrices, 2 * a->head_dim};
}

static int64_t q_heads(const struct ax_layer *l, const struct ax_arch *a) {
    return l->attention.o.weight[0]->local_shape[1] / a->head_dim;
}
static int64_t kv_heads(const struct ax_layer *l, const struct ax_arch *a) {
    return l->attention.qkv.weight[0]->local_shape[0] / a->head_dim;
}

static void gated_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const struct ax_arch *a = &m->arch;
    const int64_t T = p->batch->T, hd = a->head_dim, Hq = q_heads(l, a), Hk = kv_heads(l, a);
    ax_saved_declare(&s[QUERIES], "attention q and gates", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, 2 * Hq * hd));
    ax_saved_declare(&s[KV], "attention k, v", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, 2 * Hk * hd));
    ax_saved_declare(&s[Q_NORMED], "attention normed q", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, T, Hq * hd));
    ax_saved_declare(&s[K_NORMED], "attention normed k", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, T, Hk * hd));
    ax_saved_declare(&s[Q_RSTD], "norm rstd", AX_KEEP_CHEAP,
                     a->gate_apart ? ax_tensor_2d(m->accum, NULL, T, Hq)
                                   : ax_tensor_1d(m->accum, NULL, T * Hq));
    ax_saved_declare(&s[K_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_2d(m->accum, NULL, T, Hk));
    ax_saved_declare(&s[OUT], "attention output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, Hq * hd));
    ax_saved_declare(&s[LSE], "attention lse", AX_KEEP_COSTLY, ax_tensor_2d(m->accum, NULL, T, Hq));
    ax_saved_declare(&s[GATED], "attention gated output", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, T, Hq * hd));
}

/* Dense [T][H·hd] as [T·H][hd]; of queries with gates, [T·H][2·hd]. */
static struct ax_tensor by_head(const struct ax_tensor *t, int64_t H) {
    return ax_tensor_2d(t->dtype, t->data, t->shape[0] * H, t->shape[1] / H);
}

/* A tensor in the shape of the gates. */
static struct ax_tensor as_gates(const struct ax_arch *a, const struct ax_tensor *t, int64_t H) {
    return a->gate_apart ? *t : by_head(t, H);
}
/* In that of q. */
static struct ax_tensor as_queries(const struct ax_arch *a, const struct ax_tensor *t, int64_t H) {
    return a->gate_apart ? ax_tensor_heads(t, H, a->head_dim) : by_head(t, H);
}

/* Views of a layer's tensors, or of their gradients: raw q and gates [T·Hq][hd], or q [T][Hq][hd] and gates [T][Hq·hd];
 * raw k and v [T][Hk][hd]. */
struct views {
    struct ax_tensor q, gate, k, v;
};
static struct views views_of(const struct ax_layer *l, const struct ax_arch *a,
                             const struct ax_tensor *queries, const struct ax_tensor *kv) {
    const int64_t hd = a->head_dim, Hk = kv_heads(l, a), Hq = q_heads(l, a);
    const struct ax_tensor heads = by_head(queries, Hq);
    const struct ax_tensor k = ax_tensor_cols(kv, 0, Hk * hd),
                           v = ax_tensor_cols(kv, Hk * hd, Hk * hd),
                           q = ax_tensor_cols(queries, 0, Hq * hd);
    return (struct views){
        a->gate_apart ? ax_tensor_heads(&q, Hq, hd) : ax_tensor_cols(&heads, 0, hd),
        a->gate_apart ? ax_tensor_cols(queries, Hq * hd, Hq * hd) : ax_tensor_cols(&heads, hd, hd),
        ax_tensor_heads(&k, Hk, hd), ax_tensor_heads(&v, Hk, hd)};
}

static enum ax_status rotate(const struct ax_layer *l, const struct ax_pass *p,
                             const struct ax_tensor *t, int64_t heads, bool inverse) {
    const struct ax_model *m = p->model;
    if (l->spec.rope == AX_ROPE_NONE)
        return AX_OK;
    const struct ax_rope_table *rope = &m->ropes[l->spec.rope];
    return ax_run_rope(m->rt->q, &(struct ax_rope){.x = ax_tensor_heads(t, heads, m->arch.head_dim),
                                                   .cos = rope->cos,
                                                   .sin = rope->sin,
                                                   .positions = p->batch->positions,
                                                   .interleaved = m->arch.rope.interleaved,
                                                   .inverse = inverse});
}

static struct ax_attention operands(const struct ax_layer *l, const struct ax_pass *p,
                                    const struct ax_saved *s) {
    const struct ax_arch *a = &p->model->arch;
    const int64_t hd = a->head_dim, Hq = q_heads(l, a), Hk = kv_heads(l, a);
    const struct views raw = views_of(l, a, &s[QUERIES].t, &s[KV].t);
    const struct ax_tensor k = ax_tensor_heads(&s[K_NORMED].t, Hk, hd);
    return (struct ax_attention){.q = ax_tensor_heads(&s[Q_NORMED].t, Hq, hd),
                                 .k = ax_own_kv_heads(p, l, &k),
                                 .v = ax_own_kv_heads(p, l, &raw.v),
                                 .out = ax_tensor_heads(&s[OUT].t, Hq, hd),
                                 .lse = s[LSE].t,
                                 .window = l->spec.window,
                                 .scale = a->softmax_scale};
}

static enum ax_status normalize(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    const struct ax_arch *a = &p->model->arch;
    const int64_t Hq = q_heads(l, a), Hk = kv_heads(l, a);
    const struct views raw = views_of(l, a, &s[QUERIES].t, &s[KV].t);
    const struct ax_tensor q = as_queries(a, &s[Q_NORMED].t, Hq);
    const struct ax_tensor k = ax_tensor_heads(&s[K_NORMED].t, Hk, a->head_dim);
    AX_TRY(ax_norm_forward(p, l->unit, l->attention.q_norm, &raw.q, &q, &s[Q_RSTD].t));
    AX_TRY(ax_norm_forward(p, l->unit, l->attention.k_norm, &raw.k, &k, &s[K_RSTD].t));
    AX_TRY(rotate(l, p, &s[Q_NORMED].t, Hq, false));
    return rotate(l, p, &s[K_NORMED].t, Hk, false);
}

static const struct ax_gating sigmoid = {.gate = AX_GATE_SIGMOID};

static enum ax_status gated_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *h, const struct ax_tensor *x,
                                    const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_attention_part *att = &l->attention;
    const int64_t Hq = q_heads(l, &p->model->arch);
    if (ax_saved_make(&s[QUERIES]))
        AX_TRY(ax_linear_forward(rt, &att->q, h, NULL, &s[QUERIES].t));
    if (ax_saved_make(&s[KV]))
        AX_TRY(ax_linear_forward(rt, &att->qkv, h, NULL, &s[KV].t));
    if (ax_saved_make(&s[Q_NORMED]))
        AX_TRY(normalize(l, p, s));
    if (ax_saved_make(&s[OUT])) {
        const struct ax_attention all = operands(l, p, s);
        AX_TRY(ax_attend_forward(p, l, &all));
    }
    if (ax_saved_make(&s[GATED])) {
        const struct ax_arch *a = &p->model->arch;
        const struct views raw = views_of(l, a, &s[QUERIES].t, &s[KV].t);
        AX_TRY(ax_run_swiglu_forward(rt->q,
                                     &(struct ax_swiglu_forward){.gate_up = raw.gate,
                                                                 .up = as_gates(a, &s[OUT].t, Hq),
                                                                 .y = as_gates(a, &s[GATED].t, Hq),
                                                                 .how = sigmoid}));
    }
    return out ? ax_linear_forward(rt, &att->o, &s[GATED].t, x, out) : AX_OK;
}

static struct ax_tensor take(const struct ax_pass *p, const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, "gradient of attention", *like);
}

/* Gradients of the normed heads and of v, from that of attention's output. KV heads that other ranks' queries use
 * get none here. */
static enum ax_status attend_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *d_out,
                                      const struct ax_tensor *d_q, const struct ax_tensor *d_k,
                                      const struct ax_tensor *d_v) {
    const struct ax_arch *a = &p->model->arch;
    struct ax_queue *q = p->model->rt->q;
    const int64_t hd = a->head_dim, Hq = q_heads(l, a);
    const struct ax_tensor k = ax_tensor_heads(d_k, kv_heads(l, a), hd);
    if (ax_tp_kv_replicated(&p->model->rt->mesh, a->n_kv_heads)) {
        AX_TRY(ax_run_fill(q, &(struct ax_fill){*d_k, 0}));
        AX_TRY(ax_run_fill(q, &(struct ax_fill){*d_v, 0}));
    }
    const struct ax_attention_backward back = {.a = operands(l, p, s),
                                               .dout = ax_tensor_heads(d_out, Hq, hd),
                                               .dq = ax_tensor_heads(d_q, Hq, hd),
                                               .dk = ax_own_kv_heads(p, l, &k),
                                               .dv = ax_own_kv_heads(p, l, d_v)};
    return ax_attend_backward(p, l, &back);
}

static enum ax_status gated_backward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_arch *a = &p->model->arch;
    const struct ax_attention_part *att = &l->attention;
    const int64_t Hq = q_heads(l, a), Hk = kv_heads(l, a);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor d_queries = take(p, &s[QUERIES].t), d_kv = take(p, &s[KV].t);
    const struct ax_tensor d_gated = take(p, &s[GATED].t), d_out = take(p, &s[OUT].t);
    const struct ax_tensor d_q = d_gated,
                           d_k = take(p, &s[K_NORMED].t); /* gated's when it is used */
    const struct views raw = views_of(l, a, &s[QUERIES].t, &s[KV].t);
    const struct views d = views_of(l, a, &d_queries, &d_kv);
    AX_TRY(ax_linear_backward(rt, &att->o, &s[GATED].t, dy, &d_gated));
    AX_TRY(
        ax_run_swiglu_backward(rt->q, &(struct ax_swiglu_backward){.dy = as_gates(a, &d_gated, Hq),
                                                                   .gate_up = raw.gate,
                                                                   .up = as_gates(a, &s[OUT].t, Hq),
                                                                   .dgate_up = d.gate,
                                                                   .dup = as_gates(a, &d_out, Hq),
                                                                   .how = sigmoid}));
    AX_TRY(attend_backward(l, p, s, &d_out, &d_q, &d_k, &d.v));
    AX_TRY(rotate(l, p, &d_q, Hq, true));
    AX_TRY(rotate(l, p, &d_k, Hk, true));
    const struct ax_tensor q_normed = as_queries(a, &d_q, Hq);
    const struct ax_tensor k_normed = ax_tensor_heads(&d_k, Hk, a->head_dim);
    AX_TRY(ax_norm_backward(p, l->unit, att->q_norm, &q_normed, &raw.q, &s[Q_RSTD].t, &d.q, false));
    AX_TRY(ax_norm_backward(p, l->unit, att->k_norm, &k_normed, &raw.k, &s[K_RSTD].t, &d.k, false));
    AX_TRY(ax_linear_backward(rt, &att->q, h, &d_queries, dh));
    AX_TRY(ax_linear_backward_more(rt, &att->qkv, h, &d_kv, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_gated = {
    .name = "gated attention",
    .n_saved = N_SAVED,
    .keys = true,
    .init = gated_init,
    .linears = gated_linears,
    .size = gated_size,
    .mixing = ax_attention_flops,
    .declare = gated_declare,
    .forward = gated_forward,
    .backward = gated_backward,
};
