/* Ranks for a check: threads of this process, forked processes, or those that a launcher started. */
#ifndef AX_OPTIM_CHECK_MESH_LAUNCH_H
#define AX_OPTIM_CHECK_MESH_LAUNCH_H

#include <sys/types.h>

#include "parallel/fabric/comm_local.h"
#include "parallel/job/store.h"

struct ax_mesh_launch {
    int world;
    bool processes;
    int rank;      /* out: 0 except in forked processes and in ranks of a launcher */
    bool launched; /* out: a launcher started this process as one of the ranks */

    /* for forked processes; rank 0 serves their store and waits for them */
    int listening, port;
    unsigned char key[AX_STORE_KEY_BYTES];
    struct ax_store_server *server;
    pid_t *children; /* [world], 0: none */
};

/* Call before any thread starts: forks ranks 1 … world − 1, which also return from here, if they
 * are to be processes and no launcher has started them. */
enum ax_status ax_mesh_launch_start(struct ax_mesh_launch *l);
/* Runs the body as this process's rank, or as all ranks in threads. */
enum ax_status ax_mesh_launch_run(struct ax_mesh_launch *l, ax_local_body body, void *ctx);
/* Rank 0 waits for the others. Returns st, or AX_ERR_PEER naming a failed process. */
enum ax_status ax_mesh_launch_end(struct ax_mesh_launch *l, enum ax_status st);

#endif
