/* An interpreter that is ready to run: started once, with its library imported, and stopped. What
 * its memory holds then becomes the beginning of every instance. */
#ifndef AX_DATA_REWARD_SANDBOX_SNAPSHOT_H
#define AX_DATA_REWARD_SANDBOX_SNAPSHOT_H

#include "data/reward/sandbox/engine.h"

/* The stack of the C code in a snapshot: a mutable global is its pointer, and its length is also in
 * harness.py. */
enum { AX_SNAPSHOT_STACK_POINTER = 0, AX_SNAPSHOT_STACK = 8 << 20 };

/* Where the interpreter finds its library's zip, from the root. */
#define AX_SNAPSHOT_LIBRARY_PATH "lib/python311.zip"

struct ax_interpreter {
    const char *wasm;    /* path of the module */
    const char *library; /* path of its library's zip; NULL: it contains it */
};

/* Starts the interpreter with harness.py, and appends the module of the snapshot to `out`. Takes
 * seconds. `memory` as for engines. */
enum ax_status ax_snapshot_take(const struct ax_wasmtime *lib, const struct ax_interpreter *python,
                                size_t memory, struct ax_buf *out);

/* The text of harness.py. */
extern const char ax_sandbox_harness[], ax_sandbox_harness_end[];

#endif
