/* A queue: the order in which ops run on one device, and the resources they need.
 *
 * Host code only enqueues. Queues wait for each other through tickets; the host waits only in
 * ax_queue_read. On the CPU backends an op is finished when the call returns, so every ticket is
 * already done; the calls exist because callers are the same for every backend. */
#ifndef AX_KERNELS_QUEUE_H
#define AX_KERNELS_QUEUE_H

#include "kernels/arena.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

struct ax_queue_counters {
    uint64_t launches[AX_OP_COUNT];
    uint64_t fallbacks;          /* ops that ran on `fallback` */
    double flops[AX_OP_COUNT];   /* 2 per multiply-add */
    double bytes[AX_OP_COUNT];   /* operands read + written, each once */
    double seconds[AX_OP_COUNT]; /* only while `timing` */
};

struct ax_queue {
    const struct ax_ops *ops;      /* the backend that runs enqueued ops */
    const struct ax_ops *model;    /* its supports() and workspace() decide: = ops, but the planned
                                      backend on a meta queue */
    const struct ax_ops *fallback; /* ref, for what `model` does not support; NULL = error */
    int threads;                   /* OpenMP threads an op may use */
    bool timing;
    struct ax_stack *scratch; /* workspaces come from here */
    void *state;              /* the backend's own */
    uint64_t ticket;
    struct ax_queue_counters counters;
};

/* backend: "ref", "cpu" or "meta" (then `planned` names the backend to plan for). The scratch stack
 * must outlive the queue. AX_ERR_CONFIG lists the backends. */
enum ax_status ax_queue_create(struct ax_queue **q, const char *backend, const char *planned,
                               int threads, struct ax_stack *scratch);
void ax_queue_free(struct ax_queue *q);
bool ax_queue_is_meta(const struct ax_queue *q);

struct ax_ticket {
    uint64_t id;
};
struct ax_ticket ax_queue_signal(struct ax_queue *q);            /* after all enqueued so far */
void ax_queue_wait(struct ax_queue *q, struct ax_ticket ticket); /* q continues after it */
enum ax_status ax_queue_finish(struct ax_queue *q);              /* the host waits for all ops */

/* The only way back to the host: copies `bytes` from device memory after all enqueued ops. On a
 * meta queue the value is unknown: `out` is filled from `cap` (an upper bound of the value; NULL =
 * zeros). */
enum ax_status ax_queue_read(struct ax_queue *q, const void *device, void *out, size_t bytes,
                             const void *cap);
/* Copies host memory to device memory; a no-op on meta. */
enum ax_status ax_queue_write(struct ax_queue *q, void *device, const void *host, size_t bytes);

#endif
