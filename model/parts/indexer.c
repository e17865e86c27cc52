#include "model/parts/indexer.h"

#include <math.h>

#include "model/parts/attend.h"

#define NAME(what) "model.layers.%d.self_attn.indexer." what
#define EPS        1e-6 /* of the LayerNorm, whatever rms_norm_eps says */

/* ---- parameters ---- */

static const struct ax_param *add(struct ax_builder *b, const struct ax_layer *l, const char *name,
                                  int64_t rows, int64_t cols, double start) {
    const struct ax_param_decl decl = {.name = name,
                                       .rows = rows,
                                       .cols = cols,
                                       .tp_dim = -1,
                                       .start = start,
                                       .indexer = true,
                                       .grad_partial_over = AX_TP_PARTIAL};
    return ax_builder_add(b, l->index, &decl);
}

void ax_indexer_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const struct ax_index_config *c = &a->index;
    struct ax_index_part *x = &l->indexer;
    const struct ax_linear linear = {.unit = l->unit, .split = AX_SPLIT_NONE, .n_parts = 1};
    x->q = x->k = linear;
    x->q.weight[0] = add(b, l, NAME("wq_b.weight"), c->heads * c->head_dim, a->mla.q_rank, 0);
    x->k.weight[0] = add(b, l, NAME("wk.weight"), c->head_dim, a->hidden_size, 0);
    x->weights = add(b, l, NAME("weights_proj.weight"), c->heads, a->hidden_size, 0);
    x->norm = add(b, l, NAME("k_norm.weight"), c->head_dim, 0, 1);
    x->norm_bias = add(b, l, NAME("k_norm.bias"), c->head_dim, 0, 0);
}

struct ax_part_size ax_indexer_size(const struct ax_arch *a) {
    const struct ax_index_config *c = &a->index;
    return (struct ax_part_size){.matrices = c->heads * c->head_dim * a->mla.q_rank +
                                             (c->head_dim + c->heads) * a->hidden_size,
                                 .vectors = 2 * c->head_dim};
}

double ax_indexer_flops(const struct ax_arch *a, int64_t seq) {
    const double products = (double)(a->index.heads * a->index.head_dim) * (double)seq;
    const double scores = seq > a->index.top ? products : 0; /* half of seq keys, on average */
    return 2 * (double)ax_indexer_size(a).matrices + scores;
}

double ax_chosen_keys(const struct ax_arch *a, int64_t seq) {
    const double n = (double)seq, top = (double)a->index.top;
    return n <= top ? n / 2 : (top * top / 2 + (n - top) * top) / n;
}

/* ---- a pass ---- */

bool ax_pass_chooses(const struct ax_pass *p) {
    const struct ax_arch *a = &p->model->arch;
    const int64_t longest = p->cache ? p->cache->cap : p->batch->max_len;
    return a->index.top > 0 && longest > a->index.top && p->model->indexers != AX_INDEXERS_WARM_UP;
}

struct ax_tensor ax_choice_shape(const struct ax_pass *p) {
    const int64_t T = p->batch->T;
    const int64_t cols = p->cache ? p->model->arch.index.top : ax_chosen_words(p->batch->max_len);
    return ax_tensor_2d(AX_I32, NULL, T, cols);
}

