/* What is held back, kept and captured. */
#include "kernels/cuda/graphs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cuda/gemm/grouped.h"
#include "kernels/cuda/state.h"
#include "kernels/operands.h"

#define KEPT  256               /* sequences */
#define BYTES ((size_t)8 << 20) /* of them all */
#define SEEN  1024              /* hashes of sequences that came once */
#define SHORT ((size_t)8 << 10) /* a copy of more bytes is left to the GPU's copy engines */

/* An op, in which args is NULL, with its arguments behind it. */
struct entry {
    size_t bytes; /* of both, a multiple of 8 */
    struct ax_graphs_op o;
};

struct sequence {
    int n; /* ops */
    size_t bytes, room;
    char *entries; /* owned */
};

struct kept {
    struct sequence s;
    cudaGraphExec_t graph; /* NULL: not captured yet */
    bool refused;          /* cannot be captured */
    uint64_t used;         /* when */
};

struct ax_graphs {
    struct ax_queue *q;
    cudaStream_t stream, capturing; /* the queue's; another one */
    bool off, said;
    atomic_bool stale;
    pthread_mutex_t lock;         /* of what follows */
    struct ax_cuda_copies copies; /* held back; while there are any, `now` is empty */
    struct sequence now;
    struct kept *held; /* begins as `now`, of which nothing was launched; NULL: all of it was */
    int n;
    struct kept kept[KEPT];
    size_t bytes; /* of them all */
    uint64_t uses, n_seen, seen[SEEN];
};

/* ---- enqueueing ---- */

/* Set while this thread enqueues an op's kernels. */
static _Thread_local struct {
    const struct ax_graphs *of;
    cudaStream_t to;
} issuing;

static enum ax_status issue(const struct ax_graphs *g, const struct ax_graphs_op *o,
                            const void *args, cudaStream_t to) {
    issuing.of = g;
    issuing.to = to;
    const enum ax_status st = o->run(g->q, args, o->work);
    issuing.of = NULL;
    return st;
}

static enum ax_status told_of(enum ax_status st, const struct entry *e) {
    char shapes[512];
    return e->o.op == AX_GRAPHS_TIME
               ? ax_error_prefix(st, "time on cuda")
               : ax_error_prefix(st, "%s on cuda (%s)", ax_op_name(e->o.op),
                                 ax_op_describe(e->o.op, e + 1, shapes, sizeof shapes));
}

/* All ops of a sequence but the last `but`. */
static enum ax_status issue_all(const struct ax_graphs *g, const struct sequence *s, int but,
                                cudaStream_t to) {
    const char *at = s->entries;
    for (int i = 0; i < s->n - but; i++) {
        const struct entry *e = (const void *)at;
        const enum ax_status st = issue(g, &e->o, e + 1, to);
        if (st != AX_OK)
            return told_of(st, e);
        at += e->bytes;
    }
    return AX_OK;
}

static void tell(const struct ax_graphs *g, enum ax_status st) {
    struct ax_error_record why;
    if (st == AX_OK)
        return;
    ax_error_save(&why, st);
    ax_error_clear();
    ax_cuda_fail(g->q, &why);
}

static void issue_held(struct ax_graphs *g, int but) {
    tell(g, issue_all(g, &g->now, but, g->stream));
}

/* ---- copies ---- */

static enum ax_status run_copies(struct ax_queue *q, const void *args, void *work) {
    (void)work;
    return ax_cuda_copy_all(q, args);
}

static void issue_copies(struct ax_graphs *g) {
    const struct ax_graphs_op all = {.run = run_copies};
    if (g->copies.n > 0)
        tell(g, issue(g, &all, &g->copies, g->stream));
    g->copies.n = 0;
}

/* ---- capturing ---- */

