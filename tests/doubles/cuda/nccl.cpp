/* A stand-in for NCCL: ranks are threads or processes of one host, and a group is a folder in memory where each
 * leaves what it brings. A transfer is a command of each rank's stream. It is done when all ranks whose part it
 * needs have got there: sums in the order of a ring, rounded at each hop. A collective takes its stream a millisecond.
 * Each call that starts a transfer is in progress until its rank has looked twice, and no other may come before.
 * Where a rank has registered memory, all that it moves must be part of that. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/doubles/cuda/libraries.h"
#include "tests/doubles/cuda/machine.h"
#include "tests/doubles/cuda/progress.h"
#include "tests/doubles/cuda/registered.h"
#include "tests/doubles/cuda/stream.h"
extern "C" {
#include "kernels/cuda/nccl_api.h"
#include "kernels/dtype.h"
}

#define FOLDER "/dev/shm/axtrain-nccl-XXXXXX" /* the id of a group */

struct ncclComm {
    std::string folder;
    int rank, n;
    bool aborted = false; /* ends this rank's transfers; the others' never end by themselves */
    uint64_t collectives = 0;
    ax_progress progress;
    std::map<int, uint64_t> sent, received; /* messages, by peer */
    ax_registered memory;
};

namespace {
/* ---- files of a group: there from one moment to the next, with all that they contain ---- */

std::string file_of(const ncclComm *c, const char *what, uint64_t number, int from, int to) {
    return c->folder + "/" + what + std::to_string(number) + "." + std::to_string(from) + "." +
           std::to_string(to);
}

bool is_there(const std::string &path) {
    return access(path.c_str(), F_OK) == 0;
}

/* What a transfer is, before its data: the same on all ranks. */
struct header {
    uint64_t kind, n, type, op_or_root;
};

void leave(const std::string &path, const header &h, const void *data, size_t bytes) {
    const std::string partial = path + "+";
    const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, &h, sizeof h) != (ssize_t)sizeof h ||
        write(fd, data, bytes) != (ssize_t)bytes || close(fd) != 0 ||
        rename(partial.c_str(), path.c_str()) != 0) {
        fprintf(stderr, "emulated NCCL: %s cannot be written\n", path.c_str());
        abort();
    }
}

/* Bytes of a file's data from `first` on; ends the program if it is another transfer. */
void take(const std::string &path, const header &h, size_t first, void *out, size_t bytes) {
    header there;
    const int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0 || read(fd, &there, sizeof there) != (ssize_t)sizeof there ||
        memcmp(&there, &h, sizeof h) != 0 ||
        pread(fd, out, bytes, (off_t)(sizeof h + first)) != (ssize_t)bytes) {
        fprintf(stderr, "emulated NCCL: %s is of another transfer than this rank's\n",
                path.c_str());
        abort();
    }
    close(fd);
}

/* ---- collectives ---- */

enum kind { MESSAGE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST };

