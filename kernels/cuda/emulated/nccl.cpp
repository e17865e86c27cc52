/* A stand-in for NCCL: ranks are threads of this process, or of one host's emulator. A transfer is a command
 * of each rank's stream. It is done when all ranks whose part it needs have got there, by whoever comes
 * last: sums in rank order, rounded at each hop. */
#include <string.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulated/libraries.h"
#include "kernels/cuda/emulated/stream.h"
extern "C" {
#include "kernels/cuda/nccl_api.h"
#include "kernels/dtype.h"
}

namespace {
enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST };

/* What one rank brings. */
struct part {
    const char *send = nullptr;
    char *recv = nullptr;
    bool arrived = false;
};
struct collective {
    kind what;
    size_t n;
    int type, op_or_root;
    std::vector<part> parts;
    int arrived = 0, left = 0;
    bool done = false;
};
struct message {
    const char *send = nullptr;
    char *recv = nullptr;
    size_t n = 0;
    bool sender = false, receiver = false, done = false; /* have arrived */
    int left = 0;
    std::pair<int, int> ranks;
    uint64_t number = 0;
};

/* What the ranks of a group share. */
struct group {
    int n;
    bool aborted = false;
    int joined = 0;
    std::map<uint64_t, std::shared_ptr<collective>> collectives; /* by number */
    std::map<std::pair<int, int>, std::map<uint64_t, std::shared_ptr<message>>> messages;
};
std::map<std::string, std::shared_ptr<group>> groups; /* by id; under the runtime's lock */
uint64_t ids;

/* Messages between group_start and group_end. */
struct posted {
    std::shared_ptr<message> m;
    bool sends;
    const char *send;
    char *recv;
};
thread_local std::vector<posted> batch;
thread_local cudaStream_t batch_stream;
thread_local struct ncclComm *batch_comm;
thread_local int depth;
} // namespace

struct ncclComm {
    std::shared_ptr<group> g;
    bool aborted = false; /* ends this rank's transfers; the others' never end by themselves */
    int rank;
    uint64_t collectives = 0;
    std::map<int, uint64_t> sent, received;
};

