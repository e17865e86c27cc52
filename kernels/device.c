/* The devices whose work is done when a call returns: the host's memory, and none at all. */
#include "kernels/device.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kernels/queue.h"

#define HUGE_PAGE      ((size_t)2 << 20)
#define POPULATE_PIECE ((size_t)16 << 20) /* between two looks whether to stop */

/* ---- host ---- */

/* Pages that get memory only when touched; NULL if there is no address space. */
static void *map_pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Aligned for huge pages if large enough for one. */
static void host_allocate(struct ax_memory *m, enum ax_tier tier, size_t bytes) {
    (void)tier;
    *m = (struct ax_memory){.bytes = bytes};
    if (bytes < HUGE_PAGE) {
        m->base = map_pages(bytes);
        return;
    }
    char *wide = map_pages(bytes + HUGE_PAGE);
    if (wide == NULL)
        return;
    const size_t head = (HUGE_PAGE - (uintptr_t)wide % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0)
        munmap(wide, head);
    munmap(wide + head + bytes, HUGE_PAGE - head);
    madvise(wide + head, bytes, MADV_HUGEPAGE); /* advice: a kernel without them is fine */
    m->base = wide + head;
}

/* Pages that a thread takes while others load what they will hold. */
struct populating {
    struct ax_worker worker;
    atomic_bool stop;
    char *base;
    size_t bytes;
};

/* From the end: what is loaded first is at the start. */
static enum ax_status take_pages(void *arg) {
#ifdef MADV_POPULATE_WRITE
    struct populating *p = arg;
    size_t end = p->bytes;
    while (end > 0 && !atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        const size_t first = (end - 1) / POPULATE_PIECE * POPULATE_PIECE;
        if (madvise(p->base + first, end - first, MADV_POPULATE_WRITE) == 0)
            end = first;
        else if (errno != EINTR)
            break; /* an old kernel, or a limit, which whoever touches the memory meets, too */
    }
#else
    (void)arg;
#endif
    return AX_OK;
}

static void host_populate(struct ax_memory *m, size_t bytes) {
    struct populating *p;
    AX_ASSERT(m->state == NULL && bytes <= m->bytes);
    if (ax_alloc(&p, 1, sizeof *p) != AX_OK) {
        ax_error_clear();
        return;
    }
    p->base = m->base;
    p->bytes = bytes;
    if (ax_worker_start(&p->worker, take_pages, p) != AX_OK)
        ax_error_clear(); /* pages are taken when they are touched */
    m->state = p;
}

static void host_release(struct ax_memory *m, enum ax_tier tier) {
    struct populating *p = m->state;
    (void)tier;
    if (p != NULL) {
        atomic_store_explicit(&p->stop, true, memory_order_relaxed);
        (void)ax_worker_join(&p->worker);
        ax_free(p);
    }
    munmap(m->base, m->bytes);
}

static enum ax_status host_read(struct ax_queue *q, const void *device, void *out, size_t bytes,
                                const void *cap, uint64_t *ticket) {
    (void)q;
    (void)cap;
    *ticket = 0;
    memcpy(out, device, bytes);
    return AX_OK;
}

static enum ax_status host_copy(struct ax_queue *q, void *to, const void *from, size_t bytes) {
    (void)q;
    memcpy(to, from, bytes);
    return AX_OK;
}

static enum ax_status call_now(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                               const struct ax_view *views, int n_views) {
    void *at[AX_QUEUE_VIEWS];
    (void)size;
    for (int i = 0; i < n_views; i++)
        at[i] = (void *)(uintptr_t)views[i].device;
    return fn(q, args, at);
}

void ax_times_add(struct ax_times *t, int into) {
    const double now = ax_clock_now();
    if (into >= 0)
        t->seconds[into] += now - t->last;
    t->last = now;
}

static enum ax_status time_now(struct ax_queue *q, struct ax_times *t, int into) {
    (void)q;
    ax_times_add(t, into);
    return AX_OK;
}

static void *same_address(struct ax_queue *q, const void *device) {
    (void)q;
    return (void *)(uintptr_t)device;
}

static enum ax_status is_done(struct ax_queue *q) {
    (void)q;
    return AX_OK;
}

const struct ax_device ax_device_host = {
    .allocate = host_allocate,
    .release = host_release,
    .populate = host_populate,
    .read_later = host_read,
    .copy = host_copy,
    .call = call_now,
    .time = time_now,
    .address = same_address,
    .finish = is_done,
};

/* ---- meta ---- */

static enum ax_status meta_read(struct ax_queue *q, const void *device, void *out, size_t bytes,
                                const void *cap, uint64_t *ticket) {
    (void)q;
    (void)device;
    *ticket = 0;
    if (cap)
        memcpy(out, cap, bytes);
    else
        memset(out, 0, bytes);
    return AX_OK;
}

static enum ax_status meta_copy(struct ax_queue *q, void *to, const void *from, size_t bytes) {
    (void)q;
    (void)to;
    (void)from;
    (void)bytes;
    return AX_OK;
}

static enum ax_status meta_call(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                                const struct ax_view *views, int n_views) {
    (void)q;
    (void)fn;
    (void)args;
    (void)size;
    (void)views;
    (void)n_views;
    return AX_OK;
}

static enum ax_status meta_time(struct ax_queue *q, struct ax_times *t, int into) {
    (void)q;
    (void)t;
    (void)into;
    return AX_OK;
}

const struct ax_device ax_device_meta = {
    .read_later = meta_read,
    .copy = meta_copy,
    .call = meta_call,
    .time = meta_time,
    .address = same_address,
    .finish = is_done,
};