enum ax_dtype dtype_of(unsigned type) {
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

struct collective {
    struct ncclComm *comm;
    header what;
    const char *send;
    char *recv;
    uint64_t number;
    size_t size;       /* bytes of an element */
    size_t brought;    /* elements that each rank brings */
    bool left = false; /* this rank's part is there */
};

std::string part_of(const collective &c, int rank) {
    return file_of(c.comm, "collective", c.number, rank, 0);
}

/* What a hop of a ring hands on. */
double hop(const collective &c, double have, double own) {
    const enum ax_dtype t = dtype_of((unsigned)c.what.type);
    double next = have + own;
    char rounded[8];
    if (c.what.op_or_root == AX_NCCL_MAX)
        return own > have ? own : have;
    if (t == AX_F32 || t == AX_BF16)
        next = (double)((float)have + (float)own);
    ax_store(t, rounded, 0, next);
    return ax_load(t, rounded, 0);
}

/* recv = Σ or max of all ranks' elements [first, first + n). A part of the vector goes around from the rank
 * after the one that it is for, which adds its own last. */
void reduce(const collective &c, size_t first, size_t part) {
    const size_t n = c.what.n;
    const enum ax_dtype t = dtype_of((unsigned)c.what.type);
    const int ranks = c.comm->n;
    std::vector<char> all((size_t)ranks * n * c.size);
    for (int r = 0; r < ranks; r++)
        take(part_of(c, r), c.what, first * c.size, all.data() + (size_t)r * n * c.size,
             n * c.size);
    for (size_t i = 0; i < n; i++) {
        const size_t owner = (first + i) / part;
        double x = 0;
        for (int k = 1; k <= ranks; k++) {
            const size_t r = (owner + (size_t)k) % (size_t)ranks;
            const double own = ax_load(t, all.data() + r * n * c.size, (int64_t)i);
            x = k == 1 ? own : hop(c, x, own);
        }
        ax_store(t, c.recv, (int64_t)i, x);
    }
}

void finish(const collective &c) {
    const size_t bytes = c.what.n * c.size;
    switch (c.what.kind) {
    case ALL_REDUCE:
        reduce(c, 0, (c.what.n + (size_t)c.comm->n - 1) / (size_t)c.comm->n);
        break;
    case REDUCE_SCATTER:
        reduce(c, (size_t)c.comm->rank * c.what.n, c.what.n);
        break;
    case ALL_GATHER:
        for (int r = 0; r < c.comm->n; r++)
            take(part_of(c, r), c.what, 0, c.recv + (size_t)r * bytes, bytes);
        break;
    case BROADCAST:
        take(part_of(c, (int)c.what.op_or_root), c.what, 0, c.recv, bytes);
        break;
    }
}

bool have_arrived(collective &c) {
    if (!c.left)
        leave(part_of(c, c.comm->rank), c.what, c.send, c.brought * c.size);
    c.left = true;
    for (int r = 0; r < c.comm->n; r++)
        if (!is_there(part_of(c, r)))
            return false;
    return true;
}

/* Who has arrived here has read what came before. */
void forget_last(const collective &c) {
    if (c.number > 1)
        unlink(file_of(c.comm, "collective", c.number - 1, c.comm->rank, 0).c_str());
}

unsigned add(struct ncclComm *comm, kind what, const void *send, void *recv, size_t n,
             unsigned type, int op_or_root, cudaStream_t s) {
    auto c = std::make_shared<collective>();
    c->comm = comm;
    c->what = {(uint64_t)what, n, type, (uint64_t)op_or_root};
    c->send = (const char *)send;
    c->recv = (char *)recv;
    c->number = ++comm->collectives;
    c->size = ax_dtype_size(dtype_of(type));
    c->brought = what == REDUCE_SCATTER ? n * (size_t)comm->n : n;
    comm->progress.begin();
    comm->memory.touch(send, c->brought * c->size);
    comm->memory.touch(recv, (what == ALL_GATHER ? n * (size_t)comm->n : n) * c->size);
    ax_emulated_add_when(
        s, [=] { return comm->aborted || have_arrived(*c); },
        [=] {
            ax_emulated_took(1);
            if (comm->aborted)
                return;
            finish(*c);
            forget_last(*c);
        });
    return AX_NCCL_IN_PROGRESS;
}

/* ---- messages: those between GroupStart and GroupEnd travel together ---- */

struct message {
    std::string path;
    header what;
    const char *send; /* NULL: it is received */
    char *recv;
    bool left, done;
};
thread_local std::vector<message> batch;
thread_local cudaStream_t batch_stream;
thread_local struct ncclComm *batch_comm;
thread_local int depth;

/* What is sent is left, and gone when the other has taken it. */
bool have_moved(std::vector<message> &list) {
    bool all = true;
    for (message &m : list)
        if (m.send && !m.left) {
            leave(m.path, m.what, m.send, m.what.n);
            m.left = true;
        }
    for (message &m : list)
        if (!m.send && !m.done && is_there(m.path)) {
            take(m.path, m.what, 0, m.recv, m.what.n);
            unlink(m.path.c_str());
            m.done = true;
        }
    for (message &m : list) {
        m.done = m.done || (m.send && !is_there(m.path));
        all = all && m.done;
    }
    return all;
}

unsigned GroupStart(void) {
    depth++;
    return AX_NCCL_SUCCESS;
}

unsigned GroupEnd(void) {
    if (--depth > 0 || batch.empty())
        return AX_NCCL_SUCCESS;
    struct ncclComm *comm = batch_comm;
    auto list = std::make_shared<std::vector<message>>(std::move(batch));
    batch.clear();
    ax_emulated_add_when(
        batch_stream, [=] { return comm->aborted || have_moved(*list); }, [] {});
    comm->progress.begin();
    return AX_NCCL_IN_PROGRESS;
}

void post(struct ncclComm *c, int peer, size_t bytes, const void *send, void *recv,
          cudaStream_t s) {
    const uint64_t number = send ? ++c->sent[peer] : ++c->received[peer];
    const int from = send ? c->rank : peer, to = send ? peer : c->rank;
    c->memory.touch(send ? send : recv, bytes);
    batch.push_back({file_of(c, "message", number, from, to),
                     {MESSAGE, bytes, AX_NCCL_UINT8, 0},
                     (const char *)send,
                     (char *)recv,
                     false,
                     false});
    batch_comm = c;
    batch_stream = s;
}

/* ---- groups ---- */

std::vector<std::unique_ptr<ncclComm>>
    members; /* a thread may be about to abort one that has left */

bool all_are(const ncclComm *c, const char *what) {
    for (int r = 0; r < c->n; r++)
        if (!is_there(file_of(c, what, 0, r, 0)))
            return false;
    return true;
}

unsigned GetUniqueId(ax_nccl_unique_id *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s", FOLDER);
    return mkdtemp(id->internal) ? AX_NCCL_SUCCESS : AX_NCCL_INVALID_ARGUMENT;
}

unsigned CommInitRankConfig(ax_nccl_comm *c, int n, ax_nccl_unique_id id, int rank,
                            ax_nccl_config *config) {
    ax_emulated_hold held;
    const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT"); /* else several groups may hang */
    if (!ordered || config->size != sizeof *config || config->magic != AX_NCCL_MAGIC)
        return AX_NCCL_INVALID_ARGUMENT;
    members.push_back(std::make_unique<ncclComm>());
    *c = members.back().get();
    (*c)->folder = id.internal;
    (*c)->rank = rank;
    (*c)->n = n;
    leave(file_of(*c, "joined", 0, rank, 0), {}, nullptr, 0);
    return AX_NCCL_IN_PROGRESS;
}

unsigned CommGetAsyncError(ax_nccl_comm c, unsigned *result) {
    ax_emulated_hold held;
    int here = 0;
    const bool all = all_are(c, "joined");
    *result =
        (all && c->progress.is_through()) || c->aborted ? AX_NCCL_SUCCESS : AX_NCCL_IN_PROGRESS;
    for (const auto &m : members)
        here += m->folder == c->folder;
    if (all && here < c->n)
        ax_emulated_go_on();
    return AX_NCCL_SUCCESS;
}

unsigned CommDestroy(ax_nccl_comm c) {
    ax_emulated_hold held;
    std::error_code ignored;
    if (!c->aborted)
        c->memory.check_empty();
    leave(file_of(c, "left", 0, c->rank, 0), {}, nullptr, 0);
    if (all_are(c, "left"))
        std::filesystem::remove_all(c->folder, ignored);
    return AX_NCCL_SUCCESS;
}

unsigned CommAbort(ax_nccl_comm c) {
    {
        ax_emulated_hold held;
        c->aborted = true;
        CommDestroy(c);
    }
    ax_emulated_wake();
    return AX_NCCL_SUCCESS;
}

unsigned CommRegister(ax_nccl_comm c, void *base, size_t bytes, void **handle) {
    *handle = base;
    return c->memory.add(c->rank, base, bytes) ? AX_NCCL_SUCCESS : AX_NCCL_INVALID_ARGUMENT;
}

unsigned CommDeregister(ax_nccl_comm c, void *handle) {
    c->memory.remove(handle);
    return AX_NCCL_SUCCESS;
}

const char *GetErrorString(unsigned result) {
    return result == AX_NCCL_INVALID_ARGUMENT ? "invalid argument" : "an error of the stand-in";
}

unsigned GetVersion(int *v) {
    *v = (int)ax_emulated_setting("AXTRAIN_EMULATED_NCCL", 22800);
    return AX_NCCL_SUCCESS;
}

unsigned Send(const void *from, size_t n, unsigned type, int peer, ax_nccl_comm c, cudaStream_t s) {
    GroupStart();
    post(c, peer, n * ax_dtype_size(dtype_of(type)), from, nullptr, s);
    return GroupEnd();
}

unsigned Recv(void *to, size_t n, unsigned type, int peer, ax_nccl_comm c, cudaStream_t s) {
    GroupStart();
    post(c, peer, n * ax_dtype_size(dtype_of(type)), nullptr, to, s);
    return GroupEnd();
}

unsigned AllReduce(const void *from, void *to, size_t n, unsigned type, unsigned op, ax_nccl_comm c,
                   cudaStream_t s) {
    return add(c, ALL_REDUCE, from, to, n, type, (int)op, s);
}
unsigned AllGather(const void *from, void *to, size_t n, unsigned type, ax_nccl_comm c,
                   cudaStream_t s) {
    return add(c, ALL_GATHER, from, to, n, type, 0, s);
}
unsigned ReduceScatter(const void *from, void *to, size_t n, unsigned type, unsigned op,
                       ax_nccl_comm c, cudaStream_t s) {
    return add(c, REDUCE_SCATTER, from, to, n, type, (int)op, s);
}
unsigned Broadcast(const void *from, void *to, size_t n, unsigned type, int root, ax_nccl_comm c,
                   cudaStream_t s) {
    return add(c, BROADCAST, from, to, n, type, root, s);
}
} // namespace

const struct ax_standin ax_standin_nccl[] = {
#define ROW(result, name, parameters) {"nccl" #name, (void *)name},
    AX_NCCL_FUNCTIONS(ROW)
#undef ROW
        {nullptr, nullptr},
};
