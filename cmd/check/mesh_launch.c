/* fork, rendezvous, wait. */
#include "cmd/check/mesh_launch.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/mem.h"
#include "parallel/comm_gloo.h"

/* Longer than a rank's part of the check takes, because rank 0 alone computes the reference. */
static const double TIMEOUT = 600;

enum ax_status ax_mesh_launch_start(struct ax_mesh_launch *l) {
    AX_ASSERT(l->world <= AX_LAUNCH_MAX_RANKS);
    l->rank = 0;
    if (!l->processes)
        return AX_OK;
    AX_TRY(ax_gloo_available());
    AX_TRY(ax_temp_folder(&l->folder, NULL, "mesh"));
    for (int r = 1; r < l->world; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            l->rank = r;
            return AX_OK;
        }
        if (pid < 0)
            return ax_error(AX_ERR_FAILED, "rank %d: cannot start its process: %s", r,
                            strerror(errno));
        l->children[r] = pid;
    }
    return AX_OK;
}

enum ax_status ax_mesh_launch_run(struct ax_mesh_launch *l, ax_local_body body, void *ctx) {
    if (!l->processes)
        return ax_local_run(l->world, NULL, body, ctx);
    struct ax_fabric fabric;
    AX_TRY(ax_gloo_open(&fabric, l->folder, l->rank, l->world, TIMEOUT));
    const enum ax_status st = body(&fabric, ctx);
    fabric.ops->free(&fabric);
    return st;
}

enum ax_status ax_mesh_launch_end(struct ax_mesh_launch *l, enum ax_status st) {
    int failed = 0, code = 0;
    for (int r = 1; l->rank == 0 && r < l->world; r++) {
        int status;
        if (l->children[r] <= 0 || waitpid(l->children[r], &status, 0) < 0 || status == 0)
            continue;
        failed = failed ? failed : r;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (l->rank == 0 && l->folder)
        (void)ax_remove_tree(l->folder);
    ax_free(l->folder);
    l->folder = NULL;
    if (st == AX_OK && failed)
        return ax_error(AX_ERR_PEER, "rank %d: its process exited with code %d", failed, code);
    return st;
}
