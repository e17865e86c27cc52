/* Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2), keys and values from one latent of all
 * heads:
 *
 *   c_q | c | r = h·[Wqa Wkva]ᵀ          without a latent of queries:  c | r = h·Wkvaᵀ
 *   q = norm(c_q)·Wqbᵀ  [H][nope|rope]                                 q = h·Wqᵀ
 *   k | v = norm(c)·Wkvbᵀ  [H][nope|v]
 *   rope on the ends of q's heads and on r, which then ends every head of k:  k = k | r
 *   o = softmax attention over the document;  y = o·Woᵀ
 *
 * In sparse attention (DeepSeek-V3.2) a query attends only to the keys that an indexer has chosen (indexer.h),
 * in this layer or in one before it.
 *
 * Over tp the heads are split. Latents, which all heads need, are computed for a rank's own rows and
 * gathered after their norms. With a KV cache, attention is over the latents themselves. */
#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/parts/attend.h"
#include "model/parts/index_training.h"
#include "model/parts/indexer.h"

/* ---- parameters ---- */

/* CHOICE has memory of its own where an indexer chooses in training; elsewhere it is another layer's. */
enum { LATENT, Q_NORMED, Q_RSTD, Q, KV_NORMED, KV_RSTD, K, V, OUT, LSE, N_SAVED, CHOICE = N_SAVED };

#define NAME(what) "model.layers.%d.self_attn." what

static int64_t latent_cols(const struct ax_mla_config *c) {
    return c->q_rank + c->kv_rank + c->rope;
}

static void add(struct ax_builder *b, struct ax_layer *l, struct ax_linear *lin, const char *name,
                int64_t rows, int64_t cols) {
    const int8_t tp_dim[] = {[AX_SPLIT_OUTPUTS] = 0, [AX_SPLIT_INPUTS] = 1, [AX_SPLIT_NONE] = -1};
    const struct ax_param_decl decl = {.name = name,
                                       .rows = rows,
                                       .cols = cols,
                                       .tp_dim = tp_dim[lin->split],
                                       .glue = lin->n_parts > 0,
                                       .grad_partial_over =
                                           lin->split == AX_SPLIT_NONE ? AX_TP_PARTIAL : 0};
    lin->unit = l->unit;
    lin->weight[lin->n_parts++] = ax_builder_add(b, l->index, &decl);
}

static const struct ax_param *add_bias(struct ax_builder *b, const struct ax_layer *l,
                                       const char *name, int64_t rows, bool glue) {
    const struct ax_param_decl decl = {
        .name = name, .rows = rows, .tp_dim = -1, .glue = glue, .grad_partial_over = AX_TP_PARTIAL};
    return ax_builder_add(b, l->index, &decl);
}

static void mla_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const struct ax_mla_config *c = &a->mla;
    const int64_t D = a->hidden_size, H = a->n_heads;
    struct ax_mla_part *mla = &l->mla;
    mla->latent.split = AX_SPLIT_NONE;
    mla->o.split = AX_SPLIT_INPUTS;
    if (c->q_rank > 0)
        add(b, l, &mla->latent, NAME("q_a_proj.weight"), c->q_rank, D);
    add(b, l, &mla->latent, NAME("kv_a_proj_with_mqa.weight"), c->kv_rank + c->rope, D);
    if (c->q_rank > 0)
        add(b, l, &mla->q, NAME("q_b_proj.weight"), H * a->head_dim, c->q_rank);
    else
        add(b, l, &mla->q, NAME("q_proj.weight"), H * a->head_dim, D);
    add(b, l, &mla->kv, NAME("kv_b_proj.weight"), H * (c->nope + a->v_head_dim), c->kv_rank);
    add(b, l, &mla->o, NAME("o_proj.weight"), D, H * a->v_head_dim);
    if (c->q_rank > 0)
        mla->q_norm = ax_builder_add_norm(b, l->index, NAME("q_a_layernorm.weight"), c->q_rank);
    mla->kv_norm = ax_builder_add_norm(b, l->index, NAME("kv_a_layernorm.weight"), c->kv_rank);
    if (!c->bias)
        return;
    int n = 0;
    if (c->q_rank > 0)
        mla->latent.bias[n++] = add_bias(b, l, NAME("q_a_proj.bias"), c->q_rank, false);
    mla->latent.bias[n] =
        add_bias(b, l, NAME("kv_a_proj_with_mqa.bias"), c->kv_rank + c->rope, n > 0);
    mla->o.bias[0] = add_bias(b, l, NAME("o_proj.bias"), D, false);
}

