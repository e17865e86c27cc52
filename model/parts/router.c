#include "model/parts/router.h"

#include "model/core/builder.h"
#include "model/parallel/context_parallel.h"
#include "model/parallel/tensor_parallel.h"

/* ---- the balancing loss by sequence ---- */

/* What the calls know of the rows, and their views; the first one has those up to COUNTS. */
struct sequence_call {
    int64_t T, E, k, first, n_docs, cap;
    enum ax_dtype dtype;
    bool sigmoid;
    double coef;
};
enum { EXPERTS, CU, ORDER, COUNTS, PROBS, SLOPES, SCALARS, VIEWS };

static struct sequence_call sequence_call_of(const struct ax_sequence_rows *r) {
    return (struct sequence_call){.T = r->probs.shape[0],
                                  .E = r->probs.shape[1],
                                  .k = r->experts.shape[1],
                                  .first = r->first,
                                  .n_docs = r->n_docs,
                                  .cap = r->counts.shape[0],
                                  .dtype = r->probs.dtype,
                                  .sigmoid = r->sigmoid,
                                  .coef = r->coef};
}

static void sequence_views(const struct ax_sequence_rows *r, struct ax_view views[VIEWS]) {
    views[EXPERTS] = ax_view_of(&r->experts, AX_VIEW_READ);
    views[CU] = ax_view_of(&r->cu, AX_VIEW_READ);
    views[ORDER] = ax_view_of(&r->order, AX_VIEW_READ);
    views[COUNTS] = ax_view_of(&r->counts, AX_VIEW_READ);
    views[PROBS] = ax_view_of(&r->probs, AX_VIEW_READ);
    views[SLOPES] = ax_view_of(&r->slopes, AX_VIEW_UPDATE);
    views[SCALARS] = (struct ax_view){r->scalars, sizeof *r->scalars, AX_VIEW_UPDATE};
}

/* The document of row t. */
static int64_t sequence_document(const struct sequence_call *c, const int32_t *cu,
                                 const int32_t *order, int64_t t) {
    const int64_t token = order ? order[c->first + t] : c->first + t;
    int64_t low = 0, high = c->n_docs;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        *(cu[middle] <= token ? &low : &high) = middle;
    }
    return low;
}

static enum ax_status count_sequences(struct ax_queue *q, const void *args, void *const *at) {
    const struct sequence_call *c = args;
    const int32_t *cu = at[CU], *experts = at[EXPERTS], *order = at[ORDER];
    double *counts = at[COUNTS];
    (void)q;
    for (int64_t i = 0; i < c->cap * c->E; i++)
        counts[i] = 0;
    for (int64_t t = 0; t < c->T; t++) {
        const int32_t *chosen = experts + t * c->k;
        if (chosen[0] < 0)
            continue;
        double *of_document = counts + sequence_document(c, cu, order, t) * c->E;
        for (int64_t i = 0; i < c->k; i++)
            of_document[chosen[i]] += 1;
    }
    return AX_OK;
}

