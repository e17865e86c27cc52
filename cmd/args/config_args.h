/* The command line of commands that work on a config: `COMMAND FILE [options] [overrides]`.
 * Anything that is not an option of the command is an override ("key=value", "--key value"). */
#ifndef AX_CMD_CONFIG_ARGS_H
#define AX_CMD_CONFIG_ARGS_H

#include "cmd/args/args.h"
#include "cmd/config/config.h"

/* Parses the options of the table, loads the config with the overrides and checks it for `use`.
 * Call ax_config_free(cfg) afterwards. */
enum ax_status ax_setup_args(int argc, char **argv, int n, const struct ax_arg *args,
                             enum ax_config_use use, struct ax_config *cfg);

#endif