static int mla_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->mla.latent;
    out[1] = &l->mla.q;
    out[2] = &l->mla.kv;
    out[3] = &l->mla.o;
    return 4;
}

static struct ax_part_size mla_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)spec;
    const struct ax_mla_config *c = &a->mla;
    const int64_t D = a->hidden_size, H = a->n_heads, q_in = c->q_rank > 0 ? c->q_rank : D;
    const int64_t matrices = D * latent_cols(c) + q_in * H * a->head_dim +
                             c->kv_rank * H * (c->nope + a->v_head_dim) + H * a->v_head_dim * D;
    const int64_t norms = c->q_rank + c->kv_rank;
    return (struct ax_part_size){matrices, matrices, norms + (c->bias ? latent_cols(c) + D : 0)};
}

/* Heads that this rank computes. */
static int64_t heads_of(const struct ax_layer *l, const struct ax_arch *a) {
    return l->mla.q.weight[0]->local_shape[0] / a->head_dim;
}

static void mla_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const struct ax_arch *a = &m->arch;
    const struct ax_mla_config *c = &a->mla;
    const int64_t T = p->batch->T, own = ax_tp_rows(m->rt, T), H = heads_of(l, a);
    ax_saved_declare(&s[LATENT], "attention latents", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, own, latent_cols(c)));
    if (c->q_rank > 0) {
        ax_saved_declare(&s[Q_NORMED], "attention normed latents", AX_KEEP_CHEAP,
                         ax_tensor_2d(m->dtype, NULL, own, c->q_rank));
        ax_saved_declare(&s[Q_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_1d(m->accum, NULL, own));
    }
    ax_saved_declare(&s[Q], "attention q", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, H * a->head_dim));
    ax_saved_declare(&s[KV_NORMED], "attention normed latents", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, own, c->kv_rank));
    ax_saved_declare(&s[KV_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_1d(m->accum, NULL, own));
    if (!p->cache) {
        ax_saved_declare(&s[K], "attention k", AX_KEEP_COSTLY,
                         ax_tensor_2d(m->dtype, NULL, T, H * a->head_dim));
        ax_saved_declare(&s[V], "attention v", AX_KEEP_COSTLY,
                         ax_tensor_2d(m->dtype, NULL, T, H * a->v_head_dim));
    }
    ax_saved_declare(&s[OUT], "attention output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, H * a->v_head_dim));
    ax_saved_declare(&s[LSE], "attention lse", AX_KEEP_COSTLY, ax_tensor_2d(m->accum, NULL, T, H));
    if (l->mixer.type == &ax_mixer_dsa && p->recompute != AX_RECOMPUTE_INFERENCE &&
        ax_pass_chooses(p))
        ax_saved_declare(&s[CHOICE], "chosen keys", AX_KEEP_ALWAYS, ax_choice_shape(p));
}

static struct ax_tensor take(const struct ax_pass *p, const char *name, enum ax_dtype dtype,
                             int64_t rows, int64_t cols) {
    return ax_stack_take(&p->model->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

/* Columns of the latents, or of their gradient: those of queries, of keys and values, the rope key. */
static struct ax_tensor q_latent(const struct ax_mla_config *c, const struct ax_tensor *latent) {
    return ax_tensor_cols(latent, 0, c->q_rank);
}
static struct ax_tensor kv_latent(const struct ax_mla_config *c, const struct ax_tensor *latent) {
    return ax_tensor_cols(latent, c->q_rank, c->kv_rank);
}
static struct ax_tensor rope_key(const struct ax_mla_config *c, const struct ax_tensor *latent) {
    return ax_tensor_cols(latent, c->q_rank + c->kv_rank, c->rope);
}

/* Dense [T][H·(first + …)] as [T·H][…], then columns [at, at + n) of every head. */
static struct ax_tensor of_heads(const struct ax_tensor *t, int64_t H, int64_t at, int64_t n) {
    const struct ax_tensor rows = ax_tensor_2d(t->dtype, t->data, t->shape[0] * H, t->shape[1] / H);
    return ax_tensor_cols(&rows, at, n);
}

/* Rope of a table on the elements from `first` on of each of the H heads in the rows of t. */
static enum ax_status turn(const struct ax_pass *p, enum ax_rope_use table,
                           const struct ax_tensor *t, int64_t H, int64_t first, bool inverse) {
    const struct ax_model *m = p->model;
    return ax_run_rope(m->rt->q, &(struct ax_rope){.x = ax_tensor_heads(t, H, t->shape[1] / H),
                                                   .cos = m->ropes[table].cos,
                                                   .sin = m->ropes[table].sin,
                                                   .positions = p->batch->positions,
                                                   .first = first,
                                                   .interleaved = m->arch.rope.interleaved,
                                                   .inverse = inverse});
}

/* The layer's rope, if it has one. */
static enum ax_status rotate(const struct ax_layer *l, const struct ax_pass *p,
                             const struct ax_tensor *t, int64_t H, int64_t first, bool inverse) {
    return l->spec.rope == AX_ROPE_NONE ? AX_OK : turn(p, AX_ROPE_MAIN, t, H, first, inverse);
}

/* Queries, or their gradient: rope on the ends of heads; and the growth of whole heads with their position. */
static enum ax_status rotate_queries(const struct ax_layer *l, const struct ax_pass *p,
                                     const struct ax_tensor *q, bool inverse) {
    const int64_t H = heads_of(l, &p->model->arch);
    AX_TRY(rotate(l, p, q, H, p->model->arch.mla.nope, inverse));
    return l->spec.own_queries ? turn(p, AX_ROPE_QUERIES, q, H, 0, inverse) : AX_OK;
}

/* As published, whatever rms_norm_eps says. */
static enum ax_status norm(struct ax_pass *p, const struct ax_layer *l, const struct ax_param *w,
                           const struct ax_tensor *x, const struct ax_tensor *y,
                           const struct ax_tensor *rstd) {
    return ax_run_rmsnorm_forward(
        p->model->rt->q,
        &(struct ax_rmsnorm_forward){
            .x = *x, .weight = ax_unit_weight(l->unit, w), .y = *y, .rstd = *rstd, .eps = 1e-6});
}

/* The rope key of all rows, rotated, at the end of every head of k. */
static enum ax_status put_rope_key(const struct ax_layer *l, struct ax_pass *p,
                                   const struct ax_saved *s) {
    const struct ax_arch *a = &p->model->arch;
    struct ax_runtime *rt = p->model->rt;
    const struct ax_tensor from = rope_key(&a->mla, &s[LATENT].t);
    const struct ax_tensor own = take(p, "rope key", from.dtype, from.shape[0], from.shape[1]);
    struct ax_tensor all;
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){own, from}));
    AX_TRY(ax_tp_gather(rt, &own, &all));
    AX_TRY(rotate(l, p, &all, 1, 0, false));
    for (int64_t h = 0; h < heads_of(l, a); h++) {
        const int64_t at = h * a->head_dim + a->mla.nope;
        AX_TRY(
            ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_cols(&s[K].t, at, a->mla.rope), all}));
    }
    return AX_OK;
}

