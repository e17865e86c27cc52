/* The device: memory by cudaMalloc, a tier of pinned memory beside it, one stream per queue, and one
 * for copies beside ops into each tier: PCIe carries both ways at the same time. Events mark places
 * in streams that host threads and other streams wait for. */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/find.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/state.h"

#define MARKS      64 /* events, used in turn: who waits for an old mark waits for a later one */
#define SLOTS      8  /* small values on their way to the host */
#define SLOT_BYTES 4096
_Static_assert(SLOT_BYTES >= AX_QUEUE_LATE_BYTES, "what is read later does not wait");

struct slot {
    uint64_t ticket; /* 0: free */
    void *out;
    size_t bytes;
};

struct beside {
    cudaStream_t stream;
    cudaEvent_t from;        /* the queue's stream, before the last copy */
    cudaEvent_t done[MARKS]; /* copy n has element n % MARKS */
};

struct state {
    cudaStream_t stream;
    struct beside beside[AX_TIERS]; /* into that tier */
    struct ax_graphs *graphs;
    pthread_mutex_t lock;
    uint64_t marked; /* the last ticket */
    cudaEvent_t marks[MARKS];
    char *pinned; /* SLOTS × SLOT_BYTES */
    struct slot slots[SLOTS];
    char *room; /* pinned, for the views of calls */
    size_t room_bytes;
    /* The first call or transfer that failed. A lock of its own: a function of the host takes it, for which
     * CUDA's calls may wait, and `lock` is held in these. */
    pthread_mutex_t failing;
    struct ax_error_record failed;
};

/* ---- errors ---- */

enum ax_status ax_cuda_check(cudaError_t e, const char *what) {
    if (e == cudaSuccess)
        return AX_OK;
    if (e == cudaErrorMemoryAllocation)
        return ax_error(AX_ERR_NOMEM, "cuda: out of memory in %.100s. See `axtrain plan`.", what);
    int gpu = -1;
    (void)cudaGetDevice(&gpu);
    (void)cudaGetLastError(); /* an error of one call is not the next one's */
    return ax_error(AX_ERR_FAILED, "cuda: GPU %d: %.100s failed: %s (%s). %s", gpu, what,
                    cudaGetErrorString(e), cudaGetErrorName(e),
                    cudaGetLastError() == cudaSuccess
                        ? "The GPU can be used again."
                        : "The GPU cannot be used any more by this process: start again.");
}

static int local_rank;

void ax_cuda_local_rank(int rank) {
    local_rank = rank;
}

enum ax_status ax_cuda_count(int *n) {
    int driver = 0;
    *n = 0;
    const cudaError_t e = cudaGetDeviceCount(n);
    if (e == cudaErrorInsufficientDriver) {
        (void)cudaDriverGetVersion(&driver);
        return ax_error(AX_ERR_UNSUPPORTED,
                        driver == 0 ? "device cuda: there is no NVIDIA driver (libcuda.so.1). "
                                      "Install 580 or later, or use device: cpu."
                                    : "device cuda: the NVIDIA driver is for CUDA %d.%d; this "
                                      "program needs 580 or later, for CUDA 13. Install it, or "
                                      "use device: cpu.",
                        driver / 1000, driver % 1000 / 10);
    }
    if (e == cudaErrorNoDevice || (e == cudaSuccess && *n == 0))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "device cuda: no GPU is visible (CUDA_VISIBLE_DEVICES). Use device: cpu.");
    return ax_cuda_check(e, "cudaGetDeviceCount");
}

enum ax_status ax_cuda_own(int *gpu) {
    int n;
    AX_TRY(ax_cuda_count(&n));
    *gpu = local_rank % n;
    return AX_OK;
}

enum ax_status ax_cuda_use(void) {
    static _Thread_local int used = -1; /* by this thread, as a rank's number */
    int gpu;
    if (used == local_rank)
        return AX_OK;
    AX_TRY(ax_cuda_own(&gpu));
    AX_CUDA_TRY(cudaSetDevice(gpu));
    used = local_rank;
    return AX_OK;
}

/* ---- memory ---- */

static void cuda_release(struct ax_memory *m, enum ax_tier tier) {
    (void)(tier == AX_TIER_HOST ? cudaFreeHost(m->base) : cudaFree(m->base));
}

