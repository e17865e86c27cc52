/* Head forward and backward over chunks of C rows, the tokens that the batch lists (model/core/batch.h):
 *
 *   h = their normed states [C][D];  z = h·Wᵀ [C][V];  logprob, lse, entropy from z
 *   dz from their gradients;  dh = dz·W, to where h came from;  dW += dzᵀ·h
 *
 * Tokens that are not listed take no part; their gradient is 0. A classifier's head (classifier.h) is
 * one whose vocabulary is the labels, with a bias: z = h·Wᵀ + b, db += Σ dz. If the model trains for a
 * scheme with a head (fake_quant.h), products read the values of h and W.
 *
 * With a linear objective (SFT) one loop does all of it, chunk by chunk, while z is in cache.
 * Otherwise a first loop computes the three values per token, the objective sees all tokens, and a
 * second loop does backward. */
#include "model/parts/head.h"

#include "model/adapter/embed.h"
#include "model/core/norm.h"
#include "model/core/pass.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/streams.h"

/* ---- logits from final hidden states, of a chunk or of rows that inference asks for; and their gradients ---- */

#define CLIPPED_ROWS 4096 /* of a gradient that rounding clips */

enum ax_status ax_head_weight(const struct ax_model *m, struct ax_tensor *w) {
    return ax_linear_weights(m->rt, &m->head, w);
}

/* If the head is quantized, hidden becomes its quantized values, in scratch. */
static enum ax_status head_inputs(const struct ax_model *m, struct ax_tensor *hidden) {
    const struct ax_fake_quant *quant = ax_linear_quant(&m->head);
    return quant ? ax_fake_quant_input(m->rt, quant, AX_FAKE_ALL, AX_SUM_COLUMNS, hidden) : AX_OK;
}

enum ax_status ax_head_logits(struct ax_pass *p, const struct ax_tensor *w,
                              const struct ax_tensor *rows, const struct ax_tensor *hidden,
                              const struct ax_tensor *logits) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {.a = *hidden, .b = *w, .c = *logits, .trans_b = true, .alpha = 1};
    const struct ax_linear *head = &p->model->head;
    if (head->bias[0])
        g.bias = ax_unit_weight(head->unit, head->bias[0]);
    AX_TRY(head_inputs(p->model, &g.a));
    AX_TRY(ax_run_gemm(rt->q, &g));
    ax_stack_release(&rt->arena.scratch, mark);
    AX_TRY(ax_adapter_head_forward(p, rows, hidden, w, logits));
    const struct ax_arch *a = &p->model->arch;
    if (a->logit_scale == 1 && a->logit_softcap == 0)
        return AX_OK;
    return ax_run_scale(p->model->rt->q, &(struct ax_scale){.y = *logits,
                                                            .x = *logits,
                                                            .alpha = a->logit_scale,
                                                            .softcap = a->logit_softcap});
}

/* d: in, the gradient of these logits; out, the gradient of hidden·Wᵀ + bias. With a softcap, d
 * must not be the logits' memory. */
static enum ax_status head_logits_backward(const struct ax_model *m, const struct ax_tensor *logits,
                                           const struct ax_tensor *d) {
    const double scale = m->arch.logit_scale, cap = m->arch.logit_softcap;
    if (cap > 0)
        return ax_run_softcap_backward(
            m->rt->q, &(struct ax_softcap_backward){
                          .dx = *d, .dy = *d, .y = *logits, .alpha = scale, .softcap = cap});
    return scale == 1
               ? AX_OK
               : ax_run_scale(m->rt->q, &(struct ax_scale){.y = *d, .x = *d, .alpha = scale});
}

/* dW += the gradient of W, where rounding clips and so differs from that of the values; some rows at a
 * time, whose gradient of values is in scratch. */
