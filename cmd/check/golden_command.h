/* `axtrain check golden`. */
#ifndef AX_CMD_CHECK_GOLDEN_COMMAND_H
#define AX_CMD_CHECK_GOLDEN_COMMAND_H

#include "base/status.h"

enum ax_status ax_check_golden(int argc, char **argv);

#endif