/* Row t's slopes for a document with these counts; returns its part of Σ_d L_d. */
static double sequence_slope_row(const struct sequence_call *c, int64_t t, const double *counts,
                                 const void *probs, double share, void *slopes) {
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

static enum ax_status set_sequence_slopes(struct ax_queue *q, const void *args, void *const *at) {
    const struct sequence_call *c = args;
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
            loss += sequence_slope_row(c, t, counts + sequence_document(c, cu, order, t) * c->E,
                                       probs, share, slopes);
    scalars->sequence_loss += share * loss;
    return AX_OK;
}

enum ax_status ax_sequence_count(struct ax_queue *q, const struct ax_sequence_rows *r) {
    const struct sequence_call c = sequence_call_of(r);
    struct ax_view views[VIEWS];
    sequence_views(r, views);
    views[COUNTS].use = AX_VIEW_WRITE;
    return ax_queue_call(q, count_sequences, &c, sizeof c, views, COUNTS + 1);
}

enum ax_status ax_sequence_slopes(struct ax_queue *q, const struct ax_sequence_rows *r) {
    const struct sequence_call c = sequence_call_of(r);
    struct ax_view views[VIEWS];
    sequence_views(r, views);
    return r->n_docs > 0 ? ax_queue_call(q, set_sequence_slopes, &c, sizeof c, views, VIEWS)
                         : AX_OK;
}

/* In backward: slopes of a layer's rows in scratch, for router_backward; data NULL without the loss.
 * Collective over tp and cp. */
static enum ax_status sequence_balance(struct ax_pass *p, const struct ax_router_choice *c,
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
    rows.counts = ax_stack_take(scratch, "router load",
                                ax_tensor_2d(AX_F64, NULL, b->n_cap, c->probs.shape[1]));
    rows.slopes = ax_stack_take(scratch, "gradient of router", rows.slopes);
    AX_TRY(ax_sequence_count(rt->q, &rows));
    AX_TRY(ax_tp_sum(rt, &rows.counts)); /* ranks with other rows of these documents */
    AX_TRY(ax_cp_sum(rt, &rows.counts));
    AX_TRY(ax_sequence_slopes(rt->q, &rows));
    *slopes = rows.slopes;
    return AX_OK;
}

/* ---- the balancing loss: sums a micro-batch's routing counts layer by layer; backward takes their gradient ---- */

static bool balances(const struct ax_pass *p) {
    return p->balance_coef > 0 && p->model->arch.moe.n_experts > 0 &&
           p->recompute != AX_RECOMPUTE_INFERENCE;
}

enum ax_status ax_balance_begin(struct ax_pass *p) {
    const int64_t E = p->model->arch.moe.n_experts;
    struct ax_slot *s = p->slot;
    s->load = ax_tensor_2d(p->model->accum, NULL, 2, E);
    s->slope = ax_tensor_1d(p->model->accum, NULL, E);
    s->balanced = false;
    if (!balances(p))
        return AX_OK;
    s->load = ax_stack_take(s->stack, "router load", s->load);
    s->slope = ax_stack_take(s->stack, "router load", s->slope);
    return ax_run_fill(p->model->rt->q, &(struct ax_fill){s->load, 0});
}

/* Accumulation dtype [2][E], for router_forward to add to; data NULL without a balancing loss. */
static struct ax_tensor balance_load(const struct ax_pass *p) {
    return p->slot->load;
}

/* Accumulation dtype [E]: the gradient for every token's probabilities (op router_balance), data
 * NULL = none. Computed on the first call in backward, when all layers' forward is done. */
static enum ax_status balance_slope(struct ax_pass *p, struct ax_tensor *slope) {
    struct ax_slot *s = p->slot;
    struct ax_runtime *rt = p->model->rt;
    *slope = s->slope;
    if (!slope->data || s->balanced)
        return AX_OK;
    s->balanced = true;
    AX_TRY(ax_tp_sum(rt, &s->load)); /* ranks with other rows of this micro-batch */
    AX_TRY(ax_cp_sum(rt, &s->load));
    const struct ax_router_balance balance = {.load = s->load,
                                              .slope = s->slope,
                                              .k = p->model->arch.moe.n_active,
                                              .weight = p->batch->loss_weight,
                                              .coef = p->balance_coef,
                                              .counts = ax_cp_adds(rt),
                                              .scalars = p->scalars};
    return ax_run_router_balance(rt->q, &balance);
}

/* ---- the router ---- */

void ax_router_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_config *c = &b->arch->moe;
    const struct ax_param_decl weight = {.name = c->names->router,
                                         .rows = c->n_experts,
                                         .cols = b->arch->hidden_size,
                                         .tp_dim = -1,
                                         .grad_partial_over = AX_TP_PARTIAL};
    const struct ax_param_decl bias = {.name = c->names->bias,
                                       .rows = c->names->bias_is_row ? 1 : c->n_experts,
                                       .cols = c->names->bias_is_row ? c->n_experts : 0,
                                       .tp_dim = -1,
                                       .buffer = true,
                                       .grad_partial_over = AX_TP_PARTIAL};
    l->moe.router = ax_builder_add(b, l->index, &weight);
    if (c->names->bias)
        l->moe.bias = ax_builder_add(b, l->index, &bias);
    const struct ax_param_decl added = {.name = c->names->router_bias,
                                        .rows = c->n_experts,
                                        .tp_dim = -1,
                                        .grad_partial_over = AX_TP_PARTIAL};
    if (c->names->router_bias)
        l->moe.router_bias = ax_builder_add(b, l->index, &added);
    const struct ax_param_decl factors = {.name = c->names->expert_scale,
                                          .rows = c->n_experts,
                                          .tp_dim = -1,
                                          .start = 1,
                                          .grad_partial_over = AX_TP_PARTIAL};
    if (c->names->expert_scale)
        l->moe.expert_scale = ax_builder_add(b, l->index, &factors);
}

