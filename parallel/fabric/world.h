/* The ranks that a launcher started together, seen from one of them: what a command opens to run on
 * a mesh.
 *
 *     struct ax_world world;
 *     AX_TRY(ax_world_open(&world, &(struct ax_world_options){.timeout = 1800}));
 *     … (struct ax_runtime_options){.fabric = world.fabric, …}; world.env.rank == 0 reports …
 *     ax_world_close(&world, st);
 */
#ifndef AX_PARALLEL_FABRIC_WORLD_H
#define AX_PARALLEL_FABRIC_WORLD_H

#include "parallel/job/env.h"
#include "parallel/fabric/fabric.h"
#include "parallel/job/store.h"

struct ax_world_options {
    /* hash of the words and settings that must be equal on all ranks; 0 = unknown */
    uint64_t config;
    double timeout;  /* seconds: how long a rank waits for others to join, and in a collective */
    double patience; /* seconds to wait in a collective, if different from timeout; 0 = timeout */
};

struct ax_world {
    struct ax_env env; /* rank, world, local_rank, local_world: one rank without a launcher */
    struct ax_fabric *fabric; /* NULL: one rank. Points into this struct: do not move it */
    struct ax_fabric gloo;
    struct ax_store_client *store;
    struct ax_store_server *server; /* on rank 0, unless the launcher serves the store */
};

/* Call it before anything that may fail on one rank alone, so that the others are told. */
enum ax_status ax_world_open(struct ax_world *w, const struct ax_world_options *o);
/* For failures before that, such as wrong arguments: joins the other ranks only to tell them.
 * Returns `st`; the error text is this thread's. */
enum ax_status ax_world_report(enum ax_status st);
/* Tells the other ranks if `st` is an error. Only one rank reports an error to the user: there this
 * thread's error text stays, on the others it is cleared. (Our launcher chooses among ranks that
 * failed with the same error.) Safe on a zeroed world. */
void ax_world_close(struct ax_world *w, enum ax_status st);

#endif