/* The legacy stream fills device memory, later than the call, and our streams do not wait for that one. */
static cudaError_t clear(const struct ax_memory *m, enum ax_tier tier) {
    if (tier == AX_TIER_HOST) {
        memset(m->base, 0, m->bytes);
        return cudaSuccess;
    }
    const cudaError_t e = cudaMemset(m->base, 0, m->bytes);
    return e == cudaSuccess ? cudaStreamSynchronize(NULL) : e;
}

static void cuda_allocate(struct ax_memory *m, enum ax_tier tier, size_t bytes) {
    void *base = NULL;
    *m = (struct ax_memory){.bytes = bytes};
    if (ax_cuda_use() != AX_OK)
        return;
    cudaError_t e = tier == AX_TIER_HOST ? cudaHostAlloc(&base, bytes, cudaHostAllocPortable)
                                         : cudaMalloc(&base, bytes);
    m->base = base;
    if (e == cudaSuccess)
        e = clear(m, tier);
    if (e == cudaSuccess)
        return;
    (void)cudaGetLastError();
    if (m->base)
        cuda_release(m, tier);
    m->base = NULL;
}

/* ---- tickets ---- */

static enum ax_status mark(struct state *s, uint64_t *ticket) {
    const cudaStream_t stream = ax_graphs_stream(s->graphs);
    pthread_mutex_lock(&s->lock);
    *ticket = ++s->marked;
    const cudaError_t e = cudaEventRecord(s->marks[*ticket % MARKS], stream);
    pthread_mutex_unlock(&s->lock);
    return ax_cuda_check(e, "cudaEventRecord");
}

static uint64_t cuda_signal(struct ax_queue *q) {
    uint64_t ticket = 0;
    if (mark(q->device_state, &ticket) != AX_OK)
        ax_error_clear(); /* whoever waits for it is told */
    return ticket;
}

/* What calls that are done, and transfers that were given up, have to tell. */
static enum ax_status failed(struct state *s) {
    pthread_mutex_lock(&s->failing);
    const enum ax_status st = s->failed.st;
    pthread_mutex_unlock(&s->failing);
    return st == AX_OK ? AX_OK : ax_error_restore(&s->failed);
}

void ax_cuda_fail(struct ax_queue *q, const struct ax_error_record *why) {
    struct state *s = q->device_state;
    pthread_mutex_lock(&s->failing);
    if (s->failed.st == AX_OK)
        s->failed = *why;
    pthread_mutex_unlock(&s->failing);
}

/* Hands over the value that came with a ticket. */
static void deliver(struct state *s, uint64_t ticket) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i].ticket == ticket && ticket > 0) {
            memcpy(s->slots[i].out, s->pinned + (size_t)i * SLOT_BYTES, s->slots[i].bytes);
            s->slots[i].ticket = 0;
        }
    pthread_mutex_unlock(&s->lock);
}

static enum ax_status cuda_wait(struct ax_queue *q, uint64_t ticket, bool *slept) {
    struct state *s = q->device_state;
    cudaEvent_t e = s->marks[ticket % MARKS];
    (void)ax_graphs_stream(s->graphs); /* meanwhile the GPU has what to do */
    *slept = cudaEventQuery(e) == cudaErrorNotReady;
    AX_CUDA_TRY(cudaEventSynchronize(e));
    deliver(s, ticket);
    return failed(s);
}

/* A free slot's index, or −1. */
static int take_slot(struct state *s, void *out, size_t bytes) {
    for (int i = 0; bytes <= SLOT_BYTES && i < SLOTS; i++)
        if (s->slots[i].ticket == 0) {
            s->slots[i] = (struct slot){.out = out, .bytes = bytes};
            return i;
        }
    return -1;
}

/* Small values go by pinned memory, so that the call does not wait. */
static enum ax_status cuda_read_later(struct ax_queue *q, const void *device, void *out,
                                      size_t bytes, const void *cap, uint64_t *ticket) {
    struct state *s = q->device_state;
    (void)cap;
    const int i = take_slot(s, out, bytes);
    void *to = i < 0 ? out : s->pinned + (size_t)i * SLOT_BYTES;
    AX_CUDA_TRY(cudaMemcpyAsync(to, device, bytes, cudaMemcpyDefault, ax_cuda_stream(q)));
    AX_TRY(mark(s, ticket));
    if (i >= 0)
        s->slots[i].ticket = *ticket;
    return AX_OK;
}