static struct ax_tensor take(const struct ax_pass *p, const char *name, enum ax_dtype dtype,
                             int64_t rows, int64_t cols) {
    return ax_stack_take(&p->model->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

/* Rope on the first elements of each of H heads of this rank's rows. */
static enum ax_status rotate(const struct ax_pass *p, const struct ax_tensor *t, int64_t H,
                             bool inverse) {
    const struct ax_model *m = p->model;
    const struct ax_rope_table *rope = &m->ropes[AX_ROPE_MAIN];
    const struct ax_tensor *positions = &p->batch->positions;
    return ax_run_rope(
        m->rt->q,
        &(struct ax_rope){.x = ax_tensor_heads(t, H, t->shape[1] / H),
                          .cos = rope->cos,
                          .sin = rope->sin,
                          .positions = ax_tensor_rows(
                              positions, ax_tp_first_own(m->rt, t->shape[0]), t->shape[0]),
                          .interleaved = m->arch.index.interleaved,
                          .inverse = inverse});
}

/* Keys become LayerNorm(k), in place. */
static enum ax_status norm(const struct ax_layer *l, struct ax_pass *p, struct ax_index_rows *r) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const enum ax_dtype accum = p->model->accum;
    const int64_t rows = r->k.shape[0], d = r->k.shape[1];
    r->centered = take(p, "centered keys", accum, rows, d);
    r->rstd = ax_stack_take(scratch, "norm rstd", ax_tensor_1d(accum, NULL, rows));
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor ones = take(p, "ones", r->k.dtype, rows, 1);
    const struct ax_tensor bias = ax_unit_weight(l->unit, l->indexer.norm_bias);
    AX_TRY(ax_run_center(rt->q, &(struct ax_center){.x = r->k, .y = r->centered}));
    AX_TRY(ax_run_rmsnorm_forward(
        rt->q, &(struct ax_rmsnorm_forward){.x = r->centered,
                                            .weight = ax_unit_weight(l->unit, l->indexer.norm),
                                            .y = r->k,
                                            .rstd = r->rstd,
                                            .eps = EPS}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){ones, 1}));
    AX_TRY(ax_run_gemm(rt->q, &(struct ax_gemm){.a = ones,
                                                .b = ax_tensor_2d(bias.dtype, bias.data, 1, d),
                                                .c = r->k,
                                                .accumulate = true,
                                                .alpha = 1}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_index_rows(const struct ax_layer *l, struct ax_pass *p, const struct ax_tensor *h,
                             const struct ax_tensor *latent, struct ax_index_rows *out) {
    const struct ax_index_config *c = &p->model->arch.index;
    struct ax_runtime *rt = p->model->rt;
    const int64_t T = h->shape[0];
    out->k = take(p, "index keys", h->dtype, T, c->head_dim);
    out->q = take(p, "index queries", h->dtype, T, c->heads * c->head_dim);
    out->w = take(p, "index weights", p->model->accum, T, c->heads);
    AX_TRY(ax_linear_forward(rt, &l->indexer.k, h, NULL, &out->k));
    AX_TRY(norm(l, p, out));
    AX_TRY(rotate(p, &out->k, 1, false));
    AX_TRY(ax_linear_forward(rt, &l->indexer.q, latent, NULL, &out->q));
    AX_TRY(rotate(p, &out->q, c->heads, false));
    return ax_run_gemm(rt->q, &(struct ax_gemm){.a = *h,
                                                .b = ax_unit_weight(l->unit, l->indexer.weights),
                                                .c = out->w,
                                                .trans_b = true,
                                                .alpha = 1 / sqrt((double)c->heads)});
}

enum ax_status ax_indexer_choose(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_tensor *h, const struct ax_tensor *latent,
                                 const struct ax_tensor *choice) {
    const struct ax_index_config *c = &p->model->arch.index;
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_index_rows own;
    struct ax_tensor q, k, w;
    AX_TRY(ax_index_rows(l, p, h, latent, &own));
    AX_TRY(ax_tp_gather(rt, &own.k, &k));
    AX_TRY(ax_tp_gather(rt, &own.q, &q));
    AX_TRY(ax_tp_gather(rt, &own.w, &w));
    struct ax_top_keys t = {.q = ax_tensor_heads(&q, c->heads, c->head_dim),
                            .k = ax_tensor_heads(&k, 1, c->head_dim),
                            .w = w,
                            .top = c->top,
                            .scale = 1 / sqrt((double)c->head_dim)};
    *(p->cache ? &t.rows : &t.chosen) = *choice;
    AX_TRY(ax_attend_choose(p, l->indexer.nth, &t));
    if (p->tap)
        p->tap(p->tap_ctx, "chosen", l->index, choice);
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* ---- gradients ---- */

/* Of LayerNorm's parameters; d becomes the gradient of its input. */
static enum ax_status norm_backward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_index_rows *rows, const struct ax_tensor *d) {
    const struct ax_index_part *x = &l->indexer;
    struct ax_queue *q = p->model->rt->q;
    const struct ax_tensor bias = ax_unit_grad(l->unit, x->norm_bias);
    if (bias.data)
        AX_TRY(ax_run_colsum(q, &(struct ax_colsum){*d, bias}));
    AX_TRY(ax_run_rmsnorm_backward(
        q, &(struct ax_rmsnorm_backward){.dy = *d,
                                         .x = rows->centered,
                                         .weight = ax_unit_weight(l->unit, x->norm),
                                         .rstd = rows->rstd,
                                         .dx = *d,
                                         .dweight = ax_unit_grad(l->unit, x->norm)}));
    return ax_run_center(q, &(struct ax_center){.x = *d, .y = *d});
}

/* In compute dtype: itself, or a copy in scratch. */
static enum ax_status narrow(const struct ax_pass *p, const struct ax_tensor *x,
                             struct ax_tensor *out) {
    *out = *x;
    if (x->dtype == p->model->dtype)
        return AX_OK;
    *out = take(p, "gradient of indexer", p->model->dtype, x->shape[0], x->shape[1]);
    return ax_run_copy(p->model->rt->q, &(struct ax_copy){*out, *x});
}

enum ax_status ax_index_rows_backward(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_tensor *h, const struct ax_tensor *latent,
                                      const struct ax_index_rows *rows,
                                      const struct ax_index_rows *d) {
    const struct ax_index_part *x = &l->indexer;
    const int64_t n = p->model->arch.index.heads;
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor to_w = ax_unit_grad(l->unit, x->weights);
    struct ax_tensor dk, dw;
    AX_TRY(rotate(p, &d->q, n, true));
    AX_TRY(ax_linear_backward(rt, &x->q, latent, &d->q, NULL));
    AX_TRY(rotate(p, &d->k, 1, true));
    AX_TRY(norm_backward(l, p, rows, &d->k));
    AX_TRY(narrow(p, &d->k, &dk));
    AX_TRY(ax_linear_backward(rt, &x->k, h, &dk, NULL));
    AX_TRY(narrow(p, &d->w, &dw));
    if (to_w.data)
        AX_TRY(ax_run_gemm(rt->q, &(struct ax_gemm){.a = dw,
                                                    .b = *h,
                                                    .c = to_w,
                                                    .trans_a = true,
                                                    .accumulate = true,
                                                    .alpha = 1 / sqrt((double)n)}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
