#include "optim/rollout/rollout.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stop.h"
#include "optim/evaluate/asked.h"
#include "optim/rollout/reread.h"

/* Prompts from the loader, and completions of them by the model. */

/* ---- memory ---- */

bool ax_rollout_refers(const struct ax_rollout_options *o) {
    return o->policy && (o->policy->o.beta != 0 || (o->ppo && o->ppo->kl_coef != 0));
}

enum ax_status ax_rollout_create(struct ax_rollout *r, const struct ax_rollout_options *o) {
    *r = (struct ax_rollout){.o = o, .n = o->prompts * o->group};
    if (o->group == 0)
        return AX_OK;
    const size_t n = (size_t)r->n, tokens = n * (size_t)(o->max_prompt + o->max_new);
    const int functions = o->rewards ? ax_rewards_count(o->rewards) : 0;
    AX_TRY(ax_alloc(&r->list, n, sizeof *r->list));
    AX_TRY(ax_alloc(&r->order, n, sizeof *r->order));
    AX_TRY(ax_alloc(&r->origins, (size_t)o->prompts, sizeof *r->origins));
    AX_TRY(ax_alloc(&r->records, (size_t)o->prompts, sizeof *r->records));
    AX_TRY(ax_alloc(&r->todo, (size_t)o->prompts, sizeof *r->todo));
    AX_TRY(ax_alloc(&r->rewards, n * (size_t)functions, sizeof *r->rewards));
    AX_TRY(ax_alloc(&r->logged.extra, n, sizeof *r->logged.extra));
    AX_TRY(ax_alloc(&r->ids, tokens, sizeof *r->ids));
    AX_TRY(ax_alloc(&r->logprobs, tokens, sizeof *r->logprobs));
    if (o->turns) {
        AX_TRY(ax_alloc(&r->inserted, tokens, sizeof *r->inserted));
        AX_TRY(ax_alloc(&r->messages, n, sizeof *r->messages));
        AX_TRY(ax_alloc(&r->calls, n, sizeof *r->calls));
        AX_TRY(ax_alloc(&r->turn_rewards, n, sizeof *r->turn_rewards));
        AX_TRY(ax_alloc(&r->observations, n, sizeof *r->observations));
    }
    if (o->teacher || o->remote)
        AX_TRY(ax_alloc(&r->teacher, tokens, sizeof *r->teacher));
    if (!o->policy)
        return AX_OK;
    if (o->policy->o.token_advantages)
        AX_TRY(ax_alloc(&r->advantages, tokens, sizeof *r->advantages));
    if (o->policy->o.entropy_mask)
        AX_TRY(ax_alloc(&r->entropies, tokens, sizeof *r->entropies));
    if (ax_rollout_refers(o))
        AX_TRY(ax_alloc(&r->reference, tokens, sizeof *r->reference));
    if (!o->ppo)
        return AX_OK;
    AX_TRY(ax_alloc(&r->values, tokens, sizeof *r->values));
    return ax_alloc(&r->returns, tokens, sizeof *r->returns);
}

static void forget_generation(struct ax_rollout *r) {
    r->filled = false;
    r->turn = 0;
    r->read = 0;
}

void ax_rollout_free(struct ax_rollout *r) {
    for (int64_t i = 0; r->origins && i < r->o->prompts; i++)
        ax_free(r->origins[i].file);
    for (int64_t i = 0; r->records && i < r->o->prompts; i++)
        ax_free(r->records[i]);
    for (int64_t i = 0; r->observations && i < r->n; i++) {
        ax_free(r->observations[i]);
        json_decref(r->messages[i]);
        json_decref(r->calls[i]);
        json_decref(r->turn_rewards[i]);
    }
    ax_rollout_free_logged(r);
    ax_free(r->turn_rewards);
    ax_free(r->observations);
    ax_free(r->messages);
    ax_free(r->calls);
    ax_free(r->inserted);
    ax_free(r->list);
    ax_free(r->order);
    ax_free(r->origins);
    ax_free(r->records);
    ax_free(r->todo);
    ax_free(r->rewards);
    ax_free(r->ids);
    ax_free(r->logprobs);
    ax_free(r->reference);
    ax_free(r->teacher);
    ax_free(r->entropies);
    ax_free(r->advantages);
    ax_free(r->values);
    ax_free(r->returns);
    *r = (struct ax_rollout){0};
}