static enum ax_status capture(const struct ax_graphs *g, const struct sequence *s,
                              cudaGraphExec_t *out) {
    cudaGraph_t graph = NULL;
    AX_CUDA_TRY(cudaStreamBeginCapture(g->capturing, cudaStreamCaptureModeThreadLocal));
    enum ax_status st = issue_all(g, s, 0, g->capturing);
    const cudaError_t e = cudaStreamEndCapture(g->capturing, &graph);
    if (st == AX_OK)
        st = ax_cuda_check(e, "cudaStreamEndCapture");
    if (st == AX_OK)
        st = ax_cuda_check(cudaGraphInstantiate(out, graph, 0), "cudaGraphInstantiate");
    if (graph)
        (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return st;
}

static void refuse(struct ax_graphs *g, struct kept *k) {
    k->refused = true;
    if (!g->said)
        ax_log_info("cuda: some ops are launched one by one, not as a graph: %s", ax_error_text());
    g->said = true;
    ax_error_clear();
}

/* `now` is complete. */
static void replay(struct ax_graphs *g, struct kept *k) {
    k->used = ++g->uses;
    if (!k->graph && !k->refused && capture(g, &k->s, &k->graph) != AX_OK)
        refuse(g, k);
    if (!k->graph || atomic_load(&g->stale)) {
        issue_held(g, 0);
        return;
    }
    tell(g, ax_cuda_check(cudaGraphLaunch(k->graph, g->stream), "cudaGraphLaunch"));
    g->q->counters.replayed += (uint64_t)k->s.n;
}

/* ---- what is kept ---- */

static void drop(struct ax_graphs *g, struct kept *k) {
    if (k->graph) {
        (void)cudaStreamSynchronize(g->stream); /* it may be running */
        (void)cudaGraphExecDestroy(k->graph);
    }
    g->bytes -= k->s.bytes;
    ax_free(k->s.entries);
    *k = g->kept[--g->n];
    g->kept[g->n] = (struct kept){0};
}

static void drop_all(struct ax_graphs *g) {
    while (g->n > 0)
        drop(g, &g->kept[g->n - 1]);
}

static void drop_oldest(struct ax_graphs *g) {
    struct kept *oldest = &g->kept[0];
    for (int i = 1; i < g->n; i++)
        if (g->kept[i].used < oldest->used)
            oldest = &g->kept[i];
    drop(g, oldest);
}

/* A kept graph whose entries begin with those of `now` and take `least` to `most` bytes; NULL if
 * there is none. */
static struct kept *find(struct ax_graphs *g, size_t least, size_t most) {
    for (int i = 0; i < g->n; i++)
        if (g->kept[i].s.bytes >= least && g->kept[i].s.bytes <= most &&
            memcmp(g->kept[i].s.entries, g->now.entries, g->now.bytes) == 0)
            return &g->kept[i];
    return NULL;
}

static enum ax_status keep(struct ax_graphs *g) {
    char *entries;
    while (g->n == KEPT || (g->n > 0 && g->bytes + g->now.bytes > BYTES))
        drop_oldest(g);
    AX_TRY(ax_alloc(&entries, g->now.bytes, 1));
    memcpy(entries, g->now.entries, g->now.bytes);
    g->kept[g->n++] =
        (struct kept){.s = {g->now.n, g->now.bytes, g->now.bytes, entries}, .used = ++g->uses};
    g->bytes += g->now.bytes;
    return AX_OK;
}

/* Keeps what comes for the second time. */
static void learn(struct ax_graphs *g) {
    bool seen = false;
    if (g->now.n < AX_GRAPH_LEAST)
        return;
    const uint64_t hash = ax_hash64(g->now.entries, g->now.bytes, 0);
    for (int i = 0; i < SEEN; i++)
        seen |= g->seen[i] == hash;
    if (!seen)
        g->seen[g->n_seen++ % SEEN] = hash;
    else if (keep(g) != AX_OK)
        ax_error_clear(); /* it works without */
}

/* ---- a sequence ---- */

static void end(struct ax_graphs *g) {
    if (g->now.n == 0)
        return;
    struct kept *same = g->held ? find(g, g->now.bytes, g->now.bytes) : NULL;
    if (same) {
        replay(g, same);
    } else {
        if (g->held)
            issue_held(g, 0);
        learn(g);
    }
    g->now.n = 0;
    g->now.bytes = 0;
    g->held = NULL;
}

static enum ax_status append(struct sequence *s, const struct ax_graphs_op *o) {
    const size_t bytes = sizeof(struct entry) + (o->size + 7) / 8 * 8;
    if (s->bytes + bytes > s->room) {
        const size_t room = 2 * (s->room + bytes);
        AX_TRY(ax_regrow(&s->entries, s->room, room, 1));
        s->room = room;
    }
    char *at = s->entries + s->bytes;
    memset(at, 0, bytes); /* also between members: entries are compared as bytes */
    struct entry *e = (void *)at;
    e->bytes = bytes;
    e->o.op = o->op;
    e->o.run = o->run;
    e->o.size = o->size;
    e->o.work = o->work;
    memcpy(e + 1, o->args, o->size);
    s->bytes += bytes;
    s->n++;
    return AX_OK;
}

/* A kept sequence that begins as `now`: the held one, which began as its first `before` bytes, or another. */
static struct kept *follow(struct ax_graphs *g, size_t before) {
    const struct kept *k = g->held;
    const bool goes_on =
        k && k->s.bytes >= g->now.bytes &&
        memcmp(k->s.entries + before, g->now.entries + before, g->now.bytes - before) == 0;
    return goes_on ? g->held : find(g, g->now.bytes, SIZE_MAX);
}

/* If the held one is whole, a longer one that begins with it, or NULL. */
static struct kept *longer(struct ax_graphs *g) {
    return g->held->s.bytes > g->now.bytes ? g->held : find(g, g->now.bytes + 1, SIZE_MAX);
}

static enum ax_status add(struct ax_graphs *g, const struct ax_graphs_op *o) {
    const bool held = g->held != NULL, first = g->now.n == 0;
    const size_t before = g->now.bytes;
    enum ax_status st = AX_OK;
    if (first && atomic_exchange(&g->stale, false))
        drop_all(g);
    issue_copies(g);
    AX_TRY(append(&g->now, o));
    if (held || first)
        g->held = follow(g, before);
    if (!g->held) {
        if (held)
            issue_held(g, 1);
        st = issue(g, o, o->args, g->stream);
    }
    if ((g->held && !longer(g)) || g->now.n == AX_GRAPH_OPS)
        end(g);
    return st;
}

/* Not what depends on data that the host waits for, nor what is on a timeline. */
static bool may_be_held(const struct ax_graphs *g, const struct ax_graphs_op *o) {
    const bool waits = o->op == AX_OP_grouped_gemm && !ax_cuda_grouped_suits(o->args);
    return !g->off && !waits && !g->q->timeline;
}

enum ax_status ax_graphs_enqueue(struct ax_graphs *g, const struct ax_graphs_op *o) {
    if (!may_be_held(g, o))
        return issue(g, o, o->args, ax_graphs_stream(g));
    AX_TRY(ax_cuda_use());
    pthread_mutex_lock(&g->lock);
    const enum ax_status st = add(g, o);
    pthread_mutex_unlock(&g->lock);
    return st;
}

cudaStream_t ax_graphs_stream(struct ax_graphs *g) {
    if (issuing.of == g)
        return issuing.to;
    pthread_mutex_lock(&g->lock);
    (void)ax_cuda_use(); /* not every thread has called it */
    end(g);
    issue_copies(g);
    pthread_mutex_unlock(&g->lock);
    return g->stream;
}

void ax_graphs_forget(struct ax_graphs *g) {
    atomic_store(&g->stale, true);
}

/* ---- holding copies back ---- */

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Whether a copy may come before, beside or after those that are held. */
static bool is_apart(const struct ax_graphs *g, const void *to, const void *from, size_t bytes) {
    bool apart = true;
    for (int i = 0; i < g->copies.n; i++) {
        const struct ax_cuda_copy *c = &g->copies.piece[i];
        const size_t other = c->words * sizeof *c->to;
        apart &= !overlap(to, bytes, c->to, other) && !overlap(to, bytes, c->from, other) &&
                 !overlap(from, bytes, c->to, other);
    }
    return apart;
}

static void hold_copy(struct ax_graphs *g, void *to, const void *from, size_t bytes) {
    end(g);
    if (g->copies.n == AX_CUDA_COPIES || !is_apart(g, to, from, bytes))
        issue_copies(g);
    g->copies.piece[g->copies.n++] = (struct ax_cuda_copy){to, from, bytes / sizeof(uint32_t)};
}

enum ax_status ax_graphs_copy(struct ax_graphs *g, void *to, const void *from, size_t bytes) {
    const size_t rest = ((uintptr_t)to | (uintptr_t)from | bytes) % sizeof(uint32_t);
    if (g->off || bytes > SHORT || rest > 0)
        return ax_cuda_check(
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ax_graphs_stream(g)),
            "cudaMemcpyAsync");
    AX_TRY(ax_cuda_use());
    pthread_mutex_lock(&g->lock);
    hold_copy(g, to, from, bytes);
    pthread_mutex_unlock(&g->lock);
    return AX_OK;
}

/* ---- opening ---- */

enum ax_status ax_graphs_open(struct ax_graphs **out, struct ax_queue *q, cudaStream_t stream) {
    struct ax_graphs *g;
    const char *wish = getenv("AXTRAIN_CUDA_GRAPHS");
    AX_TRY(ax_alloc(&g, 1, sizeof *g));
    *out = g;
    g->q = q;
    g->stream = stream;
    g->off = wish && strcmp(wish, "off") == 0;
    pthread_mutex_init(&g->lock, NULL);
    AX_CUDA_TRY(cudaStreamCreateWithFlags(&g->capturing, cudaStreamNonBlocking));
    return AX_OK;
}

void ax_graphs_close(struct ax_graphs *g) {
    if (!g)
        return;
    (void)ax_graphs_stream(g);
    drop_all(g);
    if (g->capturing)
        (void)cudaStreamDestroy(g->capturing);
    ax_free(g->now.entries);
    pthread_mutex_destroy(&g->lock);
    ax_free(g);
}
