/* The options that choose a sandbox's parts, and a sandbox with them: for `axtrain sandbox`, and for programs that
 * attack and measure it (tests/bench/sandbox.c). */
#ifndef AX_CMD_SANDBOX_H
#define AX_CMD_SANDBOX_H

#include "cmd/args/args.h"
#include "data/reward/sandbox/sandbox.h"

struct ax_sandbox_command {
    const char *program; /* that workers are; NULL: this one */
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
