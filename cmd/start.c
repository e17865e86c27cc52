/* What a process does before its command: the way it answers signals, or another program that it is. */
#include <string.h>

#include "base/stop.h"
#include "cmd/commands.h"
#include "data/reward/keeper.h"
#include "parallel/job/launch.h"

/* A run is asked to stop at any time, also before it has read its configuration: what trains, or
 * launches what does, answers from here on. */
static void answer_signals(const struct ax_command *all, const char *name, int argc, char **argv) {
    const struct ax_command *c = ax_command_find(all, name);
    if (c && c->run_among == ax_cmd_launch)
        c = ax_launch_command(all, argc, argv);
    if (c && c->trains)
        ax_stop_end_at_once();
    if (ax_launch_started_this())
        ax_stop_unblock();
}

bool ax_command_start(const struct ax_command *all, const char *name, int argc, char **argv,
                      int *code) {
    if (argc > 1 && strcmp(name, AX_REWARD_KEEPER) == 0) {
        *code = ax_reward_keeper(argv + 1);
        return true;
    }
    answer_signals(all, name, argc, argv);
    return false;
}
