/* Rows of the head → sums per document → loss → gradients per row. */
#include "optim/documents.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/tensor_parallel.h"
#include "optim/rows.h"

#define SUMS ((int64_t)(sizeof(struct ax_document_sums) / sizeof(double)))

/* Of one micro-batch, for the queue's calls. */
struct sums_of {
    struct ax_rows rows;
    const void AX_DEVICE *share; /* NULL: 1 */
    void AX_DEVICE *sums;
};
struct gradients {
    struct sums_of of;
    const struct ax_documents_objective *objective;
    void AX_DEVICE *g_logprob, *g_lse, *g_entropy, *g_mean;
    const void AX_DEVICE *columns[AX_COLUMNS_MAX];
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_step_measures AX_DEVICE *measures;
    bool counts; /* this rank's loss is the one that is counted */
};
_Static_assert(sizeof(struct gradients) <= AX_QUEUE_ARGS, "too many arguments for a call");

static enum ax_status add_rows(struct ax_queue *q, const void *args) {
    const struct sums_of *of = args;
    const struct ax_near_rows r = ax_rows_near(q, &of->rows);
    struct ax_document_sums *const sums = ax_queue_address(q, of->sums);
    const float *const shares = ax_near(q, of->share);
    int doc = 0;
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

static void find_loss(struct ax_queue *q, const struct gradients *g,
                      struct ax_documents_loss *out) {
    const struct ax_documents_objective *o = g->objective;
    struct ax_step_scalars *scalars = ax_queue_address(q, g->scalars);
    struct ax_step_measures *measures = ax_queue_address(q, g->measures);
    struct ax_documents d = {.n = g->of.rows.n_docs,
                             .sums = ax_queue_address(q, g->of.sums),
                             .inv_weight = scalars->inv_weight,
                             .inv_tokens = measures->tokens > 0 ? 1 / measures->tokens : 0,
                             .kl = measures->kl};
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        d.columns[c] = ax_near(q, g->columns[c]);
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
static void spread(struct ax_queue *q, const struct gradients *g,
                   const struct ax_document_gradient *of) {
    const struct ax_near_rows r = ax_rows_near(q, &g->of.rows);
    const float *const shares = ax_near(q, g->of.share);
    void *const logprob = ax_queue_address(q, g->g_logprob), *const lse = ax_near(q, g->g_lse);
    int doc = 0;
    for (int64_t i = 0; i < r.n; i++) {
        const bool labeled = r.labels[i] >= 0;
        doc = labeled ? ax_row_document(&r, doc, i) : doc;
        const double share = shares ? (double)shares[i] : 1;
        ax_row_set(&r, logprob, i, labeled ? share * of[doc].logprob - of[doc].nll : 0);
        if (lse)
            ax_row_set(&r, lse, i, labeled ? of[doc].lse : 0);
    }
    ax_rows_zero(&r, ax_near(q, g->g_entropy));
    ax_rows_zero(&r, ax_near(q, g->g_mean));
}

static enum ax_status take_gradients(struct ax_queue *q, const void *args) {
    const struct gradients *g = args;
    struct ax_documents_loss out = {0};
    AX_TRY(ax_alloc(&out.gradient, (size_t)g->of.rows.n_cap, sizeof *out.gradient));
    find_loss(q, g, &out);
    spread(q, g, out.gradient);
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
    struct gradients g = {.of = {.rows = ax_rows_of(b, c),
                                 .share = o->share < 0 ? NULL : b->columns[o->share].data,
                                 .sums = sums.data},
                          .objective = o,
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
    AX_TRY(ax_queue_call(rt->q, add_rows, &g.of, sizeof g.of));
    AX_TRY(ax_comm_sum(&rt->comms[AX_ROLE_CP], rt->q, AX_F64, sums.data, words));
    AX_TRY(ax_queue_call(rt->q, take_gradients, &g, sizeof g));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

void ax_measures_mean(const struct ax_step_measures *m, double out[AX_MEASURES]) {
    for (int i = 0; i < AX_MEASURES; i++)
        out[i] = m->of[i] > 0 ? m->sum[i] / m->of[i] : NAN;
}
