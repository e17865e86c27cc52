/* Communicators: start a collective → ticket → wait. One communicator per mesh role.
 *
 * Loss and gradients are only ever summed; MAX is for scales and flags; counts are I64 or F64.
 * Every rank of a group must start the same collectives in the same order, except SEND_RECV, which
 * pairs two ranks and is matched in order per sender and receiver. Several may be in flight; each
 * ticket is waited for once, and until then buffers (but not count arrays) must not change.
 * Implementations: `self` (a group of one: copies), `meta` (any group size, moves nothing, counts),
 * and those that a fabric opens (parallel/fabric/fabric.h). */
#ifndef AX_PARALLEL_FABRIC_COMM_H
#define AX_PARALLEL_FABRIC_COMM_H

#include <stdint.h>

#include "kernels/queue.h"
#include "parallel/fabric/mesh.h"

enum ax_collective_kind {
    AX_ALL_REDUCE,     /* recv[count] = Σ or max over ranks of send[count]; recv may be send */
    AX_ALL_GATHER,     /* recv[size][count] from send[count]; send may be recv + rank·count */
    AX_REDUCE_SCATTER, /* recv[count] = Σ over ranks of send[size][count][own rank] */
    AX_ALL_TO_ALL_V,   /* send_counts[r] elements to rank r, recv_counts[r] from it, contiguous */
    AX_SEND_RECV,      /* send[count] to send_peer and recv[count] from recv_peer; −1 = none */
    AX_BROADCAST,      /* recv[count] of root to all; in place */
    AX_COLLECTIVE_COUNT
};

enum ax_reduction { AX_SUM, AX_MAX };

struct ax_collective {
    enum ax_collective_kind kind;
    enum ax_reduction reduction;
    enum ax_dtype dtype;
    const void AX_DEVICE *send;
    void AX_DEVICE *recv;
    void AX_DEVICE *staging; /* ax_comm_staging bytes, or NULL: set by ax_comm_run */
    int64_t count;           /* elements, depending on the kind */
    const int64_t *send_counts, *recv_counts;
    int root, send_peer, recv_peer;
};

/* A collective that was started, by its number on its communicator. */
struct ax_ticket {
    uint64_t id;
};

struct ax_comm;
struct ax_contracts;
struct ax_flight;
struct ax_comm_ops {
    const char *name;
    /* Called by the host, in the queue's order, with addresses that it can follow; or, if the device
     * itself moves the data (`enqueues`), when the caller starts and waits: they only enqueue on q. */
    bool enqueues;
    enum ax_status (*start)(struct ax_comm *c, struct ax_queue *q, const struct ax_collective *what,
                            struct ax_ticket ticket);
    enum ax_status (*wait)(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket);
    /* See ax_comm_travel; NULL: messages travel as soon as they are started. */
    enum ax_status (*travel)(struct ax_comm *c, struct ax_queue *q);
    /* See ax_comm_waited; NULL: the member `waited` has the value. */
    double (*waited)(struct ax_comm *c);
    void (*free)(struct ax_comm *c);
};

struct ax_comm {
    const struct ax_comm_ops *ops;
    enum ax_role role;
    int rank, size;
    int group;         /* world rank of the group's first member */
    bool stages;       /* its sums use planned memory from the queue's scratch (ax_comm_staging) */
    bool moves;        /* has moved a device's memory, or did so in the plan */
    uint64_t sequence; /* collectives started */
    uint64_t waits;    /* collectives waited for */
    uint64_t calls[AX_COLLECTIVE_COUNT];
    double bytes_sent[AX_COLLECTIVE_COUNT]; /* ax_comm_ideal_bytes */
    double waited;                          /* result of ax_comm_waited where the host waits */
    /* the expected collectives (parallel/fabric/contract.h); or NULL */
    struct ax_contracts *contracts;
    struct ax_flight *flight; /* where they are noted (parallel/fabric/flight.h); or NULL */
    void *state;
};

/* Starts a collective on `q` after everything enqueued there; wait makes q continue after it; the
 * host waits for neither. Start checks the arguments and the contract, counts calls and bytes, and
 * enqueues the implementation. */
enum ax_status ax_comm_start(struct ax_comm *c, struct ax_queue *q,
                             const struct ax_collective *what, struct ax_ticket *ticket);
enum ax_status ax_comm_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket);
/* Seconds so far that the queue's work stood still in `wait`. On a device that works late, only
 * waits that it has already passed count. */
double ax_comm_waited(struct ax_comm *c);
/* Lets the messages that were started travel now, together, as they do when one of them is waited
 * for. */
enum ax_status ax_comm_travel(struct ax_comm *c, struct ax_queue *q);
/* In place of start: counts a collective that is in the plan, but whose result no member of the
 * group needs with the data at hand. */
enum ax_status ax_comm_skip(struct ax_comm *c, const struct ax_collective *what);
/* Bytes of staging memory for the parts of a sum that other ranks send to this one. */
size_t ax_comm_staging(const struct ax_collective *what, int size);
/* start + wait. */
enum ax_status ax_comm_run(struct ax_comm *c, struct ax_queue *q, const struct ax_collective *what);
/* data[count] = Σ over the ranks, or max, in place. */
enum ax_status ax_comm_sum(struct ax_comm *c, struct ax_queue *q, enum ax_dtype dtype,
                           void AX_DEVICE *data, int64_t count);
enum ax_status ax_comm_max(struct ax_comm *c, struct ax_queue *q, enum ax_dtype dtype,
                           void AX_DEVICE *data, int64_t count);
void ax_comm_free(struct ax_comm *c);
/* Bytes that one rank of the group sends in an ideal ring algorithm. */
double ax_comm_ideal_bytes(const struct ax_collective *what, int rank, int size);
const char *ax_collective_name(enum ax_collective_kind kind);

void ax_comm_self_init(struct ax_comm *c, enum ax_role role);
void ax_comm_meta_init(struct ax_comm *c, enum ax_role role, int rank, int size);

#endif
