/* Calls of answers, and their results on the ranks that have the same answers. */
#include "base/mem.h"
#include "model/text/turns_parts.h"
#include "parallel/texts.h"

/* ---- calls ---- */

static enum ax_status make_request(const struct ax_turns_answer *a, size_t k,
                                   struct ax_tool_request *out) {
    const struct ax_episode *e = &a->episode;
    json_t *earlier;
    AX_TRY(ax_episode_earlier(e, a->rules, k, &earlier));
    *out = (struct ax_tool_request){.call = json_array_get(e->calls, k),
                                    .ask = e->ask,
                                    .rollout = a->number,
                                    .environment = a->environment,
                                    .seed = a->seed,
                                    .turn = (int)e->turns,
                                    .earlier = earlier};
    return AX_OK;
}

enum ax_status ax_turns_call(struct ax_turns *x, int64_t i) {
    const struct ax_turns_answer *a = ax_turns_own(x, i);
    struct ax_turns_calls *c = &x->calls[i];
    c->n = json_array_size(a->episode.calls);
    c->n_ended = 0;
    x->n_calling++;
    AX_ASSERT(c->n > 0);
    AX_TRY(ax_alloc(&c->list, c->n, sizeof *c->list));
    AX_TRY(ax_alloc(&c->results, c->n, sizeof *c->results));
    for (size_t k = 0; k < c->n; k++) {
        c->list[k] = (struct ax_tool_call){.result = &c->results[k], .ctx = c};
        AX_TRY(make_request(a, k, &c->list[k].request));
    }
    for (size_t k = 0; k < c->n && x->beside; k++)
        AX_TRY(ax_tool_beside_begin(x->beside, &c->list[k]));
    return AX_OK;
}

void ax_turns_calls_free(struct ax_turns_calls *c) {
    for (size_t k = 0; c->results && k < c->n; k++)
        ax_free(c->results[k].text);
    for (size_t k = 0; c->list && k < c->n; k++)
        json_decref((json_t *)(uintptr_t)c->list[k].request.earlier);
    ax_free(c->results);
    ax_free(c->list);
    *c = (struct ax_turns_calls){0};
}

/* ---- results on all ranks with the same answers ---- */

static enum ax_status add_up(const struct ax_turns *x, double *numbers, int64_t n) {
    static const enum ax_role roles[] = {AX_ROLE_TP, AX_ROLE_PP};
    struct ax_runtime *rt = x->g->model->rt;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (rt->mesh.size[roles[i]] > 1)
            AX_TRY(ax_runtime_combine(rt, roles[i], AX_SUM, numbers, n));
    return AX_OK;
}

/* What ranks tell each other of a result, as numbers; its text follows. */
enum { N_BYTES, FAILED, LATE, RAN, SECONDS, REWARD, REWARDED, DONE, LOST, HEADER };

static void put_head(const struct ax_tool_result *r, double *h) {
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

static enum ax_status take_head(struct ax_tool_result *r, const double *h) {
    *r = (struct ax_tool_result){.n = (size_t)h[N_BYTES],
                                 .failed = h[FAILED] > 0,
                                 .late = h[LATE] > 0,
                                 .ran = h[RAN] > 0,
                                 .seconds = h[SECONDS],
                                 .reward = h[REWARD],
                                 .rewarded = h[REWARDED] > 0,
                                 .done = h[DONE] > 0,
                                 .lost = h[LOST] > 0};
    return ax_alloc(&r->text, r->n + 1, 1);
}

static enum ax_status share_heads(const struct ax_turns *x, const struct ax_turns_calls *c) {
    double *heads;
    AX_TRY(ax_alloc(&heads, c->n * HEADER, sizeof *heads));
    for (size_t k = 0; k < c->n && x->beside; k++)
        put_head(&c->results[k], heads + k * HEADER);
    enum ax_status st = add_up(x, heads, (int64_t)(c->n * HEADER));
    for (size_t k = 0; k < c->n && st == AX_OK && !x->beside; k++)
        st = take_head(&c->results[k], heads + k * HEADER);
    ax_free(heads);
    return st;
}

static enum ax_status share_texts(const struct ax_turns *x, const struct ax_turns_calls *c) {
    double *numbers;
    int64_t n = 0;
    for (size_t k = 0; k < c->n; k++)
        n += ax_text_numbers(c->results[k].n);
    AX_TRY(ax_alloc(&numbers, (size_t)n, sizeof *numbers));
    double *at = numbers;
    for (size_t k = 0; k < c->n && x->beside; at += ax_text_numbers(c->results[k++].n))
        ax_text_pack(c->results[k].text, c->results[k].n, at);
    const enum ax_status st = add_up(x, numbers, n);
    at = numbers;
    for (size_t k = 0; k < c->n && st == AX_OK && !x->beside;
         at += ax_text_numbers(c->results[k++].n))
        ax_text_unpack(c->results[k].text, c->results[k].n, at);
    ax_free(numbers);
    return st;
}

/* Which of the answers' calls have ended, and with what. */
static enum ax_status share_ended(struct ax_turns *x, int64_t *n) {
    double count = (double)*n, *which;
    AX_TRY(add_up(x, &count, 1));
    *n = (int64_t)count;
    if (*n == 0)
        return AX_OK;
    AX_TRY(ax_alloc(&which, (size_t)*n, sizeof *which));
    for (int64_t k = 0; k < *n; k++)
        which[k] = x->beside ? (double)x->ended[k] : 0;
    enum ax_status st = add_up(x, which, *n);
    for (int64_t k = 0; k < *n && st == AX_OK; k++) {
        x->ended[k] = (int64_t)which[k];
        st = share_heads(x, &x->calls[x->ended[k]]);
        if (st == AX_OK)
            st = share_texts(x, &x->calls[x->ended[k]]);
    }
    ax_free(which);
    return st;
}

/* ---- what has ended ---- */

static enum ax_status list_ended(struct ax_turns *x, double seconds, int64_t *n) {
    struct ax_tool_call *call;
    for (;;) {
        AX_TRY(ax_tool_beside_take(x->beside, *n > 0 ? 0 : seconds, &call));
        if (!call)
            return AX_OK;
        struct ax_turns_calls *c = call->ctx;
        if (++c->n_ended == c->n)
            x->ended[(*n)++] = c - x->calls;
    }
}

enum ax_status ax_turns_hear(struct ax_turns *x, double seconds, int64_t *n) {
    const int *size = x->g->model->rt->mesh.size;
    *n = 0;
    if (x->beside)
        AX_TRY(list_ended(x, seconds, n));
    return size[AX_ROLE_TP] > 1 || size[AX_ROLE_PP] > 1 ? share_ended(x, n) : AX_OK;
}
