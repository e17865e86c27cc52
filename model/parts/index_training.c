#include "model/parts/index_training.h"

#include <math.h>

#include "model/parts/indexer.h"

/* Pairs of a table: 32 MiB in float32. */
#define CHUNK_PAIRS ((int64_t)1 << 23)

/* A layer without an indexer has none of the parameters. */
bool ax_index_trains(const struct ax_layer *l) {
    const struct ax_index_part *x = &l->indexer;
    const struct ax_param *all[] = {x->q.weight[0], x->k.weight[0], x->weights, x->norm,
                                    x->norm_bias};
    bool any = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        any = any || (all[i] && all[i]->trainable);
    return any;
}

/* What the chunks of a pass share. Keys are those of all ranks of cp, in the sequence's order. */
struct lesson {
    struct ax_pass *p;
    struct ax_runtime *rt;
    const struct ax_attention *attention;
    struct ax_tensor heads_keys; /* of attention, [keys][H·head_dim] */
    struct ax_tensor keys;       /* of the indexer, [keys][d] */
    struct ax_index_rows own, d; /* of this rank's rows, and their gradients */
    struct ax_tensor d_keys;     /* accumulation, like keys */
};

/* Queries [at, at + n) of this rank of cp, in one run of its rows and in the rows of one rank of tp. */
struct chunk {
    int64_t at, n, run;
    int64_t key, n_keys;          /* keys that they may see */
    struct ax_tensor p, x, pairs; /* accumulation [n][n_keys] */
};

static struct ax_tensor table(const struct lesson *s, const struct chunk *c, enum ax_dtype dtype) {
    return ax_stack_take(&s->rt->arena.scratch, "pairs of queries and keys",
                         ax_tensor_2d(dtype, NULL, c->n, c->n_keys));
}

/* Dense [rows][heads][size] as [rows][heads·size]. */
static struct ax_tensor by_row(const struct ax_tensor *heads) {
    struct ax_tensor rows =
        ax_tensor_2d(heads->dtype, heads->data, heads->shape[0], heads->shape[1] * heads->shape[2]);
    rows.row_stride = heads->row_stride;
    return rows;
}

/* Head h of rows [at, at + n). */
static struct ax_tensor head(const struct ax_tensor *rows, int64_t at, int64_t n, int64_t size,
                             int64_t h) {
    const struct ax_tensor some = ax_tensor_rows(rows, at, n);
    return ax_tensor_cols(&some, h * size, size);
}

/* The scores of a head's queries and keys. */
static enum ax_status multiply(const struct lesson *s, const struct chunk *c,
                               const struct ax_tensor *q, const struct ax_tensor *k, double scale) {
    return ax_run_gemm(
        s->rt->q,
        &(struct ax_gemm){.a = *q, .b = *k, .c = c->pairs, .trans_b = true, .alpha = scale});
}

/* c->p: what attention gives to each key, over all heads of all ranks. */
static enum ax_status attend(const struct lesson *s, const struct chunk *c) {
    const struct ax_attention *a = s->attention;
    const struct ax_tensor queries = by_row(&a->q), lse = ax_tensor_rows(&a->lse, c->at, c->n);
    for (int64_t h = 0; h < a->q.shape[1]; h++) {
        const struct ax_tensor q = head(&queries, c->at, c->n, a->q.shape[2], h),
                               k = head(&s->heads_keys, c->key, c->n_keys, a->q.shape[2], h);
        AX_TRY(multiply(s, c, &q, &k, a->scale));
        AX_TRY(ax_run_index_target(
            s->rt->q, &(struct ax_index_target){.p = c->p,
                                                .s = c->pairs,
                                                .lse = ax_tensor_cols(&lse, h, 1),
                                                .share = 1 / (double)s->p->model->arch.n_heads,
                                                .accumulate = h > 0}));
    }
    return ax_tp_sum(s->rt, &c->p);
}

/* The chunk's first row among those of this rank of tp; outside of them, the chunk is another rank's. */
static int64_t own_row(const struct lesson *s, const struct chunk *c) {
    return c->at - ax_tp_first(s->rt, s->p->batch->T);
}

