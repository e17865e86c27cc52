/* One instance and its end. */
#include <string.h>

#include "data/reward/sandbox/engine.h"

bool ax_guest_export(const struct ax_guest *g, const char *name, struct ax_wasm_extern *out) {
    return g->engine->lib->export_get(g->context, &g->instance, name, strlen(name), out);
}

static enum ax_status find_exports(struct ax_guest *g, const char *entry) {
    struct ax_wasm_extern function;
    if (!ax_guest_export(g, "memory", &g->memory) || g->memory.kind != AX_WASM_EXTERN_MEMORY)
        return ax_error(AX_ERR_DATA, "the interpreter exports no memory");
    if (!ax_guest_export(g, entry, &function) || function.kind != AX_WASM_EXTERN_FUNC)
        return ax_error(AX_ERR_DATA, "the interpreter exports no function %s", entry);
    g->entry = function.of.func;
    return AX_OK;
}

static enum ax_status instantiate(struct ax_guest *g, const char *entry) {
    const struct ax_wasmtime *lib = g->engine->lib;
    void *trap = NULL;
    g->context = lib->store_context(g->store);
    AX_TRY(ax_wasmtime_check(lib, lib->instantiate(g->engine->pre, g->context, &g->instance, &trap),
                             "cannot instantiate the interpreter"));
    if (trap) {
        lib->trap_delete(trap);
        return ax_error(AX_ERR_FAILED, "cannot instantiate the interpreter: it traps");
    }
    return find_exports(g, entry);
}

enum ax_status ax_guest_open(struct ax_guest *g, const struct ax_engine *e, const char *entry) {
    g->engine = e;
    g->store = e->lib->store_new(e->engine, g, NULL);
    const enum ax_status st = instantiate(g, entry);
    if (st != AX_OK)
        ax_guest_close(g);
    return st;
}

enum ax_status ax_guest_begin(struct ax_guest *g, const struct ax_wasi *wasi, size_t memory_limit) {
    const struct ax_wasmtime *lib = g->engine->lib;
    ax_wasi_free(&g->wasi);
    g->wasi = *wasi;
    g->memory_limit = memory_limit;
    lib->store_limiter(g->store, (int64_t)memory_limit, -1, 1, 1, 1);
    return ax_wasmtime_check(lib, lib->set_fuel(g->context, wasi->fuel_limit), "no fuel");
}

static enum ax_guest_end end_of(struct ax_guest *g, void *trap) {
    uint8_t code = AX_WASM_TRAP_UNREACHABLE;
    size_t size;
    if (trap && !g->engine->lib->trap_code(trap, &code))
        code = AX_WASM_TRAP_UNREACHABLE;
    if (g->wasi.end != AX_WASI_RUNS)
        return AX_GUEST_STOPPED;
    if (code == AX_WASM_TRAP_FUEL)
        return AX_GUEST_NO_FUEL;
    if (code == AX_WASM_TRAP_STACK)
        return AX_GUEST_NO_STACK;
    (void)ax_guest_memory(g, &size);
    const size_t near_limit = (size_t)1 << 20;
    return size + near_limit > g->memory_limit ? AX_GUEST_NO_MEMORY : AX_GUEST_TRAP;
}

enum ax_guest_end ax_guest_call(struct ax_guest *g, uint32_t *result) {
    const struct ax_wasmtime *lib = g->engine->lib;
    union ax_wasm_cell cell = {0};
    void *trap = NULL;
    void *error = lib->call(g->context, &g->entry, &cell, 1, &trap);
    enum ax_guest_end end = AX_GUEST_RETURNED;
    if (error || trap)
        end = end_of(g, trap);
    *result = (uint32_t)cell.i32;
    if (error)
        lib->error_delete(error);
    if (trap)
        lib->trap_delete(trap);
    return end;
}

uint64_t ax_guest_fuel_used(const struct ax_guest *g) {
    uint64_t left = 0;
    (void)g->engine->lib->get_fuel(g->context, &left);
    return g->wasi.fuel_limit - left;
}

const unsigned char *ax_guest_memory(const struct ax_guest *g, size_t *size) {
    const struct ax_wasmtime *lib = g->engine->lib;
    *size = lib->memory_size(g->context, &g->memory.of);
    return lib->memory_data(g->context, &g->memory.of);
}

bool ax_guest_bytes(const struct ax_guest *g, uint32_t object, size_t cap, struct ax_bytes *out) {
    enum { LENGTH = 8, DATA = 16 };
    uint32_t n;
    size_t size;
    const unsigned char *memory = ax_guest_memory(g, &size);
    if ((uint64_t)object + DATA > size)
        return false;
    memcpy(&n, memory + object + LENGTH, sizeof n);
    if (n > cap || (uint64_t)object + DATA + n > size)
        return false;
    *out = (struct ax_bytes){(const char *)memory + object + DATA, n};
    return true;
}

void ax_guest_close(struct ax_guest *g) {
    if (g->store)
        g->engine->lib->store_delete(g->store);
    g->store = NULL;
    ax_wasi_free(&g->wasi);
}
