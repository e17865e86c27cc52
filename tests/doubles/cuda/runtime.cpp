/* Streams that defer: a command runs when a host thread waits for it or for a later one of its stream,
 * and before it commands of other streams run or do not, as a seed chooses (AXTRAIN_CUDA_SEED). Between
 * commands nobody can touch a device's memory: the host that follows such an address crashes. */
#include "tests/doubles/cuda/machine.h"
#include "tests/doubles/cuda/stream.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

struct records {
    uint64_t last = 0, done = 0; /* numbers; done when that one was reached */
    double at = 0;               /* and the time then */
};
struct cudaEvent {
    std::shared_ptr<records> of = std::make_shared<records>(); /* commands need it longer */
    bool timed;
};

struct command {
    std::function<void()> run;  /* empty: an event's place */
    std::function<bool()> when; /* it may run; asked while it is its stream's first */
    std::shared_ptr<records> record, wait;
    uint64_t number = 0; /* of the event's record */
};

typedef std::vector<std::function<void()>> functions;
struct cudaStream {
    std::deque<command> list;
    uint64_t added = 0, done = 0;
    double now = 0; /* its own milliseconds */
    bool captures = false, spoiled = false;
    functions captured;
};
struct cudaGraph {
    functions list;
};
struct cudaGraphExec {
    functions list;
};

namespace {
std::recursive_mutex lock;
std::condition_variable_any changed; /* something was enqueued, or given up */
std::vector<cudaStream *> streams;
unsigned random_state;
bool opened;
cudaStream *running;
thread_local cudaError_t failure; /* of a rank's next call that can tell (ax_emulated_fail) */
thread_local bool failure_stays;
thread_local cudaStream *capturing; /* by this thread */

unsigned seed() {
    const char *text = getenv("AXTRAIN_CUDA_SEED");
    return text ? (unsigned)strtoul(text, nullptr, 10) : 0;
}

unsigned draw() {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 16; /* lower bits hardly differ between small seeds */
}

void begin() {
    if (opened)
        return;
    ax_emulated_seed(seed());
}

bool ready(const cudaStream *s) {
    const command &c = s->list.front();
    return c.when ? c.when() : !c.wait || c.wait->done >= c.number;
}

void run_first(cudaStream *s) {
    command c = std::move(s->list.front());
    s->list.pop_front();
    running = s;
    if (c.wait)
        s->now = std::max(s->now, c.wait->at);
    if (c.run)
        c.run();
    if (c.record && c.record->done < c.number)
        *c.record = {c.record->last, c.number, s->now};
    s->done++;
}

/* Until another thread enqueues something, or another process has, as the other ranks of a transfer do. */
void wait_for_others(int *waits) {
    if (++*waits > 60000) {
        fprintf(stderr, "emulated CUDA: every stream waits for something that nobody enqueues\n");
        abort();
    }
    ax_emulated_open_memory(false);
    changed.wait_for(lock, std::chrono::milliseconds(2));
    ax_emulated_open_memory(true);
}

/* Runs a command of any stream that can go on; false: none can. */
bool run_any() {
    std::vector<cudaStream *> can;
    for (cudaStream *s : streams)
        if (!s->list.empty() && ready(s))
            can.push_back(s);
    if (!can.empty())
        run_first(can[draw() % can.size()]);
    return !can.empty();
}

/* Runs commands in any order that events allow until `reached` says so. With the lock, once. */
template <class F> void run_until(F reached) {
    int waits = 0;
    if (reached())
        return;
    begin();
    ax_emulated_open_memory(true);
    while (!reached())
        if (run_any())
            waits = 0;
        else
            wait_for_others(&waits);
    ax_emulated_open_memory(false);
}

void add(cudaStream_t s, command c) {
    ax_emulated_device();
    std::lock_guard<std::recursive_mutex> held(lock);
    if (s->captures) {
        s->spoiled |= s != capturing || c.record || c.wait || c.when;
        s->captured.push_back(std::move(c.run));
        return;
    }
    s->list.push_back(std::move(c));
    s->added++;
    changed.notify_all();
}

/* Ranks of other processes wait for this one's streams, whatever its host waits for. */
struct background {
    std::atomic<bool> stop{false};
    std::thread thread;
    void work() {
        while (!stop) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            std::lock_guard<std::recursive_mutex> held(lock);
            ax_emulated_open_memory(true);
            while (run_any())
                ;
            ax_emulated_open_memory(false);
        }
    }
    ~background() {
        stop = true;
        if (thread.joinable())
            thread.join();
    }
} background;

} // namespace

cudaStream_t ax_emulated_legacy() {
    static cudaStream_t legacy; /* never destroyed: others may wait until the program ends */
    std::lock_guard<std::recursive_mutex> held(lock);
    if (!legacy)
        cudaStreamCreateWithFlags(&legacy, cudaStreamNonBlocking);
    return legacy;
}

