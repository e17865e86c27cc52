/* Completions with tools: rounds of a turn of all that go on, the calls that these make, and their results. The
 * generator stays, so that a turn goes on with the keys and values of those before it.
 *
 * Each data rank runs the calls of some completions; then all ranks have all results. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "optim/rollout/rollout.h"

struct rows {
    struct ax_episode *episodes; /* [n] of the groups to do */
    int64_t n;
    int64_t *active; /* [n_active]: those that go on */
    int64_t n_active;
    struct ax_sequence *seqs; /* [n_active] */
    double *logprobs;         /* [n][max_new] of a turn */
    double *entropies;        /* likewise; or NULL */
};

static enum ax_status rows_create(struct rows *x, const struct ax_rollout *r) {
    const int64_t max_new = r->o->max_new;
    x->n = x->n_active = r->n_todo * r->o->group;
    AX_TRY(ax_alloc(&x->episodes, (size_t)x->n, sizeof *x->episodes));
    AX_TRY(ax_alloc(&x->active, (size_t)x->n, sizeof *x->active));
    AX_TRY(ax_alloc(&x->seqs, (size_t)x->n, sizeof *x->seqs));
    AX_TRY(ax_alloc(&x->logprobs, (size_t)(x->n * max_new), sizeof *x->logprobs));
    if (r->entropies)
        AX_TRY(ax_alloc(&x->entropies, (size_t)(x->n * max_new), sizeof *x->entropies));
    for (int64_t i = 0; i < x->n; i++) {
        const struct ax_completion *c = ax_rollout_todo(r, i);
        const int64_t first = c->start + c->n_prompt;
        x->active[i] = i;
        x->episodes[i] = (struct ax_episode){
            .ids = r->ids + first, .inserted = r->inserted + first, .cap = max_new};
        memset(x->episodes[i].inserted, 0, (size_t)max_new * sizeof(bool));
        AX_TRY(ax_episode_begin(&x->episodes[i]));
    }
    return AX_OK;
}

static void rows_free(struct rows *x) {
    for (int64_t i = 0; x->episodes && i < x->n; i++)
        ax_episode_free(&x->episodes[i]);
    ax_free(x->episodes);
    ax_free(x->active);
    ax_free(x->seqs);
    ax_free(x->logprobs);
    ax_free(x->entropies);
}

/* ---- a turn ---- */

/* A position is sampled once, so that a completion needs one stream. */
static void make_sequences(struct rows *x, const struct ax_rollout *r) {
    for (int64_t k = 0; k < x->n_active; k++) {
        const struct ax_completion *c = ax_rollout_todo(r, x->active[k]);
        const struct ax_episode *e = &x->episodes[x->active[k]];
        const uint64_t number = (uint64_t)(r->round * r->n + (c - r->list));
        x->seqs[k] = (struct ax_sequence){
            .n_prompt = c->n_prompt + e->n,
            .prompt = r->ids + c->start,
            .max_new = e->cap - e->n,
            .stream = ((uint64_t)r->generation << 32) + number,
            .tokens = e->ids + e->n,
            .logprobs = x->logprobs + k * r->o->max_new,
            .entropies = x->entropies ? x->entropies + k * r->o->max_new : NULL};
    }
}

/* Inserted tokens have a log-prob and an entropy of 0. */
static void take_floats(float *all, const struct ax_episode *e, int64_t first, const double *own,
                        int64_t n) {
    for (int64_t i = 0; all && i < n; i++)
        all[first + e->n + i] = (float)own[i];
}

static enum ax_status take_turn(struct rows *x, struct ax_rollout *r, int64_t k) {
    const struct ax_completion *c = ax_rollout_todo(r, x->active[k]);
    const struct ax_sequence *s = &x->seqs[k];
    struct ax_episode *e = &x->episodes[x->active[k]];
    const int64_t first = c->start + c->n_prompt;
    take_floats(r->logprobs, e, first, s->logprobs, s->n_new);
    take_floats(r->entropies, e, first, s->entropies, s->n_new);
    return ax_episode_turn(e, r->o->turns, s->n_new, s->finish == AX_FINISH_STOP);
}

static enum ax_status sample_turn(struct rows *x, struct ax_rollout *r, struct ax_generator *g,
                                  bool *stopped) {
    make_sequences(x, r);
    AX_TRY(ax_generate(g, x->n_active, x->seqs));
    for (int64_t k = 0; k < x->n_active; k++)
        *stopped = *stopped || x->seqs[k].finish == AX_FINISH_CALLER;
    for (int64_t k = 0; k < x->n_active && !*stopped; k++)
        AX_TRY(take_turn(x, r, k));
    return AX_OK;
}

