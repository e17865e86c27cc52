/* A stage's list of passes by formula, and the clock that says when all of them can run. */
#include "parallel/order.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/arena.h"

static const char *const names[] = {[AX_PIPELINE_1F1B] = "1f1b",
                                    [AX_PIPELINE_AFAB] = "afab",
                                    [AX_PIPELINE_INTERLEAVED] = "interleaved"};
enum { N_KINDS = sizeof names / sizeof *names };

enum ax_status ax_pipeline_parse(const char *name, enum ax_pipeline_kind *out) {
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum ax_pipeline_kind)i;
            return AX_OK;
        }
    return ax_error(AX_ERR_CONFIG, "expected 1f1b, afab or interleaved, got \"%s\"", name);
}

const char *ax_pipeline_name(enum ax_pipeline_kind kind) {
    return names[kind];
}

int ax_pipeline_chunks(const struct ax_pipeline *p) {
    if (p->stages == 1 || p->kind != AX_PIPELINE_INTERLEAVED)
        return 1;
    return p->virtual_stages > 0 ? p->virtual_stages : 2;
}

/* ---- a stage's passes ---- */

static int passes_each_way(const struct ax_pipeline *p) {
    return ax_pipeline_chunks(p) * p->n_microbatches;
}

/* Micro-batches that go through a stage's chunks together: the first `longer` groups have one more. */
struct groups {
    int size, longer;
};

static struct groups groups_of(const struct ax_pipeline *p) {
    const int n = p->n_microbatches, count = n > p->stages ? n / p->stages : 1;
    return (struct groups){n / count, n % count};
}

/* Forwards that run before the first backward. */
static int warm_up(const struct ax_pipeline *p, int stage) {
    const int v = ax_pipeline_chunks(p), after = p->stages - stage - 1, all = passes_each_way(p);
    const struct groups g = groups_of(p);
    if (p->kind == AX_PIPELINE_AFAB && p->stages > 1)
        return all;
    const int w = v == 1 ? after : 2 * after + (v - 1) * (g.size + (g.longer > 0));
    return w < all ? w : all;
}

/* Forward or backward number i of a stage. */
static struct ax_chunk_pass pass_of(const struct ax_pipeline *p, int stage, int i, bool backward) {
    const int v = ax_pipeline_chunks(p);
    const struct groups g = groups_of(p);
    const int in_longer = g.longer * (g.size + 1);
    const bool longer = i < v * in_longer;
    const int size = longer ? g.size + 1 : g.size, from = longer ? i : i - v * in_longer;
    const int group = from / (v * size), left = from % (v * size);
    const int chunk = backward ? v - 1 - left / size : left / size;
    const int microbatch = (longer ? 0 : in_longer) + group * size + left % size;
    return (struct ax_chunk_pass){chunk * p->stages + stage, microbatch, backward};
}

/* Its pass number i of both kinds. */
static struct ax_chunk_pass pass_at(const struct ax_pipeline *p, int stage, int i) {
    const int w = warm_up(p, stage), steady = 2 * (passes_each_way(p) - w);
    if (i < w)
        return pass_of(p, stage, i, false);
    if (i - w < steady)
        return pass_of(p, stage, (i - w) / 2 + ((i - w) % 2 ? 0 : w), (i - w) % 2);
    return pass_of(p, stage, i - w - steady / 2, true);
}

static int slots_of(const struct ax_pipeline *p, int stage) {
    const int w = warm_up(p, stage) + 1, all = passes_each_way(p);
    return w < all ? w : all;
}

enum ax_status ax_pipeline_slots(const struct ax_pipeline *p, int stage, int *slots) {
    *slots = slots_of(p, stage);
    if (slots_of(p, 0) <= AX_ARENA_MAX_SLOTS) /* stage 0 keeps most */
        return AX_OK;
    struct ax_pipeline nearest = *p;
    nearest.virtual_stages = ax_pipeline_chunks(p);
    const char *what[] = {[AX_PIPELINE_1F1B] = "stages",
                          [AX_PIPELINE_AFAB] = "micro-batches",
                          [AX_PIPELINE_INTERLEAVED] = "virtual stages per rank"};
    int *sizes[] = {[AX_PIPELINE_1F1B] = &nearest.stages,
                    [AX_PIPELINE_AFAB] = &nearest.n_microbatches,
                    [AX_PIPELINE_INTERLEAVED] = &nearest.virtual_stages};
    while (*sizes[p->kind] > 1 && slots_of(&nearest, 0) > AX_ARENA_MAX_SLOTS)
        --*sizes[p->kind];
    return ax_error(AX_ERR_CONFIG,
                    "pipeline: schedule %s with %d stages and %d micro-batches keeps the "
                    "activations of %d passes, and at most %d are possible. Nearest: %d %s.",
                    names[p->kind], p->stages, p->n_microbatches, slots_of(p, 0),
                    AX_ARENA_MAX_SLOTS, *sizes[p->kind], what[p->kind]);
}

