/* An interpreter that is ready to run: started once, with its library imported, and stopped. What
 * its memory holds then becomes the beginning of every instance. */
#ifndef AX_DATA_REWARD_SANDBOX_SNAPSHOT_H
#define AX_DATA_REWARD_SANDBOX_SNAPSHOT_H

#include <stdbool.h>

#include "base/mem.h"
#include "data/reward/sandbox/engine.h"

/* The binary format of WebAssembly modules, as far as taking a snapshot needs it: the sections, the
 * imports, the globals, and writing a module anew with another memory.
 *
 * The input is an interpreter from elsewhere: every length is checked, and what this reader does not
 * know is an error (AX_ERR_DATA). */

enum {
    AX_WASM_TYPES = 1,
    AX_WASM_IMPORTS,
    AX_WASM_FUNCTIONS,
    AX_WASM_TABLES,
    AX_WASM_MEMORIES,
    AX_WASM_GLOBALS,
    AX_WASM_EXPORTS,
    AX_WASM_START,
    AX_WASM_ELEMENTS,
    AX_WASM_CODE,
    AX_WASM_DATA,
    AX_WASM_DATA_COUNT,
    AX_WASM_SECTIONS
};

#define AX_WASM_PAGE        65536
#define AX_WASM_MAX_GLOBALS 64

/* The contents of a section without its count: n items in [data, data + len) of the input. */
struct ax_wasm_section {
    const unsigned char *data;
    size_t len;
    uint32_t n;
};

struct ax_wasm_global {
    unsigned char type; /* 0x7f = i32 */
    bool is_mutable;
    const unsigned char *init; /* the expression, with its end */
    size_t init_len;
};

struct ax_wasm_module {
    struct ax_wasm_section sections[AX_WASM_SECTIONS];
    uint32_t imported_functions;
    uint32_t memory_min, memory_max; /* pages; max = UINT32_MAX: none */
    struct ax_wasm_global globals[AX_WASM_MAX_GLOBALS];
};

/* Borrows `data`. Custom sections are left out. */
enum ax_status ax_module_read(struct ax_wasm_module *m, const void *data, size_t n);

/* The same module, which exports _start, its memory as "memory" and its state besides: the mutable
 * globals (all i32) as "g0", "g1", … by index; and nothing else. */
enum ax_status ax_module_write_open(const struct ax_wasm_module *m, struct ax_buf *out);

/* The state of an instance, and what to call in it. */
struct ax_wasm_state {
    const unsigned char *memory;
    size_t memory_len;                    /* bytes, pages of 64 KiB */
    int32_t globals[AX_WASM_MAX_GLOBALS]; /* the mutable ones */
    uint32_t function;                    /* index in the table */
    uint32_t argument;                    /* function(argument, 0, 0, 0) */
};
/* The module whose instances begin in that state. Exports the state as above, and "run": () -> i32,
 * which makes the call. */
enum ax_status ax_module_write_snapshot(const struct ax_wasm_module *m,
                                        const struct ax_wasm_state *s, struct ax_buf *out);

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