/* ---- calls ---- */

/* Of all that go on; those of the k-th are from first[k] on. */
struct calls {
    struct ax_tool_request *requests; /* [n] */
    struct ax_tool_result *results;   /* [n] */
    size_t *first;                    /* [n_active + 1] */
    json_t **earlier;                 /* [n] programs of the answer so far; or NULL */
    size_t n;
};

static enum ax_status calls_create(struct calls *c, const struct rows *x,
                                   const struct ax_rollout *r) {
    for (int64_t k = 0; k < x->n_active; k++)
        c->n += json_array_size(x->episodes[x->active[k]].calls);
    AX_TRY(ax_alloc(&c->requests, c->n, sizeof *c->requests));
    AX_TRY(ax_alloc(&c->results, c->n, sizeof *c->results));
    AX_TRY(ax_alloc(&c->first, (size_t)x->n_active + 1, sizeof *c->first));
    AX_TRY(ax_alloc(&c->earlier, c->n, sizeof *c->earlier));
    size_t n = 0;
    for (int64_t k = 0; k < x->n_active; k++) {
        const struct ax_episode *e = &x->episodes[x->active[k]];
        const int64_t number = ax_rollout_todo(r, x->active[k]) - r->list;
        c->first[k] = n;
        for (size_t i = 0; i < json_array_size(e->calls); i++) {
            AX_TRY(ax_episode_earlier(e, r->o->turns, i, &c->earlier[n]));
            c->requests[n] = (struct ax_tool_request){.call = json_array_get(e->calls, i),
                                                      .rollout = r->generation * r->n + number,
                                                      .turn = (int)e->rounds + 1,
                                                      .earlier = c->earlier[n]};
            n++;
        }
    }
    c->first[x->n_active] = n;
    return AX_OK;
}

static void calls_free(struct calls *c) {
    for (size_t i = 0; c->results && i < c->n; i++)
        ax_free(c->results[i].text);
    for (size_t i = 0; c->earlier && i < c->n; i++)
        json_decref(c->earlier[i]);
    ax_free(c->earlier);
    ax_free(c->requests);
    ax_free(c->results);
    ax_free(c->first);
}

/* ---- results on all ranks ---- */

/* What ranks tell each other of a result, as numbers; its text follows, six bytes in each. */
enum { N_BYTES, FAILED, LATE, RAN, SECONDS, HEADER };
#define PACKED 6

static void pack_text(const struct ax_tool_result *r, double *numbers) {
    for (size_t i = 0; i < r->n; i++)
        numbers[i / PACKED] =
            numbers[i / PACKED] + ldexp((unsigned char)r->text[i], 8 * (int)(i % PACKED));
}

static enum ax_status unpack_text(struct ax_tool_result *r, const double *numbers) {
    AX_TRY(ax_alloc(&r->text, r->n + 1, 1));
    for (size_t i = 0; i < r->n; i++)
        r->text[i] = (char)((uint64_t)numbers[i / PACKED] >> 8 * (i % PACKED));
    return AX_OK;
}

static enum ax_status share_texts(struct calls *c, struct ax_runtime *rt) {
    double *numbers;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += (c->results[i].n + PACKED - 1) / PACKED;
    AX_TRY(ax_alloc(&numbers, n, sizeof *numbers));
    n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->results[i].text)
            pack_text(&c->results[i], numbers + n);
        n += (c->results[i].n + PACKED - 1) / PACKED;
    }
    enum ax_status st = ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, numbers, (int64_t)n);
    n = 0;
    for (size_t i = 0; st == AX_OK && i < c->n; i++) {
        if (!c->results[i].text)
            st = unpack_text(&c->results[i], numbers + n);
        n += (c->results[i].n + PACKED - 1) / PACKED;
    }
    ax_free(numbers);
    return st;
}

static enum ax_status share_results(struct calls *c, struct ax_runtime *rt) {
    double *heads;
    AX_TRY(ax_alloc(&heads, c->n * HEADER, sizeof *heads));
    for (size_t i = 0; i < c->n; i++) {
        const struct ax_tool_result *r = &c->results[i];
        double *h = heads + i * HEADER;
        h[N_BYTES] = (double)r->n;
        h[FAILED] = r->failed;
        h[LATE] = r->late;
        h[RAN] = r->ran;
        h[SECONDS] = r->seconds;
    }
    const enum ax_status st =
        ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, heads, (int64_t)(c->n * HEADER));
    for (size_t i = 0; st == AX_OK && i < c->n; i++) {
        struct ax_tool_result *r = &c->results[i];
        const double *h = heads + i * HEADER;
        r->n = (size_t)h[N_BYTES];
        r->failed = h[FAILED] > 0;
        r->late = h[LATE] > 0;
        r->ran = h[RAN] > 0;
        r->seconds = h[SECONDS];
    }
    ax_free(heads);
    AX_TRY(st);
    return share_texts(c, rt);
}

