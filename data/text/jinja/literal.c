/* A literal is an expression of constants only: parsed as {{ text }}, then walked. */
#include "data/text/jinja/literal.h"

#include <string.h>

#include "base/mem.h"
#include "data/text/jinja/ast.h"

/* Tokens and tree take several hundred bytes per character of the text. */
#define MEMORY_MIN      ((size_t)1 << 20)
#define MEMORY_PER_BYTE 1024

static json_t *value_of(const struct ax_jnode *n);

static json_t *constant(struct ax_jval v) {
    switch (v.kind) {
    case AX_JNONE:
        return json_null();
    case AX_JBOOL:
        return json_boolean(v.boolean);
    case AX_JINT:
        return json_integer(v.integer);
    case AX_JFLOAT:
        return json_real(v.real);
    case AX_JSTR:
        return json_stringn(v.str->data, v.str->len);
    default:
        return NULL;
    }
}

static json_t *negative(const struct ax_jnode *n) {
    if (n->kind != AX_JN_CONST || n->value.kind == AX_JBOOL)
        return NULL;
    return n->value.kind == AX_JINT     ? json_integer(-n->value.integer)
           : n->value.kind == AX_JFLOAT ? json_real(-n->value.real)
                                        : NULL;
}

static json_t *list(const struct ax_jnodes *items) {
    json_t *out = json_array();
    for (size_t i = 0; i < items->n; i++) {
        if (json_array_append_new(out, value_of(items->items[i])) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* Keys must be strings. */
static json_t *dict(const struct ax_jnodes *items) {
    json_t *out = json_object();
    for (size_t i = 0; i + 1 < items->n; i += 2) {
        const struct ax_jnode *key = items->items[i];
        const struct ax_jstr *s =
            key->kind == AX_JN_CONST && key->value.kind == AX_JSTR ? key->value.str : NULL;
        if (!s || json_object_setn_new(out, s->data, s->len, value_of(items->items[i + 1])) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* NULL if a part is not constant. The parser bounds the depth. */
static json_t *value_of(const struct ax_jnode *n) {
    switch (n->kind) {
    case AX_JN_CONST:
        return constant(n->value);
    case AX_JN_NEG:
        return negative(n->binary.left);
    case AX_JN_LIST:
    case AX_JN_TUPLE:
        return list(&n->items);
    case AX_JN_DICT:
        return dict(&n->items);
    default:
        return NULL;
    }
}

static enum ax_status parse(struct ax_jtree *t, const char *text, size_t len) {
    struct ax_buf source = {0};
    struct ax_jtoken *tokens;
    size_t n;
    enum ax_status st;
    AX_TRY_GOTO(ax_jdict_new(t->arena, &t->words), st, done);
    AX_TRY_GOTO(ax_buf_puts(&source, "{{ "), st, done);
    AX_TRY_GOTO(ax_buf_append(&source, text, len), st, done);
    AX_TRY_GOTO(ax_buf_puts(&source, " }}"), st, done);
    char *kept; /* tokens borrow from it */
    AX_TRY_GOTO(ax_jarena_alloc(t->arena, &kept, source.len, 1), st, done);
    memcpy(kept, source.data, source.len);
    AX_TRY_GOTO(ax_jlex(t, kept, source.len, &tokens, &n), st, done);
    st = ax_jparse(t, tokens);
done:
    ax_buf_free(&source);
    return st;
}

enum ax_status ax_jinja_literal(const char *text, size_t len, json_t **out) {
    struct ax_jarena arena;
    struct ax_jtree tree = {.arena = &arena, .name = "literal", .plain = true};
    *out = NULL;
    ax_jarena_init(&arena, MEMORY_MIN + len * MEMORY_PER_BYTE);
    enum ax_status st = parse(&tree, text, len);
    if (st == AX_OK && tree.body.n == 1 && tree.body.items[0]->kind == AX_JN_PRINT)
        *out = value_of(tree.body.items[0]->print);
    ax_jarena_free(&arena);
    if (st == AX_ERR_DATA) { /* not a literal */
        ax_error_clear();
        st = AX_OK;
    }
    return st;
}
