/* Completions with tools or an environment: those of the groups to do as answers of several turns
 * (model/text/turns.h). */
#include "model/text/turns.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "optim/rollout/rollout.h"

struct rows {
    struct ax_turns_answer *answers; /* [n] of the groups to do */
    int64_t n;
    struct own *own;   /* [n] */
    double *logprobs;  /* [n][max_new] */
    double *entropies; /* likewise; or NULL */
};

/* What an answer is of. */
struct own {
    struct ax_rollout *rollout;
    struct ax_completion *completion;
};

/* For an environment: the same for all completions of a prompt, so that their rewards compare. */
static int64_t seed_of(const struct ax_rollout *r, int64_t number) {
    const struct ax_rng_key key = {r->o->sampling.seed, (uint32_t)r->generation, 0x656e7669};
    const uint64_t prompt = (uint64_t)(r->round * r->o->prompts + number / r->o->group);
    return (int64_t)ax_rng_below(key, prompt, (uint64_t)1 << 31);
}

/* The environment of a completion. */
static enum ax_status choose(const struct ax_rollout *r, int64_t number, size_t *out) {
    *out = 0;
    if (ax_tools_environments(r->o->tools) < 2)
        return AX_OK;
    json_t *record = json_loads(r->records[number / r->o->group], JSON_ALLOW_NUL, NULL);
    if (!record)
        return ax_error(AX_ERR_NOMEM, "out of memory for a prompt's record");
    *out = ax_tools_choose(r->o->tools, record);
    json_decref(record);
    return AX_OK;
}

static enum ax_status rows_create(struct rows *x, struct ax_rollout *r) {
    const int64_t max_new = r->o->max_new;
    x->n = r->n_todo * r->o->group;
    AX_TRY(ax_alloc(&x->answers, (size_t)x->n, sizeof *x->answers));
    AX_TRY(ax_alloc(&x->own, (size_t)x->n, sizeof *x->own));
    AX_TRY(ax_alloc(&x->logprobs, (size_t)(x->n * max_new), sizeof *x->logprobs));
    if (r->entropies)
        AX_TRY(ax_alloc(&x->entropies, (size_t)(x->n * max_new), sizeof *x->entropies));
    for (int64_t i = 0; i < x->n; i++) {
        struct ax_completion *c = ax_rollout_todo(r, i);
        const int64_t number = c - r->list;
        size_t environment;
        AX_TRY(choose(r, number, &environment));
        x->own[i] = (struct own){r, c};
        ax_free(r->observations[number]);
        r->observations[number] = NULL;
        x->answers[i] =
            (struct ax_turns_answer){.rules = r->o->turns + environment,
                                     .environment = environment,
                                     .n_prompt = c->n_prompt,
                                     .cap = max_new,
                                     .ids = r->ids + c->start,
                                     .inserted = r->inserted + c->start + c->n_prompt,
                                     .stream = ax_rollout_stream(r, c),
                                     .number = r->generation * r->n + number,
                                     .seed = seed_of(r, number),
                                     .record = r->records[number / r->o->group],
                                     .ctx = &x->own[i],
                                     .logprobs = x->logprobs + i * max_new,
                                     .entropies = x->entropies ? x->entropies + i * max_new : NULL};
    }
    return AX_OK;
}

static void rows_free(struct rows *x) {
    ax_turns_free(x->answers, x->n);
    ax_free(x->answers);
    ax_free(x->own);
    ax_free(x->logprobs);
    ax_free(x->entropies);
}

static enum ax_status observe(struct ax_turns_answer *a, const char *text, bool *fits) {
    const struct own *own = a->ctx;
    struct ax_completion *c = own->completion;
    AX_TRY(ax_rollout_observe(own->rollout, c, text, fits));
    a->n_prompt = c->n_prompt;
    a->inserted = own->rollout->inserted + c->start + c->n_prompt;
    return AX_OK;
}

static enum ax_status take_answers(struct rows *x, struct ax_rollout *r, struct ax_model *m,
                                   bool *stopped) {
    struct ax_generator g;
    const enum ax_phase before = m->rt->arena.phase;
    const struct ax_generate_options go = ax_rollout_generator(r->o, false);
    AX_TRY(ax_generator_create(&g, m, &go));
    const enum ax_status st = ax_turns_take(&g, r->o->tools, observe, x->n, x->answers, stopped);
    r->wait_seconds += g.counters.wait_seconds;
    ax_rollout_count(r, &g.counters);
    ax_generator_free(&g);
    ax_arena_enter(&m->rt->arena, before);
    return st;
}

/* Inserted tokens have a log-prob and an entropy of 0. */
static void take_answer(struct ax_rollout *r, struct ax_completion *c,
                        const struct ax_turns_answer *a) {
    const int64_t i = c - r->list, first = c->start + c->n_prompt;
    const struct ax_episode *e = &a->episode;
    c->n = c->n_prompt + e->n;
    c->sampled = ax_turns_sampled(a);
    for (int64_t t = 0; t < e->n; t++) {
        r->logprobs[first + t] = (float)a->logprobs[t];
        if (r->entropies)
            r->entropies[first + t] = (float)a->entropies[t];
    }
    c->truncated = e->truncated;
    c->n_calls = e->n_calls;
    c->n_failed = e->n_failed;
    c->n_unread = e->n_unread;
    c->late = e->late;
    r->tool_seconds += e->seconds;
    c->n_turns = e->turns;
    c->earned = e->rewarded ? e->reward : NAN;
    c->lost = e->lost;
    json_decref(r->messages[i]);
    json_decref(r->calls[i]);
    json_decref(r->turn_rewards[i]);
    r->turn_rewards[i] = json_incref(e->turn_rewards);
    r->messages[i] = json_incref(e->messages);
    r->calls[i] = json_incref(e->log);
}

enum ax_status ax_rollout_take_turns(struct ax_rollout *r, struct ax_model *m, bool *stopped) {
    struct rows x = {0};
    enum ax_status st;
    AX_TRY_GOTO(rows_create(&x, r), st, done);
    st = take_answers(&x, r, m, stopped);
    for (int64_t i = 0; st == AX_OK && !*stopped && i < x.n; i++)
        take_answer(r, ax_rollout_todo(r, i), &x.answers[i]);
done:
    rows_free(&x);
    return st;
}
