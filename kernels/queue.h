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
    uint64_t waits; /* of the host for the device */
    uint64_t launches[AX_OP_COUNT];
    uint64_t fallbacks; /* ops that ran on `fallback` */
    uint64_t asked;     /* kinds of products that a library was asked about; 0 in a warm step */
    uint64_t measured;  /* of them, those whose algorithms were measured */
    uint64_t replayed;  /* ops that were launched together, as a captured graph */
    double flops[AX_OP_COUNT]; /* 2 per multiply-add */
    double bytes[AX_OP_COUNT]; /* operands read + written, each once */
};

/* A value that the host reads later: memory of the queue's, which a device can copy to whenever it
 * gets there. */
#define AX_QUEUE_LATE_BYTES 1024
#define AX_QUEUE_LATE       2 /* at the same time */
struct ax_late {
    uint64_t ticket; /* of the device's read_later */
    double value[AX_QUEUE_LATE_BYTES / sizeof(double)];
};

struct ax_queue {
    const struct ax_ops *ops;      /* the backend that runs enqueued ops */
    const struct ax_ops *model;    /* its supports() and workspace() decide: = ops, but the planned
                                      backend on a meta queue */
    const struct ax_ops *fallback; /* ref, for what `model` does not support; NULL = error, as on
                                      memory that ref cannot touch */
    int threads;                   /* OpenMP threads an op may use */
    struct ax_times AX_DEVICE
        *op_times;            /* [AX_OP_COUNT]: what each op takes, by the device's clock, is
                                            added to its seconds[0]; NULL: no time is taken */
    bool tf32;                /* products of F32 on a GPU may round their operands to TF32 */
    bool measures;            /* see ax_queue_choices */
    struct ax_stack *scratch; /* workspaces come from here */
    struct ax_ring *ring;     /* what the host writes goes through it (kernels/ring.h) */
    void *state;              /* the backend's own */
    void *device_state;       /* its device's */
    struct ax_queue_counters counters;
    struct ax_recording
        *recording;               /* what it is given, borrowed (recording.h); NULL: not recorded */
    struct ax_timeline *timeline; /* when it ran, borrowed (timeline.h); NULL: not noted */
    struct ax_late late[AX_QUEUE_LATE]; /* that of ticket n is n % AX_QUEUE_LATE */
    uint64_t tickets;                   /* given out so far */
};

/* backend: "ref", "cpu", an instruction set that the cpu has ("avx2"), or "meta" (then `planned`
 * names the backend to plan for, or "sheet": a GPU). The scratch stack must outlive the queue. AX_ERR_CONFIG lists
 * the backends. */
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

/* FLOPs of matrix products, attention's among them: what a peak is compared with. */
double ax_queue_product_flops(const struct ax_queue_counters *c);

/* The device that a backend computes on, by its name as for ax_queue_create. */
enum ax_status ax_queue_device(const char *backend, const struct ax_device **device);

/* The only way back to the host: copies `bytes` from device memory after all enqueued ops. On a
 * meta queue the value is unknown: `out` is filled from `cap` (an upper bound of the value; NULL =
 * zeros). */
enum ax_status ax_queue_read(struct ax_queue *q, const void AX_DEVICE *device, void *out,
                             size_t bytes, const void *cap);
/* The same in two calls: the value is what it is after all enqueued so far, and is got with the
 * ticket, once, before AX_QUEUE_LATE more are given out. Only what was enqueued before the first
 * call is waited for; the second counts as a wait, whether or not the host has to sleep. */
enum ax_status ax_queue_read_later(struct ax_queue *q, const void AX_DEVICE *device, size_t bytes,
                                   const void *cap, uint64_t *ticket);
enum ax_status ax_queue_settle(struct ax_queue *q, uint64_t ticket, void *out, size_t bytes);
/* What the host knows of numbers on the device that it needs in order to enqueue. Where the device
 * computes them, the copy starts then, and the first who needs it waits. */
