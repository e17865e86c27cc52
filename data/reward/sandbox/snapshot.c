/* WebAssembly modules, written and read; then an interpreter whose state becomes a module. Read
 * ax_snapshot_take first. */
#include "data/reward/sandbox/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

/* ---- writing a module anew ----
 *
 * Sections are copied as they are; those that differ get items in front of or behind what they had. */

enum { TYPE_I32 = 0x7f, TYPE_FUNC = 0x60 };
/* Instructions; the first four are constants. */
enum { I32 = 0x41, I64, F32, F64, GLOBAL = 0x23, END = 0x0b, CALL_INDIRECT = 0x11 };
enum { EXPORT_FUNC = 0, EXPORT_MEMORY = 2, EXPORT_GLOBAL = 3 };

/* Errors are those of memory alone: the first is kept. */
struct writer {
    struct ax_buf *out;
    enum ax_status st;
};

static void put(struct writer *w, const void *data, size_t n) {
    if (w->st == AX_OK && n > 0)
        w->st = ax_buf_append(w->out, data, n);
}

static void put_byte(struct writer *w, int byte) {
    const unsigned char b = (unsigned char)byte;
    put(w, &b, 1);
}

static void put_number(struct writer *w, uint32_t v) {
    for (; v >= 128; v >>= 7)
        put_byte(w, (int)(v & 127) | 128);
    put_byte(w, (int)v);
}

/* i32.const v; end. Signed, so that the last byte's bit 6 is the sign. */
static void put_const(struct writer *w, uint32_t value) {
    int64_t v = (int32_t)value;
    put_byte(w, I32);
    for (; v < -64 || v > 63; v >>= 7)
        put_byte(w, (int)(v & 127) | 128);
    put_byte(w, (int)(v & 127));
}

static void put_section(struct writer *w, int id, uint32_t n, const struct ax_buf *body) {
    struct ax_buf count = {0};
    struct writer c = {&count, w->st};
    put_number(&c, n);
    w->st = c.st;
    put_byte(w, id);
    put_number(w, (uint32_t)(count.len + body->len));
    put(w, count.data, count.len);
    put(w, body->data, body->len);
    ax_buf_free(&count);
}

/* The section as it was, followed by n items more. */
static void put_longer(struct writer *w, const struct ax_wasm_module *m, int id, uint32_t n,
                       const void *more, size_t more_len) {
    const struct ax_wasm_section *s = &m->sections[id];
    struct ax_buf body = {0};
    struct writer b = {&body, w->st};
    if (s->n + n == 0)
        return;
    put(&b, s->data, s->len);
    put(&b, more, more_len);
    w->st = b.st;
    put_section(w, id, s->n + n, &body);
    ax_buf_free(&body);
}

static void put_same(struct writer *w, const struct ax_wasm_module *m, int id) {
    put_longer(w, m, id, 0, NULL, 0);
}

static void put_export(struct writer *w, const char *name, int kind, uint32_t index) {
    put_number(w, (uint32_t)strlen(name));
    put(w, name, strlen(name));
    put_byte(w, kind);
    put_number(w, index);
}

static void put_magic(struct writer *w) {
    put(w, "\0asm\1\0\0\0", 8);
}

/* ---- a module with its state exported ---- */

/* The index of the function exported as _start. */
static bool find_start(const struct ax_wasm_section *s, uint32_t *index) {
    static const char name[] = "\6_start";
    for (size_t i = 0; i + sizeof name < s->len; i++)
        if (memcmp(s->data + i, name, sizeof name) == 0) { /* the NUL is the kind: a function */
            *index = 0;
            const unsigned char *p = s->data + i + sizeof name, *end = s->data + s->len;
            for (int shift = 0; p < end && shift < 28; shift += 7) {
                *index |= (uint32_t)(*p & 127) << shift;
                if (!(*p++ & 128))
                    return true;
            }
        }
    return false;
}

/* The mutable globals, which are all i32, as "g0", "g1", … by index. */
static uint32_t put_state_exports(struct writer *e, const struct ax_wasm_module *m) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->sections[AX_WASM_GLOBALS].n; i++) {
        char name[16];
        if (!m->globals[i].is_mutable)
            continue;
        (void)snprintf(name, sizeof name, "g%u", i);
        put_export(e, name, EXPORT_GLOBAL, i);
        n++;
    }
    return n;
}

