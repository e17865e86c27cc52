/* Creates and frees a generator, and runs the loop: admit, pass, choose, hand out.
 *
 * On a mesh, the ranks that split or shard one copy of the weights run their passes in step: of the same
 * number of tokens, with padding, as long as one of them has work. Stages of a pipeline have the same sequences: the
 * last one chooses tokens, which it tells the others in the same pass, and log-probs at the end. generate_share.c
 * deals sequences to ranks. */
#include "model/generate/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/drafter.h"
#include "model/generate/generate_pass.h"
#include "model/generate/generate_share.h"
#include "model/parallel/tensor_parallel.h"

/* ---- weights of other ranks ---- */

/* They are gathered once for all passes of a generator. They take what a step has for
 * activations; where that is less, and where nothing is trained, passes gather a unit at a time. */

/* The model's units, and that of what drafts for it. */
static int count_units(const struct ax_generator *d) {
    return d->model->n_units + (d->o.drafts ? 1 : 0);
}

static struct ax_unit *unit_of(const struct ax_generator *d, int u) {
    return u < d->model->n_units ? &d->model->units[u] : ax_drafter_unit(d->model->drafter);
}

static size_t weight_bytes(const struct ax_generator *d) {
    size_t bytes = 0;
    for (int u = 0; u < count_units(d); u++)
        bytes += ax_unit_hold_bytes(unit_of(d, u), d->model->rt);
    return bytes;
}

/* What passes take beside the generator's memory is small, and not known yet. */
static bool weights_fit(const struct ax_generator *d, size_t bytes) {
    const struct ax_arena *a = &d->model->rt->arena;
    struct ax_arena_plan plan = a->plan;
    if (a->planning)
        ax_arena_measure(a, &plan);
    return a->scratch.top + bytes <= ax_arena_plan_phase(&plan, AX_PHASE_TRAIN);
}

/* Gathers all weights of the model, if a training step needs as much memory as that takes. */
static enum ax_status hold_weights(struct ax_generator *d) {
    struct ax_runtime *rt = d->model->rt;
    const int *size = rt->mesh.size;
    const size_t bytes = weight_bytes(d);
    const bool alone = size[AX_ROLE_FSDP] == 1 && size[AX_ROLE_EFSDP] == 1;
    /* all ranks gather, or none; stages have other units */
    double most[] = {bytes > 0 && !weights_fit(d, bytes) ? 1 : 0, (double)bytes};
    if (bytes == 0 && alone && size[AX_ROLE_PP] == 1)
        return AX_OK;
    if (!ax_runtime_planning(rt))
        AX_TRY(ax_runtime_combine(rt, AX_ROLE_WORLD, AX_MAX, most, 2));
    if (most[0] > 0 || (most[1] == 0 && alone))
        return AX_OK;
    d->holds = rt->held = true;
    for (int u = 0; u < count_units(d); u++) {
        struct ax_unit *unit = unit_of(d, u);
        if (!ax_unit_present(unit))
            continue;
        const size_t own = ax_unit_hold_bytes(unit, rt);
        AX_TRY(ax_unit_hold(unit, rt, ax_stack_push(&rt->arena.scratch, "gathered weights", own)));
    }
    return AX_OK;
}

/* What a pass has gathered that an error ended half way. */
static void drop_gathers(struct ax_generator *d) {
    for (int u = 0; u < count_units(d); u++)
        ax_unit_drop_gathers(unit_of(d, u), d->holds ? 1 : 0);
}

static void let_go_weights(struct ax_generator *d) {
    for (int u = 0; d->holds && u < count_units(d); u++)
        if (unit_of(d, u)->gathered > 0) /* an error came before the others */
            ax_unit_let_go(unit_of(d, u), d->model->rt);
}

/* ---- scores; without `scoring` these functions do nothing ---- */