/* ---- prompts ---- */

static int64_t place_of(const struct ax_rollout *r, int64_t i) {
    return i * (r->o->max_prompt + r->o->max_new);
}

static enum ax_status put_record(struct ax_rollout *r, int64_t group, const struct ax_examples *set,
                                 size_t index) {
    const struct ax_stored *x = &set->list[index];
    size_t n;
    const char *record = ax_examples_text(set, index, &n);
    AX_ASSERT(record);
    ax_free(r->origins[group].file);
    ax_free(r->records[group]);
    r->origins[group].file = r->records[group] = NULL;
    AX_TRY(ax_strdup(&r->origins[group].file, x->file < set->n_files ? set->files[x->file] : "?"));
    r->origins[group].line = x->line;
    return ax_sprintf(&r->records[group], "%.*s", (int)n, record);
}

/* Whether a generation is sampled: the same on all ranks, and after resuming. */
static bool is_sampled(const struct ax_rollout *r) {
    const struct ax_rng_key key = {r->o->sampling.seed, (uint32_t)r->generation, 0x6c6d6264};
    return r->generation == 0 || (double)ax_rng_uniform(key, 0) >= r->o->own_share;
}

/* The record's own answer as the completion: its ids are the second line of an example's text
 * (data/records/format/format.h). What is longer than a completion loses its end. */