enum ax_status ax_module_write_open(const struct ax_wasm_module *m, struct ax_buf *out) {
    struct writer w = {out, AX_OK};
    struct ax_buf exports = {0};
    struct writer e = {&exports, AX_OK};
    uint32_t start_interpreter;
    if (!find_start(&m->sections[AX_WASM_EXPORTS], &start_interpreter))
        return ax_error(AX_ERR_DATA, "not an interpreter: it exports no function _start");
    put_export(&e, "_start", EXPORT_FUNC, start_interpreter);
    put_export(&e, "memory", EXPORT_MEMORY, 0);
    const uint32_t n = 2 + put_state_exports(&e, m);
    w.st = e.st;
    put_magic(&w);
    for (int id = AX_WASM_TYPES; id < AX_WASM_EXPORTS; id++)
        put_same(&w, m, id);
    put_section(&w, AX_WASM_EXPORTS, n, &exports);
    for (int id = AX_WASM_ELEMENTS; id <= AX_WASM_DATA; id++)
        put_same(&w, m, id);
    ax_buf_free(&exports);
    return w.st;
}

/* ---- a module that begins in a state ---- */

static void put_globals(struct writer *w, const struct ax_wasm_module *m,
                        const struct ax_wasm_state *s) {
    const uint32_t n = m->sections[AX_WASM_GLOBALS].n;
    struct ax_buf body = {0};
    struct writer b = {&body, w->st};
    for (uint32_t i = 0; i < n; i++) {
        const struct ax_wasm_global *g = &m->globals[i];
        put_byte(&b, g->type);
        put_byte(&b, g->is_mutable);
        if (g->is_mutable) {
            put_const(&b, (uint32_t)s->globals[i]);
            put_byte(&b, END);
        } else {
            put(&b, g->init, g->init_len);
        }
    }
    w->st = b.st;
    if (n > 0)
        put_section(w, AX_WASM_GLOBALS, n, &body);
    ax_buf_free(&body);
}

static void put_memory(struct writer *w, const struct ax_wasm_module *m, size_t bytes) {
    struct ax_buf body = {0};
    struct writer b = {&body, w->st};
    put_byte(&b, m->memory_max != UINT32_MAX);
    put_number(&b, (uint32_t)(bytes / AX_WASM_PAGE));
    if (m->memory_max != UINT32_MAX)
        put_number(&b, m->memory_max);
    w->st = b.st;
    put_section(w, AX_WASM_MEMORIES, 1, &body);
    ax_buf_free(&body);
}

enum { HOST_PAGE = 4096 };

static bool is_zero(const unsigned char *p) {
    return *p == 0 && memcmp(p, p + 1, HOST_PAGE - 1) == 0;
}

/* One segment from the first to the last page that is not zero. (Several would be shorter, but the
 * engine maps an image, rather than copying it into each instance, only if it is dense enough.) */
static void put_data(struct writer *w, const struct ax_wasm_state *s) {
    size_t first = 0, end = s->memory_len / HOST_PAGE;
    struct ax_buf body = {0};
    struct writer b = {&body, w->st};
    while (first < end && is_zero(s->memory + first * HOST_PAGE))
        first++;
    while (end > first && is_zero(s->memory + (end - 1) * HOST_PAGE))
        end--;
    put_byte(&b, 0); /* active, in memory 0 */
    put_const(&b, (uint32_t)(first * HOST_PAGE));
    put_byte(&b, END);
    put_number(&b, (uint32_t)((end - first) * HOST_PAGE));
    put(&b, s->memory + first * HOST_PAGE, (end - first) * HOST_PAGE);
    w->st = b.st;
    put_section(w, AX_WASM_DATA, 1, &body);
    ax_buf_free(&body);
}

