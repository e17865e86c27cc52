/* Turns of answers, which the generator samples together: a turn that makes calls leaves its lane to others until they
 * have ended, and then goes on with the keys and values that are still there. Tokens of an answer depend on no other
 * one, so that it does not matter which calls end first. */
#include <string.h>

#include "base/mem.h"
#include "model/generate/generate_share.h"
#include "model/text/turns_parts.h"

#define WAIT_SECONDS 0.02 /* for results, where there is nothing to sample; then ranks agree anew */

/* ---- what an answer does next ---- */

/* Its next turn. A position is sampled once, so that an answer needs one stream. */
static void join(struct ax_turns *x, int64_t i) {
    const struct ax_turns_answer *a = ax_turns_own(x, i);
    const struct ax_episode *e = &a->episode;
    x->seqs[i] = (struct ax_sequence){.n_prompt = a->n_prompt + e->n,
                                      .prompt = a->ids,
                                      .max_new = e->cap - e->n,
                                      .stream = a->stream,
                                      .tokens = e->ids + e->n,
                                      .logprobs = a->logprobs ? a->logprobs + e->n : NULL,
                                      .entropies = a->entropies ? a->entropies + e->n : NULL,
                                      .place = i,
                                      .next = x->joining};
    x->joining = &x->seqs[i];
}

static enum ax_status ask(struct ax_turns *x, int64_t i, enum ax_ask what) {
    struct ax_turns_answer *a = ax_turns_own(x, i);
    json_t *v = what == AX_ASK_RESET ? json_loads(a->record, JSON_ALLOW_NUL, NULL) : json_null();
    AX_TRY(ax_episode_ask(&a->episode, what, v));
    return ax_turns_call(x, i);
}

static enum ax_status begin(struct ax_turns *x, int64_t i) {
    struct ax_turns_answer *a = ax_turns_own(x, i);
    if (ax_tools_environments(x->tools) > 0)
        return ask(x, i, AX_ASK_RESET);
    AX_ASSERT(a->episode.n == 0);
    join(x, i);
    return AX_OK;
}

/* No turn follows; an environment says what the answer was worth. */
static enum ax_status end(struct ax_turns *x, int64_t i, bool closed) {
    if (ax_tools_environments(x->tools) > 0 && !closed)
        return ask(x, i, AX_ASK_CLOSE);
    x->n_open--;
    return AX_OK;
}

static enum ax_status take_results(struct ax_turns *x, int64_t i) {
    struct ax_turns_answer *a = ax_turns_own(x, i);
    struct ax_turns_calls *c = &x->calls[i];
    const enum ax_ask asked = a->episode.ask;
    bool goes_on;
    x->n_calling--;
    if (asked == AX_ASK_RESET)
        AX_TRY(ax_turns_begin_with(x, x->first + i, c->results[0].text, c->results[0].n));
    AX_TRY(ax_episode_answer(&a->episode, a->rules, c->results, &goes_on));
    ax_turns_calls_free(c);
    if (!goes_on)
        return end(x, i, asked == AX_ASK_CLOSE);
    join(x, i);
    return AX_OK;
}

/* ---- callbacks of the generator ---- */

static enum ax_status more(void *ctx, bool idle, struct ax_sequence **joining) {
    struct ax_turns *x = ctx;
    int64_t n = 0;
    if (x->n_calling > 0)
        AX_TRY(ax_turns_hear(x, idle ? WAIT_SECONDS : 0, &n));
    for (int64_t k = 0; k < n; k++)
        AX_TRY(take_results(x, x->ended[k]));
    *joining = x->joining;
    x->joining = NULL;
    return AX_OK;
}

static bool waits(void *ctx) {
    const struct ax_turns *x = ctx;
    return x->n_calling > 0;
}

static enum ax_status done(void *ctx, struct ax_sequence *s) {
    struct ax_turns *x = ctx;
    const int64_t i = s - x->seqs;
    struct ax_turns_answer *a = ax_turns_own(x, i);
    AX_TRY(ax_episode_turn(&a->episode, a->rules, s->n_new, s->finish == AX_FINISH_STOP));
    return a->episode.calls ? ax_turns_call(x, i) : end(x, i, false);
}

static bool stop_now(void *ctx) {
    const struct ax_turns *x = ctx;
    return x->stop_now && x->stop_now(x->ctx);
}

/* ---- all turns ---- */

static enum ax_status create(struct ax_turns *x) {
    const struct ax_mesh *mesh = &x->g->model->rt->mesh;
    const size_t all = (size_t)x->n_all;
    ax_generate_deal(x->g, x->n_all, &x->first, &x->n);
    x->n_open = x->n;
    if (mesh->coord[AX_ROLE_TP] == 0 && mesh->coord[AX_ROLE_PP] == 0)
        AX_TRY(ax_tool_beside_open(&x->beside, x->tools));
    AX_TRY(ax_alloc(&x->observed, all, sizeof *x->observed));
    AX_TRY(ax_alloc(&x->seqs, (size_t)x->n, sizeof *x->seqs));
    AX_TRY(ax_alloc(&x->calls, (size_t)x->n, sizeof *x->calls));
    AX_TRY(ax_alloc(&x->ended, (size_t)x->n, sizeof *x->ended));
    for (int64_t i = 0; i < x->n_all; i++) {
        struct ax_turns_answer *a = &x->answers[i];
        a->episode = (struct ax_episode){.cap = a->cap};
        AX_TRY(ax_turns_begin_with(x, i, NULL, 0));
        AX_TRY(ax_episode_begin(&a->episode));
    }
    return AX_OK;
}

static void destroy(struct ax_turns *x) {
    ax_tool_beside_close(x->beside);
    for (int64_t i = 0; x->calls && i < x->n; i++)
        ax_turns_calls_free(&x->calls[i]);
    for (int64_t i = 0; x->observed && i < x->n_all; i++)
        ax_free(x->observed[i]);
    ax_free(x->observed);
    ax_free(x->seqs);
    ax_free(x->calls);
    ax_free(x->ended);
}

/* This rank's answers, to their ends or until it is asked to stop. */
static enum ax_status take_own(struct ax_turns *x) {
    struct ax_generate_options *o = &x->g->o;
    const struct ax_generate_options callers = *o;
    AX_ASSERT(!o->token && !o->done && !o->more);
    for (int64_t i = 0; i < x->n; i++)
        AX_TRY(begin(x, i));
    x->stop_now = o->stop_now;
    x->ctx = o->ctx;
    o->more = more;
    o->waits = waits;
    o->done = done;
    o->stop_now = stop_now;
    o->ctx = x;
    const enum ax_status st = ax_generate(x->g, 0, NULL);
    *o = callers;
    return st;
}

static enum ax_status agree_on_stop(const struct ax_turns *x, bool *stopped) {
    double open = (double)x->n_open;
    AX_TRY(ax_runtime_combine(x->g->model->rt, AX_ROLE_WORLD, AX_MAX, &open, 1));
    *stopped = open > 0;
    return AX_OK;
}

enum ax_status ax_turns_take(struct ax_generator *g, struct ax_tools *tools,
                             ax_turns_observe *observe, int64_t n, struct ax_turns_answer *answers,
                             bool *stopped) {
    struct ax_turns x = {
        .g = g, .tools = tools, .observe = observe, .n_all = n, .answers = answers};
    enum ax_status st = create(&x);
    if (st == AX_OK)
        st = take_own(&x);
    if (st == AX_OK)
        st = agree_on_stop(&x, stopped);
    if (st == AX_OK && !*stopped)
        st = ax_turns_share(&x);
    destroy(&x);
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