static struct ax_tensor index_queries(const struct lesson *s, const struct chunk *c,
                                      const struct ax_tensor *q, int64_t h) {
    return head(q, own_row(s, c), c->n, s->p->model->arch.index.head_dim, h);
}

/* c->pairs: products of head h of the indexer. */
static enum ax_status score_head(const struct lesson *s, const struct chunk *c, int64_t h) {
    const struct ax_tensor q = index_queries(s, c, &s->own.q, h),
                           k = ax_tensor_rows(&s->keys, c->key, c->n_keys);
    return multiply(s, c, &q, &k, 1 / sqrt((double)q.shape[1]));
}

/* The head's column of w, or of its gradient. */
static struct ax_tensor weight_of(const struct lesson *s, const struct chunk *c,
                                  const struct ax_tensor *w, int64_t h) {
    return head(w, own_row(s, c), c->n, 1, h);
}

/* c->x: the indexer's scores. */
static enum ax_status score(const struct lesson *s, const struct chunk *c) {
    for (int64_t h = 0; h < s->p->model->arch.index.heads; h++) {
        AX_TRY(score_head(s, c, h));
        AX_TRY(ax_run_index_scores(s->rt->q,
                                   &(struct ax_index_scores){.x = c->x,
                                                             .z = c->pairs,
                                                             .w = weight_of(s, c, &s->own.w, h),
                                                             .accumulate = h > 0}));
    }
    return AX_OK;
}

/* Adds the chunk's loss, of which c->p becomes the gradient. */
static enum ax_status compare(const struct lesson *s, const struct chunk *c) {
    const struct ax_batch *b = s->p->batch;
    const int64_t length = b->T / b->n_runs;
    struct ax_stack *scratch = &s->rt->arena.scratch;
    struct ax_index_loss loss = {.p = c->p,
                                 .x = c->x,
                                 .cu_q = b->runs[c->run].cu_q,
                                 .cu_k = b->runs[c->run].cu_k,
                                 .first = c->at - c->run * length,
                                 .first_key = c->key,
                                 .max_k = b->max_len,
                                 .coef = s->p->index_coef,
                                 .scalars = s->p->scalars};
    loss.kl = ax_stack_take(scratch, "losses of indexer", ax_tensor_1d(c->p.dtype, NULL, c->n));
    if (s->attention->chosen.data)
        loss.chosen = ax_tensor_rows(&s->attention->chosen, c->at, c->n);
    return ax_run_index_loss(s->rt->q, &loss);
}

/* The gradients of queries, keys and weights of all heads. */
static enum ax_status differentiate(const struct lesson *s, const struct chunk *c) {
    struct ax_queue *queue = s->rt->q;
    const int64_t size = s->p->model->arch.index.head_dim;
    const struct ax_tensor dz = table(s, c, s->own.q.dtype),
                           k = ax_tensor_rows(&s->keys, c->key, c->n_keys),
                           dk = ax_tensor_rows(&s->d_keys, c->key, c->n_keys);
    for (int64_t h = 0; h < s->p->model->arch.index.heads; h++) {
        struct ax_gemm to_q = {.a = dz, .b = k, .alpha = 1 / sqrt((double)size)};
        struct ax_gemm to_k = {.a = dz,
                               .b = index_queries(s, c, &s->own.q, h),
                               .c = dk,
                               .trans_a = true,
                               .accumulate = true,
                               .alpha = to_q.alpha};
        to_q.c = index_queries(s, c, &s->d.q, h);
        AX_TRY(score_head(s, c, h));
        AX_TRY(ax_run_index_backward(
            queue, &(struct ax_index_backward){.dx = c->p,
                                               .z = c->pairs,
                                               .w = weight_of(s, c, &s->own.w, h),
                                               .dz = dz,
                                               .dw = weight_of(s, c, &s->d.w, h)}));
        AX_TRY(ax_run_gemm(queue, &to_q));
        AX_TRY(ax_run_gemm(queue, &to_k));
    }
    return AX_OK;
}

