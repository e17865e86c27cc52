/* Creates and frees a generator, and runs the loop: admit, pass, choose, hand out.
 *
 * On a mesh, the ranks that split or shard one copy of the weights run their passes in step: of the same
 * number of tokens, with padding, as long as one of them has work. The data ranks share the sequences, and
 * then tell each other what has become of them. */
#include "model/generate/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/generate/generate_pass.h"
#include "model/parallel/tensor_parallel.h"

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

/* ---- scores; without `scoring` these functions do nothing ---- */

/* How many bytes of the results the scores of AX_SCORE_PASSES passes take. */
static size_t scores_bytes(const struct ax_generator *d) {
    return d->scores ? AX_SCORE_PASSES * ax_scores_bytes(&d->scores->scorer, d->o.pass_tokens) : 0;
}

static void drop_scores(struct ax_generator *d) {
    struct ax_generate_scores *s = d->scores;
    if (s)
        s->n_pending = s->n_windows = s->n_ended = s->n_passes = 0;
}

/* Frees the lanes of scored sequences that have been processed. *full: the next pass's scores may
 * not fit, or AX_SCORE_PASSES passes have gone by without a read. */
static void end_scored(struct ax_generator *d, bool *full) {
    struct ax_generate_scores *s = d->scores;
    for (int i = 0; s && i < d->o.n_seqs; i++) {
        struct ax_lane *l = &d->lanes[i];
        if (!l->seq || l->seq->n_scored == 0 || d->cache.length[i] < l->known)
            continue;
        l->seq->finish = AX_FINISH_LENGTH;
        s->ended[s->n_ended++] = l->seq;
        l->seq = NULL;
    }
    *full = s && s->n_passes == AX_SCORE_PASSES;
}

/* When the results have been read: stores scores in their sequences and ends these. */
static enum ax_status settle_scores(struct ax_generator *d) {
    struct ax_generate_scores *s = d->scores;
    if (!s)
        return AX_OK;
    for (int64_t i = 0; i < s->n_pending; i++) {
        const struct ax_pending_score *t = &s->pending[i];
        const struct ax_scores *w = &s->windows[t->window];
        const int32_t best = ax_scores_best(&s->scorer, &d->results, w, t->row);
        t->seq->logprobs[t->at] = ax_results_get(&d->results, &w->logprob, t->row);
        t->seq->greedy = t->seq->greedy && best == t->label;
        const int k = t->seq->n_best;
        if (k > 0)
            ax_likeliest_get(&d->results, &w->likeliest, t->row, k, t->seq->best + t->at * k,
                             t->seq->best_logprobs + t->at * k);
    }
    for (int64_t i = 0; d->o.done && i < s->n_ended; i++)
        AX_TRY(d->o.done(d->o.ctx, s->ended[i]));
    drop_scores(d);
    return AX_OK;
}

static bool scores_pending(const struct ax_generator *d) {
    return d->scores && d->scores->n_passes > 0;
}

/* ---- a generator ---- */

enum ax_status ax_generate_check_mesh(const struct ax_mesh *mesh) {
    const int pp = mesh->size[AX_ROLE_PP], cp = mesh->size[AX_ROLE_CP];
    if (pp == 1 && cp == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "mesh: pp %d and cp %d, but answers are generated by ranks of tp, ep, "
                    "dp_replicate and dp_shard only so far. Nearest: pp 1 and cp 1.",
                    pp, cp);
}

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
    const int64_t all = o->n_seqs * (o->max_prompt + (o->long_prompts ? o->max_new : 0));
    const int64_t n = most < all ? most : all;
    return n > o->n_seqs ? n : o->n_seqs;
}

/* One that takes more memory than any other. */
static const struct ax_sampling widest = {
    .temperature = 1, .top_k = 1, .repetition_penalty = 2, .truncated = true};

