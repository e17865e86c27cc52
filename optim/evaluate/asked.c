#include "optim/evaluate/asked.h"

#include <math.h>

#include "base/mem.h"
#include "base/stop.h"
#include "model/text/together.h"

/* The least probability of a tail, as TRL's: what rounding leaves of 1 minus the others. */
#define LEAST_TAIL 1e-7

static bool was_asked_to_stop(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

enum ax_status ax_asked_read(struct ax_runtime *rt, const struct ax_remote_teacher *teacher,
                             int64_t n, const struct ax_remote_text *texts, bool *stopped) {
    struct ax_together ranks = {.rt = rt, .stop_now = was_asked_to_stop};
    const struct ax_reward_watch watch = ax_together_watch(&ranks);
    const struct ax_endpoint_look look = {watch.watch.look, watch.watch.ctx};
    enum ax_status st = AX_OK;
    if (ax_together_runs(&rt->mesh))
        st = ax_remote_teacher_read(teacher, n, texts, &look);
    if (st == AX_OK)
        st = ax_together_settle(&ranks);
    return ax_together_note_stop(st, stopped);
}

/* ---- documents ---- */

/* What the server says of some documents' tokens. */
struct asked {
    int64_t n, places; /* texts; their places */
    int k;
    const struct ax_document *const *docs; /* [n] */
    struct ax_remote_text *texts;          /* [n]; n 0: no labels */
    double *logprobs;                      /* [places] of the texts' own tokens */
    int32_t *best;                         /* [places][k] */
    double *best_logprobs;                 /* [places][k] */
};

/* From the first label to the last: the token that a label names follows it. */
static struct ax_remote_text text_of(const struct ax_document *doc) {
    int64_t first = 0, end = doc->n - 1;
    while (first < end && doc->labels[first] < 0)
        first++;
    while (end > first && doc->labels[end - 1] < 0)
        end--;
    return first < end
               ? (struct ax_remote_text){.n = end + 1, .first = first + 1, .ids = doc->tokens}
               : (struct ax_remote_text){0};
}

static enum ax_status create(struct asked *a) {
    AX_TRY(ax_alloc(&a->texts, (size_t)a->n, sizeof *a->texts));
    for (int64_t i = 0; i < a->n; i++) {
        AX_ASSERT(a->docs[i]->shared == 0);
        a->texts[i] = text_of(a->docs[i]);
        a->places += a->texts[i].n - a->texts[i].first;
    }
    const size_t places = (size_t)a->places, all = places * (size_t)a->k;
    AX_TRY(ax_alloc(&a->logprobs, places, sizeof *a->logprobs));
    AX_TRY(ax_alloc(&a->best, all, sizeof *a->best));
    AX_TRY(ax_alloc(&a->best_logprobs, all, sizeof *a->best_logprobs));
    for (int64_t i = 0, at = 0; i < a->n; at += a->texts[i].n - a->texts[i].first, i++) {
        a->texts[i].logprobs = a->logprobs + at;
        a->texts[i].best = a->best + at * a->k;
        a->texts[i].best_logprobs = a->best_logprobs + at * a->k;
    }
    return AX_OK;
}

static void destroy(struct asked *a) {
    ax_free(a->texts);
    ax_free(a->logprobs);
    ax_free(a->best);
    ax_free(a->best_logprobs);
}

/* The texts with labels, side by side. */
static enum ax_status read_texts(struct ax_runtime *rt, const struct ax_remote_teacher *teacher,
                                 const struct asked *a, bool *stopped) {
    struct ax_remote_text *some;
    int64_t n = 0;
    AX_TRY(ax_alloc(&some, (size_t)a->n, sizeof *some));
    for (int64_t i = 0; i < a->n; i++)
        if (a->texts[i].n > 0)
            some[n++] = a->texts[i];
    const enum ax_status st = ax_asked_read(rt, teacher, n, some, stopped);
    ax_free(some);
    return st;
}

/* Ranks with the same documents get what one of them was told; the others have zeros. */
static enum ax_status share(struct ax_runtime *rt, const struct asked *a) {
    static const enum ax_role roles[] = {AX_ROLE_TP, AX_ROLE_CP, AX_ROLE_PP};
    const int64_t n = a->places * a->k;
    double *values;
    enum ax_status st = AX_OK;
    if (n == 0 || rt->mesh.size[AX_ROLE_WORLD] == rt->mesh.size[AX_ROLE_BATCH])
        return AX_OK;
    AX_TRY(ax_alloc(&values, 2 * (size_t)n, sizeof *values));
    for (int64_t i = 0; i < n; i++) {
        values[i] = a->best[i];
        values[n + i] = a->best_logprobs[i];
    }
    for (size_t i = 0; i < sizeof roles / sizeof *roles && st == AX_OK; i++)
        st = ax_runtime_combine(rt, roles[i], AX_SUM, values, 2 * n);
    for (int64_t i = 0; i < n && st == AX_OK; i++) {
        a->best[i] = (int32_t)values[i];
        a->best_logprobs[i] = values[n + i];
    }
    ax_free(values);
    return st;
}

static bool is_among(const int32_t *ids, int k, int32_t id) {
    for (int j = 0; j < k; j++)
        if (ids[j] == id)
            return true;
    return false;
}

/* The first token that is not among those. */
static int32_t other_than(const int32_t *ids, int k) {
    int32_t id = 0;
    while (is_among(ids, k, id))
        id++;
    return id;
}

/* A document's values of column c, `width` of each token, from its token `at` on. */
static void *values_at(const struct ax_document *doc, int c, int64_t at, int64_t width) {
    return (uint32_t *)(uintptr_t)doc->columns[c] + at * width;
}

static void put_place(const struct ax_distill_options *o, const struct ax_document *doc, int64_t at,
                      const int32_t *best, const double *logprobs) {
    const int k = o->stored;
    int32_t *ids = values_at(doc, AX_DISTILL_IDS, at, k);
    float *logits = values_at(doc, AX_DISTILL_LOGITS, at, k);
    double sum = 0;
    for (int j = 0; j < k; j++) {
        ids[j] = best[j];
        logits[j] = (float)logprobs[j];
        sum += exp(logprobs[j]);
    }
    if (!o->tail)
        return;
    *(int32_t *)values_at(doc, AX_DISTILL_TAIL_ID, at, 1) = other_than(best, k);
    *(float *)values_at(doc, AX_DISTILL_TAIL, at, 1) = (float)log(fmax(1 - sum, LEAST_TAIL));
}

static void put_text(const struct ax_distill_options *o, const struct asked *a, int64_t i) {
    const struct ax_remote_text *text = &a->texts[i];
    for (int64_t t = text->first; t < text->n; t++)
        if (a->docs[i]->labels[t - 1] >= 0)
            put_place(o, a->docs[i], t - 1, text->best + (t - text->first) * a->k,
                      text->best_logprobs + (t - text->first) * a->k);
}

enum ax_status ax_asked_fill(struct ax_runtime *rt, const struct ax_remote_teacher *teacher,
                             const struct ax_distill_options *o, int64_t n,
                             const struct ax_document *const *docs, bool *stopped) {
    struct asked a = {.n = n, .k = o->stored, .docs = docs};
    enum ax_status st;
    AX_TRY_GOTO(create(&a), st, done);
    AX_TRY_GOTO(read_texts(rt, teacher, &a, stopped), st, done);
    if (*stopped)
        goto done;
    AX_TRY_GOTO(share(rt, &a), st, done);
    for (int64_t i = 0; i < n; i++)
        put_text(o, &a, i);
done:
    destroy(&a);
    return st;
}
