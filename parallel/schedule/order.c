/* A stage's list of passes by formula, and the clock that says when all of them can run. */
#include "parallel/schedule/order.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/arena.h"

/* What a kind is called, and the number that must be smaller where a stage would keep too much. */
static const struct {
    const char *name, *fewer;
    size_t number; /* offset in struct ax_pipeline */
} kinds[] = {
    [AX_PIPELINE_1F1B] = {"1f1b", "stages", offsetof(struct ax_pipeline, stages)},
    [AX_PIPELINE_AFAB] = {"afab", "micro-batches", offsetof(struct ax_pipeline, n_microbatches)},
    [AX_PIPELINE_INTERLEAVED] = {"interleaved", "virtual stages per rank",
                                 offsetof(struct ax_pipeline, virtual_stages)},
    [AX_PIPELINE_ZERO_BUBBLE] = {"zero_bubble", "stages", offsetof(struct ax_pipeline, stages)},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

enum ax_status ax_pipeline_parse(const char *name, enum ax_pipeline_kind *out) {
    char all[128];
    size_t at = 0;
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            *out = (enum ax_pipeline_kind)i;
            return AX_OK;
        }
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s",
                               i == 0            ? ""
                               : i + 1 < N_KINDS ? ", "
                                                 : " or ",
                               kinds[i].name);
    }
    return ax_error(AX_ERR_CONFIG, "expected %s, got \"%s\"", all, name);
}

const char *ax_pipeline_name(enum ax_pipeline_kind kind) {
    return kind < sizeof kinds / sizeof *kinds ? kinds[kind].name : NULL;
}

int ax_pipeline_chunks(const struct ax_pipeline *p) {
    if (p->stages == 1 || p->kind != AX_PIPELINE_INTERLEAVED)
        return 1;
    return p->virtual_stages > 0 ? p->virtual_stages : 2;
}

