/* Creates and frees a generator, and runs the loop: admit, pass, choose, hand out. */
#include "model/generate/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/generate/generate_lanes.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/head.h"

/* ---- memory of a pass: the model over the lanes' pending tokens, up to the requested logits ---- */

static enum ax_status create_work(struct ax_generator *d) {
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

static void free_work(struct ax_generator *d) {
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

/* Allocates a pass's buffers from the scratch stack of the rollout phase. */
static void allocate_pass(struct ax_generator *d, struct ax_stack *stack) {
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

/* ---- a pass: what goes in ---- */

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

/* ---- a pass: what comes out ---- */

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

/* One pass over the pending tokens (while planning: over `planned` tokens). *n_rows = how many
 * lanes then have logits; lanes[i] is the lane of row i. *ends instead: nothing is pending, or a rank
 * was interrupted. Does not wait. */
static enum ax_status run_pass(struct ax_generator *d, int64_t planned, int64_t *n_rows,
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

/* ---- weights of other ranks ---- */

/* They are gathered once for all passes of a generator. They take what a step has for
 * activations; where that is less, and where nothing is trained, passes gather a unit at a time. */

static size_t weight_bytes(const struct ax_generator *d) {
    size_t bytes = 0;
    for (int u = 0; u < d->model->n_units; u++)
        bytes += ax_unit_hold_bytes(&d->model->units[u], d->model->rt);
    return bytes;
}

/* What passes take beside the generator's memory is small, and not known yet. */
static bool weights_fit(const struct ax_generator *d, size_t bytes) {
    const struct ax_arena *a = &d->model->rt->arena;
    struct ax_arena_plan plan = a->plan;
    if (a->planning)
        ax_arena_measure(a, &plan);
    return ax_stack_mark(&a->scratch) + bytes <= ax_arena_plan_phase(&plan, AX_PHASE_TRAIN);
}

/* Gathers all weights of the model, if a training step needs as much memory as that takes. */
static enum ax_status hold_weights(struct ax_generator *d) {
    struct ax_runtime *rt = d->model->rt;
    const int *size = rt->mesh.size;
    const size_t bytes = weight_bytes(d);
    double lacks = bytes > 0 && !weights_fit(d, bytes) ? 1 : 0; /* all ranks gather, or none */
    if (bytes == 0 && size[AX_ROLE_FSDP] == 1 && size[AX_ROLE_EFSDP] == 1)
        return AX_OK;
    if (!ax_runtime_planning(rt))
        AX_TRY(ax_runtime_combine(rt, AX_ROLE_WORLD, AX_MAX, &lacks, 1));
    if (lacks > 0)
        return AX_OK;
    d->holds = rt->held = true;
    for (int u = 0; u < d->model->n_units; u++) {
        struct ax_unit *unit = &d->model->units[u];
        const size_t own = ax_unit_hold_bytes(unit, rt);
        AX_TRY(ax_unit_hold(unit, rt, ax_stack_push(&rt->arena.scratch, "gathered weights", own)));
    }
    return AX_OK;
}

static void let_go_weights(struct ax_generator *d) {
    for (int u = 0; d->holds && u < d->model->n_units; u++)
        if (d->model->units[u].gathered > 0) /* an error came before the others */
            ax_unit_let_go(&d->model->units[u], d->model->rt);
}

/* ---- memory ---- */

const char *ax_finish_name(enum ax_finish f) {
    static const char *const names[] = {
        [AX_FINISH_LENGTH] = "length", [AX_FINISH_STOP] = "stop", [AX_FINISH_CALLER] = "caller"};
    return names[f];
}

/* The plan covers passes of every size; a run's passes are only as large as its work, and may need
 * less. Raising the high-water marks to the plan's here keeps them comparable. */
static void reach_plan(struct ax_arena *a) {
    if (a->planning)
        return;
    struct ax_stack *const stacks[] = {&a->scratch, &a->slots[0]};
    const size_t want[] = {a->plan.scratch[AX_PHASE_ROLLOUT], a->plan.slot[0][AX_PHASE_ROLLOUT]};
    for (int i = 0; i < 2; i++) {
        const size_t mark = ax_stack_mark(stacks[i]);
        if (want[i] > mark) {
            ax_stack_push(stacks[i], "largest pass", want[i] - mark);
            ax_stack_release(stacks[i], mark);
        }
    }
}

static int64_t blocks(const struct ax_generate_options *o) {
    const int64_t one = ax_kvcache_blocks(o->max_prompt + o->max_new), all = o->n_seqs * one;
    const int64_t fit = o->kv_tokens / AX_KV_BLOCK;
    return o->kv_tokens == 0 || fit > all ? all : fit < one ? one : fit;
}

int64_t ax_generate_room(const struct ax_generate_options *o) {
    return blocks(o) * AX_KV_BLOCK;
}

static int64_t pass_tokens(const struct ax_generate_options *o) {
    const int64_t most = o->pass_tokens > 0 ? o->pass_tokens : AX_PASS_TOKENS;
    const int64_t all = o->n_seqs * o->max_prompt;
    const int64_t n = most < all ? most : all;
    return n > o->n_seqs ? n : o->n_seqs;
}

enum ax_status ax_generator_create(struct ax_generator *d, struct ax_model *m,
                                   const struct ax_generate_options *o) {
    *d = (struct ax_generator){.o = *o, .model = m, .cap = o->max_prompt + o->max_new};
    AX_ASSERT(o->n_seqs > 0 && o->max_prompt > 0 && o->max_new > 0);
    AX_ASSERT(d->cap <= m->ropes[AX_ROPE_MAIN].cos.shape[0]);
    AX_TRY(ax_generate_check_mesh(&m->rt->mesh));
    if (d->o.n_seqs > blocks(o)) /* a block has tokens of one sequence, or is shared by full ones */
        d->o.n_seqs = (int)blocks(o);
    d->o.pass_tokens = ax_generate_pad(d, pass_tokens(&d->o));
    struct ax_arena *arena = &m->rt->arena;
    ax_arena_enter(arena, AX_PHASE_ROLLOUT);
    struct ax_stack *stack = &arena->scratch;
    const struct ax_kvcache_options co = {.dtype = m->dtype,
                                          .n_seqs = d->o.n_seqs,
                                          .cap = d->cap,
                                          .n_layers = m->arch.n_layers,
                                          .row = ax_kv_row(&m->arch, m->rt->mesh.size[AX_ROLE_TP]),
                                          .n_blocks = blocks(o),
                                          .T = d->o.pass_tokens,
                                          .planning = ax_runtime_planning(m->rt)};
    enum ax_status st;
    AX_TRY_GOTO(ax_kvcache_create(&d->cache, stack, m->rt->q, &co), st, fail);
    AX_TRY_GOTO(ax_slot_create(&d->slot, m, &arena->slots[0]), st, fail);
    allocate_pass(d, stack);
    AX_TRY_GOTO(ax_sampler_create(&d->sampler, &o->sampling, m->rt->q, stack, m->accum, d->o.n_seqs,
                                  d->cap),
                st, fail);
    if (o->scoring)
        AX_TRY_GOTO(ax_generate_scores_create(d, stack), st, fail);
    ax_results_create(&d->results, m->rt->q, stack,
                      ax_choice_bytes(m->accum, d->o.n_seqs) + ax_generate_scores_bytes(d));
    AX_TRY_GOTO(ax_lanes_create(d), st, fail);
    AX_TRY_GOTO(create_work(d), st, fail);
    AX_TRY_GOTO(hold_weights(d), st, fail);
    reach_plan(arena);
    return AX_OK;
fail:
    ax_generator_free(d);
    return st;
}

void ax_generator_free(struct ax_generator *d) {
    if (!d->model)
        return;
    let_go_weights(d);
    ax_stack_release(&d->model->rt->arena.scratch, 0);
    free_work(d);
    ax_lanes_free(d);
    ax_generate_scores_free(d);
    ax_results_free(&d->results);
    ax_sampler_free(&d->sampler);
    ax_kvcache_free(&d->cache);
    ax_slot_free(&d->slot);
    *d = (struct ax_generator){0};
}

void ax_generator_forget(struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++)
        AX_ASSERT(!d->lanes[i].seq);
    ax_kvcache_clear(&d->cache);
}

/* ---- the loop ---- */

static bool is_stop(const struct ax_generate_options *o, int32_t token) {
    for (int i = 0; i < o->n_stop; i++)
        if (o->stop[i] == token)
            return true;
    return false;
}

static int64_t most_new(const struct ax_generator *d, const struct ax_sequence *s) {
    return s->max_new > 0 && s->max_new < d->o.max_new ? s->max_new : d->o.max_new;
}

/* Appends choice number i to the lane's sequence; frees the lane after the last one. */
static enum ax_status hand_out(struct ax_generator *d, int lane, const struct ax_choice *c,
                               int64_t i) {
    const int32_t id = (int32_t)ax_results_get(&d->results, &c->index, i);
    struct ax_lane *l = &d->lanes[lane];
    struct ax_sequence *s = l->seq;
    bool by_caller = false;
    s->tokens[s->n_new] = id;
    if (s->logprobs)
        s->logprobs[s->n_new] = ax_results_get(&d->results, &c->logprob, i);
    if (s->entropies)
        s->entropies[s->n_new] = ax_results_get(&d->results, &c->entropy, i);
    s->n_new++;
    if (d->o.token)
        AX_TRY(d->o.token(d->o.ctx, s, &by_caller));
    const bool stop = is_stop(&d->o, id);
    if (!stop && !by_caller && s->n_new < most_new(d, s)) {
        ax_lane_push(d, l, id);
        return AX_OK;
    }
    s->finish = stop ? AX_FINISH_STOP : by_caller ? AX_FINISH_CALLER : AX_FINISH_LENGTH;
    l->seq = NULL;
    return d->o.done ? d->o.done(d->o.ctx, s) : AX_OK;
}

/* Per-row buffers of one call. */
struct rows {
    int32_t *lanes;
    struct ax_sample_row *rows;
};

static enum ax_status rows_create(struct rows *r, size_t n) {
    AX_TRY(ax_alloc(&r->lanes, n, sizeof *r->lanes));
    return ax_alloc(&r->rows, n, sizeof *r->rows);
}

static void rows_free(struct rows *r) {
    ax_free(r->lanes);
    ax_free(r->rows);
}

/* Every rank of tp chooses from the logits of all, and takes the choice of the first one, whose
 * processor may round otherwise. */
static enum ax_status choose(struct ax_generator *d, struct rows *r, int64_t n,
                             struct ax_choice *c) {
    struct ax_runtime *rt = d->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor own = ax_tensor_rows(&d->logits, 0, n);
    AX_TRY(ax_tp_gather_cols(rt, &own, d->model->arch.vocab_size, &c->logits));
    c->rows = r->rows;
    for (int64_t i = 0; i < n; i++) {
        const struct ax_lane *l = &d->lanes[r->lanes[i]];
        r->rows[i] = (struct ax_sample_row){.stream = l->seq ? l->seq->stream : 0,
                                            .position = l->known,
                                            .n_context = l->n_context,
                                            .context = l->context};
    }
    AX_TRY(ax_sampler_choose(&d->sampler, &d->results, c));
    ax_stack_release(&rt->arena.scratch, mark);
    return ax_tp_share(rt, &c->index);
}

/* How many of the n rows belong to prompts that have just been read. */
static int64_t first_tokens(const struct ax_generator *d, const struct rows *r, int64_t n) {
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++)
        k += d->lanes[r->lanes[i]].seq->n_new == 0;
    return k;
}

static void count(struct ax_generator *d, const struct rows *r, int64_t n, double seconds) {
    struct ax_generate_counters *c = &d->counters;
    const int64_t prompt = d->batch.n_tokens - n + first_tokens(d, r, n);
    c->passes++;
    c->tokens += n;
    c->prompt_tokens += prompt;
    if (prompt > 0) {
        c->prompt_seconds += seconds;
        return;
    }
    c->decode_passes++;
    c->decode_tokens += n;
    c->decode_seconds += seconds;
}

/* Runs passes of all sizes, because op workspaces do not always grow with the rows. */
static enum ax_status plan(struct ax_generator *d, struct rows *r, bool logprobs) {
    for (int64_t T = d->o.pass_tokens; T > 0; T--) {
        int64_t n;
        bool ends;
        struct ax_choice c = {.logprobs = logprobs};
        AX_TRY(run_pass(d, T, &n, r->lanes, &ends));
        AX_TRY(choose(d, r, n, &c));
        ax_generate_scores_drop(d);
        ax_results_drop(&d->results);
    }
    return AX_OK;
}

/* Waits for the results of this pass and of those before that have not been read. */
static enum ax_status settle(struct ax_generator *d) {
    AX_TRY(ax_results_read(&d->results));
    return ax_generate_scores_settle(d);
}

static enum ax_status step(struct ax_generator *d, struct rows *r, bool logprobs, bool *ends) {
    const double start = ax_clock_now();
    struct ax_choice c = {.logprobs = logprobs};
    int64_t n;
    bool full;
    AX_TRY(run_pass(d, 0, &n, r->lanes, ends));
    if (*ends)
        return AX_OK;
    if (n > 0)
        AX_TRY(choose(d, r, n, &c));
    ax_generate_scores_end(d, &full);
    if (n > 0 || full)
        AX_TRY(settle(d));
    count(d, r, n, ax_clock_now() - start);
    for (int64_t i = 0; i < n; i++)
        AX_TRY(hand_out(d, r->lanes[i], &c, i));
    return AX_OK;
}

/* Ends the sequences that are not complete: a rank was interrupted, or there are none. */
static void end(struct ax_generator *d) {
    const struct ax_generate_queue *u = &d->work->queue;
    for (int i = 0; i < d->o.n_seqs; i++) {
        if (d->lanes[i].seq)
            d->lanes[i].seq->finish = AX_FINISH_CALLER;
        d->lanes[i].seq = NULL;
    }
    for (int64_t i = 0; i < u->n; i++)
        if (u->waiting[i])
            u->seqs[i].finish = AX_FINISH_CALLER;
}

/* Of all sequences, this rank's wait. */
static void begin(struct ax_generator *d, int64_t n, struct ax_sequence *seqs, bool *waiting) {
    struct ax_generate_queue *u = &d->work->queue;
    int64_t first;
    *u = (struct ax_generate_queue){.n = n, .seqs = seqs, .waiting = waiting};
    ax_generate_deal(d, n, &first, &u->n_waiting);
    for (int64_t i = first; i < first + u->n_waiting; i++) {
        waiting[i] = true;
        seqs[i].n_new = 0;
    }
}

static enum ax_status run(struct ax_generator *d, struct rows *r, int64_t n,
                          struct ax_sequence *seqs, bool *waiting) {
    const struct ax_generate_counters before = d->counters;
    bool logprobs = false;
    for (int64_t i = 0; i < n; i++)
        logprobs = logprobs || ((seqs[i].logprobs || seqs[i].entropies) && seqs[i].n_scored == 0);
    if (ax_runtime_planning(d->model->rt))
        return plan(d, r, logprobs);
    begin(d, n, seqs, waiting);
    for (bool ends = false; !ends;) {
        AX_TRY(ax_lanes_admit(d));
        AX_TRY(step(d, r, logprobs, &ends));
    }
    end(d);
    if (ax_generate_scores_pending(d))
        AX_TRY(settle(d));
    return ax_generate_share(d, n, seqs, &before);
}

enum ax_status ax_generate(struct ax_generator *d, int64_t n, struct ax_sequence *seqs) {
    struct rows r = {0};
    bool *waiting = NULL;
    enum ax_status st;
    if (n == 0)
        return AX_OK;
    AX_TRY_GOTO(rows_create(&r, (size_t)d->o.n_seqs), st, done);
    AX_TRY_GOTO(ax_alloc(&waiting, (size_t)n, sizeof *waiting), st, done);
    st = run(d, &r, n, seqs, waiting);
done:
    for (int i = 0; st != AX_OK && i < d->o.n_seqs; i++)
        d->lanes[i].seq = NULL;
    if (st != AX_OK) {
        ax_generator_forget(d); /* a pass may have ended half way */
        ax_generate_scores_drop(d);
        ax_results_drop(&d->results);
    }
    ax_free(waiting);
    rows_free(&r);
    return st;
}
