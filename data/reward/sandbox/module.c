#include "data/reward/sandbox/module.h"

#include <string.h>

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
    enum { I32 = 0x41, I64 = 0x42, F32 = 0x43, F64 = 0x44, GLOBAL = 0x23, END = 0x0b };
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