static enum ax_status clipped_gradient(const struct ax_model *m, const struct ax_tensor *dlogits,
                                       const struct ax_tensor *hidden, const struct ax_tensor *dw) {
    const int64_t V = m->lm_head->local_shape[0], most = V < CLIPPED_ROWS ? V : CLIPPED_ROWS;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    const struct ax_tensor w = ax_unit_weight(m->head.unit, m->lm_head);
    struct ax_tensor all = ax_stack_take(&m->rt->arena.scratch, "gradient of values",
                                         ax_tensor_2d(dw->dtype, NULL, most, dw->shape[1]));
    for (int64_t at = 0; at < V; at += most) {
        const int64_t n = V - at < most ? V - at : most;
        const struct ax_tensor d = ax_tensor_rows(&all, 0, n), to = ax_tensor_rows(dw, at, n);
        const struct ax_tensor rows = ax_tensor_rows(&w, at, n);
        AX_TRY(ax_run_gemm(m->rt->q, &(struct ax_gemm){.a = ax_tensor_cols(dlogits, at, n),
                                                       .b = *hidden,
                                                       .c = d,
                                                       .trans_a = true,
                                                       .alpha = 1}));
        AX_TRY(ax_fake_quant_weight_grad(m->rt, m->head.quant, m->lm_head, &rows, &d, &to));
    }
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

/* dW (+)= dᵀ·hidden, db += Σ d; hidden as the product read it. */
static enum ax_status head_weight_gradients(const struct ax_model *m,
                                            const struct ax_tensor *dlogits,
                                            const struct ax_tensor *hidden) {
    const struct ax_param *bias = m->head.bias[0];
    const bool clips = m->head.quant && ax_fake_quant_clips(m->head.quant);
    const bool begins = ax_unit_grad_begins(m->head.unit, m->lm_head);
    const struct ax_tensor dw = ax_unit_grad(m->head.unit, m->lm_head);
    if (begins && clips)
        AX_TRY(ax_run_fill(m->rt->q, &(struct ax_fill){dw, 0}));
    if (dw.data && clips)
        AX_TRY(clipped_gradient(m, dlogits, hidden, &dw));
    else if (dw.data)
        AX_TRY(ax_run_gemm(m->rt->q, &(struct ax_gemm){.a = *dlogits,
                                                       .b = *hidden,
                                                       .c = dw,
                                                       .trans_a = true,
                                                       .accumulate = !begins,
                                                       .alpha = 1}));
    if (!bias)
        return AX_OK;
    const struct ax_tensor db = ax_unit_grad(m->head.unit, bias);
    return db.data ? ax_run_colsum(m->rt->q, &(struct ax_colsum){*dlogits, db}) : AX_OK;
}

const struct ax_tensor *ax_pass_final_hidden(const struct ax_pass *p) {
    const struct ax_frame *f = &p->slot->frames[p->model->n_units - 1];
    return &f->saved[p->model->rt->mesh.size[AX_ROLE_TP] > 1 ? AX_HEAD_ALL_NORMED : AX_HEAD_NORMED]
                .t;
}

const struct ax_tensor *ax_pass_own_hidden(const struct ax_pass *p) {
    return &p->slot->frames[p->model->n_units - 1].saved[AX_HEAD_NORMED].t;
}

static enum ax_status logits_of(struct ax_pass *p, const struct ax_tensor *hidden,
                                const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    struct ax_tensor w;
    AX_TRY(ax_model_gather(m, m->n_units - 1));
    AX_TRY(ax_head_weight(m, &w));
    AX_TRY(ax_head_logits(p, &w, &(struct ax_tensor){0}, hidden, out));
    ax_stack_release(&m->rt->arena.scratch, mark);
    ax_model_release(m, m->n_units - 1);
    return AX_OK;
}

enum ax_status ax_pass_logits(struct ax_pass *p, int64_t first, int64_t n, struct ax_tensor *out) {
    const struct ax_tensor hidden = ax_tensor_rows(ax_pass_final_hidden(p), first, n);
    return logits_of(p, &hidden, out);
}

/* Logits of rows of `all`, states [T][D]. */
static enum ax_status logits_of_rows(struct ax_pass *p, const struct ax_tensor *all,
                                     const struct ax_tensor *rows, const struct ax_tensor *work,
                                     const struct ax_tensor *out) {
    const struct ax_tensor hidden = ax_tensor_rows(work, 0, out->shape[0]);
    AX_TRY(ax_run_combine_forward(
        p->model->rt->q, &(struct ax_combine_forward){.src = *all, .rows = *rows, .out = hidden}));
    return logits_of(p, &hidden, out);
}

enum ax_status ax_pass_logits_of(struct ax_pass *p, const struct ax_tensor *rows,
                                 const struct ax_tensor *work, const struct ax_tensor *out) {
    return logits_of_rows(p, ax_pass_final_hidden(p), rows, work, out);
}

enum ax_status ax_pass_logits_from(struct ax_pass *p, const struct ax_tensor *normed,
                                   const struct ax_tensor *rows, const struct ax_tensor *work,
                                   const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor all;
    AX_TRY(ax_tp_gather(p->model->rt, normed, &all));
    AX_TRY(logits_of_rows(p, &all, rows, work, out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- a pass through the head ---- */

enum {
    NORMED = AX_HEAD_NORMED,
    RSTD = AX_HEAD_RSTD,
    ALL_NORMED = AX_HEAD_ALL_NORMED,
    LOGPROB = AX_HEAD_N_NORMED,
    LSE,
    LSE_REST,
    ENTROPY,
    MEAN,
    JOINED, /* what the final norm reads of a model with several streams */
    N_SAVED
};

#define CHUNK_BYTES (64 << 20)

/* Columns of the logits on this rank: its part of the vocabulary, or a classifier's labels. */
static int64_t local_vocab(const struct ax_model *m) {
    return m->lm_head->local_shape[0];
}

int64_t ax_head_chunk_tokens(const struct ax_model *m, int64_t T) {
    const int64_t V = local_vocab(m), D = m->arch.hidden_size;
    const int64_t row = (V > D ? V : D) * (int64_t)ax_dtype_size(m->accum);
    const int64_t wanted = m->rt->q->model->rounding.head_chunk, least = wanted > 32 ? wanted : 32;
    int64_t n = CHUNK_BYTES / row / 32 * 32;
    n = n < least ? least : n;
    return n < T ? n : T;
}

static bool with_mean(const struct ax_head_objective *o) {
    return o->needs_mean || o->wants_mean;
}

static bool with_backward(const struct ax_pass *p) {
    return p->recompute != AX_RECOMPUTE_INFERENCE;
}

void ax_head_declare(const struct ax_pass *p, struct ax_frame *f) {
    const struct ax_model *m = p->model;
    const int64_t T = p->batch->T, rows = ax_tp_rows(m->rt, T);
    const struct ax_tensor per_token = ax_tensor_1d(m->accum, NULL, T);
    ax_frame_begin(f, N_SAVED);
    ax_saved_declare(&f->saved[NORMED], "norm output", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, rows, m->arch.hidden_size));
    if (!ax_arch_predicts(&m->arch))
        ax_saved_declare(&f->saved[RSTD], "norm rstd", AX_KEEP_CHEAP,
                         ax_tensor_1d(m->accum, NULL, rows));
    if (m->arch.streams.n > 0)
        ax_saved_declare(&f->saved[JOINED], "streams joined", AX_KEEP_COSTLY,
                         ax_tensor_2d(m->accum, NULL, rows, m->arch.hidden_size));
    if (!p->objective && m->rt->mesh.size[AX_ROLE_TP] > 1) /* logits are computed later */
        ax_saved_declare(&f->saved[ALL_NORMED], "norm output of all rows", AX_KEEP_CHEAP,
                         ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size));
    if (!p->objective || p->objective->linear)
        return;
    /* backward reads them as they are: with afab other micro-batches have used scratch by then */
    ax_saved_declare(&f->saved[LOGPROB], "head log-prob", AX_KEEP_ALWAYS, per_token);
    ax_saved_declare(&f->saved[LSE], "head log-sum-exp", AX_KEEP_ALWAYS, per_token);
    ax_saved_declare(&f->saved[LSE_REST], "head log-sum-exp", AX_KEEP_ALWAYS, per_token);
    ax_saved_declare(&f->saved[ENTROPY], "head entropy", AX_KEEP_ALWAYS, per_token);
    if (with_mean(p->objective))
        ax_saved_declare(&f->saved[MEAN], "head mean log-prob", AX_KEEP_ALWAYS, per_token);
}

/* Buffers of one chunk, from scratch. dlogits are over logits, unless their cap needs them. */
struct chunk {
    int64_t cap;
    struct ax_tensor w; /* as products read it */
    struct ax_tensor hidden, dhidden, logits, dlogits, stats;
    struct ax_head_chunk h;
    struct ax_distill_chunk taught; /* with a teacher */
};

static struct ax_tensor take(struct ax_pass *p, const char *name, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    return ax_stack_take(&p->model->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

static struct ax_tensor take_column(struct ax_pass *p, int64_t n) {
    struct ax_tensor t = take(p, "head per-token values", p->model->accum, n, 1);
    return ax_tensor_1d(t.dtype, t.data, n);
}

/* The gradient columns of n tokens; those the objective does not set stay absent. */
static void take_gradients(struct ax_pass *p, struct ax_head_chunk *h, int64_t n) {
    h->g_logprob = take_column(p, n);
    if (p->objective->needs_lse || p->objective->needs_entropy)
        h->g_lse = take_column(p, n);
    if (p->objective->needs_entropy)
        h->g_entropy = take_column(p, n);
    if (p->objective->needs_mean)
        h->g_mean = take_column(p, n);
    if (p->objective->distill)
        h->g_divergence = take_column(p, n);
}

static enum ax_status take_chunk(struct ax_pass *p, struct chunk *c, bool gradients) {
    const struct ax_model *m = p->model;
    const int64_t V = local_vocab(m);
    *c = (struct chunk){.cap = ax_head_chunk_tokens(m, p->batch->T)};
    AX_TRY(ax_head_weight(m, &c->w));
    c->hidden = take(p, "head rows", m->dtype, c->cap, m->arch.hidden_size);
    if (gradients)
        c->dhidden = take(p, "gradient of head rows", m->accum, c->cap, m->arch.hidden_size);
    c->logits = take(p, "head logits", m->accum, c->cap, V);
    c->dlogits = ax_tensor_over(&c->logits, m->dtype);
    if (gradients && m->arch.logit_softcap > 0)
        c->dlogits = take(p, "gradient of head logits", m->dtype, c->cap, V);
    c->stats = take(p, "head per-token values", m->accum, c->cap, AX_SOFTMAX_STATS);
    c->h.logprob = take_column(p, c->cap);
    c->h.lse = take_column(p, c->cap);
    c->h.lse_rest = take_column(p, c->cap);
    c->h.entropy = take_column(p, c->cap);
    if (with_mean(p->objective))
        c->h.mean_logprob = take_column(p, c->cap);
    if (p->objective->distill)
        ax_distill_take(&c->taught, p->objective->distill, m, p->teacher, &m->rt->arena.scratch,
                        c->cap);
    return AX_OK;
}

/* What sampling would leave of the logits of rows [first, first + n). */
static enum ax_status chunk_truncate(struct ax_pass *p, const struct chunk *c, int64_t first,
                                     int64_t n) {
    const struct ax_param *w = p->model->lm_head;
    const struct ax_tensor labels = ax_tensor_rows(&p->batch->labels, first, n);
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, n);
    return ax_truncate_logits(p->model->rt, &p->sampling, w->shape[0],
                              ax_tp_first_row(p->model->rt, w), &labels, &logits);
}

/* Logits of rows [first, first + n), and the states they are computed from. */
static enum ax_status chunk_logits(struct ax_pass *p, const struct chunk *c,
                                   const struct ax_tensor *all_normed, int64_t first, int64_t n) {
    const struct ax_tensor rows = ax_tensor_rows(&p->batch->rows, first, n);
    const struct ax_tensor hidden = ax_tensor_rows(&c->hidden, 0, n);
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, n);
    AX_TRY(ax_run_combine_forward(
        p->model->rt->q,
        &(struct ax_combine_forward){.src = *all_normed, .rows = rows, .out = hidden}));
    const struct ax_tensor order = ax_tensor_rows(&p->batch->row_order, first, n);
    AX_TRY(ax_head_logits(p, &c->w, &order, &hidden, &logits));
    return chunk_truncate(p, c, first, n);
}

/* logits → stats → (logprob, lse, entropy, mean_logprob) of rows [first, first + n). */
static enum ax_status chunk_values(struct ax_pass *p, const struct chunk *c, int64_t first,
                                   int64_t n, const struct ax_head_chunk *into) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor labels = ax_tensor_rows(&p->batch->labels, first, n);
    const struct ax_tensor stats = ax_tensor_rows(&c->stats, 0, n);
    const struct ax_softmax_stats s = {.logits = ax_tensor_rows(&c->logits, 0, n),
                                       .labels = labels,
                                       .stats = stats,
                                       .first_col = ax_tp_first_row(rt, p->model->lm_head),
                                       .inv_temperature = p->inv_temperature};
    AX_TRY(ax_run_softmax_stats(rt->q, &s));
    struct ax_softmax_merge merge = {.labels = labels,
                                     .logprob = into->logprob,
                                     .lse = into->lse,
                                     .entropy = into->entropy,
                                     .mean_logprob = into->mean_logprob,
                                     .vocab = p->model->lm_head->shape[0],
                                     .lse_rest = into->lse_rest,
                                     .inv_temperature = p->inv_temperature};
    AX_TRY(ax_tp_gather_stats(rt, p->model->lm_head, &stats, &merge.stats));
    AX_TRY(ax_run_softmax_merge(rt->q, &merge));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* Compares a chunk with the teacher: sets h->divergence, and h->entropy to that at its temperature. */
static enum ax_status compare_chunk(struct ax_pass *p, struct ax_distill_chunk *c,
                                    struct ax_head_chunk *h) {
    const struct ax_distill_options *o = p->objective->distill;
    const struct ax_distill_rows rows = {
        .student = p->model,
        .teacher = p->teacher,
        .o = o,
        .rows = ax_tensor_rows(&p->batch->rows, h->first, h->n),
        .labels = ax_tensor_rows(&p->batch->labels, h->first, h->n),
        .logits = h->logits,
        .stored = ax_distill_stored_rows(o, p->batch, h->first, h->n)};
    h->divergence = ax_tensor_rows(&c->divergence, 0, h->n);
    h->entropy = ax_tensor_rows(&c->entropy, 0, h->n);
    return ax_distill_compare(c, &rows);
}

/* dlogits from h->g_logprob and h->g_divergence. */
static enum ax_status distill_gradient(struct ax_pass *p, const struct ax_distill_chunk *c,
                                       const struct ax_head_chunk *h,
                                       const struct ax_tensor *logits,
                                       const struct ax_tensor *dlogits) {
    const struct ax_model *m = p->model;
    const struct ax_distill_options *o = p->objective->distill;
    return ax_run_distill_backward(
        m->rt->q,
        &(struct ax_distill_backward){.logits = *logits,
                                      .teacher = ax_tensor_rows(&c->logits, 0, h->n),
                                      .labels = ax_tensor_rows(&p->batch->labels, h->first, h->n),
                                      .nll_lse = h->lse,
                                      .lse = ax_tensor_rows(&c->lse, 0, h->n),
                                      .teacher_lse = ax_tensor_rows(&c->teacher_lse, 0, h->n),
                                      .student_kl = ax_tensor_rows(&c->student_kl, 0, h->n),
                                      .g_logprob = h->g_logprob,
                                      .g_divergence = h->g_divergence,
                                      .dlogits = *dlogits,
                                      .first_col = ax_tp_first_row(m->rt, m->lm_head),
                                      .beta = o->beta,
                                      .inv_temperature = 1 / o->temperature});
}

static enum ax_status chunk_dlogits(struct ax_pass *p, const struct chunk *c,
                                    const struct ax_head_chunk *h,
                                    const struct ax_tensor *dlogits) {
    const struct ax_model *m = p->model;
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, h->n);
    const struct ax_tensor labels = ax_tensor_rows(&p->batch->labels, h->first, h->n);
    if (p->objective->distill)
        return distill_gradient(p, &c->taught, h, &logits, dlogits);
    return ax_run_softmax_backward(
        m->rt->q, &(struct ax_softmax_backward){.logits = logits,
                                                .labels = labels,
                                                .lse = h->lse,
                                                .entropy = h->entropy,
                                                .g_logprob = h->g_logprob,
                                                .g_lse = h->g_lse,
                                                .g_entropy = h->g_entropy,
                                                .g_mean = h->g_mean,
                                                .vocab = m->lm_head->shape[0],
                                                .lse_rest = h->lse_rest,
                                                .dlogits = *dlogits,
                                                .first_col = ax_tp_first_row(m->rt, m->lm_head),
                                                .inv_temperature = p->inv_temperature});
}

/* Computes dlogits, then dh, added to its rows of d_normed (partial over the vocabulary), dW and db.
 * What tp does not split, one of its ranks computes. */
static enum ax_status chunk_backward(struct ax_pass *p, const struct chunk *c,
                                     const struct ax_head_chunk *h,
                                     const struct ax_tensor *d_normed) {
    struct ax_model *m = p->model;
    if (m->lm_head->tp_dim < 0 && !ax_tp_adds(m->rt))
        return AX_OK;
    const struct ax_tensor rows = ax_tensor_rows(&p->batch->rows, h->first, h->n);
    const struct ax_tensor hidden = ax_tensor_rows(&c->hidden, 0, h->n);
    const struct ax_tensor dhidden = ax_tensor_rows(&c->dhidden, 0, h->n);
    const struct ax_tensor dlogits = ax_tensor_rows(&c->dlogits, 0, h->n);
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, h->n);
    AX_TRY(chunk_dlogits(p, c, h, &dlogits));
    AX_TRY(head_logits_backward(m, &logits, &dlogits));
    AX_TRY(ax_run_gemm(m->rt->q,
                       &(struct ax_gemm){.a = dlogits, .b = c->w, .c = dhidden, .alpha = 1}));
    if (m->head.quant)
        AX_TRY(ax_fake_quant_input_grad(m->rt, m->head.quant, &hidden, AX_FAKE_ALL, &dhidden));
    const struct ax_tensor order = ax_tensor_rows(&p->batch->row_order, h->first, h->n);
    AX_TRY(ax_adapter_head_backward(p, &order, &hidden, &c->w, &dlogits, &dhidden));
    AX_TRY(ax_run_scatter_rows(m->rt->q, &(struct ax_scatter_rows){*d_normed, dhidden, rows}));
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    struct ax_tensor values = hidden;
    AX_TRY(head_inputs(m, &values));
    AX_TRY(head_weight_gradients(m, &dlogits, &values));
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

/* View of rows [first, first + n) of per-token columns; absent columns stay absent. */
static struct ax_head_chunk part_of(const struct ax_head_chunk *all, int64_t first, int64_t n) {
    struct ax_head_chunk c = {.first = all->first + first, .n = n};
    const struct ax_tensor *from[] = {
        &all->logprob,   &all->lse,   &all->lse_rest,  &all->entropy, &all->mean_logprob,
        &all->g_logprob, &all->g_lse, &all->g_entropy, &all->g_mean,  &all->g_divergence};
    struct ax_tensor *to[] = {&c.logprob,   &c.lse,   &c.lse_rest,  &c.entropy, &c.mean_logprob,
                              &c.g_logprob, &c.g_lse, &c.g_entropy, &c.g_mean,  &c.g_divergence};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        if (from[i]->data)
            *to[i] = ax_tensor_rows(from[i], first, n);
    return c;
}

/* For an objective that is not linear: storage for the values of all rows. */
static struct ax_head_chunk kept_values(const struct ax_frame *f) {
    return (struct ax_head_chunk){.logprob = f->saved[LOGPROB].t,
                                  .lse = f->saved[LSE].t,
                                  .lse_rest = f->saved[LSE_REST].t,
                                  .entropy = f->saved[ENTROPY].t,
                                  .mean_logprob = f->saved[MEAN].t};
}

/* The gradient of all tokens' normed states, zeroed; `of` is that of this rank's. */
static enum ax_status begin_gradient(struct ax_pass *p, const struct ax_tensor *of,
                                     struct ax_tensor *d_normed) {
    *d_normed = ax_tp_partial(p->model->rt, of);
    return ax_run_fill(p->model->rt->q, &(struct ax_fill){*d_normed, 0});
}

/* What the final norm reads: x, or its streams joined. */
static const struct ax_tensor *norm_input(const struct ax_frame *f, const struct ax_tensor *x) {
    return f->saved[JOINED].name ? &f->saved[JOINED].t : x;
}

static enum ax_status make_normed(struct ax_pass *p, struct ax_frame *f,
                                  const struct ax_tensor *x) {
    struct ax_model *m = p->model;
    const struct ax_tensor *joined = norm_input(f, x);
    if (joined != x && ax_saved_make(&f->saved[JOINED]))
        AX_TRY(ax_streams_end_forward(p, x, joined));
    if (!ax_saved_make(&f->saved[NORMED]))
        return AX_OK;
    if (ax_arch_predicts(&m->arch)) /* it has been normed */
        return ax_run_copy(m->rt->q, &(struct ax_copy){f->saved[NORMED].t, *x});
    return ax_norm_forward(p, &m->units[m->final_norm->unit], m->final_norm, joined,
                           &f->saved[NORMED].t, &f->saved[RSTD].t);
}

/* Gathers the normed state of all rows, from which inference computes logits. */
static enum ax_status keep_normed(const struct ax_pass *p, struct ax_frame *f) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_tensor all;
    if (rt->mesh.size[AX_ROLE_TP] == 1)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(ax_tp_gather(rt, &f->saved[NORMED].t, &all));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){f->saved[ALL_NORMED].t, all}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* The loop over rows: the objective's results, of which those of one that is not linear go to f, and the
 * gradient of `normed` in d, if a linear objective has one. */
