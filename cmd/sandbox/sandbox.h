/* Shared by the forms of `axtrain sandbox`: the options that choose the parts, and an open
 * sandbox. */
#ifndef AX_CMD_SANDBOX_SANDBOX_H
#define AX_CMD_SANDBOX_SANDBOX_H

#include "cmd/args.h"
#include "data/reward/sandbox/sandbox.h"

struct ax_sandbox_command {
    const char *wasmtime, *python;
    int64_t threads;
    struct ax_sandbox_parts parts;
    char *cache;
    struct ax_sandbox *sandbox;
};

/* For an array of struct ax_arg. */
#define AX_SANDBOX_ARGS(c)                                                                         \
    {"--wasmtime", AX_ARG_STRING, &(c)->wasmtime, 0, 0}, {                                         \
        "--python", AX_ARG_STRING, &(c)->python, 0, 0                                              \
    }

enum ax_status ax_sandbox_command_open(struct ax_sandbox_command *c);
void ax_sandbox_command_close(struct ax_sandbox_command *c);

/* "exit 0", "fuel"; written to text, returned. */
const char *ax_sandbox_verdict_text(const struct ax_sandbox_result *r, char text[32]);

#endif