bool ax_pipeline_halves(const struct ax_pipeline *p) {
    return p->kind == AX_PIPELINE_ZERO_BUBBLE && p->stages > 1;
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
static struct ax_chunk_pass pass_of(const struct ax_pipeline *p, int stage, int i,
                                    enum ax_pass_kind kind) {
    const int v = ax_pipeline_chunks(p);
    const struct groups g = groups_of(p);
    const int in_longer = g.longer * (g.size + 1);
    const bool longer = i < v * in_longer;
    const int size = longer ? g.size + 1 : g.size, from = longer ? i : i - v * in_longer;
    const int group = from / (v * size), left = from % (v * size);
    const int chunk = kind == AX_PASS_BACKWARD ? v - 1 - left / size : left / size;
    const int microbatch = (longer ? 0 : in_longer) + group * size + left % size;
    return (struct ax_chunk_pass){chunk * p->stages + stage, microbatch, kind};
}

/* Its forward or backward number i of both. */
static struct ax_chunk_pass pass_at(const struct ax_pipeline *p, int stage, int i) {
    const int w = warm_up(p, stage), steady = 2 * (passes_each_way(p) - w);
    if (i < w)
        return pass_of(p, stage, i, AX_PASS_FORWARD);
    if (i - w >= steady)
        return pass_of(p, stage, i - w - steady / 2, AX_PASS_BACKWARD);
    return (i - w) % 2 ? pass_of(p, stage, (i - w) / 2, AX_PASS_BACKWARD)
                       : pass_of(p, stage, (i - w) / 2 + w, AX_PASS_FORWARD);
}

/* Lists all passes of a stage. The weights' half of a backward follows `stage` backwards later:
 * one for each earlier stage. */
static void list_passes(const struct ax_pipeline *p, int stage, struct ax_chunk_pass *list) {
    const int each = passes_each_way(p);
    int n = 0, late = 0; /* backwards whose other halves are due */
    for (int i = 0; i < 2 * each; i++) {
        list[n++] = pass_at(p, stage, i);
        if (!ax_pipeline_halves(p) || list[n - 1].kind != AX_PASS_BACKWARD || late++ < stage)
            continue;
        list[n++] = pass_of(p, stage, late - 1 - stage, AX_PASS_WEIGHTS);
    }
    for (int m = each > stage ? each - stage : 0; ax_pipeline_halves(p) && m < each; m++)
        list[n++] = pass_of(p, stage, m, AX_PASS_WEIGHTS);
}

static int slots_of(const struct ax_pipeline *p, int stage) {
    const int w = ax_pipeline_halves(p) ? p->stages : warm_up(p, stage) + 1,
              all = passes_each_way(p);
    return w < all ? w : all;
}

enum ax_status ax_pipeline_slots(const struct ax_pipeline *p, int stage, int *slots) {
    *slots = slots_of(p, stage);
    if (slots_of(p, 0) <= AX_ARENA_MAX_SLOTS) /* stage 0 keeps most */
        return AX_OK;
    struct ax_pipeline nearest = *p;
    nearest.virtual_stages = ax_pipeline_chunks(p);
    int *number = (int *)((char *)&nearest + kinds[p->kind].number);
    while (*number > 1 && slots_of(&nearest, 0) > AX_ARENA_MAX_SLOTS)
        --*number;
    return ax_error(AX_ERR_CONFIG,
                    "pipeline: schedule %s with %d stages and %d micro-batches keeps the "
                    "activations of %d passes, and at most %d are possible. Nearest: %d %s.",
                    kinds[p->kind].name, p->stages, p->n_microbatches, slots_of(p, 0),
                    AX_ARENA_MAX_SLOTS, *number, kinds[p->kind].fewer);
}

/* ---- the clock ---- */

enum ax_status ax_order_create(struct ax_order *o, const struct ax_pipeline *p) {
    AX_ASSERT(p->stages > 0 && p->n_microbatches > 0);
    *o = (struct ax_order){.pipeline = *p,
                           .chunks = ax_pipeline_chunks(p),
                           .n_passes = passes_each_way(p) * (ax_pipeline_halves(p) ? 3 : 2)};
    const size_t stages = (size_t)p->stages, chunks = stages * (size_t)o->chunks;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&o->passes, stages * (size_t)o->n_passes, sizeof *o->passes), st, fail);
    AX_TRY_GOTO(ax_alloc(&o->now, stages, sizeof *o->now), st, fail);
    AX_TRY_GOTO(ax_alloc(&o->at, stages, sizeof *o->at), st, fail);
    for (int k = 0; k < AX_PASS_KINDS; k++)
        AX_TRY_GOTO(ax_alloc(&o->done[k], chunks, sizeof *o->done[k]), st, fail);
    for (int r = 0; r < p->stages; r++)
        list_passes(p, r, o->passes + (size_t)r * (size_t)o->n_passes);
    return AX_OK;
fail:
    ax_order_free(o);
    return st;
}

/* True if what the pass needs is there. */
static bool is_ready(const struct ax_order *o, const struct ax_chunk_pass *a) {
    const int last = o->chunks * o->pipeline.stages - 1, m = a->microbatch;
    const int *forwards = o->done[AX_PASS_FORWARD], *backwards = o->done[AX_PASS_BACKWARD];
    if (a->kind == AX_PASS_WEIGHTS)
        return backwards[a->chunk] > m;
    if (a->kind == AX_PASS_BACKWARD)
        return a->chunk == last ? forwards[last] > m : backwards[a->chunk + 1] > m;
    return a->chunk == 0 || forwards[a->chunk - 1] > m;
}

/* The stage's next pass; chunk −1: none is left. */
static struct ax_chunk_pass next_pass(const struct ax_order *o, int stage) {
    if (o->at[stage] == o->n_passes)
        return (struct ax_chunk_pass){.chunk = -1};
    return o->passes[(int64_t)stage * o->n_passes + o->at[stage]];
}

