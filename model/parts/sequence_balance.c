#include "model/parts/sequence_balance.h"

#include "model/parallel/context_parallel.h"
#include "model/parallel/tensor_parallel.h"

/* What the calls know of the rows, and their views; the first one has those up to COUNTS. */
struct call {
    int64_t T, E, k, first, n_docs, cap;
    enum ax_dtype dtype;
    bool sigmoid;
    double coef;
};
enum { EXPERTS, CU, ORDER, COUNTS, PROBS, SLOPES, SCALARS, VIEWS };

static struct call call_of(const struct ax_sequence_rows *r) {
    return (struct call){.T = r->probs.shape[0],
                         .E = r->probs.shape[1],
                         .k = r->experts.shape[1],
                         .first = r->first,
                         .n_docs = r->n_docs,
                         .cap = r->counts.shape[0],
                         .dtype = r->probs.dtype,
                         .sigmoid = r->sigmoid,
                         .coef = r->coef};
}

static void view(const struct ax_sequence_rows *r, struct ax_view views[VIEWS]) {
    views[EXPERTS] = ax_view_of(&r->experts, AX_VIEW_READ);
    views[CU] = ax_view_of(&r->cu, AX_VIEW_READ);
    views[ORDER] = ax_view_of(&r->order, AX_VIEW_READ);
    views[COUNTS] = ax_view_of(&r->counts, AX_VIEW_READ);
    views[PROBS] = ax_view_of(&r->probs, AX_VIEW_READ);
    views[SLOPES] = ax_view_of(&r->slopes, AX_VIEW_UPDATE);
    views[SCALARS] = (struct ax_view){r->scalars, sizeof *r->scalars, AX_VIEW_UPDATE};
}

/* The document of row t. */
static int64_t document(const struct call *c, const int32_t *cu, const int32_t *order, int64_t t) {
    const int64_t token = order ? order[c->first + t] : c->first + t;
    int64_t low = 0, high = c->n_docs;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        *(cu[middle] <= token ? &low : &high) = middle;
    }
    return low;
}

static enum ax_status count(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *c = args;
    const int32_t *cu = at[CU], *experts = at[EXPERTS], *order = at[ORDER];
    double *counts = at[COUNTS];
    (void)q;
    for (int64_t i = 0; i < c->cap * c->E; i++)
        counts[i] = 0;
    for (int64_t t = 0; t < c->T; t++) {
        const int32_t *chosen = experts + t * c->k;
        if (chosen[0] < 0)
            continue;
        double *of_document = counts + document(c, cu, order, t) * c->E;
        for (int64_t i = 0; i < c->k; i++)
            of_document[chosen[i]] += 1;
    }
    return AX_OK;
}

/* Row t's slopes for a document with these counts; returns its part of Σ_d L_d. */
static double slope_row(const struct call *c, int64_t t, const double *counts, const void *probs,
                        double share, void *slopes) {
    double chosen = 0, sum = 0, along = 0;
    for (int64_t e = 0; e < c->E; e++) {
        const double p = ax_load(c->dtype, probs, t * c->E + e);
        chosen += counts[e];
        sum += p;
        along += counts[e] * p;
    }
    const double n = chosen / (double)c->k, norm = c->sigmoid ? sum : 1;
    const double scale = (double)c->E / ((double)c->k * n * n);
    for (int64_t e = 0; e < c->E; e++) {
        const double mean = c->sigmoid ? along / sum : 0;
        ax_store(c->dtype, slopes, t * c->E + e,
                 c->coef * share * scale * (counts[e] - mean) / norm);
    }
    return scale * along / norm;
}

static enum ax_status set_slopes(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *c = args;
    const int32_t *cu = at[CU], *experts = at[EXPERTS], *order = at[ORDER];
    const double *counts = at[COUNTS];
    struct ax_step_scalars *scalars = at[SCALARS];
    const void *probs = at[PROBS];
    void *slopes = at[SLOPES];
    (void)q;
    const double share = scalars->documents > 0 ? 1 / scalars->documents : 0;
    double loss = 0;
    for (int64_t t = 0; t < c->T; t++)
        if (experts[t * c->k] >= 0) /* of others router_backward reads nothing */
            loss +=
                slope_row(c, t, counts + document(c, cu, order, t) * c->E, probs, share, slopes);
    scalars->sequence_loss += share * loss;
    return AX_OK;
}

enum ax_status ax_sequence_count(struct ax_queue *q, const struct ax_sequence_rows *r) {
    const struct call c = call_of(r);
    struct ax_view views[VIEWS];
    view(r, views);
    views[COUNTS].use = AX_VIEW_WRITE;
    return ax_queue_call(q, count, &c, sizeof c, views, COUNTS + 1);
}

enum ax_status ax_sequence_slopes(struct ax_queue *q, const struct ax_sequence_rows *r) {
    const struct call c = call_of(r);
    struct ax_view views[VIEWS];
    view(r, views);
    return r->n_docs > 0 ? ax_queue_call(q, set_slopes, &c, sizeof c, views, VIEWS) : AX_OK;
}

enum ax_status ax_sequence_balance(struct ax_pass *p, const struct ax_router_choice *c,
                                   struct ax_tensor *slopes) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const struct ax_batch *b = p->batch;
    if (p->sequence_coef == 0)
        return AX_OK;
    struct ax_sequence_rows rows = {.probs = c->probs,
                                    .experts = c->experts,
                                    .cu = b->cu_seqlens,
                                    .order = b->order,
                                    .slopes = c->probs,
                                    .first = ax_tp_first(rt, b->T),
                                    .n_docs = b->n_docs,
                                    .sigmoid = p->model->arch.moe.routing.sigmoid,
                                    .coef = p->sequence_coef,
                                    .scalars = p->scalars};
    rows.counts = ax_tensor_2d(AX_F64, NULL, b->n_cap, c->probs.shape[1]);
    rows.counts.data = ax_stack_push(scratch, "router load", ax_tensor_bytes(&rows.counts));
    rows.slopes.data = ax_stack_push(scratch, "gradient of router", ax_tensor_bytes(&rows.slopes));
    AX_TRY(ax_sequence_count(rt->q, &rows));
    AX_TRY(ax_tp_sum(rt, &rows.counts)); /* ranks with other rows of these documents */
    AX_TRY(ax_cp_sum(rt, &rows.counts));
    AX_TRY(ax_sequence_slopes(rt->q, &rows));
    *slopes = rows.slopes;
    return AX_OK;
}