struct ax_mirror {
    const void AX_DEVICE *device; /* NULL: nothing is known */
    const void *host;             /* the same numbers; the caller's memory */
    uint64_t ticket;              /* until which `host` is the device's; 0: they are there */
};
/* m becomes a mirror of what is computed so far; does nothing where the backend needs none. `host` has
 * room for `bytes`, and is written to only now or by the call that waits. */
enum ax_status ax_queue_mirror(struct ax_queue *q, struct ax_mirror *m,
                               const void AX_DEVICE *device, void *host, size_t bytes);
/* *host: where the host has what is at `device`, which is within m's; NULL: m knows nothing. */
enum ax_status ax_queue_mirrored(struct ax_queue *q, struct ax_mirror *m,
                                 const void AX_DEVICE *device, const void **host);
/* True if work is done later than enqueued, so that waiting for a value costs time. */
bool ax_queue_is_late(const struct ax_queue *q);
/* The same as ax_queue_read without a copy where device memory is the host's: *host is valid until the end. At most
 * AX_QUEUE_PIECE bytes; never on a meta queue. A queue of NULL stands for the host's own memory,
 * here and in ax_queue_read and ax_queue_write: some data are in either. */
#define AX_QUEUE_PIECE ((size_t)8 << 20)
enum ax_status ax_queue_begin_read(struct ax_queue *q, const void AX_DEVICE *device, size_t bytes,
                                   const void **host);
void ax_queue_end_read(struct ax_queue *q, const void *host);
/* Copies host memory to device memory, after all enqueued ops; `host` may change when it returns,
 * which is before the copy. A no-op on meta. */
enum ax_status ax_queue_write(struct ax_queue *q, void AX_DEVICE *device, const void *host,
                              size_t bytes);

/* For what converts as it writes, from any thread: between the two calls the host fills `host` of
 * each piece. That is the memory itself where it is the host's, with its old contents; elsewhere
 * zeroed memory of the ring, which the end uploads. Pieces of 0 bytes are skipped, all of them are
 * AX_QUEUE_STAGE bytes at most, and a thread has one call's pieces at a time. The end is due even
 * if filling fails. Never on a meta queue. */
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
/* True if the backend (of a meta queue: the planned one) has a host tier. */
bool ax_queue_has_host_tier(const struct ax_queue *q);

/* Adds the device's seconds since the last call for *t to t->seconds[into], when all enqueued so far
 * is done; −1 only starts. */
enum ax_status ax_queue_time(struct ax_queue *q, struct ax_times AX_DEVICE *t, int into);

/* Runs fn on the host after all enqueued so far, with a copy of `size` ≤ AX_QUEUE_ARGS bytes of
 * arguments and with views of the device's memory (kernels/device.h); skipped on meta. It may not enqueue
 * anything. Its failure is reported by the next call that waits. */
enum ax_status ax_queue_call(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                             const struct ax_view *views, int n_views);
/* All of a dense tensor; data NULL = none. */
struct ax_view ax_view_of(const struct ax_tensor *t, enum ax_view_use use);

/* Where a library has several algorithms for a product, a queue that `measures` times them when a kind of
 * product first comes, but computes with the library's first one until it is told otherwise: so all
 * ranks change at the same time, and their bits do not depend on who measured.
 *
 * Appends what was chosen and measured so far, as lines of text: first that of the device and the
 * library, the only ones for which it holds, then one for each kind. Nothing where there is no choice. */
enum ax_status ax_queue_choices(struct ax_queue *q, struct ax_buf *out);
/* From now on computes with these, and with the library's first algorithm for all other kinds.
 * AX_ERR_DATA, and nothing is changed: damaged, or of another device or library. */
enum ax_status ax_queue_choose(struct ax_queue *q, const char *text);

/* For fabrics, which move the device's memory themselves: where such a function finds what tensors know
 * as `device`. */
void *ax_queue_address(struct ax_queue *q, const void AX_DEVICE *device);

#endif