namespace {
enum ax_dtype dtype_of(int type) {
    switch (type) {
    case AX_NCCL_FLOAT64:
        return AX_F64;
    case AX_NCCL_FLOAT32:
        return AX_F32;
    case AX_NCCL_BFLOAT16:
        return AX_BF16;
    case AX_NCCL_FLOAT16:
        return AX_F16;
    case AX_NCCL_INT64:
        return AX_I64;
    case AX_NCCL_INT32:
        return AX_I32;
    case AX_NCCL_INT8:
        return AX_I8;
    default:
        return AX_U8;
    }
}

/* Elements [first, first + n) of all ranks' send, into `out`. */
void reduce(const collective &c, size_t first, size_t n, std::vector<double> &out) {
    const enum ax_dtype t = dtype_of(c.type);
    out.assign(n, 0);
    for (size_t r = 0; r < c.parts.size(); r++)
        for (size_t i = 0; i < n; i++) {
            const double x = ax_load(t, c.parts[r].send, (int64_t)(first + i));
            if (r == 0)
                out[i] = x;
            else if (c.op_or_root == AX_NCCL_MAX)
                out[i] = x > out[i] ? x : out[i];
            else
                out[i] =
                    t == AX_F32 || t == AX_BF16 ? (double)((float)out[i] + (float)x) : out[i] + x;
        }
}

void store(const collective &c, char *recv, const std::vector<double> &from) {
    for (size_t i = 0; i < from.size(); i++)
        ax_store(dtype_of(c.type), recv, (int64_t)i, from[i]);
}

void run(collective &c) {
    if (c.n == 0)
        return;
    const size_t size = ax_dtype_size(dtype_of(c.type)), ranks = c.parts.size();
    std::vector<std::vector<double>> sums(ranks);
    switch (c.what) {
    case ALL_REDUCE:
        reduce(c, 0, c.n, sums[0]);
        for (size_t r = 0; r < ranks; r++)
            store(c, c.parts[r].recv, sums[0]);
        break;
    case REDUCE_SCATTER:
        for (size_t r = 0; r < ranks; r++)
            reduce(c, r * c.n, c.n, sums[r]);
        for (size_t r = 0; r < ranks; r++)
            store(c, c.parts[r].recv, sums[r]);
        break;
    case ALL_GATHER: {
        std::vector<char> all(ranks * c.n * size);
        for (size_t r = 0; r < ranks; r++)
            memcpy(all.data() + r * c.n * size, c.parts[r].send, c.n * size);
        for (size_t r = 0; r < ranks; r++)
            memcpy(c.parts[r].recv, all.data(), all.size());
        break;
    }
    case BROADCAST:
        for (size_t r = 0; r < ranks; r++)
            memmove(c.parts[r].recv, c.parts[c.op_or_root].send, c.n * size);
        break;
    }
}

int add(struct ncclComm *comm, kind what, const void *send, void *recv, size_t n, int type,
        int op_or_root, cudaStream_t s) {
    std::shared_ptr<group> g = comm->g;
    std::shared_ptr<collective> c;
    const int rank = comm->rank;
    uint64_t number;
    {
        ax_emulated_hold held;
        number = ++comm->collectives;
        auto &slot = g->collectives[number];
        if (!slot) {
            slot = std::make_shared<collective>();
            *slot = {what, n, type, op_or_root, std::vector<part>(g->n)};
        }
        c = slot;
        if (c->what != what || c->n != n || c->type != type || c->op_or_root != op_or_root) {
            fprintf(stderr, "emulated NCCL: rank %d calls another collective than the others\n",
                    rank);
            abort();
        }
    }
    ax_emulated_add_when(
        s,
        [=] {
            part &p = c->parts[rank];
            if (!p.arrived) {
                p = {(const char *)send, (char *)recv, true};
                if (++c->arrived == g->n && !g->aborted) {
                    run(*c);
                    c->done = true;
                }
            }
            return c->done || comm->aborted;
        },
        [=] {
            if (++c->left == g->n)
                g->collectives.erase(number);
        });
    return AX_NCCL_SUCCESS;
}

std::vector<std::unique_ptr<ncclComm>> members;

int unique_id(ax_nccl_unique_id *id) {
    ax_emulated_hold held;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "group %llu", (unsigned long long)++ids);
    return AX_NCCL_SUCCESS;
}

int init(ax_nccl_comm *c, int n, ax_nccl_unique_id id, int rank, ax_nccl_config *config) {
    ax_emulated_hold held;
    if (config->size != sizeof *config || config->magic != AX_NCCL_MAGIC)
        return AX_NCCL_INVALID_ARGUMENT;
    auto &g = groups[id.internal];
    if (!g) {
        g = std::make_shared<group>();
        g->n = n;
    }
    g->joined++;
    members.push_back(std::make_unique<ncclComm>());
    *c = members.back().get();
    (*c)->g = g;
    (*c)->rank = rank;
    return AX_NCCL_IN_PROGRESS;
}

int async_error(ax_nccl_comm c, int *result) {
    ax_emulated_hold held;
    *result = c->g->joined < c->g->n && !c->aborted ? AX_NCCL_IN_PROGRESS : AX_NCCL_SUCCESS;
    return AX_NCCL_SUCCESS;
}

int abort_group(ax_nccl_comm c) {
    {
        ax_emulated_hold held;
        c->g->aborted = c->aborted = true;
    }
    ax_emulated_wake();
    return AX_NCCL_SUCCESS;
}

int destroy(ax_nccl_comm c) {
    (void)c; /* `members` keeps it: a thread may be about to abort it */
    return AX_NCCL_SUCCESS;
}

const char *error_string(int result) {
    return result == AX_NCCL_INVALID_ARGUMENT ? "invalid argument" : "an error of the stand-in";
}

int version(int *v) {
    *v = 22800;
    return AX_NCCL_SUCCESS;
}

int group_start(void) {
    depth++;
    return AX_NCCL_SUCCESS;
}

