/* Creates and frees a generator, and runs the loop: admit, pass, choose, hand out. */
#include "model/generate/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/generate/generate_lanes.h"
#include "model/parallel/tensor_parallel.h"

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
    ax_generate_allocate(d, stack);
    AX_TRY_GOTO(ax_sampler_create(&d->sampler, &o->sampling, m->rt->q, stack, m->accum, d->o.n_seqs,
                                  d->cap),
                st, fail);
    if (o->scoring)
        AX_TRY_GOTO(ax_generate_scores_create(d, stack), st, fail);
    ax_results_create(&d->results, m->rt->q, stack,
                      ax_choice_bytes(m->accum, d->o.n_seqs) + ax_generate_scores_bytes(d));
    AX_TRY_GOTO(ax_lanes_create(d), st, fail);
    AX_TRY_GOTO(ax_generate_work_create(d), st, fail);
    AX_TRY_GOTO(ax_generate_hold(d), st, fail);
    reach_plan(arena);
    return AX_OK;
fail:
    ax_generator_free(d);
    return st;
}

void ax_generator_free(struct ax_generator *d) {
    if (!d->model)
        return;
    ax_generate_let_go(d);
    ax_stack_release(&d->model->rt->arena.scratch, 0);
    ax_generate_work_free(d);
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
        AX_TRY(ax_generate_pass(d, T, &n, r->lanes, &ends));
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
    AX_TRY(ax_generate_pass(d, 0, &n, r->lanes, ends));
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