/* run's body: no locals; i32.const argument, 0, 0, 0; the call through table 0. */
static void put_run(struct writer *w, const struct ax_wasm_module *m,
                    const struct ax_wasm_state *s) {
    struct ax_buf body = {0}, item = {0};
    struct writer b = {&body, w->st}, i = {&item, AX_OK};
    put_byte(&b, 0);
    put_const(&b, s->argument);
    for (int k = 0; k < 3; k++)
        put_const(&b, 0);
    put_const(&b, s->function);
    put_byte(&b, CALL_INDIRECT);
    put_number(&b, m->sections[AX_WASM_TYPES].n); /* the first of the new types */
    put_byte(&b, 0);
    put_byte(&b, END);
    i.st = b.st;
    put_number(&i, (uint32_t)body.len);
    put(&i, body.data, body.len);
    w->st = i.st;
    put_longer(w, m, AX_WASM_CODE, 1, item.data, item.len);
    ax_buf_free(&body);
    ax_buf_free(&item);
}

static void put_exports(struct writer *w, const struct ax_wasm_module *m) {
    struct ax_buf exports = {0};
    struct writer e = {&exports, w->st};
    put_export(&e, "memory", EXPORT_MEMORY, 0);
    put_export(&e, "run", EXPORT_FUNC, m->imported_functions + m->sections[AX_WASM_FUNCTIONS].n);
    const uint32_t n = 2 + put_state_exports(&e, m);
    w->st = e.st;
    put_section(w, AX_WASM_EXPORTS, n, &exports);
    ax_buf_free(&exports);
}

static void put_function(struct writer *w, const struct ax_wasm_module *m) {
    struct ax_buf type = {0};
    struct writer t = {&type, w->st};
    put_number(&t, m->sections[AX_WASM_TYPES].n + 1); /* the second of the new types */
    w->st = t.st;
    put_longer(w, m, AX_WASM_FUNCTIONS, 1, type.data, type.len);
    ax_buf_free(&type);
}

enum ax_status ax_module_write_snapshot(const struct ax_wasm_module *m,
                                        const struct ax_wasm_state *s, struct ax_buf *out) {
    /* (i32, i32, i32, i32) -> i32 and () -> i32 */
    static const unsigned char types[] = {TYPE_FUNC, 4,        TYPE_I32, TYPE_I32,
                                          TYPE_I32,  TYPE_I32, 1,        TYPE_I32,
                                          TYPE_FUNC, 0,        1,        TYPE_I32};
    struct writer w = {out, AX_OK};
    put_magic(&w);
    put_longer(&w, m, AX_WASM_TYPES, 2, types, sizeof types);
    put_same(&w, m, AX_WASM_IMPORTS);
    put_function(&w, m);
    put_same(&w, m, AX_WASM_TABLES);
    put_memory(&w, m, s->memory_len);
    put_globals(&w, m, s);
    put_exports(&w, m);
    put_same(&w, m, AX_WASM_ELEMENTS);
    put_run(&w, m, s);
    put_data(&w, s);
    return w.st;
}

/* ---- reading a module ---- */

#define MAX_SECTION_ITEMS 1000000

/* What is left to read; `bad` once it did not have what was asked for. */
struct cursor {
    const unsigned char *at, *end;
    bool bad;
};

static unsigned char byte(struct cursor *c) {
    if (c->at == c->end) {
        c->bad = true;
        return 0;
    }
    return *c->at++;
}

/* An unsigned LEB128 number of at most 32 bits. */
static uint32_t number(struct cursor *c) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const unsigned char b = byte(c);
        value |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) {
            c->bad = c->bad || value > UINT32_MAX;
            return c->bad ? 0 : (uint32_t)value;
        }
    }
    c->bad = true;
    return 0;
}

static void skip(struct cursor *c, uint64_t n) {
    c->bad = c->bad || n > (uint64_t)(c->end - c->at);
    if (!c->bad)
        c->at += n;
}

static void skip_leb(struct cursor *c) {
    for (int i = 0; i < 10 && (byte(c) & 128); i++)
        c->bad = c->bad || i == 9;
}

static void limits(struct cursor *c, uint32_t *min, uint32_t *max) {
    const unsigned char flags = byte(c);
    c->bad = c->bad || flags > 1;
    *min = number(c);
    *max = flags & 1 ? number(c) : UINT32_MAX;
}

/* A constant expression of one instruction. */
static void expression(struct cursor *c) {
    const unsigned char op = byte(c);
    if (op == I32 || op == I64 || op == GLOBAL)
        skip_leb(c);
    else if (op == F32 || op == F64)
        skip(c, op == F32 ? 4 : 8);
    else
        c->bad = true;
    c->bad = byte(c) != END || c->bad;
}

