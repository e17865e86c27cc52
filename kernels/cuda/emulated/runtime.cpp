/* Streams that defer: a command runs when a host thread waits for it or for a later one of its stream,
 * and before it commands of other streams run or do not, as a seed chooses (AXTRAIN_CUDA_SEED). Between
 * commands nobody can touch a device's memory: the host that follows such an address crashes. */
#include "kernels/cuda/emulated/machine.h"
#include "kernels/cuda/emulated/stream.h"

#include <sys/mman.h>

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

struct cudaStream {
    std::deque<command> list;
    uint64_t added = 0, done = 0;
    double now = 0; /* its own milliseconds */
};

namespace {
std::recursive_mutex lock;
std::condition_variable_any changed; /* something was enqueued, or given up */
std::vector<cudaStream *> streams;
std::map<void *, size_t> device_memory; /* by address */
unsigned random_state;
bool opened;
cudaStream *running;
thread_local cudaError_t failure; /* of a rank's next call that can tell (ax_emulated_fail) */
thread_local bool failure_stays;

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

void protect(int how) {
    for (auto &m : device_memory)
        mprotect(m.first, m.second, how);
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
    protect(PROT_NONE);
    changed.wait_for(lock, std::chrono::milliseconds(2));
    protect(PROT_READ | PROT_WRITE);
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
    protect(PROT_READ | PROT_WRITE);
    while (!reached())
        if (run_any())
            waits = 0;
        else
            wait_for_others(&waits);
    protect(PROT_NONE);
}

void add(cudaStream_t s, command c) {
    std::lock_guard<std::recursive_mutex> held(lock);
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
            protect(PROT_READ | PROT_WRITE);
            while (run_any())
                ;
            protect(PROT_NONE);
        }
    }
    ~background() {
        stop = true;
        if (thread.joinable())
            thread.join();
    }
} background;

size_t pages(size_t bytes) {
    return (bytes + 4095) / 4096 * 4096 + 4096;
}

/* In pages of 2 MiB if there are: what protect() costs is per page. */
const size_t LARGE = (size_t)2 << 20;
void *map_large(size_t bytes) {
    char *at = (char *)mmap(nullptr, bytes + LARGE, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return nullptr;
    char *first = (char *)(((uintptr_t)at + LARGE - 1) & -(uintptr_t)LARGE);
    if (first > at)
        munmap(at, (size_t)(first - at));
    munmap(first + bytes, (size_t)(at + LARGE - first));
    madvise(first, bytes, MADV_HUGEPAGE);
    return first;
}

size_t in_use;
/* Less what other processes have. */
size_t free_memory() {
    return ax_emulated_memory() - ax_emulated_setting("AXTRAIN_EMULATED_USED", 0) - in_use;
}
} // namespace

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

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    std::lock_guard<std::recursive_mutex> held(lock);
    *available = free_memory();
    *total = ax_emulated_memory();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    std::lock_guard<std::recursive_mutex> held(lock);
    void *at = bytes > free_memory() ? nullptr : map_large(pages(bytes));
    if (!at)
        return cudaErrorMemoryAllocation;
    device_memory[at] = pages(bytes);
    in_use += bytes;
    *p = at;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    cudaDeviceSynchronize();
    std::lock_guard<std::recursive_mutex> held(lock);
    auto m = device_memory.find(p);
    if (m == device_memory.end())
        return p ? cudaErrorInvalidValue : cudaSuccess;
    munmap(p, m->second);
    in_use -= m->second - 4096;
    device_memory.erase(m);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    *p = aligned_alloc(4096, pages(bytes));
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *p) {
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    std::lock_guard<std::recursive_mutex> held(lock);
    protect(PROT_READ | PROT_WRITE);
    if (value != 0) /* fresh pages are zero already */
        memset(p, value, bytes);
    protect(PROT_NONE);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
    ax_emulated_add(s, [=] { memset(p, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    (void)kind;
    ax_emulated_add(s, [=] { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    (void)flags;
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
    std::lock_guard<std::recursive_mutex> held(lock);
    const uint64_t upto = s->added;
    run_until([=] { return s->done >= upto; });
    return failure;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    std::lock_guard<std::recursive_mutex> held(lock);
    command c;
    c.wait = e->of;
    c.number = e->of->last;
    add(s, std::move(c));
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
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
    ax_emulated_add(s, [=] { fn(args); });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    *e = new cudaEvent;
    (*e)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    std::lock_guard<std::recursive_mutex> held(lock);
    command c;
    c.record = e->of;
    c.number = ++e->of->last;
    add(s, std::move(c));
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return e->of->done >= e->of->last ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
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
}
