/* How ranks reach each other. A fabric connects `world` ranks and makes one communicator per group;
 * implementations: `local` (threads of this process), `gloo` (processes), and `nccl`
 * (GPUs) beside one of them. */
#ifndef AX_PARALLEL_FABRIC_FABRIC_H
#define AX_PARALLEL_FABRIC_FABRIC_H

#include "parallel/fabric/comm.h"

struct ax_fabric;
struct ax_fabric_ops {
    const char *name;
    bool stages; /* its sums need ax_comm_staging bytes */
    /* Opens the communicator of a group of n ≥ 2 world ranks, ascending by coord, that includes
     * this rank. Every rank opens a role's communicators the same number of times. `apart`: another
     * thread uses it than the others, and its collectives are in no order with theirs. */
    enum ax_status (*open)(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                           const int *ranks, int n, bool apart);
    /* This rank gives up with `st` and this thread's error text: any rank that waits for it, now or
     * later, gets AX_ERR_PEER with both. It starts nothing afterwards; a second call is a no-op. */
    void (*fail)(struct ax_fabric *f, enum ax_status st);
    /* Call after freeing its communicators. */
    void (*free)(struct ax_fabric *f);
};

struct ax_fabric {
    const struct ax_fabric_ops *ops;
    int world, rank;
    int local_world; /* ranks that share this host's CPUs and memory */
    double timeout;  /* seconds that ranks wait for each other */
    void *state;
};

#endif