static void tap(const struct ax_layer *l, struct ax_pass *p, const char *what,
                const struct ax_tensor *t) {
    if (p->tap)
        p->tap(p->tap_ctx, what, l->index, t);
}

static enum ax_status add_loads(struct ax_queue *q, const void *args, void *const *at) {
    const int64_t *n = args;
    const int32_t *experts = at[0];
    double *loads = at[1];
    (void)q;
    for (int64_t i = 0; i < *n; i++)
        if (experts[i] >= 0)
            loads[experts[i]] += 1;
    return AX_OK;
}

/* Once per pass: the choice is never made again. */
static enum ax_status count_loads(const struct ax_layer *l, const struct ax_pass *p,
                                  const struct ax_tensor *experts) {
    const struct ax_model *m = p->model;
    if (!m->expert_loads.data || p->recompute == AX_RECOMPUTE_INFERENCE)
        return AX_OK;
    const struct ax_tensor row = ax_tensor_rows(&m->expert_loads, l->index, 1);
    const int64_t n = ax_tensor_numel(experts);
    const struct ax_view views[] = {ax_view_of(experts, AX_VIEW_READ),
                                    ax_view_of(&row, AX_VIEW_UPDATE)};
    return ax_queue_call(m->rt->q, add_loads, &n, sizeof n, views, 2);
}

/* ---- factors of experts: a table of rows of one element, looked up for each choice ---- */

/* Dense [T][k] as [T·k][1]. */
static struct ax_tensor one_by_one(const struct ax_tensor *t) {
    return ax_tensor_2d(t->dtype, t->data, ax_tensor_numel(t), 1);
}

static struct ax_tensor choices_in_turn(const struct ax_router_choice *c) {
    return ax_tensor_1d(AX_I32, c->experts.data, ax_tensor_numel(&c->experts));
}

/* to [T][k] = from, each times the factor of its expert; 0 for padding. */
static enum ax_status times_factors(const struct ax_layer *l, const struct ax_pass *p,
                                    const struct ax_router_choice *c, const struct ax_tensor *from,
                                    const struct ax_tensor *to) {
    const struct ax_tensor factors = ax_unit_weight(l->unit, l->moe.expert_scale);
    const struct ax_combine_forward product = {.src = one_by_one(&factors),
                                               .rows = choices_in_turn(c),
                                               .weights = one_by_one(from),
                                               .out = one_by_one(to)};
    return ax_run_combine_forward(p->model->rt->q, &product);
}

/* Of the factors: Σ dweights·unscaled over the choices of an expert. */
static enum ax_status factors_gradient(const struct ax_layer *l, const struct ax_pass *p,
                                       const struct ax_router_choice *c,
                                       const struct ax_tensor *dweights) {
    static const struct ax_gating product = {.gate = AX_GATE_LINEAR};
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const struct ax_tensor grad = ax_unit_grad(l->unit, l->moe.expert_scale);
    const int64_t n = ax_tensor_numel(dweights);
    struct ax_tensor d, w, both;
    if (!grad.data)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    d = ax_stack_take(scratch, "gradient of router", ax_tensor_2d(m->dtype, NULL, n, 1));
    w = ax_stack_take(scratch, "gradient of router", d);
    both = ax_stack_take(scratch, "gradient of router", d);
    AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){d, one_by_one(dweights)}));
    AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){w, one_by_one(&c->unscaled)}));
    AX_TRY(ax_run_swiglu_forward(
        m->rt->q, &(struct ax_swiglu_forward){.gate_up = d, .up = w, .y = both, .how = product}));
    const struct ax_embedding_backward sum = {
        .dout = both, .tokens = choices_in_turn(c), .dweight = one_by_one(&grad), .skip_token = -1};
    AX_TRY(ax_run_embedding_backward(m->rt->q, &sum));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* Logits in accumulation dtype: one GEMM of rounded inputs, not rounded again. */