/* All messages of a batch arrive together. */
int group_end(void) {
    if (--depth > 0 || batch.empty())
        return AX_NCCL_SUCCESS;
    struct ncclComm *comm = batch_comm;
    std::shared_ptr<group> g = comm->g;
    auto list = std::make_shared<std::vector<posted>>(std::move(batch));
    batch.clear();
    ax_emulated_add_when(
        batch_stream,
        [=] {
            bool all = true;
            for (posted &p : *list) {
                message &m = *p.m;
                if (p.sends && !m.sender)
                    m.send = p.send, m.sender = true;
                if (!p.sends && !m.receiver)
                    m.recv = p.recv, m.receiver = true;
                if (m.sender && m.receiver && !m.done && !g->aborted) {
                    memmove(m.recv, m.send, m.n);
                    m.done = true;
                }
                all = all && m.done;
            }
            return all || comm->aborted;
        },
        [=] {
            for (posted &p : *list)
                if (++p.m->left == 2)
                    g->messages[p.m->ranks].erase(p.m->number);
        });
    return AX_NCCL_SUCCESS;
}

void post(struct ncclComm *c, int peer, size_t n, const void *send, void *recv, cudaStream_t s) {
    ax_emulated_hold held;
    const auto pair = send ? std::make_pair(c->rank, peer) : std::make_pair(peer, c->rank);
    const uint64_t number = send ? ++c->sent[peer] : ++c->received[peer];
    auto &slot = c->g->messages[pair][number];
    if (!slot) {
        slot = std::make_shared<message>();
        slot->n = n;
        slot->ranks = pair;
        slot->number = number;
    }
    if (slot->n != n) {
        fprintf(stderr, "emulated NCCL: a message of %zu bytes is received as %zu\n", slot->n, n);
        abort();
    }
    batch.push_back({slot, send != nullptr, (const char *)send, (char *)recv});
    batch_comm = c;
    batch_stream = s;
}

int send(const void *from, size_t n, int type, int peer, ax_nccl_comm c, cudaStream_t s) {
    group_start();
    post(c, peer, n * ax_dtype_size(dtype_of(type)), from, nullptr, s);
    return group_end();
}

int recv(void *to, size_t n, int type, int peer, ax_nccl_comm c, cudaStream_t s) {
    group_start();
    post(c, peer, n * ax_dtype_size(dtype_of(type)), nullptr, to, s);
    return group_end();
}

int all_reduce(const void *from, void *to, size_t n, int type, int op, ax_nccl_comm c,
               cudaStream_t s) {
    return add(c, ALL_REDUCE, from, to, n, type, op, s);
}
int all_gather(const void *from, void *to, size_t n, int type, ax_nccl_comm c, cudaStream_t s) {
    return add(c, ALL_GATHER, from, to, n, type, 0, s);
}
int reduce_scatter(const void *from, void *to, size_t n, int type, int op, ax_nccl_comm c,
                   cudaStream_t s) {
    return add(c, REDUCE_SCATTER, from, to, n, type, op, s);
}
int broadcast(const void *from, void *to, size_t n, int type, int root, ax_nccl_comm c,
              cudaStream_t s) {
    return add(c, BROADCAST, from, to, n, type, root, s);
}
} // namespace

const struct ax_standin ax_standin_nccl[] = {
    {"ncclGetVersion", (void *)version},
    {"ncclGetUniqueId", (void *)unique_id},
    {"ncclCommInitRankConfig", (void *)init},
    {"ncclCommGetAsyncError", (void *)async_error},
    {"ncclCommAbort", (void *)abort_group},
    {"ncclCommDestroy", (void *)destroy},
    {"ncclGetErrorString", (void *)error_string},
    {"ncclGroupStart", (void *)group_start},
    {"ncclGroupEnd", (void *)group_end},
    {"ncclAllReduce", (void *)all_reduce},
    {"ncclAllGather", (void *)all_gather},
    {"ncclReduceScatter", (void *)reduce_scatter},
    {"ncclBroadcast", (void *)broadcast},
    {"ncclSend", (void *)send},
    {"ncclRecv", (void *)recv},
    {nullptr, nullptr},
};
