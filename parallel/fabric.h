/* How ranks reach each other. A fabric connects `world` ranks and makes one communicator per group;
 * implementations: `local` (threads of this process), `gloo` (processes). */
#ifndef AX_PARALLEL_FABRIC_H
#define AX_PARALLEL_FABRIC_H

#include "parallel/comm.h"

struct ax_fabric;
struct ax_fabric_ops {
    const char *name;
    /* The communicator of a group of n ≥ 2 world ranks, ascending by coord; this rank is one of
     * them. Every rank opens the communicators of a role equally often. */
    enum ax_status (*open)(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                           const int *ranks, int n);
    /* This rank gives up with `st` and this thread's error text: whoever waits for it, now or
     * later, gets AX_ERR_PEER with both. Nothing more is started afterwards. */
    void (*fail)(struct ax_fabric *f, enum ax_status st);
    /* After its communicators. */
    void (*free)(struct ax_fabric *f);
};

struct ax_fabric {
    const struct ax_fabric_ops *ops;
    int world, rank;
    void *state;
};

#endif
