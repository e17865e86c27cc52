#include "parallel/world.h"

#include <string.h>

enum ax_status ax_world_open(struct ax_world *w, const struct ax_world_options *o) {
    (void)o;
    memset(w, 0, sizeof *w);
    AX_TRY(ax_env_read(&w->env));
    if (w->env.world == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s is %d, but this command supports only one rank so far. Start it without a "
                    "launcher (torchrun, srun, mpirun), or unset %s.",
                    w->env.world_name, w->env.world, w->env.world_name);
}

void ax_world_close(struct ax_world *w, enum ax_status st) {
    (void)st;
    memset(w, 0, sizeof *w);
}