static enum ax_status put_answer(struct ax_rollout *r, int64_t group) {
    struct ax_completion *c = &r->list[group];
    const char *line = strchr(r->records[group], '\n');
    json_t *ids = line ? json_loads(line, 0, NULL) : NULL;
    if (!ids)
        return ax_error(AX_ERR_NOMEM, "out of memory for the answer of a record");
    const int64_t n = (int64_t)json_array_size(ids);
    c->given = true;
    c->truncated = n > r->o->max_new;
    c->sampled = c->truncated ? r->o->max_new : n;
    c->n = c->n_prompt + c->sampled;
    for (int64_t i = 0; i < c->sampled; i++)
        r->ids[c->start + c->n_prompt + i] =
            (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    json_decref(ids);
    return AX_OK;
}

/* Each of the group has the prompt's ids, and room for a completion. */
static enum ax_status put_prompt(struct ax_rollout *r, int64_t group,
                                 const struct ax_packed_sequence *s) {
    const int64_t n = s->docs[0].n;
    AX_ASSERT(s->n == 1 && n <= r->o->max_prompt);
    AX_TRY(put_record(r, group, ax_sequence_set(s, 0), ax_sequence_ref(s, 0)->index));
    for (int64_t i = group * r->o->group; i < (group + 1) * r->o->group; i++) {
        r->list[i] = (struct ax_completion){.start = place_of(r, i), .n_prompt = n};
        memcpy(r->ids + r->list[i].start, s->docs[0].tokens, (size_t)n * sizeof *r->ids);
    }
    if (r->read++ == 0) {
        r->epoch = s->epoch;
        r->index = s->index;
    }
    return AX_OK;
}

static void next_epoch(struct ax_loader *loader) {
    struct ax_loader_state at;
    ax_loader_save(loader, &at);
    ax_loader_start_epoch(loader, at.epoch + 1);
}

/* The prompts of an epoch that do not fill the first round of a generation are left out. */
static enum ax_status read_prompts(struct ax_rollout *r, struct ax_loader *loader) {
    int ends = 0;
    for (int64_t i = 0; i < r->n_todo; i++) {
        struct ax_packed_sequence s;
        bool got;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (got) {
            AX_TRY(put_prompt(r, r->todo[i], &s));
            continue;
        }
        if (ends++ > 0)
            return ax_error(AX_ERR_DATA,
                            "datasets: an epoch has fewer than the %lld prompts that are sampled "
                            "at a time; lower micro_batch_size or gradient_accumulation_steps",
                            (long long)r->n_todo);
        next_epoch(loader);
        r->read = r->round == 0 ? 0 : r->read;
        i = r->round == 0 ? -1 : i - 1;
    }
    return AX_OK;
}

/* ---- strings that end a completion, whichever tokens they are made of ---- */

/* As many tokens as the longest string may take, and those that it may begin in. */
static int64_t window_of(const struct ax_rollout_options *o) {
    size_t longest = 0;
    for (int i = 0; i < o->n_stop_strings; i++)
        if (strlen(o->stop_strings[i]) > longest)
            longest = strlen(o->stop_strings[i]);
    return (int64_t)longest + 4;
}

static bool has_stop_text(const struct ax_rollout_options *o, const struct ax_buf *text) {
    for (int i = 0; i < o->n_stop_strings; i++)
        if (memmem(text->data, text->len, o->stop_strings[i], strlen(o->stop_strings[i])))
            return true;
    return false;
}

enum ax_status ax_rollout_ends(const struct ax_rollout_options *o, const struct ax_sequence *s,
                               bool *ends) {
    const int64_t window = window_of(o), first = s->n_new > window ? s->n_new - window : 0;
    struct ax_buf text = {0};
    *ends = false;
    if (o->n_stop_strings == 0)
        return AX_OK;
    /* with special tokens, whose texts may be among these */
    const enum ax_status st = ax_tokenizer_decode(o->tokenizer, s->tokens + first,
                                                  (size_t)(s->n_new - first), false, &text);
    *ends = st == AX_OK && text.len > 0 && has_stop_text(o, &text);
    ax_buf_free(&text);
    return st;
}

/* ---- completions ---- */

bool ax_rollout_stop_now(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

static enum ax_status end_at_text(void *ctx, struct ax_sequence *s, bool *stop) {
    return ax_rollout_ends(ctx, s, stop);
}

struct ax_generate_options ax_rollout_generator(const struct ax_rollout_options *o, bool scores) {
    const int64_t most = o->max_prompt + o->max_new;
    return (struct ax_generate_options){.n_seqs = (int)o->lanes,
                                        .max_prompt = scores ? most - 1 : o->max_prompt,
                                        .max_new = scores ? 1 : o->max_new,
                                        .long_prompts = !scores && o->turns,
                                        .kv_tokens = o->kv_tokens,
                                        .in_training = true,
                                        .scoring = scores,
                                        .score_temperature = o->sampling.temperature,
                                        .drafts = !scores && o->drafts,
                                        .n_stop = o->n_stop,
                                        .stop = o->stop,
                                        .sampling = o->sampling,
                                        .token = o->n_stop_strings > 0 ? end_at_text : NULL,
                                        .stop_now = ax_rollout_stop_now,
                                        .ctx = (void *)o};
}

void ax_rollout_count(struct ax_rollout *r, const struct ax_generate_counters *c) {
    r->passes += c->passes;
    r->drafts += c->drafts;
    r->accepted += c->accepted;
}

/* Continues or scores sequences in the rollout phase. */
static enum ax_status run_sequences(struct ax_model *m, const struct ax_generate_options *o,
                                    int64_t n, struct ax_sequence *seqs,
                                    struct ax_generate_counters *counters) {
    struct ax_generator g;
    const enum ax_phase before = m->rt->arena.phase;
    AX_TRY(ax_generator_create(&g, m, o));
    const enum ax_status st = ax_generate(&g, n, seqs);
    *counters = g.counters;
    ax_generator_free(&g);
    ax_arena_enter(&m->rt->arena, before);
    return st;
}

/* Of the groups to do. */
struct drawn {
    struct ax_sequence *seqs; /* [n] */
    double *logprobs;         /* [n][max_new] */
    double *entropies;        /* likewise; or NULL */
    int64_t n;
};

static enum ax_status drawn_create(struct drawn *d, const struct ax_rollout *r) {
    d->n = r->n_todo * r->o->group;
    AX_TRY(ax_alloc(&d->seqs, (size_t)d->n, sizeof *d->seqs));
    AX_TRY(ax_alloc(&d->logprobs, (size_t)(d->n * r->o->max_new), sizeof *d->logprobs));
    if (r->entropies)
        AX_TRY(ax_alloc(&d->entropies, (size_t)(d->n * r->o->max_new), sizeof *d->entropies));
    for (int64_t i = 0; i < d->n; i++) {
        const struct ax_completion *c = ax_rollout_todo(r, i);
        d->seqs[i] = (struct ax_sequence){
            .n_prompt = c->n_prompt,
            .prompt = r->ids + c->start,
            .stream = ax_rollout_stream(r, c),
            .tokens = r->ids + c->start + c->n_prompt,
            .logprobs = d->logprobs + i * r->o->max_new,
            .entropies = d->entropies ? d->entropies + i * r->o->max_new : NULL};
    }
    return AX_OK;
}

static void drawn_free(struct drawn *d) {
    ax_free(d->seqs);
    ax_free(d->logprobs);
    ax_free(d->entropies);
}

static void to_floats(float *out, const double *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)values[i];
}

/* True if one of them ended before its end. */
static enum ax_status was_stopped(const struct ax_rollout *r, const struct drawn *d,
                                  bool *stopped) {
    bool ends = true;
    for (int64_t i = 0; i < d->n && !*stopped; i++) {
        if (d->seqs[i].finish == AX_FINISH_CALLER)
            AX_TRY(ax_rollout_ends(r->o, &d->seqs[i], &ends));
        *stopped = !ends;
    }
    return AX_OK;
}

/* Unless a rank was asked to stop. */
static enum ax_status take_drawn(struct ax_rollout *r, const struct drawn *d, bool *stopped) {
    AX_TRY(was_stopped(r, d, stopped));
    for (int64_t i = 0; i < d->n && !*stopped; i++) {
        struct ax_completion *c = ax_rollout_todo(r, i);
        const int64_t first = c->start + c->n_prompt, n = d->seqs[i].n_new;
        c->n = c->n_prompt + n;
        c->sampled = n;
        c->truncated = d->seqs[i].finish == AX_FINISH_LENGTH;
        to_floats(r->logprobs + first, d->seqs[i].logprobs, n);
        if (r->entropies)
            to_floats(r->entropies + first, d->seqs[i].entropies, n);
    }
    return AX_OK;
}

static enum ax_status sample_completions(struct ax_rollout *r, struct ax_model *m, bool *stopped) {
    const struct ax_generate_options go = ax_rollout_generator(r->o, false);
    struct ax_generate_counters counters;
    struct drawn d = {0};
    enum ax_status st;
    if (r->o->turns && !ax_runtime_planning(m->rt))
        return ax_rollout_take_turns(r, m, stopped);
    if (ax_runtime_planning(m->rt)) {
        double logprob;
        struct ax_sequence s = {.logprobs = &logprob};
        return run_sequences(m, &go, 1, &s, &counters);
    }
    AX_TRY_GOTO(drawn_create(&d, r), st, done);
    AX_TRY_GOTO(run_sequences(m, &go, d.n, d.seqs, &counters), st, done);
    ax_rollout_count(r, &counters);
    st = take_drawn(r, &d, stopped);
done:
    drawn_free(&d);
    return st;
}

/* ---- log-probs of completions by a model that does not train ---- */

struct scorer {
    struct ax_model *model;
    struct ax_rollout_options o; /* for the generator */
    float *out;                  /* shaped like ids; NULL while planning */
    bool bare;                   /* without its adapter */
};

/* The policy as the run found it: its base, or a copy. */
static struct scorer reference_of(const struct ax_rollout *r, const struct ax_rollout_models *m) {
    return (struct scorer){m->reference, *r->o, r->reference, m->reference == m->policy};
}

/* The teacher, whose distributions are as they are, whatever tokens are drawn from. */
static struct scorer teacher_of(const struct ax_rollout *r, struct ax_model *m) {
    struct scorer s = {m, *r->o, r->teacher, false};
    s.o.sampling.truncated = false;
    if (r->o->most_read > 0)
        s.o.max_prompt = r->o->most_read - r->o->max_new;
    return s;
}

/* A base without its adapter is the same model with it, between steps. */
static enum ax_status score_by(const struct scorer *by, int64_t n, struct ax_sequence *seqs) {
    const struct ax_generate_options go = ax_rollout_generator(&by->o, true);
    struct ax_generate_counters counters;
    by->model->adapter_run.off = by->bare;
    const enum ax_status st = run_sequences(by->model, &go, n, seqs, &counters);
    by->model->adapter_run.off = false;
    return st;
}

enum ax_status ax_rollout_score_by_teacher(const struct ax_rollout *r, struct ax_model *teacher,
                                           int64_t n, struct ax_sequence *seqs) {
    const struct scorer s = teacher_of(r, teacher);
    return score_by(&s, n, seqs);
}

struct scored {
    struct ax_sequence *seqs; /* [n] */
    double *logprobs;         /* [n][max_new] */
    int32_t *tokens;          /* [n], unused */
};

static enum ax_status scored_create(struct scored *s, const struct ax_rollout *r) {
    const size_t n = (size_t)r->n;
    AX_TRY(ax_alloc(&s->seqs, n, sizeof *s->seqs));
    AX_TRY(ax_alloc(&s->tokens, n, sizeof *s->tokens));
    AX_TRY(ax_alloc(&s->logprobs, n * (size_t)r->o->max_new, sizeof *s->logprobs));
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        const int32_t *ids = r->ids + c->start;
        s->seqs[i] = (struct ax_sequence){.n_prompt = c->n - 1,
                                          .prompt = ids,
                                          .n_scored = c->n - c->n_prompt,
                                          .scored = ids + c->n_prompt,
                                          .tokens = s->tokens + i,
                                          .logprobs = s->logprobs + i * r->o->max_new};
    }
    return AX_OK;
}