/* A choice of all rows, or of each. */
static size_t choice_bytes(const struct ax_generator *d) {
    const enum ax_dtype accum = d->model->accum;
    return d->o.varied ? (size_t)d->o.n_seqs * ax_choice_best_bytes(accum, 1)
                       : ax_choice_bytes(accum, d->o.n_seqs);
}

static enum ax_status create_cache(struct ax_generator *d, struct ax_stack *stack) {
    const struct ax_model *m = d->model;
    struct ax_kv_row *rows;
    AX_TRY(ax_kv_rows(&m->arch, m->rt->mesh.size[AX_ROLE_TP], &rows));
    const struct ax_kvcache_options o = {
        .dtype = m->dtype,
        .n_seqs = d->o.n_seqs,
        .cap = d->cap,
        .n_layers = ax_kv_layers(&m->arch),
        /* with room for no more, all keys are chosen */
        .n_index = d->cap > m->arch.index.top ? ax_index_layers(&m->arch) : 0,
        .index_dim = m->arch.index.head_dim,
        .top = m->arch.index.top,
        .n_state_layers = ax_state_layers(&m->arch),
        .state = ax_state_size(&m->arch, &m->rt->mesh),
        .rows = rows,
        .n_blocks = blocks(&d->o),
        .T = d->o.pass_tokens,
        .chunk = m->arch.chunk,
        .planning = ax_runtime_planning(m->rt)};
    const enum ax_status st = ax_kvcache_create(&d->cache, stack, m->rt->q, &o);
    ax_free(rows);
    return st;
}

