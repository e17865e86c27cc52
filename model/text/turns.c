/* Rounds of a turn of all that go on, the calls that these make, and their results. The generator stays, so that a
 * turn goes on with the keys and values of those before it.
 *
 * Each data rank runs the calls of some answers; then all ranks have all results. */
#include "model/text/turns.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/text/together.h"

struct rows {
    struct ax_turns_answer *answers; /* [n] */
    int64_t n;
    int64_t *active; /* [n_active]: those that go on */
    int64_t n_active;
    struct ax_sequence *seqs; /* [n_active] */
};

static struct ax_turns_answer *active(const struct rows *x, int64_t k) {
    return &x->answers[x->active[k]];
}

/* Where the prompt ends the answer begins. */
static void place(struct ax_turns_answer *a) {
    a->episode.ids = a->ids + a->n_prompt;
    a->episode.inserted = a->inserted;
    memset(a->inserted, 0, (size_t)a->cap * sizeof *a->inserted);
}

static void activate_all(struct rows *x) {
    x->n_active = x->n;
    for (int64_t i = 0; i < x->n; i++)
        x->active[i] = i;
}

static enum ax_status rows_create(struct rows *x) {
    AX_TRY(ax_alloc(&x->active, (size_t)x->n, sizeof *x->active));
    AX_TRY(ax_alloc(&x->seqs, (size_t)x->n, sizeof *x->seqs));
    for (int64_t i = 0; i < x->n; i++) {
        struct ax_turns_answer *a = &x->answers[i];
        a->episode = (struct ax_episode){.cap = a->cap};
        place(a);
        AX_TRY(ax_episode_begin(&a->episode));
    }
    activate_all(x);
    return AX_OK;
}

static void rows_free(struct rows *x) {
    ax_free(x->active);
    ax_free(x->seqs);
}

/* ---- a turn ---- */

/* A position is sampled once, so that an answer needs one stream. */
static void make_sequences(struct rows *x) {
    for (int64_t k = 0; k < x->n_active; k++) {
        const struct ax_turns_answer *a = active(x, k);
        const struct ax_episode *e = &a->episode;
        x->seqs[k] = (struct ax_sequence){.n_prompt = a->n_prompt + e->n,
                                          .prompt = a->ids,
                                          .max_new = e->cap - e->n,
                                          .stream = a->stream,
                                          .tokens = e->ids + e->n,
                                          .logprobs = a->logprobs ? a->logprobs + e->n : NULL,
                                          .entropies = a->entropies ? a->entropies + e->n : NULL};
    }
}