/* This rank's share of the calls, and all results. */
static enum ax_status run_calls(const struct rows *x, const struct ax_rollout *r, struct calls *c,
                                struct ax_runtime *rt, bool *stopped) {
    struct ax_reward_watch watch = ax_rollout_watch(rt);
    int64_t first, own;
    ax_split_range(x->n_active, rt->mesh.size[AX_ROLE_BATCH], rt->mesh.coord[AX_ROLE_BATCH], &first,
                   &own);
    const size_t from = c->first[first], n = c->first[first + own] - from;
    enum ax_status st = AX_OK;
    if (ax_rollout_runs(&rt->mesh) && n > 0)
        st = ax_tools_run(r->o->tools, n, c->requests + from, &watch.watch, c->results + from);
    if (st == AX_OK)
        st = ax_rollout_settle(rt);
    AX_TRY(ax_rollout_note_stop(st, stopped));
    return *stopped ? AX_OK : share_results(c, rt);
}

/* ---- rounds ---- */

/* Those whose turn makes calls; the others are over. */
static void keep_callers(struct rows *x) {
    int64_t n = 0;
    for (int64_t k = 0; k < x->n_active; k++)
        if (x->episodes[x->active[k]].calls)
            x->active[n++] = x->active[k];
    x->n_active = n;
}

static enum ax_status answer_callers(struct rows *x, const struct ax_rollout *r,
                                     const struct calls *c) {
    int64_t n = 0;
    for (int64_t k = 0; k < x->n_active; k++) {
        const int64_t row = x->active[k];
        bool goes_on;
        AX_TRY(
            ax_episode_answer(&x->episodes[row], r->o->turns, c->results + c->first[k], &goes_on));
        if (goes_on)
            x->active[n++] = row;
    }
    x->n_active = n;
    return AX_OK;
}

static enum ax_status go_round(struct rows *x, struct ax_rollout *r, struct ax_model *m,
                               struct ax_generator *g, bool *stopped) {
    struct calls c = {0};
    AX_TRY(sample_turn(x, r, g, stopped));
    if (*stopped)
        return AX_OK;
    keep_callers(x);
    enum ax_status st = calls_create(&c, x, r);
    if (st == AX_OK && c.n > 0)
        st = run_calls(x, r, &c, m->rt, stopped);
    if (st == AX_OK && !*stopped)
        st = answer_callers(x, r, &c);
    calls_free(&c);
    return st;
}

static enum ax_status take_rounds(struct rows *x, struct ax_rollout *r, struct ax_model *m,
                                  bool *stopped) {
    struct ax_generator g;
    const enum ax_phase before = m->rt->arena.phase;
    const struct ax_generate_options go = ax_rollout_generator(r->o, false);
    enum ax_status st = AX_OK;
    AX_TRY(ax_generator_create(&g, m, &go));
    while (st == AX_OK && x->n_active > 0 && !*stopped)
        st = go_round(x, r, m, &g, stopped);
    ax_generator_free(&g);
    ax_arena_enter(&m->rt->arena, before);
    return st;
}

static void take_episode(struct ax_rollout *r, struct ax_completion *c, struct ax_episode *e) {
    const int64_t i = c - r->list;
    c->n = c->n_prompt + e->n;
    c->sampled = 0;
    for (int64_t t = 0; t < e->n; t++) {
        const int64_t at = c->start + c->n_prompt + t;
        c->sampled += !e->inserted[t];
        if (!e->inserted[t])
            continue;
        r->logprobs[at] = 0;
        if (r->entropies)
            r->entropies[at] = 0;
    }
    c->truncated = e->truncated;
    c->n_calls = e->n_calls;
    c->n_failed = e->n_failed;
    c->n_unread = e->n_unread;
    c->late = e->late;
    json_decref(r->messages[i]);
    json_decref(r->calls[i]);
    r->messages[i] = json_incref(e->messages);
    r->calls[i] = json_incref(e->log);
}

enum ax_status ax_rollout_take_turns(struct ax_rollout *r, struct ax_model *m, bool *stopped) {
    struct rows x = {0};
    enum ax_status st;
    AX_TRY_GOTO(rows_create(&x, r), st, done);
    st = take_rounds(&x, r, m, stopped);
    for (int64_t i = 0; st == AX_OK && !*stopped && i < x.n; i++)
        take_episode(r, ax_rollout_todo(r, i), &x.episodes[i]);
done:
    rows_free(&x);
    return st;
}