static enum ax_status walk_forward(struct ax_pass *p, const struct ax_frame *f,
                                   const struct ax_tensor *normed, const struct ax_tensor *d) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool linear = p->objective->linear, back = linear && with_backward(p);
    struct ax_tensor all_normed, d_normed = {0};
    struct chunk c;
    const int64_t planned = ax_head_chunk_tokens(m, p->batch->cap);
    AX_TRY(ax_tp_gather(m->rt, normed, &all_normed));
    if (back)
        AX_TRY(begin_gradient(p, d, &d_normed));
    AX_TRY(take_chunk(p, &c, back));
    if (linear)
        take_gradients(p, &c.h, c.cap);
    const struct ax_head_chunk all = kept_values(f);
    const int64_t n_rows = p->batch->n_rows;
    ax_contract_loop(&m->rt->contracts);
    for (int64_t first = 0; first < n_rows; first += c.cap) {
        const int64_t n = n_rows - first < c.cap ? n_rows - first : c.cap;
        AX_TRY(ax_contract_turn(&m->rt->contracts, n, planned));
        struct ax_head_chunk part = linear ? part_of(&c.h, 0, n) : part_of(&all, first, n);
        part.first = first;
        AX_TRY(chunk_logits(p, &c, &all_normed, first, n));
        AX_TRY(chunk_values(p, &c, first, n, &part));
        part.logits = ax_tensor_rows(&c.logits, 0, n);
        if (p->objective->distill)
            AX_TRY(compare_chunk(p, &c.taught, &part));
        if (linear)
            AX_TRY(p->objective->token_grad(p->objective->ctx, p, &part));
        if (back)
            AX_TRY(chunk_backward(p, &c, &part, &d_normed));
    }
    AX_TRY(ax_contract_end(&m->rt->contracts));
    if (back)
        AX_TRY(ax_tp_reduce(m->rt, &d_normed, NULL, d));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- what the layer for multi-token prediction has made (model/predict.h) ---- */

