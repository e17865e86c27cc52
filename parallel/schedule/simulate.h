/* An event simulator of ranks that compute and communicate: how long a step takes if every op and
 * every transfer takes as long as given, and who waits for whom.
 *
 * A rank has a program, a list of items in the order in which it enqueues them. WORK occupies its
 * compute stream. START begins a transfer, beside the work that follows; WAIT stops the stream until
 * that transfer is done. Transfers of one lane (a communicator) follow each other; messages, which
 * name a peer among the simulated ranks, begin when both sides have started, in order per pair, and
 * do not wait for others of their lane. A transfer takes its latency, and then the time that each of
 * its links needs, shared evenly with the rank's other transfers on that link. While any of them moves
 * data, work is slower by `contention`.
 *
 * Ranks of a group that do the same at the same time need one program: a collective has no peers. */
#ifndef AX_PARALLEL_SCHEDULE_SIMULATE_H
#define AX_PARALLEL_SCHEDULE_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum ax_sim_kind { AX_SIM_WORK, AX_SIM_START, AX_SIM_WAIT };
enum ax_sim_link { AX_SIM_NODE, AX_SIM_NETWORK, AX_SIM_LINKS };
#define AX_SIM_GROUPS 16 /* groups by which times are added up */

struct ax_sim_item {
    enum ax_sim_kind kind;
    int group;       /* WORK and START: whose times it is added to (struct ax_sim_rank) */
    int unit;        /* for the caller's span */
    int lane;        /* START and WAIT: the communicator */
    int to, from;    /* START: the peers of a message; −1: a collective */
    uint64_t ticket; /* START and WAIT: unique and ascending in a lane */
    double seconds;  /* WORK: its time; START: its latency */
    /* START: seconds that it would take alone on each link; it uses them at the same time */
    double links[AX_SIM_LINKS];
};

struct ax_sim_rank {
    const struct ax_sim_item *items; /* borrowed */
    size_t n;
    /* out, in seconds */
    double end;                    /* when its last item ends */
    double work[AX_SIM_GROUPS];    /* time on the compute stream */
    double moved[AX_SIM_GROUPS];   /* time in which transfers of the group were in flight */
    double exposed[AX_SIM_GROUPS]; /* time in which the stream waited for a transfer of the group */
};

/* A finished piece of a rank's time. lane −1: its compute stream, with work, or waiting for a transfer
 * of the group. */
struct ax_sim_span {
    int rank, lane, group;
    bool waiting;
    double start, end;
    const struct ax_sim_item *item;
};

struct ax_sim_options {
    double contention; /* fraction by which work takes longer while transfers move data */
    void (*span)(void *ctx, const struct ax_sim_span *span); /* or NULL */
    void *ctx;
};

/* *seconds is when the last rank ends. AX_ERR_FAILED names a rank that waits forever. o may be NULL. */
enum ax_status ax_simulate(int n_ranks, struct ax_sim_rank *ranks, const struct ax_sim_options *o,
                           double *seconds);

#endif