enum ax_status ax_router_choose(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *h, const struct ax_router_choice *c) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_batch *b = p->batch;
    struct ax_tensor logits = ax_stack_take(scratch, "router logits", c->probs);
    struct ax_gemm gemm = {.a = *h,
                           .b = ax_unit_weight(l->unit, l->moe.router),
                           .c = logits,
                           .trans_b = true,
                           .alpha = 1};
    if (l->moe.router_bias)
        gemm.bias = ax_unit_weight(l->unit, l->moe.router_bias);
    struct ax_router_forward router = {
        .logits = logits,
        .probs = c->probs,
        .weights = l->moe.expert_scale ? c->unscaled : c->weights,
        .experts = c->experts,
        .valid =
            b->used.data ? b->used : ax_tensor_rows(&b->cu_seqlens, b->cu_seqlens.shape[0] - 1, 1),
        .load = balance_load(p),
        .first = ax_tp_first(m->rt, b->T),
        .routing = m->arch.moe.routing};
    if (l->moe.bias) {
        const struct ax_tensor bias = ax_unit_weight(l->unit, l->moe.bias);
        router.bias = ax_tensor_1d(bias.dtype, bias.data, m->arch.moe.n_experts);
    }
    AX_TRY(ax_run_gemm(m->rt->q, &gemm));
    AX_TRY(ax_run_router_forward(m->rt->q, &router));
    if (l->moe.expert_scale)
        AX_TRY(times_factors(l, p, c, &c->unscaled, &c->weights));
    AX_TRY(count_loads(l, p, &router.experts));
    tap(l, p, "router_logits", &logits);
    tap(l, p, "router_experts", &router.experts);
    tap(l, p, "router_weights", &c->weights);
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_router_gradient(const struct ax_layer *l, struct ax_pass *p,
                                  const struct ax_router_choice *c,
                                  const struct ax_tensor *dweights, const struct ax_tensor *h,
                                  const struct ax_tensor *dh) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_router_backward back = {.probs = c->probs,
                                      .experts = c->experts,
                                      .dweights = *dweights,
                                      .routing = m->arch.moe.routing};
    back.dlogits = ax_stack_take(scratch, "gradient of router logits",
                                 ax_tensor_2d(m->dtype, NULL, h->shape[0], m->arch.moe.n_experts));
    if (l->moe.expert_scale) {
        AX_TRY(factors_gradient(l, p, c, dweights));
        back.dweights = ax_stack_take(scratch, "gradient of router", back.dweights);
        AX_TRY(times_factors(l, p, c, dweights, &back.dweights));
    }
    AX_TRY(balance_slope(p, &back.slope));
    AX_TRY(sequence_balance(p, c, &back.slopes));
    AX_TRY(ax_run_router_backward(m->rt->q, &back));
    const struct ax_tensor dw = ax_unit_grad(l->unit, l->moe.router);
    struct ax_gemm to_w = {
        .a = back.dlogits, .b = *h, .c = dw, .trans_a = true, .accumulate = true, .alpha = 1};
    struct ax_gemm to_h = {.a = back.dlogits,
                           .b = ax_unit_weight(l->unit, l->moe.router),
                           .c = *dh,
                           .accumulate = true,
                           .alpha = 1};
    if (dw.data)
        AX_TRY(ax_run_gemm(m->rt->q, &to_w));
    struct ax_tensor db = {0};
    if (l->moe.router_bias)
        db = ax_unit_grad(l->unit, l->moe.router_bias);
    if (db.data)
        AX_TRY(ax_run_colsum(m->rt->q, &(struct ax_colsum){back.dlogits, db}));
    AX_TRY(ax_run_gemm(m->rt->q, &to_h));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