static enum ax_status ahead_gradient(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    struct ax_queue *q = p->model->rt->q;
    const struct ax_tensor g = ax_tensor_2d(c->g_logprob.dtype, c->g_logprob.data, 1, c->n);
    (void)ctx;
    AX_TRY(ax_run_nll_loss(
        q, &(struct ax_nll_loss){.logprob = c->logprob,
                                 .labels = ax_tensor_rows(&p->batch->labels, c->first, c->n),
                                 .weight = ax_tensor_rows(&p->batch->weight, c->first, c->n),
                                 .g_logprob = c->g_logprob,
                                 .scalars = p->scalars}));
    return ax_run_scale(q, &(struct ax_scale){.y = g, .x = g, .alpha = p->ahead_coef});
}

static const struct ax_head_objective ahead_objective = {.linear = true,
                                                         .token_grad = ahead_gradient};

/* Its loss, and its gradient in its place. */
static enum ax_status ahead_forward(struct ax_pass *p, const struct ax_frame *f) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_unit *unit = &m->units[m->ahead_norm->unit];
    const struct ax_tensor *y = &p->slot->ahead;
    const int64_t rows = y->shape[0], D = y->shape[1];
    struct ax_batch batch = ax_batch_ahead(p->batch);
    struct ax_pass ahead = *p;
    ahead.batch = &batch;
    ahead.objective = &ahead_objective;
    ahead.scalars = p->ahead_scalars;
    const struct ax_tensor normed = take(p, "norm output", m->dtype, rows, D);
    const struct ax_tensor d = take(p, "gradient of norm output", m->accum, rows, D);
    const struct ax_tensor rstd =
        ax_stack_take(scratch, "norm rstd", ax_tensor_1d(m->accum, NULL, rows));
    AX_TRY(ax_norm_forward(p, unit, m->ahead_norm, y, &normed, &rstd));
    if (p->tap)
        p->tap(p->tap_ctx, "ahead", 0, &normed);
    AX_TRY(walk_forward(&ahead, f, &normed, &d));
    AX_TRY(ax_norm_backward(p, unit, m->ahead_norm, &d, y, &rstd, &d, false));
    AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){*y, d}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- the unit ---- */

