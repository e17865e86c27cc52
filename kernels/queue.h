/* A queue: the order in which ops run on one device, and the resources they need.
 *
 * Host code only enqueues; the host waits only in ax_queue_read, _settle and _finish, and to write
 * where the ring has no free slot; the counters say how often. On the CPU backends an op is
 * finished when the call returns; the calls exist because callers are the same for every backend
 * (kernels/device.h). */
#ifndef AX_KERNELS_QUEUE_H
#define AX_KERNELS_QUEUE_H

#include "kernels/arena.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

struct ax_queue_counters {
    uint64_t waits; /* how often the host waited for the device */
    uint64_t launches[AX_OP_COUNT];
    uint64_t fallbacks; /* ops that ran on `fallback` */
    uint64_t asked;     /* kinds of products that a library was asked about; 0 in a warm step */
    uint64_t measured;  /* kinds whose algorithms were measured */
    uint64_t replayed;  /* ops that were launched together, as a captured graph */
    double flops[AX_OP_COUNT]; /* 2 per multiply-add */
    double bytes[AX_OP_COUNT]; /* operands read + written, each once */
};

/* A value that the host reads later: memory of the queue, to which the device copies when it gets
 * there. */
#define AX_QUEUE_LATE_BYTES 2048
#define AX_QUEUE_LATE       2 /* at the same time */
struct ax_late {
    uint64_t ticket; /* ticket of the device's read_later */
    double value[AX_QUEUE_LATE_BYTES / sizeof(double)];
};

struct ax_queue {
    const struct ax_ops *ops; /* the backend that runs enqueued ops */
    /* its supports() and workspace() decide: equals ops, except on a meta queue, where it is the
     * planned backend */
    const struct ax_ops *model;
    const struct ax_ops *fallback; /* ref, for what `model` does not support; NULL = error, as on
                                      memory that ref cannot touch */
    int threads;                   /* OpenMP threads an op may use */
    struct ax_times AX_DEVICE
        *op_times;         /* [AX_OP_COUNT]: what each op takes, by the device's clock, is
                                            added to its seconds[0]; NULL: no time is taken */
    bool tf32;             /* products of F32 on a GPU may round their operands to TF32 */
    bool attention_varies; /* backward of attention on a GPU may sum in another order each time */
    bool measures;         /* see ax_queue_choices */
    /* compute capability of a plan's GPU, 90 for 9.0; 0: the one that is here */
    int gpu;
    struct ax_stack *scratch; /* workspaces come from here */
    struct ax_ring *ring;     /* host writes go through it (kernels/ring.h) */
    void *state;              /* the backend's own */
    void *device_state;       /* the device's own */
    struct ax_queue_counters counters;
    /* records everything enqueued; borrowed (recording.h); NULL: not recorded */
    struct ax_recording *recording;
    struct ax_timeline *timeline; /* notes when ops ran; borrowed (timeline.h); NULL: not noted */
    struct ax_late late[AX_QUEUE_LATE]; /* ticket n uses element n % AX_QUEUE_LATE */
    uint64_t tickets;                   /* given out so far */
    struct {
        uint64_t copies, awaited; /* beside ops, so far */
    } beside[AX_TIERS];           /* into that tier */
};

/* backend: a name as for ax_backend_find, or "meta" (then `planned` names the backend to plan for, or
 * "sheet": a GPU). The scratch stack must outlive the queue. AX_ERR_CONFIG lists the backends. */
enum ax_status ax_queue_create(struct ax_queue **q, const char *backend, const char *planned,
                               int threads, struct ax_stack *scratch);
void ax_queue_free(struct ax_queue *q);
bool ax_queue_is_meta(const struct ax_queue *q);
/* Takes the ring that writes go through: AX_QUEUE_RING bytes of the host tier of scratch's arena, or
 * nothing where the device's memory is the host's. Before the first write. */
#define AX_QUEUE_STAGE ((size_t)1 << 20)    /* bytes of a slot */
#define AX_QUEUE_RING  (8 * AX_QUEUE_STAGE) /* the slots */
enum ax_status ax_queue_open_ring(struct ax_queue *q);

enum ax_status ax_queue_finish(struct ax_queue *q); /* the host waits for all ops */

/* FLOPs of matrix products, including those of attention and the delta rule: the quantity to compare with a peak. */
double ax_queue_product_flops(const struct ax_queue_counters *c);

/* The only way back to the host: copies `bytes` from device memory after all enqueued ops. On a
 * meta queue the value is unknown: `out` is filled from `cap` (an upper bound of the value; NULL =
 * zeros). */
enum ax_status ax_queue_read(struct ax_queue *q, const void AX_DEVICE *device, void *out,
                             size_t bytes, const void *cap);
/* The same in two calls. The first enqueues the copy of the value after everything enqueued so far
 * and returns a ticket; the second gets the value, once, before AX_QUEUE_LATE more tickets are
 * given out. Only work enqueued before the first call is waited for; the second counts as a wait,
 * whether or not the host has to sleep. */
enum ax_status ax_queue_read_later(struct ax_queue *q, const void AX_DEVICE *device, size_t bytes,
                                   const void *cap, uint64_t *ticket);
