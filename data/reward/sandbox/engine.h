/* A compiled module in an engine, ready to be instantiated by several threads.
 *
 * Instances live in slots of address space that are reserved once: a new one costs no system call.
 * All engines have the same options, so that what one compiled and saved, another can load. */
#ifndef AX_DATA_REWARD_SANDBOX_ENGINE_H
#define AX_DATA_REWARD_SANDBOX_ENGINE_H

#include "data/reward/sandbox/wasi.h"

/* An engine must not move in memory, because its imports refer to its address. */
struct ax_engine {
    const struct ax_wasmtime *lib;
    void *engine, *module, *linker, *pre;
    struct ax_engine_import {
        const struct ax_wasmtime *lib;
        int which;
    } imports[AX_WASI_IMPORTS];
};

/* `slots` instances at a time, each with at most `memory` bytes. Zeroed on failure. */
enum ax_status ax_engine_create(struct ax_engine *e, const struct ax_wasmtime *lib, int slots,
                                size_t memory);
void ax_engine_free(struct ax_engine *e); /* safe on a zeroed one */

/* One of these, once. */
enum ax_status ax_engine_compile(struct ax_engine *e, const void *wasm, size_t n);
/* Maps native code: `path` must be a file that this program wrote where nobody else can write.
 * AX_ERR_DATA if it is for another processor or other options. */
enum ax_status ax_engine_load(struct ax_engine *e, const char *path);

/* The module's native code; free with lib->bytes_delete. */
enum ax_status ax_engine_serialize(const struct ax_engine *e, struct ax_wasm_bytes *out);

/* ---- an instance ---- */

struct ax_guest {
    const struct ax_engine *engine;
    void *store, *context;
    struct ax_wasm_instance instance;
    struct ax_wasm_extern memory;
    struct ax_wasm_func entry;
    struct ax_wasi wasi;
    size_t memory_limit;
};

enum ax_guest_end {
    AX_GUEST_RETURNED,
    AX_GUEST_STOPPED, /* ended by wasi.end */
    AX_GUEST_NO_FUEL,
    AX_GUEST_NO_STACK,
    AX_GUEST_NO_MEMORY, /* trapped with its memory at the limit */
    AX_GUEST_TRAP
};

/* Instantiates; `entry` is the name of the function that calls will enter. */
enum ax_status ax_guest_open(struct ax_guest *g, const struct ax_engine *e, const char *entry);
/* Sets the world and the limits of the following calls; wasi.fuel_limit is for all of them
 * together. */
enum ax_status ax_guest_begin(struct ax_guest *g, const struct ax_wasi *wasi, size_t memory_limit);
/* Calls the entry. *result is what it returned. After anything but AX_GUEST_RETURNED, there must be
 * no further call. */
enum ax_guest_end ax_guest_call(struct ax_guest *g, uint32_t *result);
static inline uint64_t ax_guest_fuel_used(const struct ax_guest *g) {
    uint64_t left = 0;
    (void)g->engine->lib->get_fuel(g->context, &left);
    return g->wasi.fuel_limit - left;
}
/* The instance's memory, valid until the next call. */
const unsigned char *ax_guest_memory(const struct ax_guest *g, size_t *size);
/* False if the instance has no such export. */
bool ax_guest_export(const struct ax_guest *g, const char *name, struct ax_wasm_extern *out);
/* The contents of the bytes object at `object` of CPython's memory, if it has at most `cap`; false
 * for a pointer that is none. */
bool ax_guest_bytes(const struct ax_guest *g, uint32_t object, size_t cap, struct ax_bytes *out);
void ax_guest_close(struct ax_guest *g); /* safe on a zeroed or closed one */

#endif
