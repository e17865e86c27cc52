/* Groups over NCCL. Its calls do not block: until one is through, the group asks. */
#include "kernels/cuda/nccl.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/nccl_api.h"
#include "kernels/cuda/state.h"

#define SPIN  2e-4 /* seconds in which a thread of the library is through with most calls */
#define MARKS 64   /* events, used in turn: who waits for an old ticket waits for a later one */

struct ax_nccl {
    ax_nccl_comm comm;
    void *registered; /* the library's handle; NULL: nothing is */
    cudaStream_t stream;
    cudaEvent_t after; /* the place in a queue that the next transfer comes after */
    cudaEvent_t marks[MARKS];
    uint64_t tickets[MARKS]; /* what each of them marks */
    /* Before and after each wait of a queue, in its stream; used in turn. */
    cudaEvent_t waits[MARKS][2];
    uint64_t n_waits, n_added;      /* so far; of them in `waited` */
    double waited;                  /* seconds */
    struct ax_queue *_Atomic queue; /* the one that transfers serve */
    int rank;
    atomic_bool aborted;
};

static const char REMEDY[] = "Install NCCL 2.27 or later (the Python package nvidia-nccl-cu13).";

static struct ax_nccl_functions nccl;
static enum ax_status opened;
static struct ax_error_record why;

static void open_library(void) {
    const struct ax_symbol symbols[] = {
#define ROW(result, name, parameters) {"nccl" #name, &nccl.name},
        AX_NCCL_FUNCTIONS(ROW)
#undef ROW
    };
    int version = 0;
    /* A rank has several groups, of which transfers could each wait for the other's on another GPU. The
     * library then launches them in the order of their calls, the same on all ranks. */
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    opened = ax_cuda_library_open(AX_NCCL_FILE, REMEDY, symbols, sizeof symbols / sizeof *symbols);
    if (opened == AX_OK && nccl.GetVersion(&version) == AX_NCCL_SUCCESS &&
        version < (int)AX_NCCL_VERSION)
        opened = ax_error(AX_ERR_UNSUPPORTED, "device cuda: " AX_NCCL_FILE " is NCCL %d.%d. %s",
                          version / 10000, version / 100 % 100, REMEDY);
    if (opened != AX_OK)
        ax_error_save(&why, opened);
}

static enum ax_status library(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return opened == AX_OK ? AX_OK : ax_error_restore(&why);
}

enum ax_status ax_nccl_version(int *version) {
    AX_TRY(library());
    (void)nccl.GetVersion(version);
    return AX_OK;
}

static enum ax_status check(unsigned result, const char *what) {
    return result == AX_NCCL_SUCCESS
               ? AX_OK
               : ax_error(AX_ERR_PEER,
                          "NCCL: %s: %s. Another rank may have ended: see its output. "
                          "NCCL_DEBUG=INFO tells more.",
                          what, nccl.GetErrorString(result));
}

/* Until the group is through with its last call; `until` on ax_clock_now's clock, 0: no limit. */
static enum ax_status settle(struct ax_nccl *c, unsigned result, const char *what, double until) {
    const double begin = ax_clock_now();
    while (result == AX_NCCL_IN_PROGRESS && !atomic_load(&c->aborted)) {
        const double now = ax_clock_now();
        if (until > 0 && now > until)
            return ax_error(AX_ERR_PEER, "NCCL: %s: the other ranks did not arrive in time", what);
        AX_TRY(check(nccl.CommGetAsyncError(c->comm, &result), what));
        if (result == AX_NCCL_IN_PROGRESS)
            (void)(now - begin < SPIN ? sched_yield() : usleep(200));
    }
    if (atomic_load(&c->aborted))
        return ax_error(AX_ERR_PEER, "NCCL: %s: the group was given up", what);
    return check(result, what);
}

enum ax_status ax_nccl_id(char id[AX_NCCL_ID]) {
    ax_nccl_unique_id unique;
    _Static_assert(sizeof unique == AX_NCCL_ID, "NCCL's size");
    AX_TRY(library());
    AX_TRY(check(nccl.GetUniqueId(&unique), "ncclGetUniqueId"));
    memcpy(id, &unique, AX_NCCL_ID);
    return AX_OK;
}