enum ax_status ax_queue_settle(struct ax_queue *q, uint64_t ticket, void *out, size_t bytes);
/* Numbers on the device that a backend may need on the host in order to enqueue. The first who needs
 * them waits for them, and those who come later do not. */
struct ax_mirror {
    const void AX_DEVICE *device; /* NULL: the mirror is empty */
    void *host; /* the caller's memory for them; where they are once they are known */
    size_t bytes;
    bool known;
};
/* *host = the host's address of the copy of `device`, which must be within m's range; NULL: the
 * mirror is empty. */
enum ax_status ax_queue_mirrored(struct ax_queue *q, struct ax_mirror *m,
                                 const void AX_DEVICE *device, const void **host);
/* True if work is done later than enqueued, so that waiting for a value costs time. */
bool ax_queue_is_late(const struct ax_queue *q);
/* Like ax_queue_read, but without a copy if device memory is host memory: *host is valid until
 * ax_queue_end_read. At most AX_QUEUE_PIECE bytes; never on a meta queue. Here, in ax_queue_read
 * and in ax_queue_write, q NULL means that `device` is ordinary host memory. */
#define AX_QUEUE_PIECE ((size_t)8 << 20)
enum ax_status ax_queue_begin_read(struct ax_queue *q, const void AX_DEVICE *device, size_t bytes,
                                   const void **host);
void ax_queue_end_read(struct ax_queue *q, const void *host);
/* Copies host memory to device memory, after all enqueued ops; `host` may change when it returns,
 * which is before the copy. A no-op on meta. */
enum ax_status ax_queue_write(struct ax_queue *q, void AX_DEVICE *device, const void *host,
                              size_t bytes);

/* For data that is converted while it is written, from any thread: between the two calls the host
 * fills `host` of each piece. If device memory is host memory, that is the memory itself, with its
 * old contents; otherwise it is zeroed memory of the ring, which _end_ uploads. Pieces of 0 bytes
 * are skipped, all pieces together have at most AX_QUEUE_STAGE bytes, and a thread has one call's
 * pieces at a time. _end_ must be called even if filling fails. Never on a meta queue. */
struct ax_queue_piece {
    void AX_DEVICE *device;
    size_t bytes;
    void *host; /* NULL before, and if there are no bytes */
};
enum ax_status ax_queue_begin_write(struct ax_queue *q, int n, struct ax_queue_piece *pieces);
enum ax_status ax_queue_end_write(struct ax_queue *q, int n, const struct ax_queue_piece *pieces);
/* Copies between the device's memory and its host tier, after all enqueued ops. */
enum ax_status ax_queue_copy(struct ax_queue *q, void AX_DEVICE *to, const void AX_DEVICE *from,
                             size_t bytes);
/* The same beside ops: while those run that are enqueued later, until ax_queue_after(*ticket). Copies
 * into a tier follow each other. Until then nothing may read or write `to`, nor write `from`. */
enum ax_status ax_queue_copy_beside(struct ax_queue *q, enum ax_tier into, void AX_DEVICE *to,
                                    const void AX_DEVICE *from, size_t bytes, uint64_t *ticket);
/* What is enqueued from here on happens after that copy. Ticket 0 is none. */
enum ax_status ax_queue_after(struct ax_queue *q, uint64_t ticket);
/* The tier that the copy of a ticket goes into. */
static inline enum ax_tier ax_queue_into(uint64_t ticket) {
    return (enum ax_tier)(ticket % AX_TIERS);
}
/* True if the backend (on a meta queue, the planned one) has a host tier. */
bool ax_queue_has_host_tier(const struct ax_queue *q);

/* Adds the device's seconds since the last call for *t to t->seconds[into], after everything
 * enqueued so far; into −1 only starts the clock. */
enum ax_status ax_queue_time(struct ax_queue *q, struct ax_times AX_DEVICE *t, int into);

/* Runs fn on the host after everything enqueued so far, with a copy of `size` ≤ AX_QUEUE_ARGS bytes
 * of arguments and with views of device memory (kernels/device.h); skipped on meta. fn must not
 * enqueue anything. If it fails, the next call that waits returns its error. */
enum ax_status ax_queue_call(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                             const struct ax_view *views, int n_views);
/* The view of a dense tensor; data NULL = an empty view. */
struct ax_view ax_view_of(const struct ax_tensor *t, enum ax_view_use use);

/* If a library has several algorithms for a product, a queue that `measures` times them when a kind
 * of product first occurs, but computes with the library's first one until ax_queue_choose: so all
 * ranks change at the same time, and their bits do not depend on which rank measured.
 *
 * Appends the choices and measurements so far as lines of text: first a line for the device and the
 * library, for which alone they hold, then one for each kind. Appends nothing if there is no
 * choice. */
enum ax_status ax_queue_choices(struct ax_queue *q, struct ax_buf *out);
/* From now on computes with these choices, and with the library's first algorithm for all other
 * kinds. AX_ERR_DATA if the text is damaged, or belongs to another device or library: then nothing
 * changes. */
enum ax_status ax_queue_choose(struct ax_queue *q, const char *text);

/* For fabrics that move device memory themselves: the address by which host functions of the queue
 * reach `device`. */
void *ax_queue_address(struct ax_queue *q, const void AX_DEVICE *device);

#endif