/* ---- the stream ---- */

static enum ax_status open_stream(cudaStream_t *stream, cudaEvent_t marks[MARKS]) {
    AX_CUDA_TRY(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < MARKS; i++)
        AX_CUDA_TRY(cudaEventCreateWithFlags(&marks[i], cudaEventDisableTiming));
    return AX_OK;
}

static void close_stream(cudaStream_t stream, const cudaEvent_t marks[MARKS]) {
    if (stream)
        (void)cudaStreamSynchronize(stream);
    for (int i = 0; i < MARKS; i++)
        if (marks[i])
            (void)cudaEventDestroy(marks[i]);
    if (stream)
        (void)cudaStreamDestroy(stream);
}

static enum ax_status open_streams(struct state *s) {
    void *pinned;
    AX_TRY(open_stream(&s->stream, s->marks));
    for (int i = 0; i < AX_TIERS; i++) {
        AX_TRY(open_stream(&s->beside[i].stream, s->beside[i].done));
        AX_CUDA_TRY(cudaEventCreateWithFlags(&s->beside[i].from, cudaEventDisableTiming));
    }
    AX_CUDA_TRY(cudaHostAlloc(&pinned, (size_t)SLOTS * SLOT_BYTES, cudaHostAllocPortable));
    s->pinned = pinned;
    return AX_OK;
}

static void cuda_close(struct ax_queue *q) {
    struct state *s = q->device_state;
    ax_graphs_close(s->graphs);
    for (int i = 0; i < AX_TIERS; i++) {
        close_stream(s->beside[i].stream, s->beside[i].done);
        if (s->beside[i].from)
            (void)cudaEventDestroy(s->beside[i].from);
    }
    close_stream(s->stream, s->marks);
    if (s->pinned)
        (void)cudaFreeHost(s->pinned);
    if (s->room)
        (void)cudaFreeHost(s->room);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->failing);
    ax_free(s);
}

static enum ax_status cuda_open(struct ax_queue *q) {
    struct state *s;
    AX_TRY(ax_cuda_use());
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->failing, NULL);
    q->device_state = s;
    enum ax_status st = open_streams(s);
    if (st == AX_OK)
        st = ax_graphs_open(&s->graphs, q, s->stream);
    if (st != AX_OK)
        cuda_close(q);
    return st;
}

cudaStream_t ax_cuda_stream(const struct ax_queue *q) {
    return ax_graphs_stream(ax_cuda_graphs(q));
}

int ax_cuda_processors(const struct ax_queue *q) {
    return ax_cuda_state(q)->processors;
}

bool ax_cuda_has_wgmma(const struct ax_queue *q) {
    return ax_cuda_state(q)->wgmma;
}

struct ax_graphs *ax_cuda_graphs(const struct ax_queue *q) {
    return ((const struct state *)q->device_state)->graphs;
}

static enum ax_status cuda_copy(struct ax_queue *q, void *to, const void *from, size_t bytes) {
    return ax_graphs_copy(ax_cuda_graphs(q), to, from, bytes);
}

static enum ax_status cuda_copy_beside(struct ax_queue *q, enum ax_tier into, uint64_t n, void *to,
                                       const void *from, size_t bytes) {
    const struct beside *b = &((const struct state *)q->device_state)->beside[into];
    AX_CUDA_TRY(cudaEventRecord(b->from, ax_cuda_stream(q)));
    AX_CUDA_TRY(cudaStreamWaitEvent(b->stream, b->from, 0));
    AX_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->stream));
    return ax_cuda_check(cudaEventRecord(b->done[n % MARKS], b->stream), "cudaEventRecord");
}

static enum ax_status cuda_after(struct ax_queue *q, enum ax_tier into, uint64_t n) {
    const struct beside *b = &((const struct state *)q->device_state)->beside[into];
    return ax_cuda_check(cudaStreamWaitEvent(ax_cuda_stream(q), b->done[n % MARKS], 0),
                         "cudaStreamWaitEvent");
}

static enum ax_status cuda_finish(struct ax_queue *q) {
    const struct state *s = q->device_state;
    AX_CUDA_TRY(cudaStreamSynchronize(ax_cuda_stream(q)));
    for (int i = 0; i < AX_TIERS; i++)
        AX_CUDA_TRY(cudaStreamSynchronize(s->beside[i].stream));
    return failed(q->device_state);
}