enum ax_status ax_generator_create(struct ax_generator *d, struct ax_model *m,
                                   const struct ax_generate_options *o) {
    *d = (struct ax_generator){.o = *o, .model = m, .cap = o->max_prompt + o->max_new};
    AX_ASSERT(o->n_seqs > 0 && o->max_prompt > 0 && o->max_new > 0);
    AX_ASSERT(d->cap <= m->ropes[AX_ROPE_MAIN].cos.shape[0]);
    AX_TRY(ax_generate_check_mesh(&m->rt->mesh));
    AX_ASSERT((!o->varied && !o->more && !o->adapters) || m->rt->mesh.world == 1);
    AX_ASSERT(!o->adapters || m->bank);
    AX_ASSERT(!o->more || !o->stop_now);
    if (d->o.n_seqs > blocks(o)) /* a block has tokens of one sequence, or is shared by full ones */
        d->o.n_seqs = (int)blocks(o);
    d->o.pass_tokens = ax_generate_pad(d, pass_tokens(&d->o));
    struct ax_arena *arena = &m->rt->arena;
    ax_arena_enter(arena, AX_PHASE_ROLLOUT);
    struct ax_stack *stack = &arena->scratch;
    enum ax_status st;
    AX_TRY_GOTO(create_cache(d, stack), st, fail);
    AX_TRY_GOTO(ax_slot_create(&d->slot, m, &arena->slots[0]), st, fail);
    AX_TRY_GOTO(ax_generate_pass_create(d, stack), st, fail);
    AX_TRY_GOTO(ax_sampling_check(&o->sampling), st, fail);
    AX_TRY_GOTO(ax_sampler_create(&d->sampler, o->varied ? &widest : &o->sampling, m->rt->q, stack,
                                  m->accum, d->o.n_seqs, d->cap,
                                  o->varied ? m->arch.vocab_size : 0),
                st, fail);
    if (!ax_runtime_planning(m->rt))
        d->sampler.o = o->sampling;
    ax_results_create(&d->results, m->rt->q, stack, choice_bytes(d) + scores_bytes(d));
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
    ax_generate_pass_free(d);
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

/* ---- the data ranks ---- */

/* Numbers that the data ranks tell each other at a time. */
#define SHARED_NUMBERS ((int64_t)1 << 18)

static int data_ranks(const struct ax_generator *d) {
    return ax_runtime_planning(d->model->rt) ? 1 : d->model->rt->mesh.size[AX_ROLE_BATCH];
}

static void deal_sequences(const struct ax_generator *d, int64_t n, int64_t *first, int64_t *own) {
    const int ranks = data_ranks(d);
    ax_split_range(n, ranks, ranks > 1 ? d->model->rt->mesh.coord[AX_ROLE_BATCH] : 0, first, own);
}

/* All sequences, and which of them this rank had. */
struct share {
    struct ax_generator *d;
    int64_t n, first, own;
    struct ax_sequence *seqs; /* [n] */
};

static bool is_own(const struct share *s, int64_t i) {
    return i >= s->first && i < s->first + s->own;
}

/* What is told of each sequence; the counters follow. */
enum { N_NEW, FINISH, GREEDY, HEADER };
enum { COUNTERS = 10 };

static void put_counters(const struct ax_generate_counters *now,
                         const struct ax_generate_counters *before, double v[COUNTERS]) {
    v[0] = (double)(now->passes - before->passes);
    v[1] = (double)(now->tokens - before->tokens);
    v[2] = (double)(now->prompt_tokens - before->prompt_tokens);
    v[3] = (double)(now->shared_tokens - before->shared_tokens);
    v[4] = (double)(now->decode_passes - before->decode_passes);
    v[5] = (double)(now->decode_tokens - before->decode_tokens);
    v[6] = now->decode_seconds - before->decode_seconds;
    v[7] = now->prompt_seconds - before->prompt_seconds;
    v[8] = (double)(now->shared_blocks - before->shared_blocks);
    v[9] = (double)(now->put_back - before->put_back);
}

/* Work of all ranks, in the mean of their times. */
static void take_counters(struct ax_generate_counters *c, const struct ax_generate_counters *before,
                          const double v[COUNTERS], int ranks) {
    *c = *before;
    c->passes += (int64_t)v[0];
    c->tokens += (int64_t)v[1];
    c->prompt_tokens += (int64_t)v[2];
    c->shared_tokens += (int64_t)v[3];
    c->decode_passes += (int64_t)v[4];
    c->decode_tokens += (int64_t)v[5];
    c->decode_seconds += v[6] / ranks;
    c->prompt_seconds += v[7] / ranks;
    c->shared_blocks += (int64_t)v[8];
    c->put_back += (int64_t)v[9];
}

/* Lengths and ends of all sequences, and the counters. */
static enum ax_status share_ends(const struct share *s, const struct ax_generate_counters *before) {
    struct ax_generator *d = s->d;
    double *all;
    AX_TRY(ax_alloc(&all, (size_t)s->n * HEADER + COUNTERS, sizeof *all));
    for (int64_t i = s->first; i < s->first + s->own; i++) {
        all[i * HEADER + N_NEW] = (double)s->seqs[i].n_new;
        all[i * HEADER + FINISH] = s->seqs[i].finish;
        all[i * HEADER + GREEDY] = s->seqs[i].greedy;
    }
    put_counters(&d->counters, before, all + s->n * HEADER);
    const enum ax_status st =
        ax_runtime_combine(d->model->rt, AX_ROLE_BATCH, AX_SUM, all, s->n * HEADER + COUNTERS);
    for (int64_t i = 0; i < s->n && st == AX_OK; i++) {
        s->seqs[i].n_new = (int64_t)all[i * HEADER + N_NEW];
        s->seqs[i].finish = (enum ax_finish)all[i * HEADER + FINISH];
        s->seqs[i].greedy = all[i * HEADER + GREEDY] > 0;
    }
    if (st == AX_OK)
        take_counters(&d->counters, before, all + s->n * HEADER, data_ranks(d));
    ax_free(all);
    return st;
}

static void move_numbers(double *list, double *numbers, int64_t n, bool out) {
    if (numbers && n > 0)
        memcpy(out ? numbers : list, out ? list : numbers, (size_t)n * sizeof *list);
}

/* A sequence's tokens, log-probs and entropies, as numbers; returns how many. */
static int64_t move(struct ax_sequence *s, double *numbers, bool out) {
    const bool scored = s->n_scored > 0;
    const int64_t n_tokens = scored ? 0 : s->n_new;
    const int64_t n_logprobs = scored ? s->n_scored : s->logprobs ? s->n_new : 0;
    const int64_t n_entropies = !scored && s->entropies ? s->n_new : 0;
    for (int64_t k = 0; numbers && k < n_tokens; k++)
        if (out)
            numbers[k] = s->tokens[k];
        else
            s->tokens[k] = (int32_t)numbers[k];
    move_numbers(s->logprobs, numbers ? numbers + n_tokens : NULL, n_logprobs, out);
    move_numbers(s->entropies, numbers ? numbers + n_tokens + n_logprobs : NULL, n_entropies, out);
    return n_tokens + n_logprobs + n_entropies;
}

static enum ax_status share_piece(const struct share *s, int64_t from, int64_t to, int64_t count) {
    double *all;
    int64_t at = 0;
    AX_TRY(ax_alloc(&all, (size_t)count, sizeof *all));
    for (int64_t i = from; i < to; i++)
        at += move(&s->seqs[i], is_own(s, i) ? all + at : NULL, true);
    const enum ax_status st =
        ax_runtime_combine(s->d->model->rt, AX_ROLE_BATCH, AX_SUM, all, count);
    at = 0;
    for (int64_t i = from; i < to && st == AX_OK; i++)
        at += move(&s->seqs[i], is_own(s, i) ? NULL : all + at, false);
    ax_free(all);
    return st;
}

/* Others' sequences reach the callbacks as if they had been generated here. */
static enum ax_status tell(const struct share *s) {
    const struct ax_generate_options *o = &s->d->o;
    for (int64_t i = 0; i < s->n; i++) {
        struct ax_sequence *seq = &s->seqs[i];
        const int64_t n_new = seq->n_new;
        bool ignored = false;
        if (is_own(s, i))
            continue;
        for (int64_t k = 1; o->token && seq->n_scored == 0 && k <= n_new; k++) {
            seq->n_new = k;
            AX_TRY(o->token(o->ctx, seq, &ignored));
        }
        if (o->done)
            AX_TRY(o->done(o->ctx, seq));
    }
    return AX_OK;
}

static enum ax_status share_sequences(struct ax_generator *d, int64_t n, struct ax_sequence *seqs,
                                      const struct ax_generate_counters *before) {
    struct share s = {.d = d, .n = n, .seqs = seqs};
    if (data_ranks(d) == 1)
        return AX_OK;
    deal_sequences(d, n, &s.first, &s.own);
    AX_TRY(share_ends(&s, before));
    for (int64_t from = 0, to; from < n; from = to) {
        int64_t count = 0;
        for (to = from; to < n && (to == from || count < SHARED_NUMBERS); to++)
            count += move(&seqs[to], NULL, true);
        if (count > 0)
            AX_TRY(share_piece(&s, from, to, count));
    }
    return tell(&s);
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
    if (s->n_best > 0)
        ax_likeliest_get(&d->results, &c->likeliest, i, s->n_best, s->best + s->n_new * s->n_best,
                         s->best_logprobs + s->n_new * s->n_best);
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
    struct ax_choice *choices; /* one for neighbors of the same sampling */
    int64_t n_choices;
};

static enum ax_status rows_create(struct rows *r, size_t n) {
    AX_TRY(ax_alloc(&r->lanes, n, sizeof *r->lanes));
    AX_TRY(ax_alloc(&r->choices, n, sizeof *r->choices));
    return ax_alloc(&r->rows, n, sizeof *r->rows);
}

static void rows_free(struct rows *r) {
    ax_free(r->lanes);
    ax_free(r->rows);
    ax_free(r->choices);
}

/* What row i's choice takes, and what its sequence requests. */
static void add_to_choice(struct ax_generator *d, struct rows *r, int64_t i, struct ax_choice *c) {
    const struct ax_lane *l = &d->lanes[r->lanes[i]];
    const struct ax_sequence *s = l->seq;
    r->rows[i] = (struct ax_sample_row){.stream = s ? s->stream : 0,
                                        .position = l->known,
                                        .n_context = l->n_context,
                                        .context = l->context,
                                        .bias = s ? s->bias : NULL,
                                        .n_new = s ? s->n_new : 0,
                                        .generated = s ? s->tokens : NULL};
    c->best = s && s->n_best > c->best ? s->n_best : c->best;
    c->logprobs = c->logprobs || (s && (s->logprobs || s->entropies));
}

/* Every rank of tp chooses from the logits of all, and takes the choice of the first one, whose
 * processor may round otherwise. `requests`: what planning chooses with. */
static enum ax_status choose(struct ax_generator *d, struct rows *r, int64_t n,
                             const struct ax_choice *requests) {
    struct ax_runtime *rt = d->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor own = ax_tensor_rows(&d->logits, 0, n);
    struct ax_tensor logits;
    AX_TRY(ax_tp_gather_cols(rt, &own, d->model->arch.vocab_size, &logits));
    r->n_choices = 0;
    for (int64_t from = 0, to; from < n; from = to) {
        struct ax_choice *c = &r->choices[r->n_choices++];
        *c = *requests;
        c->sampling = ax_lane_sampling(d, r->lanes[from]);
        c->rows = r->rows + from;
        for (to = from; to < n && ax_lanes_choose_alike(d, r->lanes[to], r->lanes[from]); to++)
            add_to_choice(d, r, to, c);
        c->logits = ax_tensor_rows(&logits, from, to - from);
        AX_TRY(ax_sampler_choose(&d->sampler, &d->results, c));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    for (int64_t i = 0; i < r->n_choices; i++)
        AX_TRY(ax_tp_share(rt, &r->choices[i].index));
    return AX_OK;
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
        const struct ax_choice requests = {.logprobs = logprobs || d->o.varied,
                                           .best = d->o.varied ? AX_LIKELIEST_MAX : 0};
        AX_TRY(ax_generate_run_pass(d, T, &n, r->lanes, &ends));
        AX_TRY(choose(d, r, n, &requests));
        drop_scores(d);
        ax_results_drop(&d->results);
    }
    return AX_OK;
}

/* Waits for the results of this pass and of those before that have not been read. */
static enum ax_status settle(struct ax_generator *d) {
    AX_TRY(ax_results_read(&d->results));
    return settle_scores(d);
}

static enum ax_status step(struct ax_generator *d, struct rows *r, bool *ends) {
    const double start = ax_clock_now();
    const struct ax_choice requests = {0};
    int64_t n;
    bool full;
    AX_TRY(ax_generate_run_pass(d, 0, &n, r->lanes, ends));
    if (*ends)
        return AX_OK;
    if (n > 0)
        AX_TRY(choose(d, r, n, &requests));
    end_scored(d, &full);
    if (n > 0 || full)
        AX_TRY(settle(d));
    count(d, r, n, ax_clock_now() - start);
    for (int64_t k = 0, i = 0; n > 0 && k < r->n_choices; k++)
        for (int64_t row = 0; row < r->choices[k].logits.shape[0]; row++, i++)
            AX_TRY(hand_out(d, r->lanes[i], &r->choices[k], row));
    return AX_OK;
}

/* Ends the sequences that are not complete: a rank was interrupted, or there are none. */
static void end(struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++) {
        if (d->lanes[i].seq)
            d->lanes[i].seq->finish = AX_FINISH_CALLER;
        d->lanes[i].seq = NULL;
    }
    for (struct ax_sequence *s = d->work->queue.first; s; s = s->next)
        s->finish = AX_FINISH_CALLER;
    d->work->queue.first = NULL;
}