static enum ax_status sample_turn(struct rows *x, struct ax_generator *g, bool *stopped) {
    make_sequences(x);
    AX_TRY(ax_generate(g, x->n_active, x->seqs));
    for (int64_t k = 0; k < x->n_active; k++)
        *stopped = *stopped || x->seqs[k].finish == AX_FINISH_CALLER;
    for (int64_t k = 0; k < x->n_active && !*stopped; k++) {
        const struct ax_sequence *s = &x->seqs[k];
        AX_TRY(ax_episode_turn(&active(x, k)->episode, active(x, k)->rules, s->n_new,
                               s->finish == AX_FINISH_STOP));
    }
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

static enum ax_status calls_create(struct calls *c, const struct rows *x) {
    for (int64_t k = 0; k < x->n_active; k++)
        c->n += json_array_size(active(x, k)->episode.calls);
    AX_TRY(ax_alloc(&c->requests, c->n, sizeof *c->requests));
    AX_TRY(ax_alloc(&c->results, c->n, sizeof *c->results));
    AX_TRY(ax_alloc(&c->first, (size_t)x->n_active + 1, sizeof *c->first));
    AX_TRY(ax_alloc(&c->earlier, c->n, sizeof *c->earlier));
    size_t n = 0;
    for (int64_t k = 0; k < x->n_active; k++) {
        const struct ax_turns_answer *a = active(x, k);
        const struct ax_episode *e = &a->episode;
        c->first[k] = n;
        for (size_t i = 0; i < json_array_size(e->calls); i++) {
            AX_TRY(ax_episode_earlier(e, a->rules, i, &c->earlier[n]));
            c->requests[n] = (struct ax_tool_request){.call = json_array_get(e->calls, i),
                                                      .ask = e->ask,
                                                      .rollout = a->number,
                                                      .seed = a->seed,
                                                      .turn = (int)e->turns,
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
enum { N_BYTES, FAILED, LATE, RAN, SECONDS, REWARD, REWARDED, DONE, LOST, HEADER };
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
        h[REWARD] = r->reward;
        h[REWARDED] = r->rewarded;
        h[DONE] = r->done;
        h[LOST] = r->lost;
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
        r->reward = h[REWARD];
        r->rewarded = h[REWARDED] > 0;
        r->done = h[DONE] > 0;
        r->lost = h[LOST] > 0;
    }
    ax_free(heads);
    AX_TRY(st);
    return share_texts(c, rt);
}

/* The first of those that go on from answer `row` on. */
static int64_t active_from(const struct rows *x, int64_t row) {
    int64_t k = 0;
    while (k < x->n_active && x->active[k] < row)
        k++;
    return k;
}

/* This rank's share of the calls, and all results. An answer's are of one rank, which has its environment. */
static enum ax_status run_calls(const struct rows *x, struct calls *c, struct ax_tools *tools,
                                const struct ax_generator *g, bool *stopped) {
    struct ax_runtime *rt = g->model->rt;
    struct ax_together ranks = {.rt = rt, .stop_now = g->o.stop_now, .ctx = g->o.ctx};
    struct ax_reward_watch watch = ax_together_watch(&ranks);
    int64_t first, own;
    ax_split_range(x->n, rt->mesh.size[AX_ROLE_BATCH], rt->mesh.coord[AX_ROLE_BATCH], &first, &own);
    const size_t from = c->first[active_from(x, first)],
                 n = c->first[active_from(x, first + own)] - from;
    enum ax_status st = AX_OK;
    if (ax_together_runs(&rt->mesh) && n > 0)
        st = ax_tools_run(tools, n, c->requests + from, &watch.watch, c->results + from);
    if (st == AX_OK)
        st = ax_together_settle(&ranks);
    AX_TRY(ax_together_note_stop(st, stopped));
    return *stopped ? AX_OK : share_results(c, rt);
}

/* ---- rounds ---- */

/* Those whose turn makes calls; the others are over. */
static void keep_callers(struct rows *x) {
    int64_t n = 0;
    for (int64_t k = 0; k < x->n_active; k++)
        if (active(x, k)->episode.calls)
            x->active[n++] = x->active[k];
    x->n_active = n;
}

static enum ax_status answer_callers(struct rows *x, const struct calls *c) {
    int64_t n = 0;
    for (int64_t k = 0; k < x->n_active; k++) {
        struct ax_turns_answer *a = active(x, k);
        bool goes_on;
        AX_TRY(ax_episode_answer(&a->episode, a->rules, c->results + c->first[k], &goes_on));
        if (goes_on)
            x->active[n++] = x->active[k];
    }
    x->n_active = n;
    return AX_OK;
}

static enum ax_status go_round(struct rows *x, struct ax_tools *tools, struct ax_generator *g,
                               bool *stopped) {
    struct calls c = {0};
    AX_TRY(sample_turn(x, g, stopped));
    if (*stopped)
        return AX_OK;
    keep_callers(x);
    enum ax_status st = calls_create(&c, x);
    if (st == AX_OK && c.n > 0)
        st = run_calls(x, &c, tools, g, stopped);
    if (st == AX_OK && !*stopped)
        st = answer_callers(x, &c);
    calls_free(&c);
    return st;
}

/* ---- the environment ---- */

/* What the environment begins with, in prompts. */
static enum ax_status observe_all(struct rows *x, ax_turns_observe *observe,
                                  const struct calls *c) {
    for (int64_t i = 0; i < x->n; i++) {
        struct ax_turns_answer *a = &x->answers[i];
        bool fits = true;
        if (c->results[i].n > 0)
            AX_TRY(observe(a, c->results[i].text, &fits));
        a->episode.lost = !fits;
        place(a);
    }
    return AX_OK;
}

/* A question for each answer, before the first turn or after the last one. */
static enum ax_status ask_all(struct rows *x, struct ax_tools *tools, ax_turns_observe *observe,
                              const struct ax_generator *g, enum ax_ask ask, bool *stopped) {
    struct calls c = {0};
    if (!ax_tools_environment(tools) || *stopped)
        return AX_OK;
    activate_all(x);
    for (int64_t i = 0; i < x->n; i++) {
        json_t *record = ask == AX_ASK_RESET
                             ? json_loads(x->answers[i].record, JSON_ALLOW_NUL, NULL)
                             : json_null();
        AX_TRY(ax_episode_ask(&x->answers[i].episode, ask, record));
    }
    enum ax_status st = calls_create(&c, x);
    if (st == AX_OK)
        st = run_calls(x, &c, tools, g, stopped);
    if (st == AX_OK && !*stopped && ask == AX_ASK_RESET)
        st = observe_all(x, observe, &c);
    if (st == AX_OK && !*stopped)
        st = answer_callers(x, &c);
    calls_free(&c);
    return st;
}

/* ---- all turns ---- */

enum ax_status ax_turns_take(struct ax_generator *g, struct ax_tools *tools,
                             ax_turns_observe *observe, int64_t n, struct ax_turns_answer *answers,
                             bool *stopped) {
    struct rows x = {.answers = answers, .n = n};
    enum ax_status st = rows_create(&x);
    if (st == AX_OK)
        st = ask_all(&x, tools, observe, g, AX_ASK_RESET, stopped);
    while (st == AX_OK && x.n_active > 0 && !*stopped)
        st = go_round(&x, tools, g, stopped);
    if (st == AX_OK)
        st = ask_all(&x, tools, observe, g, AX_ASK_CLOSE, stopped);
    rows_free(&x);
    return st;
}

int64_t ax_turns_sampled(const struct ax_turns_answer *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->episode.n; i++)
        n += !a->inserted[i];
    return n;
}

void ax_turns_free(struct ax_turns_answer *answers, int64_t n) {
    for (int64_t i = 0; answers && i < n; i++)
        ax_episode_free(&answers[i].episode);
}

/* ---- as JSON ---- */

static json_t *ids_json(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(list, json_integer(ids[i])) == 0;
    return ok ? list : NULL;
}

/* [first, end) of what the model has sampled. */
static json_t *spans_json(const bool *inserted, int64_t n) {
    json_t *spans = json_array();
    bool ok = true;
    for (int64_t k = 0, first; ok && k < n; k++) {
        if (inserted[k])
            continue;
        for (first = k; k < n && !inserted[k];)
            k++;
        ok = json_array_append_new(spans, json_pack("[I, I]", (json_int_t)first, (json_int_t)k)) ==
             0;
    }
    return ok ? spans : NULL;
}

bool ax_turns_put_json(json_t *v, const struct ax_turns_record *r) {
    return json_object_set_new(v, "model_tokens", spans_json(r->inserted, r->n)) == 0 &&
           json_object_set_new(v, "prompt_ids", ids_json(r->ids, r->n_prompt)) == 0 &&
           json_object_set_new(v, "completion_ids", ids_json(r->ids + r->n_prompt, r->n)) == 0 &&
           json_object_set(v, "messages", r->messages) == 0 &&
           json_object_set(v, "calls", r->calls) == 0;
}
