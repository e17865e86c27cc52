/* Prompts from the loader, and completions of them by the model. */
#include <string.h>

#include "base/mem.h"
#include "base/stop.h"
#include "optim/rollout/rollout.h"

#define PASS_TOKENS 256 /* fewer than in generation alone: a pass's memory is a step's */

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
enum ax_status ax_rollout_read(struct ax_rollout *r, struct ax_loader *loader) {
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

/* ---- completions ---- */

static bool stop_now(void *ctx) {
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
                                        .kv_tokens = o->kv_tokens,
                                        .pass_tokens = PASS_TOKENS,
                                        .scoring = scores,
                                        .score_temperature = o->sampling.temperature,
                                        .n_stop = o->n_stop,
                                        .stop = o->stop,
                                        .sampling = o->sampling,
                                        .token = o->n_stop_strings > 0 ? end_at_text : NULL,
                                        .stop_now = stop_now,
                                        .ctx = (void *)o};
}

enum ax_status ax_rollout_run(const struct ax_rollout_options *o, struct ax_model *m, bool scores,
                              int64_t n, struct ax_sequence *seqs) {
    struct ax_generator g;
    const enum ax_phase before = m->rt->arena.phase;
    const struct ax_generate_options go = ax_rollout_generator(o, scores);
    AX_TRY(ax_generator_create(&g, m, &go));
    const enum ax_status st = ax_generate(&g, n, seqs);
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
        const uint64_t number = (uint64_t)(r->round * r->n + (c - r->list));
        d->seqs[i] = (struct ax_sequence){
            .n_prompt = c->n_prompt,
            .prompt = r->ids + c->start,
            .stream = ((uint64_t)r->generation << 32) + number,
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
static enum ax_status take(struct ax_rollout *r, const struct drawn *d, bool *stopped) {
    AX_TRY(was_stopped(r, d, stopped));
    for (int64_t i = 0; i < d->n && !*stopped; i++) {
        struct ax_completion *c = ax_rollout_todo(r, i);
        const int64_t first = c->start + c->n_prompt, n = d->seqs[i].n_new;
        c->n = c->n_prompt + n;
        c->truncated = d->seqs[i].finish == AX_FINISH_LENGTH;
        to_floats(r->logprobs + first, d->seqs[i].logprobs, n);
        if (r->entropies)
            to_floats(r->entropies + first, d->seqs[i].entropies, n);
    }
    return AX_OK;
}

enum ax_status ax_rollout_sample(struct ax_rollout *r, struct ax_model *m, bool *stopped) {
    struct drawn d = {0};
    enum ax_status st;
    if (ax_runtime_planning(m->rt)) {
        double logprob;
        struct ax_sequence s = {.logprobs = &logprob};
        return ax_rollout_run(r->o, m, false, 1, &s);
    }
    AX_TRY_GOTO(drawn_create(&d, r), st, done);
    AX_TRY_GOTO(ax_rollout_run(r->o, m, false, d.n, d.seqs), st, done);
    st = take(r, &d, stopped);
done:
    drawn_free(&d);
    return st;
}