/* k and v, each of its own: attention reads heads that follow directly. */
static enum ax_status keys(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s) {
    const struct ax_arch *a = &p->model->arch;
    struct ax_runtime *rt = p->model->rt;
    const int64_t H = heads_of(l, a), nope = a->mla.nope, v = a->v_head_dim;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor kv =
        take(p, "attention k and v", s[K].t.dtype, p->batch->T, H * (nope + v));
    AX_TRY(ax_linear_forward(rt, &l->mla.kv, &s[KV_NORMED].t, NULL, &kv));
    AX_TRY(ax_run_copy(
        rt->q, &(struct ax_copy){of_heads(&s[K].t, H, 0, nope), of_heads(&kv, H, 0, nope)}));
    AX_TRY(ax_run_copy(rt->q,
                       &(struct ax_copy){of_heads(&s[V].t, H, 0, v), of_heads(&kv, H, nope, v)}));
    AX_TRY(put_rope_key(l, p, s));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status project(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                              const struct ax_tensor *h) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_mla_config *c = &a->mla;
    const struct ax_mla_part *mla = &l->mla;
    struct ax_runtime *rt = p->model->rt;
    const struct ax_tensor *q_in = c->q_rank > 0 ? &s[Q_NORMED].t : h;
    if (ax_saved_make(&s[LATENT]))
        AX_TRY(ax_linear_forward(rt, &mla->latent, h, NULL, &s[LATENT].t));
    const struct ax_tensor of_q = q_latent(c, &s[LATENT].t), of_kv = kv_latent(c, &s[LATENT].t);
    if (c->q_rank > 0 && ax_saved_make(&s[Q_NORMED]))
        AX_TRY(norm(p, l, mla->q_norm, &of_q, &s[Q_NORMED].t, &s[Q_RSTD].t));
    if (ax_saved_make(&s[KV_NORMED]))
        AX_TRY(norm(p, l, mla->kv_norm, &of_kv, &s[KV_NORMED].t, &s[KV_RSTD].t));
    if (ax_saved_make(&s[Q])) {
        AX_TRY(ax_linear_forward(rt, &mla->q, q_in, NULL, &s[Q].t));
        AX_TRY(rotate_queries(l, p, &s[Q].t, false));
    }
    return !p->cache && ax_saved_make(&s[K]) ? keys(l, p, s) : AX_OK;
}

