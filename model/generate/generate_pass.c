/* One pass of the model over the lanes' pending tokens, up to the requested logits. */
#include <string.h>

#include "base/mem.h"
#include "model/generate/generate_lanes.h"
#include "model/parts/head.h"

enum ax_status ax_generate_work_create(struct ax_generator *d) {
    const size_t T = (size_t)d->o.pass_tokens, S = (size_t)d->o.n_seqs;
    AX_TRY(ax_alloc(&d->work, 1, sizeof *d->work));
    struct ax_generate_work *w = d->work;
    AX_TRY(ax_alloc(&w->tokens, T, sizeof *w->tokens));
    AX_TRY(ax_alloc(&w->positions, T, sizeof *w->positions));
    AX_TRY(ax_alloc(&w->cu, S + 1, sizeof *w->cu));
    AX_TRY(ax_alloc(&w->lane, S, sizeof *w->lane));
    AX_TRY(ax_alloc(&w->n, S, sizeof *w->n));
    AX_TRY(ax_alloc(&w->held, (size_t)d->cache.n_blocks, sizeof *w->held));
    return ax_alloc(&w->row, S, sizeof *w->row);
}

void ax_generate_work_free(struct ax_generator *d) {
    struct ax_generate_work *w = d->work;
    if (!w)
        return;
    ax_free(w->tokens);
    ax_free(w->positions);
    ax_free(w->cu);
    ax_free(w->lane);
    ax_free(w->n);
    ax_free(w->held);
    ax_free(w->row);
    ax_free(w);
}

void ax_generate_allocate(struct ax_generator *d, struct ax_stack *stack) {
    const struct ax_model *m = d->model;
    const int64_t n = d->o.n_seqs;
    ax_batch_allocate(&d->batch, stack, d->o.pass_tokens, n, d->cap, 1, 0);
    d->logits = ax_tensor_2d(m->accum, NULL, n, m->lm_head->local_shape[0]);
    d->hidden = ax_tensor_2d(m->dtype, NULL, n, m->arch.hidden_size);
    d->logits.data = ax_stack_push(stack, "decode logits", ax_tensor_bytes(&d->logits));
    d->hidden.data = ax_stack_push(stack, "decode hidden", ax_tensor_bytes(&d->hidden));
    d->rows = ax_tensor_1d(AX_I32, NULL, n);
    d->rows.data = ax_stack_push(stack, "decode rows", ax_tensor_bytes(&d->rows));
}

/* ---- what goes in ---- */

static void add(struct ax_generator *d, int lane, int64_t n) {
    struct ax_generate_work *w = d->work;
    const int64_t from = d->cache.length[lane];
    memcpy(w->tokens + w->n_tokens, d->lanes[lane].ids + from, (size_t)n * sizeof *w->tokens);
    for (int64_t i = 0; i < n; i++)
        w->positions[w->n_tokens + i] = (int32_t)(from + i);
    w->n_tokens += n;
    w->lane[w->n_docs] = lane;
    w->n[w->n_docs++] = n;
    w->cu[w->n_docs] = (int32_t)w->n_tokens;
}

/* Tokens of the lane that come next, of one length for rope: that of the prompt, or of the sequence
 * when a token had been chosen, as that was when it went through the model for the first time. */
static int64_t pending(const struct ax_generator *d, int lane, int64_t *row_length) {
    const struct ax_lane *l = &d->lanes[lane];
    const int64_t start = d->cache.length[lane];
    if (!l->seq)
        return 0;
    if (ax_lane_remakes(d)) {
        *row_length = ax_lane_row_length(d, l->known);
        return l->known - start;
    }
    int64_t end = start < l->seq->n_prompt ? l->seq->n_prompt : start + 1;
    *row_length = ax_lane_row_length(d, end);
    while (end < l->known && ax_lane_row_length(d, end + 1) == *row_length)
        end++;
    return end - start;
}

/* The shortest of the sequences with pending tokens: it may catch up with the others and then share
 * passes with them. */
static int64_t shortest_row(const struct ax_generator *d) {
    int64_t least = INT64_MAX, length;
    for (int i = 0; i < d->o.n_seqs; i++)
        if (pending(d, i, &length) > 0 && length < least)
            least = length;
    return least;
}

/* Active sequences first, one token each, which always fit; then prompts. All of one length if rope
 * depends on it. */
static void collect(struct ax_generator *d) {
    struct ax_generate_work *w = d->work;
    w->n_docs = w->n_tokens = 0;
    w->cu[0] = 0;
    w->row_length = shortest_row(d);
    for (int prompts = 0; prompts < 2; prompts++) {
        for (int i = 0; i < d->o.n_seqs; i++) {
            int64_t length = 0;
            const int64_t n = pending(d, i, &length), left = d->o.pass_tokens - w->n_tokens;
            if (length != w->row_length)
                continue;
            if (left > 0 && (prompts ? n > 1 : n == 1))
                add(d, i, n < left ? n : left);
        }
    }
}

static int64_t blocks_needed(const struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    int64_t n = 0;
    for (int64_t i = 0; i < w->n_docs; i++)
        n += ax_kvcache_needs(&d->cache, w->lane[i], w->n[i]);
    return n;
}