/* Of all sequences, this rank's wait. */
static void begin(struct ax_generator *d, int64_t n, struct ax_sequence *seqs) {
    struct ax_generate_queue *u = &d->work->queue;
    int64_t first, own;
    deal_sequences(d, n, &first, &own);
    *u = (struct ax_generate_queue){.arrived = n};
    for (int64_t i = first + own; i-- > first;) {
        seqs[i].n_new = 0;
        seqs[i].place = i;
        ax_lanes_enqueue(d, &seqs[i]);
    }
}

static bool is_idle(const struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++)
        if (d->lanes[i].seq)
            return false;
    return d->work->queue.first == NULL;
}

static enum ax_status end_left(struct ax_generator *d, struct ax_sequence *s) {
    if (s->n_scored > 0 && scores_pending(d)) /* some of them are its own */
        AX_TRY(settle(d));
    s->finish = AX_FINISH_CALLER;
    return d->o.done ? d->o.done(d->o.ctx, s) : AX_OK;
}

/* Ends what its caller has given up. */
static enum ax_status drop_left(struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++) {
        struct ax_sequence *s = d->lanes[i].seq;
        if (!s || !s->leaves)
            continue;
        d->lanes[i].seq = NULL;
        AX_TRY(end_left(d, s));
    }
    for (struct ax_sequence **at = &d->work->queue.first, *s; (s = *at) != NULL;) {
        if (s->leaves) {
            *at = s->next;
            AX_TRY(end_left(d, s));
        } else {
            at = &s->next;
        }
    }
    return AX_OK;
}