static void read_import(struct ax_wasm_module *m, struct cursor *c) {
    skip(c, number(c));
    skip(c, number(c));
    c->bad = byte(c) != 0 || c->bad; /* functions only */
    (void)number(c);
    m->imported_functions++;
}

static void read_global(struct ax_wasm_global *g, struct cursor *c) {
    g->type = byte(c);
    const unsigned char is_mutable = byte(c);
    c->bad = c->bad || is_mutable > 1;
    g->is_mutable = is_mutable == 1;
    g->init = c->at;
    expression(c);
    g->init_len = (size_t)(c->at - g->init);
}

static enum ax_status broken(const char *what) {
    return ax_error(AX_ERR_DATA, "not a WebAssembly module that the sandbox can use: %s", what);
}

static struct cursor items(const struct ax_wasm_section *s) {
    return (struct cursor){s->data, s->data + s->len, false};
}

static enum ax_status read_contents(struct ax_wasm_module *m) {
    struct cursor c = items(&m->sections[AX_WASM_IMPORTS]);
    for (uint32_t i = 0; i < m->sections[AX_WASM_IMPORTS].n && !c.bad; i++)
        read_import(m, &c);
    if (c.bad)
        return broken("its imports are not all functions");
    const struct ax_wasm_section *memory = &m->sections[AX_WASM_MEMORIES];
    c = items(memory);
    if (memory->n == 1)
        limits(&c, &m->memory_min, &m->memory_max);
    if (memory->n != 1 || c.bad || m->memory_min > AX_WASM_PAGE)
        return broken("it does not have one memory");
    const struct ax_wasm_section *globals = &m->sections[AX_WASM_GLOBALS];
    if (globals->n > AX_WASM_MAX_GLOBALS)
        return broken("it has too many globals");
    c = items(globals);
    for (uint32_t i = 0; i < globals->n && !c.bad; i++)
        read_global(&m->globals[i], &c);
    if (c.bad)
        return broken("its globals are damaged");
    for (uint32_t i = 0; i < globals->n; i++)
        if (m->globals[i].is_mutable && m->globals[i].type != 0x7f)
            return broken("it has a mutable global that is not an i32");
    return AX_OK;
}

/* Sections come in the order of their ids, except for the count of data (12), which is before the
 * code and is left out of what is written. */
static enum ax_status read_sections(struct ax_wasm_module *m, struct cursor *c) {
    int last = 0;
    while (c->at < c->end && !c->bad) {
        const unsigned char id = byte(c);
        const uint32_t n = number(c);
        struct cursor body = {c->at, c->at, false};
        skip(c, n);
        if (c->bad)
            return broken("a section is longer than the file");
        if (id == 0)
            continue;
        if (id >= AX_WASM_SECTIONS || (id <= last && id != AX_WASM_DATA_COUNT))
            return broken("its sections are out of order");
        last = id == AX_WASM_DATA_COUNT ? last : id;
        body.end = c->at;
        const uint32_t count = number(&body);
        if (body.bad || count > MAX_SECTION_ITEMS)
            return broken("a section is damaged");
        m->sections[id] = (struct ax_wasm_section){body.at, (size_t)(body.end - body.at), count};
    }
    return AX_OK;
}

enum ax_status ax_module_read(struct ax_wasm_module *m, const void *data, size_t n) {
    static const unsigned char magic[8] = {0, 'a', 's', 'm', 1, 0, 0, 0};
    struct cursor c = {data, (const unsigned char *)data + n, false};
    *m = (struct ax_wasm_module){0};
    if (n < sizeof magic || memcmp(data, magic, sizeof magic) != 0)
        return broken("it does not begin with \"\\0asm\", version 1");
    c.at += sizeof magic;
    AX_TRY(read_sections(m, &c));
    AX_TRY(read_contents(m));
    if (m->sections[AX_WASM_FUNCTIONS].n != m->sections[AX_WASM_CODE].n)
        return broken("it has functions without code");
    return AX_OK;
}

/* ---- starting an interpreter ---- */

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
