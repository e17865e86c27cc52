/* Private to the gloo fabric. Reading order: gloo_fabric.c (processes, failures), gloo_comm.c
 * (communicators; completes collectives), gloo_post.c (starts them); gloo_open.c, gloo_link.h and
 * comm_gloo.cpp (Gloo's transport). */
#ifndef AX_PARALLEL_FABRIC_GLOO_H
#define AX_PARALLEL_FABRIC_GLOO_H

#include "parallel/fabric/comm_check.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/fabric/gloo_link.h"

/* Opens the library of gloo_link.h, once. AX_ERR_UNSUPPORTED with the remedy. */
enum ax_status ax_gloo_library(const struct ax_gloo_calls **out);

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

/* The connections of these ranks, made for the `instance`th communicator of the role if there are none
 * yet. AX_ERR_PEER says who is missing. */
enum ax_status ax_gloo_connect(struct ax_gloo_world *w, const int *ranks, int n, enum ax_role role,
                               uint64_t instance, struct ax_gloo_group **out);
enum ax_status ax_gloo_comm_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                 const int *ranks, int n, bool apart);

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
/* A message's place depends on its direction; for a collective any peer and direction will do. */
struct ax_comm_place ax_gloo_place(const struct ax_gloo_op *op, int peer, bool sends);
/* Posts headers and all data that can be sent immediately. */
enum ax_status ax_gloo_post(struct ax_gloo_op *op);
/* Sends the sums of this rank's slice of an all-reduce, in recv, to all. */
enum ax_status ax_gloo_post_sums(struct ax_gloo_op *op);
/* A rank's slice of an all-reduce: first element and count. */
int64_t ax_gloo_slice(const struct ax_gloo_op *op, int rank, int64_t *n);
/* Waits for one transfer (NULL: none), or for everything of a phase, in both directions. */
enum ax_gloo_result ax_gloo_finish(const struct ax_gloo_op *op, struct ax_gloo_transfer **t,
                                   char *text);
enum ax_status ax_gloo_finish_phase(struct ax_gloo_op *op, enum ax_gloo_phase phase);

#endif
