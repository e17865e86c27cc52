#include "data/reward/sandbox/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "data/reward/sandbox/module.h"

__asm__(".pushsection .rodata\n"
        ".global ax_sandbox_harness, ax_sandbox_harness_end\n"
        "ax_sandbox_harness: .incbin \"data/reward/sandbox/harness.py\"\n"
        "ax_sandbox_harness_end: .byte 0\n"
        ".popsection\n");

#define MAX_INTERPRETER ((size_t)256 << 20)
#define START_FUEL      ((uint64_t)200000000000)

/* Isolated, without site, without .pyc, in UTF-8. */
static const char *const arguments[] = {"python",           "-I", "-S", "-B", "-X", "utf8", "-c",
                                        ax_sandbox_harness, NULL};

struct start {
    struct ax_wasm_module module;
    struct ax_engine engine;
    struct ax_guest guest;
    char out[64], err[4096];
};

static enum ax_status failed(const struct start *s, enum ax_guest_end end) {
    const struct ax_wasi *w = &s->guest.wasi;
    if (end == AX_GUEST_STOPPED && w->end == AX_WASI_EXIT)
        return ax_error(AX_ERR_DATA, "it exits with code %d: %.*s", w->exit_code, (int)w->err.n,
                        w->err.data);
    return ax_error(AX_ERR_DATA, "it does not start (%d, %d): %.*s", (int)end, (int)w->end,
                    (int)w->err.n, w->err.data);
}

/* Runs it until the harness asks for the time: in the middle of a call that holds the interpreter's
 * lock. */
static enum ax_status start(struct start *s, size_t memory, struct ax_bytes library) {
    uint32_t result;
    const struct ax_wasi wasi = {.args = arguments,
                                 .library = library,
                                 .library_path = AX_SNAPSHOT_LIBRARY_PATH,
                                 .fuel_limit = START_FUEL,
                                 .stop_at_clock = true,
                                 .out = {.data = s->out, .cap = sizeof s->out - 1},
                                 .err = {.data = s->err, .cap = sizeof s->err}};
    AX_TRY(ax_guest_open(&s->guest, &s->engine, "_start"));
    AX_TRY(ax_guest_begin(&s->guest, &wasi, memory));
    const enum ax_guest_end end = ax_guest_call(&s->guest, &result);
    return s->guest.wasi.end == AX_WASI_CLOCK ? AX_OK : failed(s, end);
}

/* CPython's objects: the type's address, and in the type where its instances have the function that
 * calls them (PEP 590); of bytes, the length and the contents. */
enum { TYPE = 4, TYPE_VECTORCALL_OFFSET = 28, BYTES_LEN = 8, BYTES_DATA = 16 };

static bool load(const unsigned char *memory, size_t size, uint64_t at, uint32_t *value) {
    if (at + sizeof *value > size)
        return false;
    memcpy(value, memory + at, sizeof *value);
    return true;
}

/* The harness printed the ids of its entry and of the bytes that become the stack. What was on the
 * old stack stays there. */
static enum ax_status read_state(struct start *s, struct ax_wasm_state *state) {
    uint32_t type, offset, stack_len;
    size_t size;
    char *rest;
    const unsigned char *memory = ax_guest_memory(&s->guest, &size);
    const uint32_t object = (uint32_t)strtoul(s->out, &rest, 10);
    const uint32_t stack = (uint32_t)strtoul(rest, NULL, 10);
    *state = (struct ax_wasm_state){.memory = memory, .memory_len = size, .argument = object};
    if (object == 0 || !load(memory, size, (uint64_t)object + TYPE, &type) ||
        !load(memory, size, (uint64_t)type + TYPE_VECTORCALL_OFFSET, &offset) ||
        !load(memory, size, (uint64_t)object + offset, &state->function) ||
        !load(memory, size, (uint64_t)stack + BYTES_LEN, &stack_len) ||
        stack_len != AX_SNAPSHOT_STACK || (uint64_t)stack + BYTES_DATA + stack_len > size)
        return ax_error(AX_ERR_DATA, "its objects are not those of CPython 3.11 or 3.12");
    for (uint32_t i = 0; i < s->module.sections[AX_WASM_GLOBALS].n; i++) {
        char name[16];
        struct ax_wasm_extern global;
        struct ax_wasm_val value = {0};
        (void)snprintf(name, sizeof name, "g%u", i);
        if (!ax_guest_export(&s->guest, name, &global))
            continue; /* a constant */
        s->engine.lib->global_get(s->guest.context, &global.of, &value);
        state->globals[i] = value.of.i32;
    }
    enum { ALIGNMENT = 16 };
    state->globals[AX_SNAPSHOT_STACK_POINTER] =
        (int32_t)((stack + BYTES_DATA + stack_len) / ALIGNMENT * ALIGNMENT);
    return AX_OK;
}

static enum ax_status take(struct start *s, size_t memory, struct ax_bytes wasm,
                           struct ax_bytes library, struct ax_buf *out) {
    struct ax_wasm_state state;
    struct ax_buf opened = {0};
    AX_TRY(ax_module_read(&s->module, wasm.data, wasm.n));
    enum ax_status st = ax_module_write_open(&s->module, &opened);
    if (st == AX_OK)
        st = ax_engine_compile(&s->engine, opened.data, opened.len);
    ax_buf_free(&opened);
    AX_TRY(st);
    AX_TRY(start(s, memory, library));
    AX_TRY(read_state(s, &state));
    return ax_module_write_snapshot(&s->module, &state, out);
}

enum ax_status ax_snapshot_take(const struct ax_wasmtime *lib, const struct ax_interpreter *python,
                                size_t memory, struct ax_buf *out) {
    struct start *s;
    char *wasm = NULL, *zip = NULL;
    size_t wasm_len = 0, zip_len = 0;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    enum ax_status st = ax_read_file(python->wasm, MAX_INTERPRETER, &wasm, &wasm_len);
    if (st == AX_OK && python->library)
        st = ax_read_file(python->library, MAX_INTERPRETER, &zip, &zip_len);
    if (st == AX_OK)
        st = ax_engine_create(&s->engine, lib, 1, memory);
    if (st == AX_OK) {
        st = take(s, memory, (struct ax_bytes){wasm, wasm_len}, (struct ax_bytes){zip, zip_len},
                  out);
        ax_guest_close(&s->guest);
        ax_engine_free(&s->engine);
        st = st == AX_OK ? AX_OK : ax_error_prefix(st, "%s", python->wasm);
    }
    ax_free(zip);
    ax_free(wasm);
    ax_free(s);
    return st;
}
