/* Rows of the head → sums per document → loss → gradients per row. */
#include "optim/documents.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/tensor_parallel.h"

#define SUMS ((int64_t)(sizeof(struct ax_document_sums) / sizeof(double)))

/* Of one micro-batch, for the queue's calls. */
struct rows {
    const struct ax_documents_objective *objective;
    enum ax_dtype dtype; /* of the values */
    int n_docs, n_cap;
    int64_t n; /* rows; those with a label come first, in order */
    const void AX_DEVICE *logprob, *lse, *entropy, *mean, *labels, *token, *cu, *share;
    void AX_DEVICE *sums;
};
struct gradients {
    struct rows rows;
    void AX_DEVICE *g_logprob, *g_lse, *g_entropy, *g_mean;
    const void AX_DEVICE *columns[AX_COLUMNS_MAX];
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_step_measures AX_DEVICE *measures;
    bool counts; /* this rank's loss is the one that is counted */
};
_Static_assert(sizeof(struct gradients) <= AX_QUEUE_ARGS, "too many arguments for a call");

static double value(enum ax_dtype dtype, const void *values, int64_t i) {
    return dtype == AX_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static void put(enum ax_dtype dtype, void *values, int64_t i, double v) {
    if (dtype == AX_F64)
        ((double *)values)[i] = v;
    else
        ((float *)values)[i] = (float)v;
}

/* The same where the call runs. */
struct near_rows {
    enum ax_dtype dtype;
    int n_docs;
    int64_t n;
    const void *logprob, *lse, *entropy, *mean;
    const int32_t *labels, *token, *cu; /* token: of the sequence */
    const float *share;                 /* NULL: 1 */
    struct ax_document_sums *sums;
};

/* NULL stays NULL. */
static void *near(struct ax_queue *q, const void AX_DEVICE *at) {
    return at ? ax_queue_address(q, at) : NULL;
}

static struct near_rows rows_near(struct ax_queue *q, const struct rows *r) {
    return (struct near_rows){.dtype = r->dtype,
                              .n_docs = r->n_docs,
                              .n = r->n,
                              .logprob = ax_queue_address(q, r->logprob),
                              .lse = ax_queue_address(q, r->lse),
                              .entropy = ax_queue_address(q, r->entropy),
                              .mean = near(q, r->mean),
                              .labels = ax_queue_address(q, r->labels),
                              .token = ax_queue_address(q, r->token),
                              .cu = ax_queue_address(q, r->cu),
                              .share = near(q, r->share),
                              .sums = ax_queue_address(q, r->sums)};
}

/* The document of labeled row i, no earlier than `doc`. */
static int document_of(const struct near_rows *r, int doc, int64_t i) {
    while (r->token[i] >= r->cu[doc + 1])
        doc++;
    return doc;
}

static enum ax_status add_rows(struct ax_queue *q, const void *args) {
    const struct rows *all = args;
    const struct near_rows r = rows_near(q, all);
    int doc = 0;
    memset(r.sums, 0, (size_t)all->n_cap * sizeof *r.sums);
    for (int64_t i = 0; i < r.n && r.labels[i] >= 0; i++) {
        doc = document_of(&r, doc, i);
        struct ax_document_sums *s = &r.sums[doc];
        const double share = r.share ? (double)r.share[i] : 1;
        const double logprob = value(r.dtype, r.logprob, i), lse = value(r.dtype, r.lse, i);
        if (share != 0)
            s->logprob += share * logprob;
        s->answer += share != 0;
        s->nll -= logprob;
        s->tokens += 1;
        s->lse += lse;
        s->entropy += value(r.dtype, r.entropy, i);
        s->logit += r.mean ? value(r.dtype, r.mean, i) + lse : 0;
    }
    return AX_OK;
}

static void find_loss(struct ax_queue *q, const struct gradients *g, const struct near_rows *r,
                      struct ax_documents_loss *out) {
    const struct ax_documents_objective *o = g->rows.objective;
    struct ax_step_scalars *scalars = ax_queue_address(q, g->scalars);
    struct ax_step_measures *measures = ax_queue_address(q, g->measures);
    struct ax_documents d = {.n = r->n_docs,
                             .sums = r->sums,
                             .inv_weight = scalars->inv_weight,
                             .inv_tokens = measures->tokens > 0 ? 1 / measures->tokens : 0,
                             .kl = measures->kl};
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        d.columns[c] = near(q, g->columns[c]);
    o->loss(o->options, &d, out);
    if (!g->counts)
        return;
    scalars->loss += out->loss;
    for (int i = 0; i < AX_MEASURES; i++) {
        measures->sum[i] += out->sum[i];
        measures->of[i] += out->of[i];
    }
}

/* Gradients of the rows; 0 for those without a label. */
static void spread(struct ax_queue *q, const struct gradients *g, const struct near_rows *r,
                   const struct ax_document_gradient *of) {
    void *const logprob = ax_queue_address(q, g->g_logprob), *const lse = near(q, g->g_lse);
    int doc = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const bool labeled = r->labels[i] >= 0;
        doc = labeled ? document_of(r, doc, i) : doc;
        const double share = r->share ? (double)r->share[i] : 1;
        put(r->dtype, logprob, i, labeled ? share * of[doc].logprob - of[doc].nll : 0);
        if (lse)
            put(r->dtype, lse, i, labeled ? of[doc].lse : 0);
    }
    void *const zero[] = {near(q, g->g_entropy), near(q, g->g_mean)};
    for (size_t k = 0; k < sizeof zero / sizeof *zero; k++)
        if (zero[k])
            memset(zero[k], 0, (size_t)r->n * ax_dtype_size(r->dtype));
}