static struct ax_attention operands(const struct ax_layer *l, const struct ax_pass *p,
                                    const struct ax_saved *s) {
    const struct ax_arch *a = &p->model->arch;
    const int64_t H = heads_of(l, a);
    return (struct ax_attention){.chosen = ax_pass_chooses(p) ? s[CHOICE].t : (struct ax_tensor){0},
                                 .q = ax_tensor_heads(&s[Q].t, H, a->head_dim),
                                 .k = ax_tensor_heads(&s[K].t, H, a->head_dim),
                                 .v = ax_tensor_heads(&s[V].t, H, a->v_head_dim),
                                 .out = ax_tensor_heads(&s[OUT].t, H, a->v_head_dim),
                                 .lse = s[LSE].t,
                                 .window = l->spec.window,
                                 .scale = a->softmax_scale};
}

/* ---- over a KV cache that has only the latents (DeepSeek-AI 2024, DeepSeek-V2, §2.1.2) ---- */

/* * A token's row of the cache is norm(c) | rope(r), kv_rank + rope elements, the same for all heads.
 * With W_k [nope][kv_rank] and W_v [v][kv_rank], a head's rows of kv_b, its keys and values are never
 * made, because
 *
 *   q·k = q_nope·W_k·norm(c)ᵀ + q_rope·rope(r)ᵀ      so the query of a row is q_nope·W_k | q_rope,
 *   Σ p·v = (Σ p·norm(c))·W_vᵀ                       and its value is the row's first kv_rank elements.
 *
 * With an adapter, W is W + s·B·A, as two products more; with DoRA it is g∘(W + s·B·A), whose g goes
 * to q_nope and to the sum of values.
 *
 * Every token takes this form, whether it is alone or one of a long prompt. Keys and values of all heads
 * would be cheaper to attend to for long prompts, but their bits differ, and then those of an answer
 * would depend on how its prompt was cut into passes (decision 025). */

struct cached {
    struct ax_tensor q;        /* [T][H·head_dim], rotated; overwritten */
    struct ax_tensor normed;   /* [T/tp][kv_rank], this rank's rows */
    struct ax_tensor rope_key; /* [T/tp][rope], not rotated */
    struct ax_tensor out, lse; /* [T][H·v_head_dim], accumulation [T][H] */
    struct ax_tensor chosen;   /* rows of the cache; data NULL: all of the sequence */
};

/* The products of one layer in one pass. */
struct absorb {
    struct ax_runtime *rt;
    int64_t H, nope, rope, v, rank;
    struct ax_tensor w;               /* kv_b [H·(nope + v)][rank], as products read it */
    const struct ax_adapter *adapter; /* NULL: none, or w contains it */
};

static struct ax_tensor take_cached(const struct absorb *b, const char *name, enum ax_dtype dtype,
                                    int64_t rows, int64_t cols) {
    return ax_stack_take(&b->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

/* Rows [at, at + n) of head h, of kv_b or its adapter's B. */
static struct ax_tensor head_rows(const struct absorb *b, const struct ax_tensor *w, int64_t h,
                                  int64_t at, int64_t n) {
    return ax_tensor_rows(w, h * (b->nope + b->v) + at, n);
}

/* Dense [T][H·…] as [T·H][…]. */
static struct ax_tensor by_head(const struct absorb *b, const struct ax_tensor *t) {
    return ax_tensor_2d(t->dtype, t->data, t->shape[0] * b->H, t->shape[1] / b->H);
}

/* x [T·H][n] = g∘x, with the g of rows [at, at + n) of every head of kv_b. */
static enum ax_status scale(const struct absorb *b, const struct ax_tensor *x, int64_t at) {
    if (!b->adapter || !ax_adapter_scales(b->adapter))
        return AX_OK;
    struct ax_queue *q = b->rt->q;
    const size_t mark = ax_stack_mark(&b->rt->arena.scratch);
    const struct ax_tensor all =
        take_cached(b, "attention k and v", x->dtype, x->shape[0] / b->H, b->H * (b->nope + b->v));
    const struct ax_tensor rows = by_head(b, &all), part = ax_tensor_cols(&rows, at, x->shape[1]);
    AX_TRY(ax_run_fill(q, &(struct ax_fill){all, 0}));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){part, *x}));
    struct ax_adapter_shared shared;
    ax_adapter_share(b->adapter, x->dtype, &shared);
    AX_TRY(ax_adapter_measure(b->adapter, &b->w, &shared));
    AX_TRY(ax_adapter_scale(b->adapter, &shared, &all, &all));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){*x, part}));
    ax_stack_release(&b->rt->arena.scratch, mark);
    return AX_OK;
}