static void collect_in_room(struct ax_generator *d) {
    for (collect(d); !ax_lanes_make_room(d, blocks_needed(d)); collect(d))
        ax_lanes_put_back(d);
}

/* For planning: T tokens, spread over as many lanes as they reach. */
static void collect_planned(struct ax_generator *d, int64_t T) {
    struct ax_generate_work *w = d->work;
    const int64_t S = d->o.n_seqs < T ? d->o.n_seqs : T;
    w->n_docs = w->n_tokens = w->row_length = 0;
    memset(d->cache.length, 0, (size_t)d->o.n_seqs * sizeof *d->cache.length);
    for (int i = 0; i < S; i++)
        add(d, i, T / S + (i < T % S));
}

/* Tokens of one document, at most: a plan covers passes of one document too. */
static int64_t most_tokens(const struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    int64_t most = ax_runtime_planning(d->model->rt) ? w->T : 1;
    for (int64_t i = 0; i < w->n_docs; i++)
        most = w->n[i] > most ? w->n[i] : most;
    return most;
}

static enum ax_status send(struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    struct ax_queue *q = d->model->rt->q;
    struct ax_batch *b = &d->batch;
    for (int64_t t = w->n_tokens; t < w->T; t++)
        w->tokens[t] = w->positions[t] = 0;
    b->T = w->T;
    b->max_queries = most_tokens(d);
    b->n_tokens = w->n_tokens;
    b->n_docs = w->n_docs;
    b->max_position = w->row_length - 1;
    b->tokens.shape[0] = b->positions.shape[0] = w->T;
    b->cu_seqlens.shape[0] = b->runs[0].cu_q.shape[0] = b->runs[0].cu_k.shape[0] = w->n_docs + 1;
    const size_t bytes = (size_t)w->T * sizeof *w->tokens;
    AX_TRY(ax_queue_write(q, b->tokens.data, w->tokens, bytes));
    AX_TRY(ax_queue_write(q, b->positions.data, w->positions, bytes));
    AX_TRY(ax_queue_write(q, b->cu_seqlens.data, w->cu, (size_t)(w->n_docs + 1) * sizeof *w->cu));
    return ax_kvcache_advance(&d->cache, q, w->T, w->n_docs, w->lane, w->n);
}

/* ---- what comes out ---- */

/* Requests logits for the last row of every document that ends where its lane's tokens end, unless
 * it is scored. */
static void list_rows(struct ax_generator *d, int32_t *lanes) {
    struct ax_generate_work *w = d->work;
    w->n_rows = 0;
    for (int64_t i = 0; i < w->n_docs; i++) {
        const int lane = w->lane[i];
        const struct ax_lane *l = &d->lanes[lane];
        if (!ax_runtime_planning(d->model->rt) &&
            (d->cache.length[lane] + w->n[i] < l->known || l->seq->n_scored > 0))
            continue;
        lanes[w->n_rows] = lane;
        w->row[w->n_rows++] = w->cu[i + 1] - 1;
    }
}

/* Logits of the rows. If only other ranks have any, of row 0, for nobody. */
static enum ax_status make_logits(struct ax_generator *d, struct ax_pass *p) {
    struct ax_generate_work *w = d->work;
    const int64_t n = w->n_rows > 0 ? w->n_rows : 1;
    const struct ax_tensor logits = ax_tensor_rows(&d->logits, 0, n);
    const struct ax_tensor rows = ax_tensor_rows(&d->rows, 0, n);
    if (w->n_rows == 0)
        w->row[0] = 0;
    AX_TRY(ax_queue_write(d->model->rt->q, rows.data, w->row, ax_tensor_bytes(&rows)));
    return ax_pass_logits_of(p, &rows, &d->hidden, &logits);
}

static enum ax_status forward(struct ax_generator *d, const struct ax_generate_need *need) {
    struct ax_pass p = {.model = d->model,
                        .batch = &d->batch,
                        .slot = &d->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature =
                            d->o.score_temperature > 0 ? 1 / d->o.score_temperature : 1,
                        .sampling = d->o.sampling,
                        .cache = &d->cache};
    AX_TRY(ax_pass_begin(&p));
    AX_TRY(ax_pass_forward_all(&p));
    if (need->logits)
        AX_TRY(make_logits(d, &p));
    AX_TRY(ax_generate_score(d, &p, need->windows));
    ax_pass_end(&p);
    return AX_OK;
}

enum ax_status ax_generate_pass(struct ax_generator *d, int64_t planned, int64_t *n_rows,
                                int32_t *lanes, bool *ends) {
    struct ax_generate_work *w = d->work;
    if (planned > 0)
        collect_planned(d, planned);
    else
        collect_in_room(d);
    list_rows(d, lanes);
    struct ax_generate_need need = {.tokens = w->n_tokens,
                                    .stop =
                                        planned == 0 && d->o.stop_now && d->o.stop_now(d->o.ctx),
                                    .logits = w->n_rows > 0,
                                    .windows = ax_generate_scores_list(d)};
    AX_TRY(ax_generate_agree(d, &need));
    *n_rows = w->n_rows;
    w->T = need.tokens;
    *ends = need.tokens == 0 || need.stop;
    if (*ends)
        return AX_OK;
    AX_TRY(send(d));
    return forward(d, &need);
}
