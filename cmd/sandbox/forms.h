/* The forms of `axtrain sandbox` that have a file of their own. */
#ifndef AX_CMD_SANDBOX_FORMS_H
#define AX_CMD_SANDBOX_FORMS_H

#include "base/status.h"

enum ax_status ax_sandbox_attack(int argc, char **argv);
enum ax_status ax_sandbox_bench(int argc, char **argv);

#endif
