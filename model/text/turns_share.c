/* Answers on all ranks, once they are over: stages get the log-probs, data ranks all of the others' answers. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/text/turns_parts.h"
#include "parallel/texts.h"

/* Numbers that ranks tell each other at a time. */
#define SHARED_NUMBERS ((int64_t)1 << 18)

/* ---- prompts ---- */

enum ax_status ax_turns_begin_with(struct ax_turns *x, int64_t number, const char *text, size_t n) {
    struct ax_turns_answer *a = &x->answers[number];
    bool fits = true;
    if (n > 0) {
        AX_TRY(ax_strndup(&x->observed[number], text, n));
        AX_TRY(x->observe(a, x->observed[number], &fits));
    }
    a->episode.lost = !fits;
    a->episode.ids = a->ids + a->n_prompt;
    a->episode.inserted = a->inserted;
    memset(a->inserted, 0, (size_t)a->cap * sizeof *a->inserted);
    return AX_OK;
}

/* ---- an answer as numbers ---- */

/* What is told of each answer first. */
enum { N_TOKENS, N_BYTES, HEADER };

struct share {
    struct ax_turns *x;
    enum ax_role role;
    char **texts;    /* [n_all] of what is no number; owned; or NULL */
    double *headers; /* [n_all][HEADER] */
};

static bool is_own(const struct ax_turns *x, int64_t number) {
    return number >= x->first && number < x->first + x->n;
}

/* Does this rank know what is told of an answer? */
static bool knows(const struct share *s, int64_t number) {
    return s->role == AX_ROLE_PP ? ax_model_has_head(s->x->g->model) : is_own(s->x, number);
}

static void move(double *list, double **at, int64_t n, bool out) {
    if (list && *at && n > 0)
        memcpy(out ? *at : list, out ? list : *at, (size_t)n * sizeof *list);
    if (list && *at)
        *at += n;
}

static int64_t count_numbers(const struct share *s, int64_t number) {
    const struct ax_turns_answer *a = &s->x->answers[number];
    const double *h = s->headers + number * HEADER;
    const int64_t n = (int64_t)h[N_TOKENS], lists = (a->logprobs != NULL) + (a->entropies != NULL);
    return s->role == AX_ROLE_PP ? n * lists
                                 : n * (2 + lists) + ax_text_numbers((size_t)h[N_BYTES]);
}

static void move_ids(struct ax_turns_answer *a, double **at, int64_t n, bool out) {
    struct ax_episode *e = &a->episode;
    for (int64_t k = 0; k < n; k++, *at += 2) {
        if (out) {
            (*at)[0] = e->ids[k];
            (*at)[1] = e->inserted[k];
        } else {
            e->ids[k] = (int32_t)(*at)[0];
            e->inserted[k] = (*at)[1] > 0;
        }
    }
}

static enum ax_status read_text(struct share *s, int64_t number, const double *numbers, size_t n) {
    struct ax_turns_answer *a = &s->x->answers[number];
    char *text;
    AX_TRY(ax_alloc(&text, n + 1, 1));
    ax_text_unpack(text, n, numbers);
    json_t *v = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const json_t *observed = json_object_get(v, "observed");
    enum ax_status st = ax_turns_begin_with(s->x, number, json_string_value(observed),
                                            json_string_length(observed));
    if (st == AX_OK)
        st = ax_episode_from_json(&a->episode, v);
    json_decref(v);
    ax_free(text);
    return st;
}

static enum ax_status move_answer(struct share *s, int64_t number, double *at, bool out) {
    struct ax_turns_answer *a = &s->x->answers[number];
    const double *h = s->headers + number * HEADER;
    const int64_t n = (int64_t)h[N_TOKENS];
    const size_t bytes = (size_t)h[N_BYTES];
    if (s->role != AX_ROLE_PP) {
        if (out)
            ax_text_pack(s->texts[number], bytes, at);
        else
            AX_TRY(read_text(s, number, at, bytes));
        at += ax_text_numbers(bytes);
        a->episode.n = n;
        move_ids(a, &at, n, out);
    }
    move(a->logprobs, &at, n, out);
    move(a->entropies, &at, n, out);
    return AX_OK;
}

static enum ax_status share_piece(struct share *s, int64_t from, int64_t to, int64_t count) {
    double *all;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&all, (size_t)count, sizeof *all));
    int64_t at = 0;
    for (int64_t i = from; i < to && st == AX_OK; at += count_numbers(s, i++))
        if (knows(s, i))
            st = move_answer(s, i, all + at, true);
    if (st == AX_OK)
        st = ax_runtime_combine(s->x->g->model->rt, s->role, AX_SUM, all, count);
    at = 0;
    for (int64_t i = from; i < to && st == AX_OK; at += count_numbers(s, i++))
        if (!knows(s, i))
            st = move_answer(s, i, all + at, false);
    ax_free(all);
    return st;
}

static enum ax_status share_pieces(struct share *s, int64_t first, int64_t end) {
    for (int64_t from = first, to; from < end; from = to) {
        int64_t count = 0;
        for (to = from; to < end && (to == from || count < SHARED_NUMBERS); to++)
            count += count_numbers(s, to);
        AX_TRY(share_piece(s, from, to, count));
    }
    return AX_OK;
}

/* ---- all answers ---- */

static enum ax_status put_header(struct share *s, int64_t number) {
    const struct ax_turns_answer *a = &s->x->answers[number];
    double *h = s->headers + number * HEADER;
    const char *observed = s->x->observed[number];
    json_t *v;
    AX_TRY(ax_episode_to_json(&a->episode, &v));
    if (json_object_set_new(v, "observed", observed ? json_string(observed) : json_null()) == 0)
        s->texts[number] = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    if (!s->texts[number])
        return ax_error(AX_ERR_NOMEM, "out of memory for turns");
    h[N_TOKENS] = (double)a->episode.n;
    h[N_BYTES] = (double)strlen(s->texts[number]);
    return AX_OK;
}

static enum ax_status share_all(struct share *s) {
    struct ax_turns *x = s->x;
    struct ax_runtime *rt = x->g->model->rt;
    for (int64_t i = x->first; i < x->first + x->n; i++)
        AX_TRY(put_header(s, i));
    s->role = AX_ROLE_PP;
    if (rt->mesh.size[AX_ROLE_PP] > 1)
        AX_TRY(share_pieces(s, x->first, x->first + x->n));
    s->role = AX_ROLE_LOSS;
    if (rt->mesh.size[AX_ROLE_LOSS] == 1)
        return AX_OK;
    AX_TRY(ax_runtime_combine(rt, AX_ROLE_LOSS, AX_SUM, s->headers, x->n_all * HEADER));
    return share_pieces(s, 0, x->n_all);
}

enum ax_status ax_turns_share(struct ax_turns *x) {
    struct share s = {.x = x};
    const int *size = x->g->model->rt->mesh.size;
    if (size[AX_ROLE_LOSS] == 1 && size[AX_ROLE_PP] == 1)
        return AX_OK;
    enum ax_status st = ax_alloc(&s.texts, (size_t)x->n_all, sizeof *s.texts);
    if (st == AX_OK)
        st = ax_alloc(&s.headers, (size_t)x->n_all * HEADER, sizeof *s.headers);
    if (st == AX_OK)
        st = share_all(&s);
    for (int64_t i = 0; s.texts && i < x->n_all; i++)
        ax_free_hook(s.texts[i]);
    ax_free(s.texts);
    ax_free(s.headers);
    return st;
}