/* Unless a rank was asked to stop. */
static void take_logprobs(const struct ax_rollout *r, const struct scored *s, float *out,
                          bool *stopped) {
    for (int64_t i = 0; i < r->n; i++)
        *stopped = *stopped || s->seqs[i].finish == AX_FINISH_CALLER;
    for (int64_t i = 0; i < r->n && !*stopped; i++) {
        const struct ax_completion *c = &r->list[i];
        for (int64_t k = 0; k < c->n - c->n_prompt; k++)
            out[c->start + c->n_prompt + k] = (float)s->seqs[i].logprobs[k];
    }
}

/* Log-probs of all completions. */
static enum ax_status score_completions(const struct ax_rollout *r, const struct scorer *by,
                                        bool *stopped) {
    struct scored s = {0};
    enum ax_status st;
    if (ax_runtime_planning(by->model->rt)) {
        double logprob;
        int32_t token;
        struct ax_sequence one = {.n_scored = 1, .logprobs = &logprob, .tokens = &token};
        return score_by(by, 1, &one);
    }
    AX_TRY_GOTO(scored_create(&s, r), st, done);
    AX_TRY_GOTO(score_by(by, r->n, s.seqs), st, done);
    take_logprobs(r, &s, by->out, stopped);
done:
    ax_free(s.seqs);
    ax_free(s.logprobs);
    ax_free(s.tokens);
    return st;
}

