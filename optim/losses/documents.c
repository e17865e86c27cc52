/* Rows of the head → sums per document → loss → gradients per row. */
#include "optim/losses/documents.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/parallel/tensor_parallel.h"
#include "optim/losses/rows.h"

#define SUMS ((int64_t)(sizeof(struct ax_document_sums) / sizeof(double)))

/* Of one micro-batch, for the queue's calls. */
struct call {
    struct ax_rows rows;
    const struct ax_documents_objective *objective;
    bool counts; /* this rank's loss is the one that is counted */
};
_Static_assert(sizeof(struct call) <= AX_QUEUE_ARGS, "too many arguments for a call");

/* The views after those of the rows; the first call has those up to SHARE (none: 1). */
enum {
    SUMS_AT = AX_ROWS_VIEWS,
    SHARE,
    G_LOGPROB,
    G_LSE,
    G_ENTROPY,
    G_MEAN,
    SCALARS,
    TOTALS,
    COLUMNS,
    VIEWS = COLUMNS + AX_COLUMNS_MAX
};
_Static_assert(VIEWS <= AX_QUEUE_VIEWS, "too many views for a call");

static enum ax_status add_rows(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *c = args;
    const struct ax_near_rows r = ax_rows_near(&c->rows, at);
    struct ax_document_sums *const sums = at[SUMS_AT];
    const float *const shares = at[SHARE];
    int doc = 0;
    (void)q;
    memset(sums, 0, (size_t)r.n_cap * sizeof *sums);
    for (int64_t i = 0; i < r.n && r.labels[i] >= 0; i++) {
        doc = ax_row_document(&r, doc, i);
        struct ax_document_sums *s = &sums[doc];
        const double share = shares ? (double)shares[i] : 1;
        const double logprob = ax_row_value(&r, r.logprob, i), lse = ax_row_value(&r, r.lse, i);
        if (share != 0)
            s->logprob += share * logprob;
        s->answer += share != 0;
        s->nll -= logprob;
        s->tokens += 1;
        s->lse += lse;
        s->entropy += ax_row_value(&r, r.entropy, i);
        s->logit += r.mean ? ax_row_value(&r, r.mean, i) + lse : 0;
    }
    return AX_OK;
}

static void find_loss(const struct call *call, void *const *at, struct ax_documents_loss *out) {
    const struct ax_documents_objective *o = call->objective;
    struct ax_step_scalars *scalars = at[SCALARS];
    struct ax_step_measures *measures = at[TOTALS];
    struct ax_documents d = {.n = call->rows.n_docs,
                             .sums = at[SUMS_AT],
                             .inv_weight = scalars->inv_weight,
                             .inv_tokens = measures->tokens > 0 ? 1 / measures->tokens : 0,
                             .kl = measures->kl};
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        d.columns[c] = at[COLUMNS + c];
    o->loss(o->options, &d, out);
    if (!call->counts)
        return;
    scalars->loss += out->loss;
    for (int i = 0; i < AX_MEASURES; i++) {
        measures->sum[i] += out->sum[i];
        measures->of[i] += out->of[i];
    }
}

/* Gradients of the rows; 0 for those without a label. */
static void spread(const struct call *call, void *const *at,
                   const struct ax_document_gradient *of) {
    const struct ax_near_rows r = ax_rows_near(&call->rows, at);
    const float *const shares = at[SHARE];
    void *const logprob = at[G_LOGPROB], *const lse = at[G_LSE];
    int doc = 0;
    for (int64_t i = 0; i < r.n; i++) {
        const bool labeled = r.labels[i] >= 0;
        doc = labeled ? ax_row_document(&r, doc, i) : doc;
        const double share = shares ? (double)shares[i] : 1;
        ax_row_set(&r, logprob, i, labeled ? share * of[doc].logprob - of[doc].nll : 0);
        if (lse)
            ax_row_set(&r, lse, i, labeled ? of[doc].lse : 0);
    }
    ax_rows_zero(&r, at[G_ENTROPY]);
    ax_rows_zero(&r, at[G_MEAN]);
}

static enum ax_status take_gradients(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *c = args;
    struct ax_documents_loss out = {0};
    (void)q;
    AX_TRY(ax_alloc(&out.gradient, (size_t)c->rows.n_cap, sizeof *out.gradient));
    find_loss(c, at, &out);
    spread(c, at, out.gradient);
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
    const struct call call = {.rows = ax_rows_of(b, c), .objective = o, .counts = b->part == 0};
    struct ax_view views[VIEWS] = {
        [SUMS_AT] = ax_view_of(&sums, AX_VIEW_WRITE),
        [SHARE] = o->share < 0 ? (struct ax_view){NULL, 0, AX_VIEW_READ}
                               : ax_view_of(&b->columns[o->share], AX_VIEW_READ),
        [G_LOGPROB] = ax_rows_value(&call.rows, c->g_logprob.data, AX_VIEW_WRITE),
        [G_LSE] = ax_rows_value(&call.rows, c->g_lse.data, AX_VIEW_WRITE),
        [G_ENTROPY] = ax_rows_value(&call.rows, c->g_entropy.data, AX_VIEW_WRITE),
        [G_MEAN] = ax_rows_value(&call.rows, c->g_mean.data, AX_VIEW_WRITE),
        [SCALARS] = {p->scalars, sizeof *p->scalars, AX_VIEW_UPDATE},
        [TOTALS] = {p->measures, sizeof *p->measures, AX_VIEW_UPDATE}};
    ax_rows_view(&call.rows, views);
    for (int i = 0; i < ax_columns_count(o->columns); i++)
        if (o->columns->list[i].of == AX_OF_EXAMPLE)
            views[COLUMNS + i] = ax_view_of(&b->columns[i], AX_VIEW_READ);
    AX_TRY(ax_queue_call(rt->q, add_rows, &call, sizeof call, views, SHARE + 1));
    AX_TRY(ax_comm_sum(&rt->comms[AX_ROLE_CP], rt->q, AX_F64, sums.data, words));
    views[SUMS_AT].use = AX_VIEW_READ;
    AX_TRY(ax_queue_call(rt->q, take_gradients, &call, sizeof call, views, VIEWS));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

void ax_measures_mean(const struct ax_documents_objective *documents,
                      const struct ax_step_measures *m, double out[AX_MEASURES]) {
    for (int i = 0; i < AX_MEASURES; i++)
        out[i] = m->of[i] > 0 ? m->sum[i] / m->of[i] : NAN;
    if (documents && documents->derive)
        documents->derive(out);
}
