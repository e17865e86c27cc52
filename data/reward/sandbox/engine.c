#include "data/reward/sandbox/engine.h"

#include <string.h>

/* AX_OK for no error; else its text after `what`. Deletes the error. */
static enum ax_status check_call(const struct ax_wasmtime *w, void *error, const char *what) {
    struct ax_wasm_bytes text = {0};
    if (!error)
        return AX_OK;
    w->error_message(error, &text);
    const enum ax_status st =
        ax_error(AX_ERR_FAILED, "%s: %.*s", what, (int)(text.n < 500 ? text.n : 500), text.data);
    w->bytes_delete(&text);
    w->error_delete(error);
    return st;
}

/* ---- an instance and its end ---- */

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
    AX_TRY(check_call(lib, lib->instantiate(g->engine->pre, g->context, &g->instance, &trap),
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
    return check_call(lib, lib->set_fuel(g->context, wasi->fuel_limit), "no fuel");
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

/* ---- the world that guests import ---- */

static void *call_wasi(void *env, void *caller, union ax_wasm_cell *cells, size_t n) {
    const struct ax_engine_import *import = env;
    const struct ax_wasmtime *lib = import->lib;
    (void)n;
    void *context = lib->caller_context(caller);
    struct ax_guest *g = lib->get_data(context);
    size_t size;
    (void)lib->get_fuel(context, &g->wasi.fuel);
    const unsigned char *memory = ax_guest_memory(g, &size);
    ax_wasi_call(&g->wasi, import->which, cells, (unsigned char *)(uintptr_t)memory, size);
    (void)lib->set_fuel(context, g->wasi.fuel);
    return g->wasi.end == AX_WASI_RUNS ? NULL : lib->trap_new("stopped", 7);
}

static struct ax_wasm_types types(const struct ax_wasmtime *lib, const char *letters) {
    enum { I32 = 0, I64 = 1 };
    struct ax_wasm_types out;
    void *all[16];
    const size_t n = strlen(letters);
    AX_ASSERT(n <= sizeof all / sizeof *all);
    for (size_t i = 0; i < n; i++)
        all[i] = lib->valtype_new(letters[i] == 'l' ? I64 : I32);
    lib->valtypes_new(&out, n, all);
    return out;
}

static enum ax_status define(struct ax_engine *e, int which) {
    const struct ax_wasi_import *import = &ax_wasi_imports[which];
    const bool returns = strcmp(import->name, "proc_exit") != 0;
    e->imports[which] = (struct ax_engine_import){e->lib, which};
    struct ax_wasm_types params = types(e->lib, import->params);
    struct ax_wasm_types results = types(e->lib, returns ? "i" : "");
    void *type = e->lib->functype_new(&params, &results);
    void *error =
        e->lib->linker_define(e->linker, AX_WASI_MODULE, strlen(AX_WASI_MODULE), import->name,
                              strlen(import->name), type, call_wasi, &e->imports[which], NULL);
    e->lib->functype_delete(type);
    return check_call(e->lib, error, "cannot define an import");
}

/* ---- engine and module ---- */

static void *pool(const struct ax_wasmtime *lib, int slots, size_t memory) {
    void *p = lib->pool_new();
    lib->pool_instances(p, (uint32_t)slots);
    lib->pool_memories(p, (uint32_t)slots);
    lib->pool_tables(p, (uint32_t)slots);
    lib->pool_memory_size(p, memory);
    lib->pool_table_elements(p, 20000);
    lib->pool_instance_size(p, (size_t)1 << 20);
    lib->pool_keep_table(p, (size_t)1 << 20);
    return p;
}

enum ax_status ax_engine_create(struct ax_engine *e, const struct ax_wasmtime *lib, int slots,
                                size_t memory) {
    enum ax_status st = AX_OK;
    void *config = ax_wasmtime_config(lib), *p = pool(lib, slots, memory);
    lib->config_pool(config, p);
    lib->pool_delete(p);
    *e = (struct ax_engine){.lib = lib, .engine = lib->engine_new(config)};
    if (!e->engine)
        return ax_error(AX_ERR_NOMEM, "cannot reserve address space for %d programs", slots);
    e->linker = lib->linker_new(e->engine);
    for (int i = 0; i < AX_WASI_IMPORTS && st == AX_OK; i++)
        st = define(e, i);
    if (st != AX_OK)
        ax_engine_free(e);
    return st;
}

void ax_engine_free(struct ax_engine *e) {
    if (e->pre)
        e->lib->pre_delete(e->pre);
    if (e->linker)
        e->lib->linker_delete(e->linker);
    if (e->module)
        e->lib->module_delete(e->module);
    if (e->engine)
        e->lib->engine_delete(e->engine);
    *e = (struct ax_engine){0};
}

static enum ax_status link_module(struct ax_engine *e) {
    return check_call(e->lib, e->lib->linker_pre(e->linker, e->module, &e->pre),
                      "cannot link the interpreter");
}

enum ax_status ax_engine_compile(struct ax_engine *e, const void *wasm, size_t n) {
    AX_TRY(check_call(e->lib, e->lib->module_new(e->engine, wasm, n, &e->module),
                      "cannot compile the interpreter"));
    return link_module(e);
}

enum ax_status ax_engine_load(struct ax_engine *e, const char *path) {
    if (check_call(e->lib, e->lib->module_load(e->engine, path, &e->module), path) != AX_OK)
        return ax_error_prefix(AX_ERR_DATA, "the compiled interpreter");
    return link_module(e);
}

enum ax_status ax_engine_serialize(const struct ax_engine *e, struct ax_wasm_bytes *out) {
    return check_call(e->lib, e->lib->module_serialize(e->module, out),
                      "cannot save the interpreter");
}