/* How many bytes of the results the scores of AX_SCORE_PASSES passes take. */
static size_t scores_bytes(const struct ax_generator *d) {
    return d->scores ? AX_SCORE_PASSES * ax_scores_bytes(&d->scores->scorer, d->o.pass_tokens) : 0;
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

/* When the results have been read: stores scores in their sequences and ends these, unless all ranks do. */
static enum ax_status settle_scores(struct ax_generator *d) {
    struct ax_generate_scores *s = d->scores;
    if (!s || ax_generate_tells(d))
        return AX_OK;
    for (int64_t i = 0; i < s->n_pending && ax_model_has_head(d->model); i++) {
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
    for (int64_t i = 0; d->o.done && ax_model_has_head(d->model) && i < s->n_ended; i++)
        AX_TRY(d->o.done(d->o.ctx, s->ended[i]));
    ax_lane_scores_drop(d);
    return AX_OK;
}

static bool scores_pending(const struct ax_generator *d) {
    return d->scores && d->scores->n_passes > 0;
}

/* ---- a generator ---- */

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

/* Rows of a lane in a pass of its last token: with drafts one more. */
static int64_t lane_rows(const struct ax_generate_options *o) {
    return o->drafts ? 2 : 1;
}

static int64_t usual_pass(const struct ax_generator *d) {
    if (ax_queue_has_host_tier(d->model->rt->q))
        return AX_PASS_TOKENS_GPU;
    return d->o.in_training ? AX_PASS_TOKENS_IN_TRAINING : AX_PASS_TOKENS;
}

static int64_t pass_tokens(const struct ax_generator *d) {
    const struct ax_generate_options *o = &d->o;
    const int64_t most = o->pass_tokens > 0 ? o->pass_tokens : usual_pass(d);
    const int64_t all = o->n_seqs * (o->max_prompt + (o->long_prompts ? o->max_new : 0));
    const int64_t n = most < all ? most : all, least = o->n_seqs * lane_rows(o);
    return n > least ? n : least;
}

/* One that takes more memory than any other. */
static const struct ax_sampling widest = {
    .temperature = 1, .top_k = 1, .repetition_penalty = 2, .truncated = true};

/* A choice of all rows, or of each. */
static size_t choice_bytes(const struct ax_generator *d) {
    const enum ax_dtype accum = d->model->accum;
    return d->o.varied ? (size_t)d->row_cap * ax_choice_best_bytes(accum, 1)
                       : ax_choice_bytes(accum, d->row_cap);
}

/* With drafts, a model of a layer more. */
static const struct ax_model *of_all_layers(const struct ax_generator *d) {
    return d->o.drafts ? &d->model->drafter->model : d->model;
}

static enum ax_status create_cache(struct ax_generator *d, struct ax_stack *stack) {
    const struct ax_model *m = d->model;
    const struct ax_arch *a = &of_all_layers(d)->arch;
    struct ax_kv_row *rows;
    AX_TRY(ax_kv_rows(a, m->rt->mesh.size[AX_ROLE_TP], &rows));
    const struct ax_kvcache_options o = {.dtype = m->dtype,
                                         .n_seqs = d->o.n_seqs,
                                         .cap = d->cap,
                                         .n_layers = ax_kv_layers(a),
                                         /* with room for no more, all keys are chosen */
                                         .n_index = d->cap > a->index.top ? ax_index_layers(a) : 0,
                                         .index_dim = a->index.head_dim,
                                         .top = a->index.top,
                                         .n_state_layers = ax_state_layers(a),
                                         .state = ax_state_size(a, &m->rt->mesh),
                                         .rows = rows,
                                         .n_blocks = blocks(&d->o),
                                         .T = d->o.pass_tokens,
                                         .chunk = a->chunk,
                                         .planning = ax_runtime_planning(m->rt)};
    const enum ax_status st = ax_kvcache_create(&d->cache, stack, m->rt->q, &o);
    ax_free(rows);
    return st;
}

static enum ax_status check_drafts(const struct ax_generator *d) {
    const struct ax_rope_config *rope = &d->model->arch.rope;
    AX_ASSERT(!d->o.drafts || d->model->drafter);
    if (!d->o.drafts || ax_rope_length(rope, d->cap) == ax_rope_length(rope, 0))
        return AX_OK;
    return ax_error(
        AX_ERR_UNSUPPORTED,
        "drafts: the rope of this model depends on the length of a sequence, which a draft "
        "changes; generate without drafts");
}

enum ax_status ax_generator_create(struct ax_generator *d, struct ax_model *m,
                                   const struct ax_generate_options *o) {
    *d = (struct ax_generator){.o = *o, .model = m, .cap = o->max_prompt + o->max_new};
    AX_ASSERT(o->n_seqs > 0 && o->max_prompt > 0 && o->max_new > 0);
    AX_ASSERT(d->cap <= m->ropes[AX_ROPE_MAIN].cos.shape[0]);
    AX_ASSERT(!o->adapters || m->bank);
    if (d->o.n_seqs > blocks(o)) /* a block has tokens of one sequence, or is shared by full ones */
        d->o.n_seqs = (int)blocks(o);
    d->o.pass_tokens = ax_generate_pad(d, pass_tokens(d));
    d->row_cap = d->o.n_seqs * lane_rows(&d->o);
    struct ax_arena *arena = &m->rt->arena;
    ax_arena_enter(arena, AX_PHASE_ROLLOUT);
    struct ax_stack *stack = &arena->scratch;
    enum ax_status st;
    AX_TRY_GOTO(check_drafts(d), st, fail);
    AX_TRY_GOTO(create_cache(d, stack), st, fail);
    AX_TRY_GOTO(ax_slot_create(&d->slot, of_all_layers(d), &arena->slots[0]), st, fail);
    AX_TRY_GOTO(ax_generate_pass_create(d, stack), st, fail);
    AX_TRY_GOTO(ax_sampling_check(&o->sampling), st, fail);
    AX_TRY_GOTO(ax_sampler_create(&d->sampler, o->varied ? &widest : &o->sampling, m->rt->q, stack,
                                  m->accum, d->row_cap, d->cap, o->varied ? m->arch.vocab_size : 0),
                st, fail);
    if (!ax_runtime_planning(m->rt))
        d->sampler.o = o->sampling;
    ax_results_create(&d->results, m->rt->q, stack, choice_bytes(d) + scores_bytes(d));
    AX_TRY_GOTO(hold_weights(d), st, fail);
    reach_plan(arena);
    return AX_OK;
fail:
    drop_gathers(d);
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

void ax_generator_forget_idle(struct ax_generator *d, const int *adapter) {
    for (int i = 0; i < d->o.n_seqs; i++)
        while (!d->lanes[i].seq && (!adapter || d->lanes[i].adapter == *adapter) &&
               d->cache.length[i] > 0)
            ax_kvcache_shorten(&d->cache, i);
}

/* ---- the loop ---- */

static bool is_stop(const struct ax_generate_options *o, int32_t token) {
    for (int i = 0; i < o->n_stop; i++)
        if (o->stop[i] == token)
            return true;
    return false;
}

/* What else is known of choice number i, which is the sequence's next token. */
static void note_choice(struct ax_generator *d, struct ax_sequence *s, const struct ax_choice *c,
                        int64_t i) {
    if (s->logprobs)
        s->logprobs[s->n_new] = ax_results_get(&d->results, &c->logprob, i);
    if (s->entropies)
        s->entropies[s->n_new] = ax_results_get(&d->results, &c->entropy, i);
    if (s->n_best > 0)
        ax_likeliest_get(&d->results, &c->likeliest, i, s->n_best, s->best + s->n_new * s->n_best,
                         s->best_logprobs + s->n_new * s->n_best);
}

enum ax_status ax_sequence_take(struct ax_generator *d, struct ax_sequence *s, int32_t id,
                                bool *ended) {
    bool by_caller = false;
    s->tokens[s->n_new++] = id;
    if (d->o.token)
        AX_TRY(d->o.token(d->o.ctx, s, &by_caller));
    const bool stop = is_stop(&d->o, id);
    *ended = stop || by_caller || s->n_new >= ax_sequence_most(d, s);
    if (*ended)
        s->finish = stop ? AX_FINISH_STOP : by_caller ? AX_FINISH_CALLER : AX_FINISH_LENGTH;
    return AX_OK;
}

enum ax_status ax_lane_hand_out(struct ax_generator *d, int lane, int32_t id) {
    struct ax_lane *l = &d->lanes[lane];
    struct ax_sequence *s = l->seq;
    bool ended;
    AX_TRY(ax_sequence_take(d, s, id, &ended));
    if (!ended) {
        ax_lane_push(d, l, id);
        return AX_OK;
    }
    l->seq = NULL;
    const bool knows = d->o.waits || ax_generate_tells(d) || ax_model_has_head(d->model);
    return d->o.done && knows ? d->o.done(d->o.ctx, s) : AX_OK;
}

static enum ax_status rows_create(struct ax_generate_rows *r, size_t n) {
    AX_TRY(ax_alloc(&r->lanes, n, sizeof *r->lanes));
    AX_TRY(ax_alloc(&r->choices, n, sizeof *r->choices));
    return ax_alloc(&r->rows, n, sizeof *r->rows);
}

static void rows_free(struct ax_generate_rows *r) {
    ax_free(r->lanes);
    ax_free(r->rows);
    ax_free(r->choices);
}

/* Is row i that of a draft? It follows that of the lane's last token. */
static bool follows(const struct ax_generate_rows *r, int64_t i) {
    return i > 0 && r->lanes[i - 1] == r->lanes[i];
}

/* What row i's choice takes, and what its sequence requests. */
static void add_to_choice(struct ax_generator *d, struct ax_generate_rows *r, int64_t i,
                          struct ax_choice *c) {
    const struct ax_lane *l = &d->lanes[r->lanes[i]];
    const struct ax_sequence *s = l->seq;
    r->rows[i] = (struct ax_sample_row){.stream = s ? s->stream : 0,
                                        .position = l->known + follows(r, i),
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
static enum ax_status choose(struct ax_generator *d, struct ax_generate_rows *r, int64_t n,
                             const struct ax_choice *requests) {
    struct ax_runtime *rt = d->model->rt;
    const struct ax_tensor own = ax_tensor_rows(&d->logits, 0, n);
    struct ax_tensor logits;
    r->n_choices = 0;
    if (!ax_model_has_head(d->model))
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(ax_tp_gather_cols(rt, &own, d->model->arch.vocab_size, &logits));
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
static int64_t first_tokens(const struct ax_generator *d, const struct ax_generate_rows *r,
                            int64_t n) {
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++)
        k += d->lanes[r->lanes[i]].seq->n_new == 0 && !follows(r, i);
    return k;
}

/* A pass that has chosen `tokens`, and read `prompt` tokens of prompts. */
static void count(struct ax_generator *d, int64_t prompt, int64_t tokens, double seconds) {
    struct ax_generate_counters *c = &d->counters;
    c->passes++;
    c->tokens += tokens;
    c->prompt_tokens += prompt;
    if (prompt > 0) {
        c->prompt_seconds += seconds;
        return;
    }
    c->decode_passes++;
    c->decode_tokens += tokens;
    c->decode_seconds += seconds;
}

/* Runs passes of all sizes, because op workspaces do not always grow with the rows. */
static enum ax_status plan(struct ax_generator *d, struct ax_generate_rows *r, bool logprobs) {
    for (int64_t T = d->o.pass_tokens; T > 0; T--) {
        int64_t n;
        bool ends;
        const struct ax_choice requests = {.logprobs = logprobs || d->o.varied,
                                           .best = d->o.varied ? AX_LIKELIEST_MAX : 0};
        AX_TRY(ax_generate_run_pass(d, T, &n, r->lanes, &ends));
        AX_TRY(choose(d, r, n, &requests));
        ax_lane_scores_drop(d);
        ax_results_drop(&d->results);
        if (d->o.drafts) {
            AX_TRY(ax_generate_run_drafts(d, &n, r->lanes));
            AX_TRY(choose(d, r, n, &(struct ax_choice){0}));
            ax_results_drop(&d->results);
        }
    }
    return AX_OK;
}

/* Waits for the results of this pass and of those before that have not been read. */
static enum ax_status settle(struct ax_generator *d) {
    AX_TRY(ax_results_read(&d->results));
    return settle_scores(d);
}

/* The n tokens that were chosen, on all stages, in the work's ids. */
static enum ax_status gather_ids(const struct ax_generator *d, const struct ax_generate_rows *r,
                                 int64_t n) {
    struct ax_runtime *rt = d->model->rt;
    double *const ids = d->work->ids;
    if (n == 0)
        return AX_OK;
    memset(ids, 0, (size_t)n * sizeof *ids);
    for (int64_t k = 0, i = 0; k < r->n_choices; k++)
        for (int64_t row = 0; row < r->choices[k].logits.shape[0]; row++)
            ids[i++] = ax_results_get(&d->results, &r->choices[k].index, row);
    return rt->mesh.size[AX_ROLE_PP] > 1 ? ax_runtime_combine(rt, AX_ROLE_PP, AX_SUM, ids, n)
                                         : AX_OK;
}

/* Hands out the n tokens; *tokens = how many: that of a draft's row counts if the one before is the draft. */
static enum ax_status hand_out_all(struct ax_generator *d, const struct ax_generate_rows *r,
                                   int64_t n, int64_t *tokens) {
    bool accepted = false;
    *tokens = 0;
    AX_TRY(gather_ids(d, r, n));
    for (int64_t i = 0, k = 0, row = 0; i < n; i++, row++) {
        struct ax_lane *l = &d->lanes[r->lanes[i]];
        const struct ax_choice *c = NULL;
        if (k < r->n_choices && row == r->choices[k].logits.shape[0])
            row = 0, k++;
        if (k < r->n_choices)
            c = &r->choices[k];
        if (follows(r, i)) {
            d->counters.drafts++;
            d->counters.accepted += accepted;
            if (!accepted)
                continue;
        }
        const int32_t draft = l->drafted && !follows(r, i) ? l->ids[l->known] : -1;
        if (c)
            note_choice(d, l->seq, c, row);
        AX_TRY(ax_lane_hand_out(d, r->lanes[i], (int32_t)d->work->ids[i]));
        ++*tokens;
        accepted = l->seq && l->ids[l->known - 1] == draft;
    }
    return AX_OK;
}

/* Drafts of the lanes' next tokens, in place behind those that they have. */
static enum ax_status draft(struct ax_generator *d, struct ax_generate_rows *r) {
    int64_t n;
    for (int i = 0; i < d->o.n_seqs; i++)
        d->lanes[i].drafted = false;
    if (!d->o.drafts)
        return AX_OK;
    AX_TRY(ax_generate_run_drafts(d, &n, r->lanes));
    if (n == 0)
        return AX_OK;
    AX_TRY(choose(d, r, n, &(struct ax_choice){0}));
    AX_TRY(settle(d)); /* also scores that are pending */
    AX_TRY(gather_ids(d, r, n));
    for (int64_t i = 0; i < n; i++) {
        struct ax_lane *l = &d->lanes[r->lanes[i]];
        l->ids[l->known] = (int32_t)d->work->ids[i];
        l->drafted = true;
    }
    return AX_OK;
}

static enum ax_status step(struct ax_generator *d, struct ax_generate_rows *r, bool *ends) {
    const double start = ax_clock_now();
    const struct ax_choice requests = {0};
    int64_t n, tokens;
    bool full;
    const bool tells = ax_generate_tells(d);
    AX_TRY(ax_generate_run_pass(d, 0, &n, r->lanes, ends));
    if (*ends) /* others may have a pass */
        return tells ? ax_generate_tell(d, r, 0) : AX_OK;
    if (n > 0)
        AX_TRY(choose(d, r, n, &requests));
    end_scored(d, &full);
    if (n > 0 || full || (tells && scores_pending(d)))
        AX_TRY(settle(d));
    const int64_t prompt = d->batch.n_tokens - n + first_tokens(d, r, n);
    const double chosen = ax_clock_now();
    if (tells) { /* the pass is among what ranks tell each other */
        count(d, prompt, n, chosen - start);
        return ax_generate_tell(d, r, n);
    }
    AX_TRY(hand_out_all(d, r, n, &tokens));
    const double handed = ax_clock_now();
    AX_TRY(draft(d, r));
    count(d, prompt, tokens, ax_clock_now() - handed + chosen - start);
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
    d->work->away = NULL;
}

/* Of all sequences, this rank's wait. */
static void begin(struct ax_generator *d, int64_t n, struct ax_sequence *seqs) {
    struct ax_generate_queue *u = &d->work->queue;
    int64_t first, own;
    AX_ASSERT(!ax_generate_tells(d) || (n == 0 && !d->o.drafts));
    AX_ASSERT(!d->o.more || d->o.waits || !d->o.stop_now);
    d->work->away = NULL;
    ax_generate_deal(d, n, &first, &own);
    *u = (struct ax_generate_queue){.arrived = n};
    for (int64_t i = first + own; i-- > first;) {
        seqs[i].n_new = 0;
        seqs[i].begun = false;
        seqs[i].place = i;
        ax_lanes_enqueue(d, &seqs[i]);
    }
}

static bool is_idle(const struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++)
        if (d->lanes[i].seq)
            return false;
    return !d->work->queue.first && !d->work->away;
}

static enum ax_status end_left(struct ax_generator *d, struct ax_sequence *s) {
    if (s->n_scored > 0 && scores_pending(d)) /* some of them are its own */
        AX_TRY(settle(d));
    s->finish = AX_FINISH_CALLER;
    return d->o.done ? d->o.done(d->o.ctx, s) : AX_OK;
}

/* Ends those of a list that are given up. */
static enum ax_status drop_left_of(struct ax_generator *d, struct ax_sequence **at) {
    for (struct ax_sequence *s; (s = *at) != NULL;) {
        if (s->leaves) {
            *at = s->next;
            AX_TRY(end_left(d, s));
        } else {
            at = &s->next;
        }
    }
    return AX_OK;
}

enum ax_status ax_generator_drop_left(struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++) {
        struct ax_sequence *s = d->lanes[i].seq;
        if (!s || !s->leaves)
            continue;
        d->lanes[i].seq = NULL;
        AX_TRY(end_left(d, s));
    }
    AX_TRY(drop_left_of(d, &d->work->queue.first));
    return drop_left_of(d, &d->work->away);
}

/* Takes what joins; *ends: nothing does, and nothing is left. */
static enum ax_status take_more(struct ax_generator *d, bool *ends) {
    struct ax_sequence *s = NULL;
    const bool idle = d->o.waits ? d->work->need.starved : is_idle(d);
    const double start = ax_clock_now();
    if (idle && scores_pending(d))
        AX_TRY(settle(d));
    AX_TRY(d->o.more(d->o.ctx, idle, &s));
    if (d->work->need.starved)
        d->counters.wait_seconds += ax_clock_now() - start;
    *ends = idle && !s;
    for (struct ax_sequence *next; s; s = next) {
        next = s->next;
        ax_generate_join(d, s);
    }
    return ax_generator_drop_left(d);
}

static enum ax_status run(struct ax_generator *d, struct ax_generate_rows *r, int64_t n,
                          struct ax_sequence *seqs) {
    const struct ax_generate_counters before = d->counters;
    bool logprobs = false;
    for (int64_t i = 0; i < n; i++)
        logprobs = logprobs || ((seqs[i].logprobs || seqs[i].entropies) && seqs[i].n_scored == 0);
    if (ax_runtime_planning(d->model->rt))
        return plan(d, r, logprobs);
    begin(d, n, seqs);
    d->work->told = before;
    d->work->need.starved = false;
    for (bool ends = false, nothing; !ends;) {
        if (d->o.more)
            AX_TRY(take_more(d, &ends));
        AX_TRY(ax_lanes_admit(d));
        AX_TRY(step(d, r, &nothing));
        if (!d->o.more || d->o.waits)
            ends = nothing && !d->work->need.starved;
    }
    end(d);
    if (scores_pending(d))
        AX_TRY(settle(d));
    return ax_generate_tells(d) ? AX_OK : ax_generate_share(d, n, seqs, &before);
}

enum ax_status ax_generate(struct ax_generator *d, int64_t n, struct ax_sequence *seqs) {
    struct ax_generate_rows r = {0};
    enum ax_status st;
    if (n == 0 && !d->o.more)
        return AX_OK;
    AX_TRY_GOTO(rows_create(&r, (size_t)d->row_cap), st, done);
    st = run(d, &r, n, seqs);
done:
    for (int i = 0; st != AX_OK && i < d->o.n_seqs; i++)
        d->lanes[i].seq = NULL;
    if (st != AX_OK) {
        ax_generator_forget(d); /* a pass may have ended half way */
        drop_gathers(d);
        ax_lane_scores_drop(d);
        ax_results_drop(&d->results);
    }
    rows_free(&r);
    return st;
}