/* Queries of cached rows: out [T·H][rank + rope] += s·(q_nope·B)·A. */
static enum ax_status adapt_queries(const struct absorb *b, const struct ax_tensor *q,
                                    const struct ax_tensor *out) {
    const struct ax_adapter *a = b->adapter;
    if (!a)
        return AX_OK;
    const struct ax_tensor A = ax_unit_weight(a->unit, a->a), B = ax_unit_weight(a->unit, a->b);
    const size_t mark = ax_stack_mark(&b->rt->arena.scratch);
    const int64_t T = q->shape[0], r = A.shape[0];
    const struct ax_tensor low = take_cached(b, "adapter projection", q->dtype, T, b->H * r);
    for (int64_t h = 0; h < b->H; h++)
        AX_TRY(ax_run_gemm(
            b->rt->q, &(struct ax_gemm){.a = ax_tensor_cols(q, h * (b->nope + b->rope), b->nope),
                                        .b = head_rows(b, &B, h, 0, b->nope),
                                        .c = ax_tensor_cols(&low, h * r, r),
                                        .alpha = 1}));
    AX_TRY(ax_run_gemm(b->rt->q, &(struct ax_gemm){.a = by_head(b, &low),
                                                   .b = A,
                                                   .c = ax_tensor_cols(out, 0, b->rank),
                                                   .accumulate = true,
                                                   .alpha = a->scale}));
    ax_stack_release(&b->rt->arena.scratch, mark);
    return AX_OK;
}

/* out [T][H·(rank + rope)] from q [T][H·(nope + rope)]. */
static enum ax_status absorb_queries(const struct absorb *b, const struct ax_tensor *q,
                                     const struct ax_tensor *out) {
    const struct ax_tensor from = by_head(b, q), to = by_head(b, out);
    const struct ax_tensor plain = ax_tensor_cols(&from, 0, b->nope);
    const struct ax_copy rotated = {.dst = ax_tensor_cols(&to, b->rank, b->rope),
                                    .src = ax_tensor_cols(&from, b->nope, b->rope)};
    AX_TRY(scale(b, &plain, 0));
    for (int64_t h = 0; h < b->H; h++)
        AX_TRY(ax_run_gemm(
            b->rt->q, &(struct ax_gemm){.a = ax_tensor_cols(q, h * (b->nope + b->rope), b->nope),
                                        .b = head_rows(b, &b->w, h, 0, b->nope),
                                        .c = ax_tensor_cols(out, h * (b->rank + b->rope), b->rank),
                                        .alpha = 1}));
    AX_TRY(adapt_queries(b, q, &to));
    return ax_run_copy(b->rt->q, &rotated);
}

/* Values: out [T][H·v] += s·(sums·Aᵀ)·Bᵀ. */
static enum ax_status adapt_values(const struct absorb *b, const struct ax_tensor *sums,
                                   const struct ax_tensor *out) {
    const struct ax_adapter *a = b->adapter;
    if (!a)
        return AX_OK;
    const struct ax_tensor A = ax_unit_weight(a->unit, a->a), B = ax_unit_weight(a->unit, a->b);
    const size_t mark = ax_stack_mark(&b->rt->arena.scratch);
    const int64_t T = sums->shape[0], r = A.shape[0];
    const struct ax_tensor low = take_cached(b, "adapter projection", sums->dtype, T, b->H * r);
    AX_TRY(ax_run_gemm(
        b->rt->q,
        &(struct ax_gemm){
            .a = by_head(b, sums), .b = A, .c = by_head(b, &low), .trans_b = true, .alpha = 1}));
    for (int64_t h = 0; h < b->H; h++)
        AX_TRY(ax_run_gemm(b->rt->q, &(struct ax_gemm){.a = ax_tensor_cols(&low, h * r, r),
                                                       .b = head_rows(b, &B, h, b->nope, b->v),
                                                       .c = ax_tensor_cols(out, h * b->v, b->v),
                                                       .trans_b = true,
                                                       .accumulate = true,
                                                       .alpha = a->scale}));
    ax_stack_release(&b->rt->arena.scratch, mark);
    return AX_OK;
}

