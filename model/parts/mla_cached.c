/* Latent attention over a KV cache that has only the latents (DeepSeek-AI 2024, DeepSeek-V2, §2.1.2).
 *
 * A token's row of the cache is norm(c) | rope(r), kv_rank + rope elements, the same for all heads.
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
#include "model/parts/attend.h"
#include "model/parts/mla.h"

/* The products of one layer in one pass. */
struct absorb {
    struct ax_runtime *rt;
    int64_t H, nope, rope, v, rank;
    struct ax_tensor w;               /* kv_b [H·(nope + v)][rank], as products read it */
    const struct ax_adapter *adapter; /* NULL: none, or w contains it */
};

static struct ax_tensor take(const struct absorb *b, const char *name, enum ax_dtype dtype,
                             int64_t rows, int64_t cols) {
    struct ax_tensor t = ax_tensor_2d(dtype, NULL, rows, cols);
    t.data = ax_stack_push(&b->rt->arena.scratch, name, ax_tensor_bytes(&t));
    return t;
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
        take(b, "attention k and v", x->dtype, x->shape[0] / b->H, b->H * (b->nope + b->v));
    const struct ax_tensor rows = by_head(b, &all), part = ax_tensor_cols(&rows, at, x->shape[1]);
    AX_TRY(ax_run_fill(q, &(struct ax_fill){all, 0}));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){part, *x}));
    struct ax_adapter_shared shared;
    ax_adapter_share(b->adapter, x->dtype, -1, &shared);
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
    const struct ax_tensor low = take(b, "adapter projection", q->dtype, T, b->H * r);
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
    const struct ax_tensor low = take(b, "adapter projection", sums->dtype, T, b->H * r);
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
                              const struct ax_pass *p, const struct ax_mla_cached *m,
                              struct ax_tensor *out) {
    const struct ax_fake_quant *quant = ax_linear_quant(&l->mla.kv);
    struct ax_queue *q = b->rt->q;
    const struct ax_tensor own =
        take(b, "attention latents", m->normed.dtype, m->normed.shape[0], b->rank + b->rope);
    AX_TRY(ax_run_copy(q, &(struct ax_copy){ax_tensor_cols(&own, 0, b->rank), m->normed}));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){ax_tensor_cols(&own, b->rank, b->rope), m->rope_key}));
    AX_TRY(ax_tp_gather(b->rt, &own, out));
    AX_TRY(ax_mla_rotate(p, out, 1, b->rank, false));
    if (!quant)
        return AX_OK;
    const struct ax_tensor normed = ax_tensor_cols(out, 0, b->rank);
    struct ax_tensor values = normed;
    AX_TRY(ax_fake_quant_input(b->rt, quant, AX_FAKE_ALL, AX_SUM_COLUMNS, &values));
    return ax_run_copy(q, &(struct ax_copy){normed, values});
}

static enum ax_status attend(const struct absorb *b, const struct ax_layer *l, struct ax_pass *p,
                             const struct ax_mla_cached *m) {
    const int64_t T = m->q.shape[0];
    const enum ax_dtype dtype = m->q.dtype;
    const struct ax_tensor q =
        take(b, "attention queries of latents", dtype, T, b->H * (b->rank + b->rope));
    const struct ax_tensor sums = take(b, "attention sums of latents", dtype, T, b->H * b->rank);
    struct ax_tensor rows;
    AX_TRY(latents(b, l, p, m, &rows));
    AX_TRY(absorb_queries(b, &m->q, &q));
    const struct ax_tensor values = ax_tensor_cols(&rows, 0, b->rank);
    const struct ax_attention a = {.q = ax_tensor_heads(&q, b->H, b->rank + b->rope),
                                   .k = ax_tensor_heads(&rows, 1, b->rank + b->rope),
                                   .v = ax_tensor_heads(&values, 1, b->rank),
                                   .out = ax_tensor_heads(&sums, b->H, b->rank),
                                   .lse = m->lse,
                                   .window = l->spec.window,
                                   .scale = p->model->arch.softmax_scale};
    AX_TRY(ax_attend_forward(p, l->index, &a));
    return expand_values(b, &sums, &m->out);
}

enum ax_status ax_mla_attend_cached(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_mla_cached *m) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_linear *kv = &l->mla.kv;
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct absorb b = {.rt = rt,
                       .H = ax_mla_heads(l, a),
                       .nope = a->mla.nope,
                       .rope = a->mla.rope,
                       .v = a->v_head_dim,
                       .rank = a->mla.kv_rank};
    if ((!ax_linear_quant(kv) || !ax_fake_quant_merges(ax_linear_quant(kv))) &&
        ax_adapter_is_on(&kv->adapter[0]))
        b.adapter = &kv->adapter[0];
    AX_TRY(ax_linear_weights(rt, kv, &b.w));
    AX_TRY(attend(&b, l, p, m));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