static enum ax_status run_chunk(const struct lesson *s, struct chunk *c) {
    struct ax_stack *scratch = &s->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t row = own_row(s, c);
    c->p = table(s, c, s->p->model->accum);
    c->x = table(s, c, s->p->model->accum);
    c->pairs = table(s, c, s->p->model->accum);
    AX_TRY(attend(s, c));
    if (row >= 0 && row < s->own.q.shape[0]) {
        AX_TRY(score(s, c));
        AX_TRY(compare(s, c));
        AX_TRY(differentiate(s, c));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A run's queries. d_keys are its keys' gradients. */
static enum ax_status run_queries(const struct lesson *s, int64_t run) {
    const struct ax_batch *b = s->p->batch;
    const int64_t length = b->T / b->n_runs, end = (run + 1) * length;
    const int64_t own = s->own.q.shape[0], keys = s->keys.shape[0];
    const int64_t most = keys < CHUNK_PAIRS ? CHUNK_PAIRS / keys : 1;
    AX_TRY(ax_run_fill(s->rt->q, &(struct ax_fill){s->d_keys, 0}));
    ax_contract_loop(&s->rt->contracts);
    for (int64_t at = run * length, n; at < end; at += n) {
        n = least(most, least(end - at, own - at % own));
        const int64_t place = b->runs[run].first + at - run * length; /* in the sequence */
        const int64_t first = place - b->max_len + 1 > 0 ? place - b->max_len + 1 : 0;
        struct chunk c = {.at = at, .n = n, .run = run, .key = first, .n_keys = place + n - first};
        AX_TRY(
            ax_contract_turn(&s->rt->contracts, 0, 0)); /* pairs are in no proportion to tokens */
        AX_TRY(run_chunk(s, &c));
    }
    return ax_contract_end(&s->rt->contracts);
}

/* Keys of all rows of all ranks: of attention and of the indexer. */
static enum ax_status gather(struct lesson *s) {
    struct ax_tensor all;
    const struct ax_tensor heads = s->attention->k;
    AX_TRY(ax_cp_gather(s->rt, &heads, &all));
    s->heads_keys = by_row(&all);
    AX_TRY(ax_tp_gather(s->rt, &s->own.k, &all));
    const struct ax_tensor keys = ax_tensor_heads(&all, 1, all.shape[1]);
    AX_TRY(ax_cp_gather(s->rt, &keys, &all));
    s->keys = by_row(&all);
    return AX_OK;
}

static struct ax_tensor take_like(const struct lesson *s, const struct ax_tensor *t,
                                  enum ax_dtype dtype) {
    return ax_stack_take(&s->rt->arena.scratch, "gradient of indexer",
                         ax_tensor_2d(dtype, NULL, t->shape[0], t->shape[1]));
}

enum ax_status ax_index_learn(const struct ax_layer *l, struct ax_pass *p,
                              const struct ax_index_inputs *from) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct lesson s = {.p = p, .rt = rt, .attention = from->attention};
    AX_ASSERT(!p->batch->prefix.any && !p->cache);
    AX_TRY(ax_index_rows(l, p, from->h, from->latent, &s.own));
    AX_TRY(gather(&s));
    s.d = (struct ax_index_rows){.q = take_like(&s, &s.own.q, s.own.q.dtype),
                                 .k = take_like(&s, &s.own.k, p->model->accum),
                                 .w = take_like(&s, &s.own.w, p->model->accum)};
    const struct ax_tensor rows = ax_tp_partial(rt, &s.d.k),
                           d_keys = ax_tensor_heads(&rows, 1, rows.shape[1]);
    const struct ax_cp_gradient sum = ax_cp_gradient(rt, &d_keys);
    s.d_keys = by_row(&sum.run);
    for (int run = 0; run < p->batch->n_runs; run++) {
        AX_TRY(run_queries(&s, run));
        AX_TRY(ax_cp_add(rt, &sum, run == 0));
    }
    AX_TRY(ax_cp_reduce(rt, &sum));
    AX_TRY(ax_tp_reduce(rt, &rows, NULL, &s.d.k));
    AX_TRY(ax_index_rows_backward(l, p, from->h, from->latent, &s.own, &s.d));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