/* out [T][H·v] from sums [T][H·rank] of latents. */
static enum ax_status expand_values(const struct absorb *b, const struct ax_tensor *sums,
                                    const struct ax_tensor *out) {
    const struct ax_tensor heads = by_head(b, out);
    for (int64_t h = 0; h < b->H; h++)
        AX_TRY(
            ax_run_gemm(b->rt->q, &(struct ax_gemm){.a = ax_tensor_cols(sums, h * b->rank, b->rank),
                                                    .b = head_rows(b, &b->w, h, b->nope, b->v),
                                                    .c = ax_tensor_cols(out, h * b->v, b->v),
                                                    .trans_b = true,
                                                    .alpha = 1}));
    AX_TRY(adapt_values(b, sums, out));
    return scale(b, &heads, b->nope);
}

/* The rows to cache, of all ranks of tp: out [T][rank + rope]. */
static enum ax_status latents(const struct absorb *b, const struct ax_layer *l,
                              const struct ax_pass *p, const struct cached *m,
                              struct ax_tensor *out) {
    const struct ax_fake_quant *quant = ax_linear_quant(&l->mla.kv);
    struct ax_queue *q = b->rt->q;
    const struct ax_tensor own =
        take_cached(b, "attention latents", m->normed.dtype, m->normed.shape[0], b->rank + b->rope);
    AX_TRY(ax_run_copy(q, &(struct ax_copy){ax_tensor_cols(&own, 0, b->rank), m->normed}));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){ax_tensor_cols(&own, b->rank, b->rope), m->rope_key}));
    AX_TRY(ax_tp_gather(b->rt, &own, out));
    AX_TRY(rotate(l, p, out, 1, b->rank, false));
    if (!quant)
        return AX_OK;
    const struct ax_tensor normed = ax_tensor_cols(out, 0, b->rank);
    struct ax_tensor values = normed;
    AX_TRY(ax_fake_quant_input(b->rt, quant, AX_FAKE_ALL, AX_SUM_COLUMNS, &values));
    return ax_run_copy(q, &(struct ax_copy){normed, values});
}

static enum ax_status attend_cached(const struct absorb *b, const struct ax_layer *l,
                                    struct ax_pass *p, const struct cached *m) {
    const int64_t T = m->q.shape[0];
    const enum ax_dtype dtype = m->q.dtype;
    const struct ax_tensor q =
        take_cached(b, "attention queries of latents", dtype, T, b->H * (b->rank + b->rope));
    const struct ax_tensor sums =
        take_cached(b, "attention sums of latents", dtype, T, b->H * b->rank);
    struct ax_tensor rows;
    AX_TRY(latents(b, l, p, m, &rows));
    AX_TRY(absorb_queries(b, &m->q, &q));
    const struct ax_tensor values = ax_tensor_cols(&rows, 0, b->rank);
    const struct ax_attention a = {.q = ax_tensor_heads(&q, b->H, b->rank + b->rope),
                                   .k = ax_tensor_heads(&rows, 1, b->rank + b->rope),
                                   .v = ax_tensor_heads(&values, 1, b->rank),
                                   .out = ax_tensor_heads(&sums, b->H, b->rank),
                                   .lse = m->lse,
                                   .chosen = m->chosen,
                                   .window = l->spec.window,
                                   .scale = p->model->arch.softmax_scale};
    AX_TRY(ax_attend_forward(p, l, &a));
    return expand_values(b, &sums, &m->out);
}

/* Writes the rows' latents and rope keys to the pass's cache, and attends to all that it has. */
static enum ax_status attend_latents(const struct ax_layer *l, struct ax_pass *p,
                                     const struct cached *m) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_linear *kv = &l->mla.kv;
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct absorb b = {.rt = rt,
                       .H = heads_of(l, a),
                       .nope = a->mla.nope,
                       .rope = a->mla.rope,
                       .v = a->v_head_dim,
                       .rank = a->mla.kv_rank};
    if ((!ax_linear_quant(kv) || !ax_fake_quant_merges(ax_linear_quant(kv))) &&
        ax_adapter_is_on(&kv->adapter[0]))
        b.adapter = &kv->adapter[0];
    AX_TRY(ax_linear_weights(rt, kv, &b.w));
    AX_TRY(attend_cached(&b, l, p, m));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* ---- attention ---- */

static enum ax_status attend(const struct ax_layer *l, struct ax_pass *p,
                             const struct ax_saved *s) {
    if (p->cache)
        return attend_latents(
            l, p,
            &(struct cached){.q = s[Q].t,
                             .normed = s[KV_NORMED].t,
                             .rope_key = rope_key(&p->model->arch.mla, &s[LATENT].t),
                             .out = s[OUT].t,
                             .lse = s[LSE].t,
                             .chosen = ax_pass_chooses(p) ? s[CHOICE].t : (struct ax_tensor){0}});
    const struct ax_attention all = operands(l, p, s);
    return ax_attend_forward(p, l, &all);
}

