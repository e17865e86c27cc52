/* A record of everything enqueued on a queue, in order: each op with its shape and cost, each copy
 * to or from the host tier, those beside ops to where these wait, each transfer between ranks from
 * its start to its wait. A plan of time (optim/plan/plan_time.h) replays it on another machine.
 *
 * A queue records while ax_queue.recording is set, which a dry run may do: the dispatcher
 * (kernels/ops.c) adds ops, the queue adds copies, and communicators (parallel/fabric/comm.c) add
 * transfers. */
#ifndef AX_KERNELS_RECORDING_H
#define AX_KERNELS_RECORDING_H

#include "kernels/ops.h"

enum ax_event_kind { AX_EVENT_OP, AX_EVENT_COPY, AX_EVENT_AFTER, AX_EVENT_START, AX_EVENT_WAIT };

/* Products have sizes [m][k]·[k][n]; of a grouped_gemm m and n are those of all groups' products, as
 * if they were one. Of attention, k is the keys per query, on average, and n the head's size. */
struct ax_op_event {
    enum ax_op op;
    enum ax_dtype dtype; /* dtype of a product's operands */
    /* a product whose operands both have 8 bits, because they are codes (fp8_gemm) or fake_quantize made
     * them; or a fake_quantize that makes such values */
    bool fp8;
    int64_t m, n, k;
    /* number of products that a GPU computes one after the other for a grouped_gemm; else 0 */
    int64_t products;
    double flops, bytes;
};

struct ax_copy_event {
    double bytes;
    uint64_t ticket; /* a copy beside ops has one (ax_queue_copy_beside); 0: in their order */
};

/* `lane` is the communicator, `kind` its collective: numbers of parallel/. */
struct ax_transfer_event {
    int lane, kind;
    int to, from;    /* peers of a message; −1: none */
    uint64_t ticket; /* ticket in the lane */
    /* bytes that this rank sends in a ring (ax_comm_ideal_bytes); the size of a message */
    double bytes;
};

struct ax_event {
    enum ax_event_kind kind;
    int unit; /* the recording's, when it was added */
    union {
        struct ax_op_event op;
        struct ax_copy_event copy;         /* for AX_EVENT_AFTER, only ticket */
        struct ax_transfer_event transfer; /* for a wait, only lane and ticket */
    };
};

#define AX_RECORDED_OUTPUTS 16
struct ax_recording {
    size_t n, capacity;
    struct ax_event *events; /* owned */
    int unit; /* 1 + the model's unit that a step computes forward or backward; 0: something else */
    const void AX_DEVICE *in_fp8[AX_RECORDED_OUTPUTS]; /* tensors that fake_quantize wrote last */
    int next_fp8;
};

enum ax_status ax_record_op(struct ax_recording *r, enum ax_op op, const void *args,
                            struct ax_op_cost cost);
enum ax_status ax_record_copy(struct ax_recording *r, size_t bytes, uint64_t ticket);
enum ax_status ax_record_after(struct ax_recording *r, uint64_t ticket);
enum ax_status ax_record_start(struct ax_recording *r, const struct ax_transfer_event *t);
enum ax_status ax_record_wait(struct ax_recording *r, int lane, uint64_t ticket);
void ax_recording_free(struct ax_recording *r);

#endif