bool ax_order_tick(struct ax_order *o) {
    bool any = false, waits = false;
    for (int r = 0; r < o->pipeline.stages; r++) {
        const struct ax_chunk_pass next = next_pass(o, r);
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
        o->done[a->kind][a->chunk]++;
    }
    return any;
}

void ax_order_free(struct ax_order *o) {
    ax_free(o->passes);
    ax_free(o->now);
    ax_free(o->at);
    for (int k = 0; k < AX_PASS_KINDS; k++)
        ax_free(o->done[k]);
    *o = (struct ax_order){0};
}

enum ax_status ax_ticks_create(struct ax_ticks *t, const struct ax_pipeline *p) {
    const size_t stages = (size_t)p->stages;
    struct ax_order order;
    size_t cap = 0;
    enum ax_status st = AX_OK;
    *t = (struct ax_ticks){.stages = p->stages};
    AX_TRY(ax_order_create(&order, p));
    for (; ax_order_tick(&order); t->n++) {
        const size_t at = (size_t)t->n * stages;
        if (at == cap) {
            cap = at > 0 ? 2 * at : 64 * stages;
            AX_TRY_GOTO(ax_regrow(&t->passes, at, cap, sizeof *t->passes), st, fail);
        }
        memcpy(t->passes + at, order.now, stages * sizeof *t->passes);
    }
    ax_order_free(&order);
    return AX_OK;
fail:
    ax_order_free(&order);
    ax_ticks_free(t);
    return st;
}

struct ax_chunk_pass ax_ticks_at(const struct ax_ticks *t, int tick, int stage) {
    if (tick < 0 || tick >= t->n)
        return (struct ax_chunk_pass){.chunk = -1};
    return t->passes[(int64_t)tick * t->stages + stage];
}

void ax_ticks_free(struct ax_ticks *t) {
    ax_free(t->passes);
    *t = (struct ax_ticks){0};
}

/* ---- with costs ---- */

/* When passes end; the clock goes through them in an order in which what they need is known. */
struct times {
    double *stage;               /* [stages]: so far */
    double *pass[AX_PASS_KINDS]; /* [chunks of all][micro-batches] */
};

static double pass_takes(const struct ax_order *o, const double *cost,
                         const struct ax_chunk_pass *a) {
    const bool halved = ax_pipeline_halves(&o->pipeline);
    return cost[a->chunk] * (a->kind == AX_PASS_BACKWARD && !halved ? 2 : 1);
}

static double run_tick(const struct ax_order *o, const double *cost, struct times *t) {
    const int n = o->pipeline.n_microbatches, last = o->chunks * o->pipeline.stages - 1;
    double busy = 0;
    for (int r = 0; r < o->pipeline.stages; r++) {
        const struct ax_chunk_pass *a = &o->now[r];
        if (a->chunk < 0)
            continue;
        double start = t->stage[r], *end = t->pass[a->kind] + (int64_t)a->chunk * n + a->microbatch;
        if (a->kind == AX_PASS_FORWARD && a->chunk > 0)
            start = fmax(start, end[-n]);
        if (a->kind == AX_PASS_BACKWARD && a->chunk < last)
            start = fmax(start, end[n]);
        const double takes = pass_takes(o, cost, a);
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
    for (int k = 0; k < AX_PASS_KINDS; k++)
        AX_TRY_GOTO(ax_alloc(&t.pass[k], cells, sizeof *t.pass[k]), st, done);
    while (ax_order_tick(&o))
        busy += run_tick(&o, cost, &t);
    for (int r = 0; r < p->stages; r++)
        end = fmax(end, t.stage[r]);
    *idle = 1 - busy / (p->stages * end);
done:
    ax_order_free(&o);
    ax_free(t.stage);
    for (int k = 0; k < AX_PASS_KINDS; k++)
        ax_free(t.pass[k]);
    return st;
}