/* The keys to attend to: chosen here, or in the last layer with an indexer. Backward needs the same again. */
static enum ax_status choose(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                             const struct ax_tensor *h) {
    if (!ax_pass_chooses(p) || s[CHOICE].ready)
        return AX_OK;
    s[CHOICE].ready = true;
    if (s[CHOICE].name)
        p->slot->choice = s[CHOICE].t;
    else
        s[CHOICE].t = p->slot->choice;
    return l->mixer.type == &ax_mixer_dsa ? ax_indexer_choose(l, p, h, &s[Q_NORMED].t, &s[CHOICE].t)
                                          : AX_OK;
}

static enum ax_status mla_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                  const struct ax_tensor *h, const struct ax_tensor *x,
                                  const struct ax_tensor *out) {
    AX_TRY(project(l, p, s, h));
    AX_TRY(choose(l, p, s, h));
    if (ax_saved_make(&s[OUT]))
        AX_TRY(attend(l, p, s));
    return out ? ax_linear_forward(p->model->rt, &l->mla.o, &s[OUT].t, x, out) : AX_OK;
}

/* The rope key's gradient into `to`: the sum over all heads, on all ranks, rotated back. */
static enum ax_status rope_key_backward(const struct ax_layer *l, struct ax_pass *p,
                                        const struct ax_tensor *d_k, const struct ax_tensor *to) {
    const struct ax_arch *a = &p->model->arch;
    struct ax_runtime *rt = p->model->rt;
    const struct ax_tensor own =
        take(p, "gradient of rope key", p->model->accum, to->shape[0], a->mla.rope);
    const struct ax_tensor sum = ax_tp_partial(rt, &own);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){sum, 0}));
    for (int64_t h = 0; h < heads_of(l, a); h++) {
        const int64_t at = h * a->head_dim + a->mla.nope;
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){sum, ax_tensor_cols(d_k, at, a->mla.rope), 1}));
    }
    AX_TRY(rotate(l, p, &sum, 1, 0, true));
    AX_TRY(ax_tp_reduce(rt, &sum, NULL, &own));
    return ax_run_copy(rt->q, &(struct ax_copy){*to, own});
}

/* From the gradients of k and v to that of their latent and of the rope key, columns of `d`. */
static enum ax_status keys_backward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s, const struct ax_tensor *d_k,
                                    const struct ax_tensor *d_v, const struct ax_tensor *d) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_mla_config *c = &a->mla;
    struct ax_runtime *rt = p->model->rt;
    const int64_t H = heads_of(l, a), nope = c->nope, v = a->v_head_dim;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor d_kv =
        take(p, "gradient of k and v", d_k->dtype, d_k->shape[0], H * (nope + v));
    const struct ax_tensor d_normed =
        take(p, "gradient of latent", d->dtype, d->shape[0], c->kv_rank);
    const struct ax_tensor latent = kv_latent(c, &s[LATENT].t), d_latent = kv_latent(c, d);
    const struct ax_tensor d_rope = rope_key(c, d);
    AX_TRY(ax_run_copy(rt->q,
                       &(struct ax_copy){of_heads(&d_kv, H, 0, nope), of_heads(d_k, H, 0, nope)}));
    AX_TRY(
        ax_run_copy(rt->q, &(struct ax_copy){of_heads(&d_kv, H, nope, v), of_heads(d_v, H, 0, v)}));
    AX_TRY(ax_linear_backward(rt, &l->mla.kv, &s[KV_NORMED].t, &d_kv, &d_normed));
    AX_TRY(ax_norm_backward(p, l->unit, l->mla.kv_norm, &d_normed, &latent, &s[KV_RSTD].t,
                            &d_latent, false));
    AX_TRY(rope_key_backward(l, p, d_k, &d_rope));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* From the gradients of q and of the latents to that of h. */
