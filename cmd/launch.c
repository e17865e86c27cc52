/* `axtrain launch`: the ranks of a job on this host. */
#include <string.h>

#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "parallel/job/env.h"
#include "parallel/job/launch.h"
#include "parallel/job/net.h"

/* The command begins at `--`, or at the first word that is neither an option nor an option's value (all of
 * launch's have one). */
static int count_own(int argc, char **argv) {
    int n = 1;
    while (n < argc && argv[n][0] == '-' && strcmp(argv[n], "--") != 0)
        n += strchr(argv[n], '=') ? 1 : 2;
    return n < argc ? n : argc;
}

/* Where the command begins. */
static int find_command(int argc, char **argv) {
    const int own = count_own(argc, argv);
    return own < argc && strcmp(argv[own], "--") == 0 ? own + 1 : own;
}

const struct ax_command *ax_launch_command(const struct ax_command *all, int argc, char **argv) {
    const int first = find_command(argc, argv);
    return first < argc ? ax_command_find(all, argv[first]) : NULL;
}

static enum ax_status check_hosts(const struct ax_launch_options *o) {
    if (o->host >= o->hosts)
        return ax_error(AX_ERR_CONFIG,
                        "launch: --node-rank is %d, but --nnodes is %d: hosts count "
                        "from 0",
                        o->host, o->hosts);
    if (o->hosts > 1 && !o->master_addr)
        return ax_error(AX_ERR_CONFIG,
                        "launch: --nnodes %d needs --master-addr, the address of "
                        "host 0",
                        o->hosts);
    if (o->hosts > 1 && ax_net_is_any(o->master_addr))
        return ax_error(AX_ERR_CONFIG,
                        "launch: --master-addr %s stands for all interfaces of a host, and other "
                        "hosts cannot reach it: give the name or address of host 0",
                        o->master_addr);
    return AX_OK;
}

/* Each process of another command would do all of the work, and write to the same place. */
static enum ax_status check_command(const struct ax_command *c) {
    if (c->trains || c->launched)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "launch: %s works in one process; run `axtrain %s` without launch", c->name,
                    c->name);
}

static enum ax_status parse_output(const char *text, bool *all) {
    int which;
    AX_TRY(ax_args_word("launch: --output", AX_WORDS_OUTPUT, text, &which));
    *all = which == 1;
    return AX_OK;
}

enum ax_status ax_cmd_launch(const struct ax_command *all, int argc, char **argv) {
    int64_t ranks = 0, hosts = 1, host = 0, port = 0, restarts = 0, spares = 0;
    const char *output = "rank0", *none[1];
    struct ax_launch_options o = {.timeout = AX_LAUNCH_TIMEOUT};
    const struct ax_arg args[] = {
        {"-n", AX_ARG_INT, &ranks, 1, 1024},
        {"--nnodes", AX_ARG_INT, &hosts, 1, AX_ENV_MAX_WORLD / 1024},
        {"--node-rank", AX_ARG_INT, &host, 0, AX_ENV_MAX_WORLD / 1024},
        {"--master-addr", AX_ARG_STRING, (void *)&o.master_addr, 0, 0},
        {"--master-port", AX_ARG_INT, &port, 1, 65535},
        {"--restarts", AX_ARG_INT, &restarts, 0, 1000},
        {"--spares", AX_ARG_INT, &spares, 0, 1024},
        {"--output", AX_ARG_STRING, &output, 0, 0},
        {"--timeout", AX_ARG_FLOAT, &o.timeout, 0, 0},
    };
    int n;
    const int own = count_own(argc, argv), first = find_command(argc, argv);
    AX_TRY(ax_args_parse(own, argv, sizeof args / sizeof *args, args, 0, 0, none, &n));
    AX_TRY(parse_output(output, &o.all_output));
    if (ranks == 0)
        return ax_error(AX_ERR_CONFIG, "launch: -n is missing: how many ranks on this host?");
    if (first >= argc)
        return ax_error(AX_ERR_CONFIG,
                        "launch: the command is missing; for example `axtrain launch "
                        "-n 2 sft sft.yaml`");
    o.command = argv + first;
    const struct ax_command *command = ax_command_find(all, o.command[0]);
    if (!command)
        return ax_command_unknown(all, o.command[0]);
    AX_TRY(check_command(command));
    if (!(o.timeout > 0))
        return ax_error(AX_ERR_CONFIG, "launch: --timeout: expected a positive number of seconds");
    o.ranks = (int)ranks;
    o.hosts = (int)hosts;
    o.host = (int)host;
    o.master_port = port || hosts == 1 ? (int)port : 29500;
    o.restarts = (int)restarts;
    o.spares = (int)spares;
    o.trains = command->trains;
    AX_TRY(check_hosts(&o));
    return ax_launch_run(&o);
}
