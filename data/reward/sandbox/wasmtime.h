/* Wasmtime through its C API, opened at run time: the functions as its documentation describes
 * them, with prototypes of our own.
 *
 * The version is pinned, because fuel counts, and with them verdicts, may change with it. */
#ifndef AX_DATA_REWARD_SANDBOX_WASMTIME_H
#define AX_DATA_REWARD_SANDBOX_WASMTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define AX_WASMTIME_VERSION "50.0.1" /* also in tools/get-sandbox */

/* Arguments and results of a function: one cell each. */
union ax_wasm_cell {
    int32_t i32;
    int64_t i64;
    _Alignas(16) unsigned char bytes[16];
};
_Static_assert(sizeof(union ax_wasm_cell) == 16, "as in the library");

struct ax_wasm_func {
    uint64_t store;
    void *private_part;
};
struct ax_wasm_instance {
    uint64_t store;
    size_t private_part;
};
enum { AX_WASM_EXTERN_FUNC = 0, AX_WASM_EXTERN_GLOBAL = 1, AX_WASM_EXTERN_MEMORY = 3 };
struct ax_wasm_extern {
    uint8_t kind;
    union {
        struct ax_wasm_func func;
        uint64_t other[3]; /* a memory or a global: passed on as it is */
    } of;
};
_Static_assert(sizeof(struct ax_wasm_extern) == 32, "as in the library");
/* A value with its kind; the library's type has at most this size. */
struct ax_wasm_val {
    uint8_t kind;
    union {
        int32_t i32;
        uint64_t other[7];
    } of;
};
struct ax_wasm_bytes {
    size_t n;
    char *data;
};
struct ax_wasm_types {
    size_t n;
    void **data;
};

enum {
    AX_WASM_TRAP_STACK = 0,
    AX_WASM_TRAP_UNREACHABLE = 9,
    AX_WASM_TRAP_EPOCH = 10,
    AX_WASM_TRAP_FUEL = 11
};

/* Returns NULL, or a trap that ends the guest. */
typedef void *ax_wasm_callback(void *env, void *caller, union ax_wasm_cell *cells, size_t n);

/* Pointers of the library's own types are void *. Functions that return a void * called error
 * return NULL for success. */
struct ax_wasmtime {
    void *(*config_new)(void);
    void (*config_bool[24])(void *config, bool on); /* in the order of the table in wasmtime.c */
    void (*config_opt_level)(void *config, uint8_t level);
    void (*config_max_stack)(void *config, size_t bytes);
    void (*config_guard_size)(void *config, uint64_t bytes);
    void *(*pool_new)(void);
    void (*pool_delete)(void *pool);
    void (*pool_instances)(void *pool, uint32_t n);
    void (*pool_memories)(void *pool, uint32_t n);
    void (*pool_tables)(void *pool, uint32_t n);
    void (*pool_memory_size)(void *pool, size_t bytes);
    void (*pool_table_elements)(void *pool, size_t n);
    void (*pool_instance_size)(void *pool, size_t bytes);
    void (*pool_keep_table)(void *pool, size_t bytes);
    void (*config_pool)(void *config, const void *pool);
    void *(*engine_new)(void *config);
    void (*engine_delete)(void *engine);

    void *(*module_new)(void *engine, const unsigned char *wasm, size_t n, void **module);
    void *(*module_serialize)(void *module, struct ax_wasm_bytes *out);
    void *(*module_load)(void *engine, const char *path, void **module);
    void (*module_delete)(void *module);

    void *(*linker_new)(void *engine);
    void (*linker_delete)(void *linker);
    void *(*linker_define)(void *linker, const char *module, size_t module_len, const char *name,
                           size_t name_len, const void *type, ax_wasm_callback *call, void *env,
                           void (*finalizer)(void *));
    void *(*linker_pre)(const void *linker, const void *module, void **pre);
    void (*pre_delete)(void *pre);
    void *(*valtype_new)(uint8_t kind);
    void (*valtypes_new)(struct ax_wasm_types *out, size_t n, void *const *types);
    void *(*functype_new)(struct ax_wasm_types *params, struct ax_wasm_types *results);
    void (*functype_delete)(void *type);

    void *(*store_new)(void *engine, void *data, void (*finalizer)(void *));
    void *(*store_context)(void *store);
    void (*store_limiter)(void *store, int64_t memory, int64_t table, int64_t instances,
                          int64_t tables, int64_t memories);
    void (*store_delete)(void *store);
    void *(*set_fuel)(void *context, uint64_t fuel);
    void *(*get_fuel)(void *context, uint64_t *fuel);
    void *(*instantiate)(const void *pre, void *context, struct ax_wasm_instance *instance,
                         void **trap);
    bool (*export_get)(void *context, const struct ax_wasm_instance *instance, const char *name,
                       size_t len, struct ax_wasm_extern *out);
    void *(*call)(void *context, const struct ax_wasm_func *func, union ax_wasm_cell *cells,
                  size_t n, void **trap);
    void *(*caller_context)(void *caller);
    void *(*get_data)(const void *context);
    unsigned char *(*memory_data)(const void *context, const void *memory);
    size_t (*memory_size)(const void *context, const void *memory);
    void (*global_get)(void *context, const void *global, struct ax_wasm_val *out);
    void *(*global_set)(void *context, const void *global, const struct ax_wasm_val *value);

    void *(*trap_new)(const char *text, size_t n);
    bool (*trap_code)(const void *trap, uint8_t *code);
    void (*trap_delete)(void *trap);
    void (*error_message)(const void *error, struct ax_wasm_bytes *out);
    void (*error_delete)(void *error);
    void (*bytes_delete)(struct ax_wasm_bytes *bytes);
};

/* Opens the library at `path`, once per process. AX_ERR_UNSUPPORTED says why it cannot. */
enum ax_status ax_wasmtime_open(const char *path, const struct ax_wasmtime **out);
/* A new configuration of an engine with what the sandbox's guests need and nothing else. */
void *ax_wasmtime_config(const struct ax_wasmtime *w);

#endif