static enum ax_status inputs_backward(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *d_q, const struct ax_tensor *d,
                                      const struct ax_tensor *dh) {
    const struct ax_mla_config *c = &p->model->arch.mla;
    const struct ax_mla_part *mla = &l->mla;
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    if (c->q_rank > 0) {
        const struct ax_tensor d_normed =
            take(p, "gradient of latent", d->dtype, d->shape[0], c->q_rank);
        const struct ax_tensor latent = q_latent(c, &s[LATENT].t), d_latent = q_latent(c, d);
        AX_TRY(ax_linear_backward(rt, &mla->q, &s[Q_NORMED].t, d_q, &d_normed));
        AX_TRY(ax_norm_backward(p, l->unit, mla->q_norm, &d_normed, &latent, &s[Q_RSTD].t,
                                &d_latent, false));
        AX_TRY(ax_linear_backward(rt, &mla->latent, h, d, dh));
    } else {
        AX_TRY(ax_linear_backward(rt, &mla->q, h, d_q, dh));
        AX_TRY(ax_linear_backward_more(rt, &mla->latent, h, d, dh));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* The indexer's own loss. */
static enum ax_status learn(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                            const struct ax_tensor *h) {
    const struct ax_attention a = operands(l, p, s);
    return ax_index_trains(l)
               ? ax_index_learn(
                     l, p,
                     &(struct ax_index_inputs){.h = h, .latent = &s[Q_NORMED].t, .attention = &a})
               : AX_OK;
}

/* dy NULL: of the indexer alone. */
static enum ax_status mla_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                   const struct ax_tensor *h, const struct ax_tensor *dy,
                                   const struct ax_tensor *dh) {
    AX_TRY(learn(l, p, s, h));
    if (!dy)
        return AX_OK;
    const struct ax_arch *a = &p->model->arch;
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t T = p->batch->T, H = heads_of(l, a), qk = H * a->head_dim, v = H * a->v_head_dim;
    const enum ax_dtype dtype = p->model->dtype;
    const struct ax_tensor d_out = take(p, "gradient of attention output", dtype, T, v);
    const struct ax_tensor d_q = take(p, "gradient of q", dtype, T, qk);
    const struct ax_tensor d_k = take(p, "gradient of k", dtype, T, qk);
    const struct ax_tensor d_v = take(p, "gradient of v", dtype, T, v);
    const struct ax_tensor d_latent =
        take(p, "gradient of latents", dtype, s[LATENT].t.shape[0], latent_cols(&a->mla));
    const struct ax_attention_backward back = {.a = operands(l, p, s),
                                               .dout = ax_tensor_heads(&d_out, H, a->v_head_dim),
                                               .dq = ax_tensor_heads(&d_q, H, a->head_dim),
                                               .dk = ax_tensor_heads(&d_k, H, a->head_dim),
                                               .dv = ax_tensor_heads(&d_v, H, a->v_head_dim)};
    AX_TRY(ax_linear_backward(p->model->rt, &l->mla.o, &s[OUT].t, dy, &d_out));
    AX_TRY(ax_attend_backward(p, l, &back));
    AX_TRY(keys_backward(l, p, s, &d_k, &d_v, &d_latent));
    AX_TRY(rotate_queries(l, p, &d_q, true));
    AX_TRY(inputs_backward(l, p, s, h, &d_q, &d_latent, dh));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_mla = {
    .name = "mla",
    .n_saved = N_SAVED,
    .keys = true,
    .init = mla_init,
    .linears = mla_linears,
    .size = mla_size,
    .mixing = ax_attention_flops,
    .declare = mla_declare,
    .forward = mla_forward,
    .backward = mla_backward,
};

/* ---- sparse attention ---- */

static void dsa_init(struct ax_builder *b, struct ax_layer *l) {
    mla_init(b, l);
    ax_indexer_init(b, l);
}

/* Its indexer's matrices are in dsa_choosing. */
static struct ax_part_size dsa_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    struct ax_part_size size = mla_size(a, spec);
    const struct ax_part_size more = ax_indexer_size(a);
    size.matrices += more.matrices;
    size.vectors += more.vectors;
    return size;
}

static double dsa_mixing(const struct ax_arch *a, const struct ax_layer_spec *spec, int64_t seq) {
    (void)spec;
    return 2 * (double)(a->n_heads * (a->head_dim + a->v_head_dim)) * ax_chosen_keys(a, seq);
}

const struct ax_part_type ax_mixer_dsa = {
    .name = "dsa",
    .n_saved = N_SAVED + 1,
    .keys = true,
    .init = dsa_init,
    .linears = mla_linears,
    .size = dsa_size,
    .mixing = dsa_mixing,
    .choosing = ax_indexer_flops,
    .declare = mla_declare,
    .forward = mla_forward,
    .backward = mla_backward,
};

const struct ax_part_type ax_mixer_dsa_shared = {
    .name = "dsa_shared",
    .n_saved = N_SAVED + 1,
    .keys = true,
    .init = mla_init,
    .linears = mla_linears,
    .size = mla_size,
    .mixing = dsa_mixing,
    .declare = mla_declare,
    .forward = mla_forward,
    .backward = mla_backward,
};