static enum ax_status take_gradients(struct ax_queue *q, const void *args) {
    const struct gradients *g = args;
    const struct near_rows r = rows_near(q, &g->rows);
    struct ax_documents_loss out = {0};
    AX_TRY(ax_alloc(&out.gradient, (size_t)g->rows.n_cap, sizeof *out.gradient));
    find_loss(q, g, &r, &out);
    spread(q, g, &r, out.gradient);
    ax_free(out.gradient);
    return AX_OK;
}

enum ax_status ax_documents_token_grad(void *ctx, struct ax_pass *p,
                                       const struct ax_head_chunk *c) {
    const struct ax_documents_objective *o = ctx;
    struct ax_runtime *rt = p->model->rt;
    const struct ax_batch *b = p->batch;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t words = SUMS * b->n_cap;
    const struct ax_tensor sums = ax_tensor_1d(
        AX_F64, ax_stack_push(scratch, "sums of documents", (size_t)words * sizeof(double)), words);
    struct gradients g = {.rows = {.objective = o,
                                   .dtype = c->logprob.dtype,
                                   .n_docs = (int)b->n_docs,
                                   .n_cap = (int)b->n_cap,
                                   .n = c->n,
                                   .logprob = c->logprob.data,
                                   .lse = c->lse.data,
                                   .entropy = c->entropy.data,
                                   .mean = c->mean_logprob.data,
                                   .labels = b->labels.data,
                                   .token = b->row_order.data,
                                   .cu = b->cu_seqlens.data,
                                   .share = o->share < 0 ? NULL : b->columns[o->share].data,
                                   .sums = sums.data},
                          .g_logprob = c->g_logprob.data,
                          .g_lse = c->g_lse.data,
                          .g_entropy = c->g_entropy.data,
                          .g_mean = c->g_mean.data,
                          .scalars = p->scalars,
                          .measures = p->measures,
                          .counts = b->part == 0};
    for (int i = 0; i < ax_columns_count(o->columns); i++)
        if (o->columns->list[i].of == AX_OF_EXAMPLE)
            g.columns[i] = b->columns[i].data;
    AX_TRY(ax_queue_call(rt->q, add_rows, &g.rows, sizeof g.rows));
    AX_TRY(ax_comm_sum(&rt->comms[AX_ROLE_CP], rt->q, AX_F64, sums.data, words));
    AX_TRY(ax_queue_call(rt->q, take_gradients, &g, sizeof g));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

void ax_measures_mean(const struct ax_step_measures *m, double out[AX_MEASURES]) {
    for (int i = 0; i < AX_MEASURES; i++)
        out[i] = m->of[i] > 0 ? m->sum[i] / m->of[i] : NAN;
}