void ax_emulated_add(cudaStream_t s, std::function<void()> run) {
    command c;
    c.run = std::move(run);
    add(s, std::move(c));
}

void ax_emulated_add_when(cudaStream_t s, std::function<bool()> when, std::function<void()> run) {
    command c;
    c.when = std::move(when);
    c.run = std::move(run);
    add(s, std::move(c));
}

cudaError_t ax_emulated_forbidden(cudaStream_t on) {
    ax_emulated_device();
    if (!capturing || (on && on != capturing))
        return cudaSuccess;
    capturing->spoiled = true;
    return cudaErrorStreamCaptureUnsupported;
}

void ax_emulated_took(double milliseconds) {
    running->now += milliseconds;
}

ax_emulated_hold::ax_emulated_hold() {
    lock.lock();
}
ax_emulated_hold::~ax_emulated_hold() {
    lock.unlock();
}

void ax_emulated_wake() {
    changed.notify_all();
}

void ax_emulated_go_on() {
    if (!background.thread.joinable())
        background.thread = std::thread([] { background.work(); });
}

extern "C" {

void ax_emulated_seed(unsigned seed) {
    std::lock_guard<std::recursive_mutex> held(lock);
    opened = true;
    random_state = seed;
    cu_emu::schedule_seed = seed;
}

const char *cudaGetErrorName(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "emulated";
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "out of memory" : "an error of the emulator";
}
cudaError_t cudaGetLastError(void) {
    const cudaError_t e = failure;
    if (!failure_stays)
        failure = cudaSuccess;
    return e;
}
void ax_emulated_fail(cudaError_t e, bool stays) {
    failure = e;
    failure_stays = stays;
}

static std::atomic<uint64_t> copies;
uint64_t ax_emulated_copies(void) {
    return copies;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
    ax_emulated_add(s, [=] { memset(p, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    (void)kind;
    copies++;
    ax_emulated_add(s, [=] { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    if (flags != cudaStreamNonBlocking)
        return cudaErrorInvalidValue;
    ax_emulated_device();
    std::lock_guard<std::recursive_mutex> held(lock);
    begin();
    *s = new cudaStream;
    streams.push_back(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    cudaStreamSynchronize(s);
    std::lock_guard<std::recursive_mutex> held(lock);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    AX_EMULATED_ALLOWED(nullptr);
    std::lock_guard<std::recursive_mutex> held(lock);
    s = s ? s : ax_emulated_legacy();
    const uint64_t upto = s->added;
    run_until([=] { return s->done >= upto; });
    return failure;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    AX_EMULATED_ALLOWED(s);
    std::lock_guard<std::recursive_mutex> held(lock);
    command c;
    c.wait = e->of;
    c.number = e->of->last;
    add(s, std::move(c));
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    AX_EMULATED_ALLOWED(nullptr);
    std::lock_guard<std::recursive_mutex> held(lock);
    run_until([] {
        for (cudaStream *s : streams)
            if (!s->list.empty())
                return false;
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *args) {
    AX_EMULATED_ALLOWED(s);
    ax_emulated_add(s, [=] { fn(args); });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    ax_emulated_device();
    *e = new cudaEvent;
    (*e)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    AX_EMULATED_ALLOWED(s);
    std::lock_guard<std::recursive_mutex> held(lock);
    command c;
    c.record = e->of;
    c.number = ++e->of->last;
    add(s, std::move(c));
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    ax_emulated_device();
    std::lock_guard<std::recursive_mutex> held(lock);
    return e->of->done >= e->of->last ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    AX_EMULATED_ALLOWED(nullptr);
    std::lock_guard<std::recursive_mutex> held(lock);
    const std::shared_ptr<records> of = e->of;
    const uint64_t upto = of->last;
    run_until([=] { return of->done >= upto; });
    return failure;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    std::lock_guard<std::recursive_mutex> held(lock);
    *milliseconds = (float)(to->of->at - from->of->at);
    if (!from->timed || !to->timed)
        return cudaErrorInvalidResourceHandle;
    return to->of->done >= to->of->last ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    (void)mode;
    ax_emulated_device();
    std::lock_guard<std::recursive_mutex> held(lock);
    if (s->captures || capturing)
        return cudaErrorInvalidValue;
    capturing = s;
    s->captures = true;
    s->spoiled = ax_emulated_setting("AXTRAIN_EMULATED_GRAPHS", 1) == 0;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    std::lock_guard<std::recursive_mutex> held(lock);
    if (s != capturing)
        return cudaErrorInvalidValue;
    capturing = nullptr;
    s->captures = false;
    functions list = std::move(s->captured);
    s->captured.clear();
    *graph = s->spoiled ? nullptr : new cudaGraph{std::move(list)};
    return s->spoiled ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    ax_emulated_device();
    *e = new cudaGraphExec{graph->list};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    for (const auto &run : e->list)
        ax_emulated_add(s, run);
    return failure;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
    delete e;
    return cudaSuccess;
}
}
