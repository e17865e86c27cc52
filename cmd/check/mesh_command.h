/* The checks of `axtrain check`, each with its own arguments: argv[0] is its name. */
#ifndef AX_CMD_CHECK_MESH_COMMAND_H
#define AX_CMD_CHECK_MESH_COMMAND_H

#include "base/status.h"

enum ax_status ax_check_mesh(int argc, char **argv); /* mesh_command.c */

#endif
