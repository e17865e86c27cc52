/* Private to the gloo fabric. Reading order: gloo_connect.c (processes, failures), gloo.c (the fabric and its
 * communicators); gloo_link.h and comm_gloo.cpp (Gloo's transport). */
#ifndef AX_PARALLEL_FABRIC_GLOO_H
#define AX_PARALLEL_FABRIC_GLOO_H

#include "parallel/fabric/contract.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/fabric/gloo_link.h"

/* ---- the processes of a run ---- */

struct ax_gloo_op;

/* Connections between some ranks. All communicators of exactly these ranks use them: what they send
 * differs in its slots. */
struct ax_gloo_group {
    struct ax_gloo_group *next; /* in the world, until the fabric is freed */
    struct ax_gloo_link *link;
    int *ranks;  /* [n] */
    int n, rank; /* ranks[rank] is this process */
};

struct ax_gloo_world {
    struct ax_store_client *store;
    int world, rank;
    double timeout;
    const struct ax_gloo_calls *gloo;
    struct ax_gloo_device *device;
    struct ax_gloo_group *groups;
    int members;                    /* open communicators */
    bool failed;                    /* this rank has announced that it gives up */
    uint64_t opened[AX_ROLE_COUNT]; /* communicators so far: identify them across processes */
    struct ax_gloo_order {
        bool stopped;                    /* after an error: nothing is in flight */
        struct ax_gloo_op *first, *last; /* in flight, in start order */
    } order;                             /* order of all communicators that are not apart */
};

/* The process of this rank. */
enum ax_status ax_gloo_world_open(struct ax_gloo_world **out, struct ax_store_client *store,
                                  double timeout);
/* Tells the others why, and breaks all connections. */
void ax_gloo_world_fail(struct ax_gloo_world *w, enum ax_status st);
void ax_gloo_world_close(struct ax_gloo_world *w);

/* The connections of these ranks, made for the `instance`th communicator of the role if there are none
 * yet. AX_ERR_PEER says who is missing. */
enum ax_status ax_gloo_connect(struct ax_gloo_world *w, const int *ranks, int n, enum ax_role role,
                               uint64_t instance, struct ax_gloo_group **out);
/* AX_ERR_PEER about world ranks with which a transfer ended as `how`: their own failure messages if
 * they left any, else what is known. */
enum ax_status ax_gloo_lost(const struct ax_gloo_world *w, const struct ax_comm_place *place,
                            const struct ax_comm_part *part, const int *ranks, int n,
                            enum ax_gloo_result how, const char *text);

/* ---- a collective in flight ---- */

struct ax_gloo_header {
    struct ax_comm_part part;
    int64_t for_you; /* all-to-all-v: elements for the receiving rank */
};

enum ax_gloo_phase { AX_GLOO_HEADER, AX_GLOO_DATA, AX_GLOO_SUMS, AX_GLOO_PHASES };

/* What is sent to and received from one peer. */
struct ax_gloo_lane {
    struct ax_gloo_header out, in;
    struct ax_gloo_transfer *send[AX_GLOO_PHASES], *recv[AX_GLOO_PHASES];
};

struct ax_gloo_op {
    struct ax_gloo_op *next; /* in its order, or in its communicator's spares */
    struct ax_comm *comm;
    uint64_t id, sent, received; /* ticket; numbers in the group, or of its two messages */
    struct ax_collective what;
    struct ax_comm_part part;
    bool summed;                /* headers and data have arrived; sums of an all-reduce in flight */
    struct ax_gloo_lane *lanes; /* [n] */
    int64_t *counts;            /* [2][n] */
    const void **inputs;        /* [n] */
    char *staging;              /* staging for sums without planned memory (ax_comm_staging) */
    size_t staging_bytes;
};

struct ax_gloo_member {
    struct ax_gloo_world *world;
    struct ax_gloo_order *order, own; /* the world's; its own if it is apart */
    const struct ax_gloo_group *group;
    uint64_t instance; /* number of the communicator in its role, the same on all ranks */
    uint64_t collectives;
    uint64_t *sent, *received; /* [n] messages */
    struct ax_gloo_op *spare;
};

static inline bool ax_gloo_is_message(const struct ax_gloo_op *op) {
    return op->what.kind == AX_SEND_RECV;
}
/* A rank's slice of an all-reduce: first element and count. */
int64_t ax_gloo_slice(const struct ax_gloo_op *op, int rank, int64_t *n);

#endif