static enum ax_status open_group(struct ax_nccl *c, const char *id, int n, double timeout) {
    ax_nccl_unique_id unique;
    ax_nccl_config config = {.size = sizeof config,
                             .magic = AX_NCCL_MAGIC,
                             .version = AX_NCCL_VERSION,
                             .cga_cluster_size = AX_NCCL_UNSET,
                             .min_ctas = AX_NCCL_UNSET,
                             .max_ctas = AX_NCCL_UNSET,
                             .split_share = AX_NCCL_UNSET,
                             .traffic_class = AX_NCCL_UNSET,
                             .collnet_enable = AX_NCCL_UNSET,
                             .cta_policy = AX_NCCL_UNSET,
                             .shrink_share = AX_NCCL_UNSET,
                             .nvls_ctas = AX_NCCL_UNSET};
    memcpy(&unique, id, sizeof unique);
    AX_CUDA_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    AX_CUDA_TRY(cudaEventCreateWithFlags(&c->after, cudaEventDisableTiming));
    for (int i = 0; i < MARKS; i++)
        AX_CUDA_TRY(cudaEventCreateWithFlags(&c->marks[i], cudaEventDisableTiming));
    for (int i = 0; i < 2 * MARKS; i++)
        AX_CUDA_TRY(cudaEventCreateWithFlags(&c->waits[i / 2][i % 2], 0));
    return settle(c, nccl.CommInitRankConfig(&c->comm, n, unique, c->rank, &config),
                  "ncclCommInitRankConfig", ax_clock_now() + timeout);
}

enum ax_status ax_nccl_join(struct ax_nccl **out, const char id[AX_NCCL_ID], int rank, int n,
                            double timeout) {
    struct ax_nccl *c;
    AX_TRY(library());
    AX_TRY(ax_cuda_use());
    AX_TRY(ax_alloc(&c, 1, sizeof *c));
    c->rank = rank;
    const enum ax_status st = open_group(c, id, n, timeout);
    if (st != AX_OK) {
        ax_nccl_abort(c, NULL);
        ax_nccl_leave(c);
        return st;
    }
    *out = c;
    return AX_OK;
}

enum ax_status ax_nccl_register(struct ax_nccl *c, const struct ax_memory *m) {
    void *handle = NULL;
    const unsigned result = nccl.CommRegister(c->comm, m->base, m->bytes, &handle);
    if (result != AX_NCCL_SUCCESS)
        return ax_error(AX_ERR_UNSUPPORTED, "NCCL: ncclCommRegister: %s",
                        nccl.GetErrorString(result));
    c->registered = handle;
    return AX_OK;
}

void ax_nccl_deregister(struct ax_nccl *c) {
    if (c->registered)
        (void)nccl.CommDeregister(c->comm, c->registered);
    c->registered = NULL;
}

/* The queue's error comes first: who sees the data sees it, too. */
void ax_nccl_abort(struct ax_nccl *c, const struct ax_error_record *cause) {
    if (atomic_exchange(&c->aborted, true))
        return;
    struct ax_queue *q = atomic_load(&c->queue);
    if (q)
        ax_cuda_fail(q, cause);
    if (c->comm)
        (void)nccl.CommAbort(c->comm);
}

void ax_nccl_leave(struct ax_nccl *c) {
    if (!c)
        return;
    if (c->stream)
        (void)cudaStreamSynchronize(c->stream);
    if (c->comm && !atomic_load(&c->aborted)) { /* else the library has forgotten both */
        ax_nccl_deregister(c);
        (void)nccl.CommDestroy(c->comm);
    }
    for (int i = 0; i < MARKS; i++)
        if (c->marks[i])
            (void)cudaEventDestroy(c->marks[i]);
    for (int i = 0; i < 2 * MARKS; i++)
        if (c->waits[i / 2][i % 2])
            (void)cudaEventDestroy(c->waits[i / 2][i % 2]);
    if (c->after)
        (void)cudaEventDestroy(c->after);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    ax_free(c);
}

enum ax_status ax_nccl_check(struct ax_nccl *c, uint64_t ticket, bool *done) {
    unsigned result = AX_NCCL_SUCCESS;
    AX_TRY(ax_cuda_use()); /* whoever watches has not called it */
    *done = cudaEventQuery(c->marks[ticket % MARKS]) != cudaErrorNotReady;
    if (!*done && !atomic_load(&c->aborted))
        AX_TRY(check(nccl.CommGetAsyncError(c->comm, &result), "ncclCommGetAsyncError"));
    return result == AX_NCCL_IN_PROGRESS ? AX_OK : check(result, "a transfer");
}

uint64_t ax_nccl_done(const struct ax_nccl *c, uint64_t before) {
    uint64_t done = before;
    if (ax_cuda_use() != AX_OK)
        ax_error_clear();
    for (int i = 0; i < MARKS; i++)
        if (c->tickets[i] > done && cudaEventQuery(c->marks[i]) == cudaSuccess)
            done = c->tickets[i];
    return done;
}

/* ---- transfers ---- */

static unsigned type_of(enum ax_dtype dtype) {
    static const unsigned types[AX_DTYPE_COUNT] = {
        [AX_F64] = AX_NCCL_FLOAT64, [AX_F32] = AX_NCCL_FLOAT32, [AX_BF16] = AX_NCCL_BFLOAT16,
        [AX_F16] = AX_NCCL_FLOAT16, [AX_I64] = AX_NCCL_INT64,   [AX_I32] = AX_NCCL_INT32,
        [AX_I16] = UINT_MAX,        [AX_I8] = AX_NCCL_INT8,     [AX_U8] = AX_NCCL_UINT8};
    return types[dtype];
}