/* ---- the clock ---- */

enum ax_status ax_order_create(struct ax_order *o, const struct ax_pipeline *p) {
    AX_ASSERT(p->stages > 0 && p->n_microbatches > 0);
    *o = (struct ax_order){.pipeline = *p, .chunks = ax_pipeline_chunks(p)};
    const size_t stages = (size_t)p->stages, chunks = stages * (size_t)o->chunks;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&o->now, stages, sizeof *o->now), st, fail);
    AX_TRY_GOTO(ax_alloc(&o->at, stages, sizeof *o->at), st, fail);
    AX_TRY_GOTO(ax_alloc(&o->forwards, chunks, sizeof *o->forwards), st, fail);
    AX_TRY_GOTO(ax_alloc(&o->backwards, chunks, sizeof *o->backwards), st, fail);
    return AX_OK;
fail:
    ax_order_free(o);
    return st;
}

/* True if what the pass needs is there. */
static bool is_ready(const struct ax_order *o, const struct ax_chunk_pass *a) {
    const int last = o->chunks * o->pipeline.stages - 1;
    if (a->backward)
        return a->chunk == last ? o->forwards[last] > a->microbatch
                                : o->backwards[a->chunk + 1] > a->microbatch;
    return a->chunk == 0 || o->forwards[a->chunk - 1] > a->microbatch;
}

struct ax_chunk_pass ax_order_next(const struct ax_order *o, int stage) {
    const struct ax_pipeline *p = &o->pipeline;
    if (o->at[stage] == 2 * passes_each_way(p))
        return (struct ax_chunk_pass){.chunk = -1};
    return pass_at(p, stage, o->at[stage]);
}

bool ax_order_tick(struct ax_order *o) {
    bool any = false, waits = false;
    for (int r = 0; r < o->pipeline.stages; r++) {
        const struct ax_chunk_pass next = ax_order_next(o, r);
        const bool ready = next.chunk >= 0 && is_ready(o, &next);
        o->now[r] = ready ? next : (struct ax_chunk_pass){.chunk = -1};
        any |= ready;
        waits |= next.chunk >= 0 && !ready;
    }
    AX_ASSERT(any || !waits);
    for (int r = 0; r < o->pipeline.stages; r++) {
        const struct ax_chunk_pass *a = &o->now[r];
        if (a->chunk < 0)
            continue;
        o->at[r]++;
        (a->backward ? o->backwards : o->forwards)[a->chunk]++;
    }
    return any;
}

void ax_order_free(struct ax_order *o) {
    ax_free(o->now);
    ax_free(o->at);
    ax_free(o->forwards);
    ax_free(o->backwards);
    *o = (struct ax_order){0};
}

/* ---- with costs ---- */

/* When passes end; the clock goes through them in an order in which what they need is known. */
struct times {
    double *stage;              /* [stages]: so far */
    double *forward, *backward; /* [chunks of all][micro-batches] */
};

static double run_tick(const struct ax_order *o, const double *cost, struct times *t) {
    const int n = o->pipeline.n_microbatches, last = o->chunks * o->pipeline.stages - 1;
    double busy = 0;
    for (int r = 0; r < o->pipeline.stages; r++) {
        const struct ax_chunk_pass *a = &o->now[r];
        if (a->chunk < 0)
            continue;
        double start = t->stage[r], *end = (a->backward ? t->backward : t->forward) +
                                           (int64_t)a->chunk * n + a->microbatch;
        if (a->backward ? a->chunk < last : a->chunk > 0)
            start = fmax(start, end[a->backward ? n : -n]);
        const double takes = cost[a->chunk] * (a->backward ? 2 : 1);
        *end = t->stage[r] = start + takes;
        busy += takes;
    }
    return busy;
}

enum ax_status ax_order_idle(const struct ax_pipeline *p, const double *cost, double *idle) {
    struct ax_order o;
    struct times t = {0};
    double busy = 0, end = 0;
    enum ax_status st;
    AX_TRY(ax_order_create(&o, p));
    const size_t cells = (size_t)(o.chunks * p->stages) * (size_t)p->n_microbatches;
    AX_TRY_GOTO(ax_alloc(&t.stage, (size_t)p->stages, sizeof *t.stage), st, done);
    AX_TRY_GOTO(ax_alloc(&t.forward, cells, sizeof *t.forward), st, done);
    AX_TRY_GOTO(ax_alloc(&t.backward, cells, sizeof *t.backward), st, done);
    while (ax_order_tick(&o))
        busy += run_tick(&o, cost, &t);
    for (int r = 0; r < p->stages; r++)
        end = fmax(end, t.stage[r]);
    *idle = 1 - busy / (p->stages * end);
done:
    ax_order_free(&o);
    ax_free(t.stage);
    ax_free(t.forward);
    ax_free(t.backward);
    return st;
}