/* ---- log-probs of completions by a teacher that a server has ---- */

/* This data rank's completions, and room for the log-probs of all [n][max_new]. */
static enum ax_status read_share(struct ax_rollout *r, struct ax_runtime *rt,
                                 struct ax_remote_text *texts, double *logprobs, bool *stopped) {
    int64_t first, own, n = 0;
    ax_split_range(r->n, rt->mesh.size[AX_ROLE_BATCH], rt->mesh.coord[AX_ROLE_BATCH], &first, &own);
    for (int64_t i = first; i < first + own; i++) {
        const struct ax_completion *c = &r->list[i];
        if (c->n > c->n_prompt)
            texts[n++] = (struct ax_remote_text){.n = c->n,
                                                 .first = c->n_prompt,
                                                 .ids = r->ids + c->start,
                                                 .logprobs = logprobs + i * r->o->max_new};
    }
    AX_TRY(ax_asked_read(rt, r->o->remote, n, texts, stopped));
    if (*stopped)
        return AX_OK;
    AX_TRY(ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, logprobs, r->n * r->o->max_new));
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        to_floats(r->teacher + c->start + c->n_prompt, logprobs + i * r->o->max_new,
                  c->n - c->n_prompt);
    }
    return AX_OK;
}

static enum ax_status ask_remote(struct ax_rollout *r, struct ax_runtime *rt, bool *stopped) {
    struct ax_remote_text *texts;
    double *logprobs = NULL;
    AX_TRY(ax_alloc(&texts, (size_t)r->n, sizeof *texts));
    enum ax_status st = ax_alloc(&logprobs, (size_t)(r->n * r->o->max_new), sizeof *logprobs);
    if (st == AX_OK)
        st = read_share(r, rt, texts, logprobs, stopped);
    ax_free(logprobs);
    ax_free(texts);
    return st;
}

