#include "data/reward/sandbox/wasmtime.h"

#include <pthread.h>

#include "base/dynlib.h"

static struct ax_wasmtime lib;

/* What engines can do, and whether ours do: both interpreters need nothing beyond WebAssembly 1. */
static const struct {
    const char *name;
    bool on;
} switches[] = {
    {"wasmtime_config_consume_fuel_set", true},
    {"wasmtime_config_memory_init_cow_set", true},
    {"wasmtime_config_parallel_compilation_set", true},
    {"wasmtime_config_epoch_interruption_set", false},
    {"wasmtime_config_wasm_threads_set", false},
    {"wasmtime_config_wasm_relaxed_simd_set", false},
    {"wasmtime_config_wasm_simd_set", false},
    {"wasmtime_config_wasm_function_references_set", false},
    {"wasmtime_config_wasm_gc_set", false},
    {"wasmtime_config_wasm_exceptions_set", false},
    {"wasmtime_config_wasm_reference_types_set", false},
    {"wasmtime_config_wasm_bulk_memory_set", false},
    {"wasmtime_config_wasm_multi_value_set", false},
    {"wasmtime_config_wasm_multi_memory_set", false},
    {"wasmtime_config_wasm_tail_call_set", false},
    {"wasmtime_config_wasm_memory64_set", false},
    {"wasmtime_config_wasm_component_model_async_set", false},
    {"wasmtime_config_wasm_component_model_set", false},
};
enum { N_SWITCHES = sizeof switches / sizeof *switches };
_Static_assert(N_SWITCHES <= sizeof lib.config_bool / sizeof *lib.config_bool, "room for all");

#define CONFIG "wasmtime_config_"
#define POOL   "wasmtime_pooling_allocation_config_"
static const struct ax_symbol symbols[] = {
    {"wasm_config_new", &lib.config_new},
    {CONFIG "cranelift_opt_level_set", &lib.config_opt_level},
    {CONFIG "max_wasm_stack_set", &lib.config_max_stack},
    {CONFIG "memory_guard_size_set", &lib.config_guard_size},
    {POOL "new", &lib.pool_new},
    {POOL "delete", &lib.pool_delete},
    {POOL "total_core_instances_set", &lib.pool_instances},
    {POOL "total_memories_set", &lib.pool_memories},
    {POOL "total_tables_set", &lib.pool_tables},
    {POOL "max_memory_size_set", &lib.pool_memory_size},
    {POOL "table_elements_set", &lib.pool_table_elements},
    {POOL "max_core_instance_size_set", &lib.pool_instance_size},
    {POOL "table_keep_resident_set", &lib.pool_keep_table},
    {"wasmtime_pooling_allocation_strategy_set", &lib.config_pool},
    {"wasm_engine_new_with_config", &lib.engine_new},
    {"wasm_engine_delete", &lib.engine_delete},
    {"wasmtime_module_new", &lib.module_new},
    {"wasmtime_module_serialize", &lib.module_serialize},
    {"wasmtime_module_deserialize_file", &lib.module_load},
    {"wasmtime_module_delete", &lib.module_delete},
    {"wasmtime_linker_new", &lib.linker_new},
    {"wasmtime_linker_delete", &lib.linker_delete},
    {"wasmtime_linker_define_func_unchecked", &lib.linker_define},
    {"wasmtime_linker_instantiate_pre", &lib.linker_pre},
    {"wasmtime_instance_pre_delete", &lib.pre_delete},
    {"wasm_valtype_new", &lib.valtype_new},
    {"wasm_valtype_vec_new", &lib.valtypes_new},
    {"wasm_functype_new", &lib.functype_new},
    {"wasm_functype_delete", &lib.functype_delete},
    {"wasmtime_store_new", &lib.store_new},
    {"wasmtime_store_context", &lib.store_context},
    {"wasmtime_store_limiter", &lib.store_limiter},
    {"wasmtime_store_delete", &lib.store_delete},
    {"wasmtime_context_set_fuel", &lib.set_fuel},
    {"wasmtime_context_get_fuel", &lib.get_fuel},
    {"wasmtime_instance_pre_instantiate", &lib.instantiate},
    {"wasmtime_instance_export_get", &lib.export_get},
    {"wasmtime_func_call_unchecked", &lib.call},
    {"wasmtime_caller_context", &lib.caller_context},
    {"wasmtime_context_get_data", &lib.get_data},
    {"wasmtime_memory_data", &lib.memory_data},
    {"wasmtime_memory_data_size", &lib.memory_size},
    {"wasmtime_global_get", &lib.global_get},
    {"wasmtime_global_set", &lib.global_set},
    {"wasmtime_trap_new", &lib.trap_new},
    {"wasmtime_trap_code", &lib.trap_code},
    {"wasm_trap_delete", &lib.trap_delete},
    {"wasmtime_error_message", &lib.error_message},
    {"wasmtime_error_delete", &lib.error_delete},
    {"wasm_byte_vec_delete", &lib.bytes_delete},
};
enum { N_SYMBOLS = sizeof symbols / sizeof *symbols };

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;

static enum ax_status open_library(const char *path) {
    const char *const names[] = {path, NULL};
    struct ax_symbol all[N_SYMBOLS + N_SWITCHES];
    for (int i = 0; i < N_SYMBOLS; i++)
        all[i] = symbols[i];
    for (int i = 0; i < N_SWITCHES; i++)
        all[N_SYMBOLS + i] = (struct ax_symbol){switches[i].name, &lib.config_bool[i]};
    return ax_library_open(names, all, N_SYMBOLS + N_SWITCHES);
}

enum ax_status ax_wasmtime_open(const char *path, const struct ax_wasmtime **out) {
    enum ax_status st = AX_OK;
    (void)pthread_mutex_lock(&opening);
    if (!is_open)
        st = open_library(path);
    is_open = is_open || st == AX_OK;
    (void)pthread_mutex_unlock(&opening);
    *out = &lib;
    return st == AX_OK ? AX_OK
                       : ax_error_prefix(st, "cannot open wasmtime's library " AX_WASMTIME_VERSION);
}

void *ax_wasmtime_config(const struct ax_wasmtime *w) {
    void *config = w->config_new();
    for (int i = 0; i < N_SWITCHES; i++)
        w->config_bool[i](config, switches[i].on);
    w->config_opt_level(config, 1); /* for speed */
    w->config_max_stack(config, (size_t)1 << 20);
    w->config_guard_size(config, (uint64_t)1 << 36);
    return config;
}