/* ---- calls ---- */

struct call {
    struct ax_queue *q;
    ax_queue_fn *fn;
    char args[AX_QUEUE_ARGS];
    void *at[AX_QUEUE_VIEWS];
};

static void run_call(void *arg) {
    struct call *c = arg;
    struct ax_error_record why;
    enum ax_status st = failed(c->q->device_state);
    if (st == AX_OK) { /* else what it would read may be anything */
        st = c->fn(c->q, c->args, c->at);
        ax_error_save(&why, st);
        if (st != AX_OK)
            ax_cuda_fail(c->q, &why);
    }
    ax_free(c);
}

/* Room for the views of one call: the next call's copies come after this one's in the stream. */
static enum ax_status need_room(struct state *s, size_t bytes) {
    void *room;
    if (bytes <= s->room_bytes)
        return AX_OK;
    AX_CUDA_TRY(cudaStreamSynchronize(ax_graphs_stream(s->graphs)));
    if (s->room)
        AX_CUDA_TRY(cudaFreeHost(s->room));
    s->room = NULL;
    s->room_bytes = 0;
    AX_CUDA_TRY(cudaHostAlloc(&room, 2 * bytes, cudaHostAllocPortable));
    s->room = room;
    s->room_bytes = 2 * bytes;
    return AX_OK;
}

/* Between the device and the room, for the views that are used otherwise than `but`. */
static enum ax_status move_views(struct state *s, const struct ax_view *views, int n,
                                 void *const *at, enum ax_view_use but, bool back) {
    for (int i = 0; i < n; i++) {
        void *device = (void *)(uintptr_t)views[i].device;
        if (at[i] && views[i].use != but)
            AX_CUDA_TRY(cudaMemcpyAsync(back ? device : at[i], back ? at[i] : device,
                                        views[i].bytes, cudaMemcpyDefault,
                                        ax_graphs_stream(s->graphs)));
    }
    return AX_OK;
}

static enum ax_status cuda_call(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                                const struct ax_view *views, int n_views) {
    struct state *s = q->device_state;
    struct call *c;
    void *at[AX_QUEUE_VIEWS] = {NULL};
    size_t bytes = 0;
    for (int i = 0; i < n_views; i++)
        bytes += ax_arena_round(views[i].bytes);
    AX_TRY(need_room(s, bytes));
    bytes = 0;
    for (int i = 0; i < n_views; i++) {
        at[i] = views[i].device ? s->room + bytes : NULL;
        bytes += ax_arena_round(views[i].bytes);
    }
    AX_TRY(move_views(s, views, n_views, at, AX_VIEW_WRITE, false));
    AX_TRY(ax_alloc(&c, 1, sizeof *c));
    *c = (struct call){.q = q, .fn = fn};
    if (size > 0)
        memcpy(c->args, args, size);
    memcpy(c->at, at, sizeof at);
    AX_CUDA_TRY(cudaLaunchHostFunc(ax_cuda_stream(q), run_call, c));
    return move_views(s, views, n_views, at, AX_VIEW_READ, true);
}

static enum ax_status run_time(struct ax_queue *q, const void *args, void *work) {
    (void)work;
    return ax_cuda_time(q, args);
}

static enum ax_status cuda_time(struct ax_queue *q, struct ax_times *t, int into) {
    const struct ax_cuda_time args = {t, into};
    return ax_graphs_enqueue(ax_cuda_graphs(q), &(struct ax_graphs_op){.op = AX_GRAPHS_TIME,
                                                                       .run = run_time,
                                                                       .args = &args,
                                                                       .size = sizeof args});
}

static void *same_address(struct ax_queue *q, const void *device) {
    (void)q;
    return (void *)(uintptr_t)device;
}

const struct ax_device ax_device_cuda = {
    .has_host_tier = true,
    .late = true,
    .own_fabric = true,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .open = cuda_open,
    .close = cuda_close,
    .read_later = cuda_read_later,
    .copy = cuda_copy,
    .copy_beside = cuda_copy_beside,
    .after = cuda_after,
    .call = cuda_call,
    .time = cuda_time,
    .address = same_address,
    .finish = cuda_finish,
    .host = same_address,
    .signal = cuda_signal,
    .wait = cuda_wait,
};
