/* fork, rendezvous, wait; or join the ranks of a launcher. */
#include "optim/check/mesh_launch.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/job/token.h"
#include "parallel/fabric/world.h"

/* Longer than a rank's part of the check takes, because rank 0 alone computes the reference. */
static const double TIMEOUT = 600, LINGER_SECONDS = 5;

static enum ax_status fork_ranks(struct ax_mesh_launch *l) {
    AX_TRY(ax_gloo_available());
    AX_TRY(ax_random_bytes(l->key, sizeof l->key));
    AX_TRY(ax_alloc(&l->children, (size_t)l->world, sizeof *l->children));
    AX_TRY(ax_net_listen("127.0.0.1", 0, 1, &l->listening, &l->port));
    for (int r = 1; r < l->world; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            l->rank = r;
            close(l->listening);
            return AX_OK;
        }
        if (pid < 0)
            return ax_error(AX_ERR_FAILED, "rank %d: cannot start its process: %s", r,
                            strerror(errno));
        l->children[r] = pid;
    }
    const int fd = l->listening;
    l->listening = -1; /* the server closes it */
    return ax_store_serve(&l->server, fd, l->world, l->key, TIMEOUT);
}

enum ax_status ax_mesh_launch_start(struct ax_mesh_launch *l) {
    struct ax_env e;
    l->rank = 0;
    l->listening = -1;
    AX_TRY(ax_env_read(&e));
    if (e.world == 1)
        return l->processes ? fork_ranks(l) : AX_OK;
    if (e.world != l->world)
        return ax_error(AX_ERR_CONFIG, "check mesh: the mesh has %d ranks, but %s is %d", l->world,
                        e.world_name, e.world);
    l->launched = true;
    l->rank = e.rank;
    return AX_OK;
}

static enum ax_status run_launched(ax_local_body body, void *ctx) {
    struct ax_world w;
    AX_TRY(ax_world_open(&w, &(struct ax_world_options){.timeout = TIMEOUT}));
    const enum ax_status st = body(w.fabric, ctx);
    ax_world_close(&w, st);
    return st;
}

static enum ax_status run_forked(struct ax_mesh_launch *l, ax_local_body body, void *ctx) {
    struct ax_store_options o = {.host = "127.0.0.1",
                                 .port = l->port,
                                 .ports = 1,
                                 .rank = l->rank,
                                 .world = l->world,
                                 .timeout = TIMEOUT};
    struct ax_store_client *store;
    struct ax_fabric fabric;
    memcpy(o.key, l->key, sizeof o.key);
    AX_TRY(ax_store_open(&store, &o));
    enum ax_status st = ax_gloo_open(&fabric, store, l->world, TIMEOUT);
    if (st == AX_OK) {
        st = body(&fabric, ctx);
        fabric.ops->free(&fabric);
    }
    ax_store_close(store);
    return st;
}

enum ax_status ax_mesh_launch_run(struct ax_mesh_launch *l, ax_local_body body, void *ctx) {
    if (l->launched)
        return run_launched(body, ctx);
    return l->processes ? run_forked(l, body, ctx) : ax_local_run(l->world, NULL, body, ctx);
}

enum ax_status ax_mesh_launch_end(struct ax_mesh_launch *l, enum ax_status st) {
    int failed = 0, code = 0;
    ax_store_stop(l->server, LINGER_SECONDS);
    if (l->listening >= 0 && l->rank == 0)
        close(l->listening);
    for (int r = 1; l->children && l->rank == 0 && r < l->world; r++) {
        int status;
        if (l->children[r] <= 0 || waitpid(l->children[r], &status, 0) < 0 || status == 0 || failed)
            continue;
        failed = r;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    ax_free(l->children);
    l->children = NULL;
    l->server = NULL;
    if (st == AX_OK && failed)
        return ax_error(AX_ERR_PEER, "rank %d: its process exited with code %d", failed, code);
    return st;
}