/* Takes what joins; *ends: nothing does, and nothing is left. */
static enum ax_status take_more(struct ax_generator *d, bool *ends) {
    struct ax_generate_queue *u = &d->work->queue;
    struct ax_sequence *s = NULL;
    const bool idle = is_idle(d);
    if (idle && scores_pending(d))
        AX_TRY(settle(d));
    AX_TRY(d->o.more(d->o.ctx, idle, &s));
    *ends = idle && !s;
    for (struct ax_sequence *next; s; s = next) {
        next = s->next;
        s->n_new = 0;
        s->place = u->arrived++;
        ax_lanes_enqueue(d, s);
    }
    return drop_left(d);
}

static enum ax_status run(struct ax_generator *d, struct rows *r, int64_t n,
                          struct ax_sequence *seqs) {
    const struct ax_generate_counters before = d->counters;
    bool logprobs = false;
    for (int64_t i = 0; i < n; i++)
        logprobs = logprobs || ((seqs[i].logprobs || seqs[i].entropies) && seqs[i].n_scored == 0);
    if (ax_runtime_planning(d->model->rt))
        return plan(d, r, logprobs);
    begin(d, n, seqs);
    for (bool ends = false, nothing; !ends;) {
        if (d->o.more)
            AX_TRY(take_more(d, &ends));
        AX_TRY(ax_lanes_admit(d));
        AX_TRY(step(d, r, &nothing));
        ends = d->o.more ? ends : nothing;
    }
    end(d);
    if (scores_pending(d))
        AX_TRY(settle(d));
    return share_sequences(d, n, seqs, &before);
}

enum ax_status ax_generate(struct ax_generator *d, int64_t n, struct ax_sequence *seqs) {
    struct rows r = {0};
    enum ax_status st;
    if (n == 0 && !d->o.more)
        return AX_OK;
    AX_TRY_GOTO(rows_create(&r, (size_t)d->o.n_seqs), st, done);
    st = run(d, &r, n, seqs);
done:
    for (int i = 0; st != AX_OK && i < d->o.n_seqs; i++)
        d->lanes[i].seq = NULL;
    if (st != AX_OK) {
        ax_generator_forget(d); /* a pass may have ended half way */
        drop_scores(d);
        ax_results_drop(&d->results);
    }
    rows_free(&r);
    return st;
}