enum ax_status ax_head_forward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x) {
    AX_TRY(make_normed(p, f, x));
    const struct ax_tensor *normed = &f->saved[NORMED].t;
    if (p->tap)
        p->tap(p->tap_ctx, "norm", 0, normed);
    if (!p->objective)
        return keep_normed(p, f);
    const struct ax_tensor grad = ax_streams_joined_gradient(p);
    AX_TRY(walk_forward(p, f, normed, &grad));
    return p->model->ahead_norm && with_backward(p) ? ahead_forward(p, f) : AX_OK;
}

/* Second loop, for an objective that had to see all tokens first. */
static enum ax_status walk_backward(struct ax_pass *p, struct ax_frame *f) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_head_chunk room = kept_values(f);
    struct ax_head_chunk all = part_of(&room, 0, p->batch->n_rows);
    take_gradients(p, &all, all.n);
    AX_TRY(p->objective->token_grad(p->objective->ctx, p, &all));
    struct ax_tensor all_normed, d_normed;
    AX_TRY(ax_tp_gather(m->rt, &f->saved[NORMED].t, &all_normed));
    const struct ax_tensor grad = ax_streams_joined_gradient(p);
    AX_TRY(begin_gradient(p, &grad, &d_normed));
    struct chunk c;
    AX_TRY(take_chunk(p, &c, true));
    const int64_t planned = ax_head_chunk_tokens(m, p->batch->cap);
    ax_contract_loop(&m->rt->contracts);
    for (int64_t first = 0; first < all.n; first += c.cap) {
        const int64_t left = all.n - first, n = left < c.cap ? left : c.cap;
        AX_TRY(ax_contract_turn(&m->rt->contracts, n, planned));
        const struct ax_head_chunk part = part_of(&all, first, n);
        AX_TRY(chunk_logits(p, &c, &all_normed, first, n));
        AX_TRY(chunk_backward(p, &c, &part, &d_normed));
    }
    AX_TRY(ax_contract_end(&m->rt->contracts));
    AX_TRY(ax_tp_reduce(m->rt, &d_normed, NULL, &grad));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_head_backward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x) {
    struct ax_model *m = p->model;
    AX_TRY(make_normed(p, f, x));
    if (!p->objective->linear)
        AX_TRY(walk_backward(p, f));
    if (ax_arch_predicts(&m->arch))
        return AX_OK;
    const struct ax_tensor grad = ax_streams_joined_gradient(p);
    AX_TRY(ax_residual_norm_backward(p, &m->units[m->final_norm->unit], m->final_norm, &grad,
                                     norm_input(f, x), &f->saved[RSTD].t, &grad, false,
                                     ax_residual_narrows(p, m->n_units - 2)));
    return ax_streams_end_backward(p, x);
}