/* What the other models make of a generation. */
static enum ax_status ask_others(struct ax_rollout *r, const struct ax_rollout_models *m,
                                 bool *stopped) {
    const struct scorer reference = reference_of(r, m), teacher = teacher_of(r, m->teacher);
    if (m->reference && !*stopped)
        AX_TRY(score_completions(r, &reference, stopped));
    if (m->teacher && !*stopped)
        AX_TRY(r->o->reader && !ax_runtime_planning(m->teacher->rt)
                   ? ax_rollout_reread(r, m->teacher, stopped)
                   : score_completions(r, &teacher, stopped));
    if (r->o->remote && !*stopped)
        AX_TRY(ask_remote(r, m->policy->rt, stopped));
    return m->value && !*stopped ? ax_rollout_value(r, m->value, stopped) : AX_OK;
}

/* ---- turns ---- */

bool ax_rollout_is_used_up(const struct ax_rollout *r) {
    return !r->filled || r->turn == r->o->steps * r->o->iterations;
}

int64_t ax_rollout_turn_size(const struct ax_rollout *r) {
    return r->n / r->o->steps;
}

const struct ax_completion *ax_rollout_take(const struct ax_rollout *r, int64_t i,
                                            int64_t *number) {
    *number = r->order[r->turn % r->o->steps * ax_rollout_turn_size(r) + i];
    return &r->list[*number];
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Each turn has a random share of the completions. */
static void shuffle_order(struct ax_rollout *r) {
    const struct ax_rng_key key = {r->o->sampling.seed, (uint32_t)r->generation, 0x726f6c6c};
    for (int64_t i = 0; i < r->n; i++)
        r->order[i] = i;
    for (int64_t i = r->n - 1; r->o->steps > 1 && i > 0; i--) {
        const uint64_t k = ax_rng_below(key, (uint64_t)i, (uint64_t)i + 1);
        const int64_t other = r->order[k];
        r->order[k] = r->order[i];
        r->order[i] = other;
    }
    const int64_t turn = ax_rollout_turn_size(r);
    for (int64_t i = 0; i < r->n; i += turn)
        qsort(r->order + i, (size_t)turn, sizeof *r->order, ascending);
}

/* ---- a generation ---- */

static enum ax_status plan_generation(struct ax_rollout *r, const struct ax_rollout_models *m) {
    bool stopped = false;
    AX_TRY(sample_completions(r, m->policy, &stopped));
    for (int i = 0; i < r->o->n_models; i++)
        AX_TRY(ax_reward_model_read(r->o->models[i], 0, NULL, NULL));
    return ask_others(r, m, &stopped);
}

/* Prompts, completions and rewards of the groups to do, which become those to do again. */
static enum ax_status go_round(struct ax_rollout *r, struct ax_model *m, struct ax_loader *loader,
                               bool *stopped) {
    AX_TRY(read_prompts(r, loader));
    const double start = ax_clock_now();
    if (is_sampled(r))
        AX_TRY(sample_completions(r, m, stopped));
    else
        for (int64_t i = 0; i < r->n_todo; i++)
            AX_TRY(put_answer(r, r->todo[i]));
    const double sampled = ax_clock_now();
    r->seconds += sampled - start;
    if (!*stopped && r->o->rewards)
        AX_TRY(ax_rollout_reward(r, m->rt, stopped));
    r->reward_seconds += ax_clock_now() - sampled;
    return AX_OK;
}

static void do_all(struct ax_rollout *r) {
    memset(r->verdicts, 0, sizeof r->verdicts);
    ax_rollout_forget_logged(r);
    r->n_todo = r->o->prompts;
    for (int64_t i = 0; i < r->n_todo; i++)
        r->todo[i] = i;
}

static enum ax_status fill_generation(struct ax_rollout *r, const struct ax_rollout_models *m,
                                      struct ax_loader *loader, bool *stopped) {
    do_all(r);
    for (r->round = 0; r->round <= r->o->rounds && r->n_todo > 0 && !*stopped; r->round++)
        AX_TRY(go_round(r, m->policy, loader, stopped));
    const double start = ax_clock_now();
    AX_TRY(ask_others(r, m, stopped));
    r->seconds += ax_clock_now() - start;
    return AX_OK;
}

enum ax_status ax_rollout_generate(struct ax_rollout *r, const struct ax_rollout_models *m,
                                   struct ax_loader *loader, bool *stopped) {
    struct ax_loader_state at;
    *stopped = false;
    if (ax_runtime_planning(m->policy->rt))
        return plan_generation(r, m);
    ax_loader_save(loader, &at);
    forget_generation(r);
    r->seconds = r->reward_seconds = r->tool_seconds = r->wait_seconds = 0;
    r->passes = r->drafts = r->accepted = 0;
    r->generation++;
    AX_TRY(fill_generation(r, m, loader, stopped));
    if (*stopped) {
        r->generation--;
        return ax_loader_restore(loader, &at);
    }
    r->filled = true;
    shuffle_order(r);
    return ax_rollout_judge(r);
}

/* ---- an evaluation ---- */

struct ax_rollout_options ax_rollout_for_evaluation(const struct ax_rollout_options *o, int64_t n) {
    struct ax_rollout_options e = *o;
    e.group = o->eval_group;
    e.prompts = n;
    e.steps = e.iterations = 1;
    e.staleness = 0;
    e.rounds = 0;
    e.policy = NULL;
    e.ppo = NULL;
    return e;
}

/* Its number, 0, is no generation's. */
enum ax_status ax_rollout_evaluate(struct ax_rollout *r, const struct ax_rollout_models *m,
                                   struct ax_loader *loader, bool *stopped) {
    const struct ax_rollout_models others = {.policy = m->policy, .teacher = m->teacher};
    *stopped = false;
    r->tool_seconds = r->wait_seconds = 0;
    r->passes = r->drafts = r->accepted = 0;
    do_all(r);
    ax_loader_start_epoch(loader, 0);
    AX_TRY(go_round(r, m->policy, loader, stopped));
    AX_TRY(ask_others(r, &others, stopped));
    return *stopped ? AX_OK : ax_rollout_judge(r);
}
