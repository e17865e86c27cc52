/* Ranks for a check: threads of this process, or forked processes. */
#ifndef AX_CMD_CHECK_MESH_LAUNCH_H
#define AX_CMD_CHECK_MESH_LAUNCH_H

#include <sys/types.h>

#include "parallel/comm_local.h"

#define AX_LAUNCH_MAX_RANKS 64

struct ax_mesh_launch {
    int world;
    bool processes;
    int rank;     /* out: 0 except in forked processes */
    char *folder; /* rendezvous folder of the processes; owned by rank 0 */
    pid_t children[AX_LAUNCH_MAX_RANKS];
};

/* Call before any thread starts: forks ranks 1 … world − 1, which also return from here. */
enum ax_status ax_mesh_launch_start(struct ax_mesh_launch *l);
/* Runs the body as this process's rank, or as all ranks in threads. */
enum ax_status ax_mesh_launch_run(struct ax_mesh_launch *l, ax_local_body body, void *ctx);
/* Rank 0 waits for the others. Returns st, or AX_ERR_PEER naming a failed process. */
enum ax_status ax_mesh_launch_end(struct ax_mesh_launch *l, enum ax_status st);

#endif
