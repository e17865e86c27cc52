/* The device's half of a backend: its memory, and the order of what happens there.
 *
 * Tensors have the device's addresses. Host code never follows them: it goes through a queue
 * (kernels/queue.h), which calls these functions. All of them but `finish` and `wait` may return
 * before their work is done; what is enqueued on one queue happens in that order.
 *
 *   host   (ref, cpu)  device memory is the host's: everything is done when the call returns
 *   meta               no memory: nothing is done
 *   cuda               a GPU's memory; streams do the work (kernels/cuda/) */
#ifndef AX_KERNELS_DEVICE_H
#define AX_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/address.h"

struct ax_queue;
struct ax_times;

/* A device with memory of its own has a tier of the host's memory beside it, which it copies to and
 * from by itself (pinned, where that exists). Host code does not follow addresses of either. */
enum ax_tier { AX_TIER_DEVICE, AX_TIER_HOST, AX_TIERS };

struct ax_memory {
    void AX_DEVICE *base; /* aligned to AX_ARENA_ALIGN */
    size_t bytes;
    void *state; /* the device's own */
};

/* Device memory that a host function reads or writes: it gets copies, unless device memory is host
 * memory. WRITE: the copy starts with undefined contents and is copied back entirely. */
enum ax_view_use { AX_VIEW_READ, AX_VIEW_WRITE, AX_VIEW_UPDATE };
struct ax_view {
    const void AX_DEVICE *device; /* NULL: none */
    size_t bytes;
    enum ax_view_use use;
};
#define AX_QUEUE_VIEWS 24 /* most views of one call */

/* Runs in the queue's order, with a copy of the arguments; at[i] is the host's address of view i,
 * NULL if the view is empty. */
typedef enum ax_status ax_queue_fn(struct ax_queue *q, const void *args, void *const *at);
#define AX_QUEUE_ARGS 256 /* largest size of the arguments */

struct ax_device {
    bool has_host_tier;
    bool late;       /* work is done after the call that enqueues it */
    bool own_fabric; /* ranks can reach its memory only through a fabric of its own */
    /* Allocates zeroed memory; base NULL: there is not enough. */
    void (*allocate)(struct ax_memory *m, enum ax_tier tier, size_t bytes);
    void (*release)(struct ax_memory *m, enum ax_tier tier);
    /* Begins to populate the first bytes in the background, so that the first access need not wait
     * for it. Once; NULL = there is nothing to wait for. */
    void (*populate)(struct ax_memory *m, size_t bytes);
    enum ax_status (*open)(struct ax_queue *q); /* fills q->device_state; NULL = nothing to do */
    void (*close)(struct ax_queue *q);
    /* See the functions of the same name in kernels/queue.h. */
    /* Starts a copy to the host; `out` belongs to the device until `wait` returns for *ticket. */
    enum ax_status (*read_later)(struct ax_queue *q, const void AX_DEVICE *device, void *out,
                                 size_t bytes, const void *cap, uint64_t *ticket);
    enum ax_status (*copy)(struct ax_queue *q, void AX_DEVICE *to, const void AX_DEVICE *from,
                           size_t bytes);
    enum ax_status (*call)(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                           const struct ax_view *views, int n_views);
    enum ax_status (*time)(struct ax_queue *q, struct ax_times AX_DEVICE *t, int into);
    void *(*address)(struct ax_queue *q, const void AX_DEVICE *device);
    enum ax_status (*finish)(struct ax_queue *q);
    /* Only with a host tier, from any thread: */
    /* the host's address of host tier memory */
    void *(*host)(struct ax_queue *q, const void AX_DEVICE *tier);
    /* a ticket for everything enqueued so far; tickets increase */
    uint64_t (*signal)(struct ax_queue *q);
    /* Waits until the ticket's work is done; *slept: it was not done yet. Ticket 0 needs no
     * wait. */
    enum ax_status (*wait)(struct ax_queue *q, uint64_t ticket, bool *slept);
    /* Only with a host tier, from the queue's thread: */
    /* the n-th copy into a tier beside ops, and that these wait for it; n counts from 1 */
    enum ax_status (*copy_beside)(struct ax_queue *q, enum ax_tier into, uint64_t n,
                                  void AX_DEVICE *to, const void AX_DEVICE *from, size_t bytes);
    enum ax_status (*after)(struct ax_queue *q, enum ax_tier into, uint64_t n);
};

/* the effect of `time`, with this machine's clock */
void ax_times_add(struct ax_times *t, int into);

extern const struct ax_device ax_device_host, ax_device_meta;

#endif
