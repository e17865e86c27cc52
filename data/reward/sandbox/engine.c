#include "data/reward/sandbox/engine.h"

#include <string.h>

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
    return ax_wasmtime_check(e->lib, error, "cannot define an import");
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
    return ax_wasmtime_check(e->lib, e->lib->linker_pre(e->linker, e->module, &e->pre),
                             "cannot link the interpreter");
}

enum ax_status ax_engine_compile(struct ax_engine *e, const void *wasm, size_t n) {
    AX_TRY(ax_wasmtime_check(e->lib, e->lib->module_new(e->engine, wasm, n, &e->module),
                             "cannot compile the interpreter"));
    return link_module(e);
}

enum ax_status ax_engine_load(struct ax_engine *e, const char *path) {
    if (ax_wasmtime_check(e->lib, e->lib->module_load(e->engine, path, &e->module), path) != AX_OK)
        return ax_error_prefix(AX_ERR_DATA, "the compiled interpreter");
    return link_module(e);
}

enum ax_status ax_engine_serialize(const struct ax_engine *e, struct ax_wasm_bytes *out) {
    return ax_wasmtime_check(e->lib, e->lib->module_serialize(e->module, out),
                             "cannot save the interpreter");
}
