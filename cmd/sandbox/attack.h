/* `axtrain sandbox attack`. */
#ifndef AX_CMD_SANDBOX_ATTACK_H
#define AX_CMD_SANDBOX_ATTACK_H

#include "base/status.h"

enum ax_status ax_sandbox_attack(int argc, char **argv);

#endif
