/* The devices whose work is done when a call returns: the host's memory, and none at all. */
#include "kernels/device.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "kernels/queue.h"

#define HUGE_PAGE ((size_t)2 << 20)

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

static void host_release(struct ax_memory *m, enum ax_tier tier) {
    (void)tier;
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

static enum ax_status call_now(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size) {
    (void)size;
    return fn(q, args);
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

static enum ax_status meta_call(struct ax_queue *q, ax_queue_fn *fn, const void *args,
                                size_t size) {
    (void)q;
    (void)fn;
    (void)args;
    (void)size;
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