enum ax_status ax_nccl_begin(struct ax_nccl *c, struct ax_queue *q) {
    atomic_store(&c->queue, q); /* before the look at `aborted`: the one or the other sees it */
    if (atomic_load(&c->aborted))
        return ax_error(AX_ERR_PEER, "NCCL: the group was given up after an earlier error");
    AX_CUDA_TRY(cudaEventRecord(c->after, ax_cuda_stream(q)));
    AX_CUDA_TRY(cudaStreamWaitEvent(c->stream, c->after, 0));
    return AX_OK;
}

enum ax_status ax_nccl_all_reduce(struct ax_nccl *c, enum ax_dtype dtype, bool max,
                                  const void *send, void *recv, int64_t n) {
    return settle(c,
                  nccl.AllReduce(send, recv, (size_t)n, type_of(dtype),
                                 max ? AX_NCCL_MAX : AX_NCCL_SUM, c->comm, c->stream),
                  "ncclAllReduce", 0);
}

enum ax_status ax_nccl_all_gather(struct ax_nccl *c, enum ax_dtype dtype, const void *send,
                                  void *recv, int64_t n) {
    return settle(c, nccl.AllGather(send, recv, (size_t)n, type_of(dtype), c->comm, c->stream),
                  "ncclAllGather", 0);
}

enum ax_status ax_nccl_reduce_scatter(struct ax_nccl *c, enum ax_dtype dtype, bool max,
                                      const void *send, void *recv, int64_t n) {
    return settle(c,
                  nccl.ReduceScatter(send, recv, (size_t)n, type_of(dtype),
                                     max ? AX_NCCL_MAX : AX_NCCL_SUM, c->comm, c->stream),
                  "ncclReduceScatter", 0);
}

enum ax_status ax_nccl_broadcast(struct ax_nccl *c, enum ax_dtype dtype, const void *send,
                                 void *recv, int64_t n, int root) {
    return settle(c,
                  nccl.Broadcast(send ? send : recv, recv, (size_t)n, type_of(dtype), root, c->comm,
                                 c->stream),
                  "ncclBroadcast", 0);
}

/* As bytes: messages may have a dtype that sums do not. */
enum ax_status ax_nccl_exchange(struct ax_nccl *c, enum ax_dtype dtype, int n,
                                const struct ax_nccl_message *messages) {
    const size_t size = ax_dtype_size(dtype);
    enum ax_status st = check(nccl.GroupStart(), "ncclGroupStart");
    for (int i = 0; i < n && st == AX_OK; i++) {
        const struct ax_nccl_message *m = &messages[i];
        unsigned result = AX_NCCL_SUCCESS;
        if (m->to >= 0 && m->n_send > 0)
            result = nccl.Send(m->send, (size_t)m->n_send * size, AX_NCCL_UINT8, m->to, c->comm,
                               c->stream);
        if (result == AX_NCCL_SUCCESS && m->from >= 0 && m->n_recv > 0)
            result = nccl.Recv(m->recv, (size_t)m->n_recv * size, AX_NCCL_UINT8, m->from, c->comm,
                               c->stream);
        st = check(result, "ncclSend or ncclRecv");
    }
    const unsigned ended = nccl.GroupEnd();
    return st == AX_OK ? settle(c, ended, "ncclGroupEnd", 0) : st;
}

enum ax_status ax_nccl_end(struct ax_nccl *c, uint64_t ticket) {
    c->tickets[ticket % MARKS] = ticket;
    return ax_cuda_check(cudaEventRecord(c->marks[ticket % MARKS], c->stream), "cudaEventRecord");
}

double ax_nccl_waited(struct ax_nccl *c) {
    float took;
    while (c->n_added < c->n_waits) {
        cudaEvent_t *at = c->waits[c->n_added % MARKS];
        if (cudaEventQuery(at[1]) != cudaSuccess ||
            cudaEventElapsedTime(&took, at[0], at[1]) != cudaSuccess)
            break;
        c->waited += 1e-3 * (double)took;
        c->n_added++;
    }
    return c->waited;
}

enum ax_status ax_nccl_wait(struct ax_nccl *c, struct ax_queue *q, uint64_t ticket) {
    cudaStream_t stream = ax_cuda_stream(q);
    cudaEvent_t *at = c->waits[c->n_waits % MARKS];
    (void)ax_nccl_waited(c);
    if (c->n_waits - c->n_added == MARKS) /* the host is far ahead: that one does not count */
        c->n_added++;
    AX_CUDA_TRY(cudaEventRecord(at[0], stream));
    AX_CUDA_TRY(cudaStreamWaitEvent(stream, c->marks[ticket % MARKS], 0));
    AX_CUDA_TRY(cudaEventRecord(at[1], stream));
    c->n_waits++;
    return AX_OK;
}
