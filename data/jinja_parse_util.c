/* What both halves of the parser stand on: errors, tokens, nodes (jinja_parse.h). */
#include "data/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ax_jtree_set_error(const struct ax_jtree *t, int line, const char *fmt, ...) {
    char text[1800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)ax_error(AX_ERR_DATA, "%s:%d: %s", t->name, line, text);
}

/* ---- tokens ---- */

void ax_jparser_next(struct ax_jparser *p) {
    if (p->token->kind != AX_JT_EOF) {
        p->token++;
    }
}

bool ax_jparser_is_op(const struct ax_jparser *p, enum ax_jop op) {
    return p->token->kind == AX_JT_OP && p->token->op == op;
}

bool ax_jparser_is_name(const struct ax_jparser *p, const char *name) {
    return p->token->kind == AX_JT_NAME && ax_jstr_is(p->token->value.str, name);
}

bool ax_jparser_skip_op(struct ax_jparser *p, enum ax_jop op) {
    bool is = ax_jparser_is_op(p, op);
    if (is) {
        ax_jparser_next(p);
    }
    return is;
}

bool ax_jparser_skip_name(struct ax_jparser *p, const char *name) {
    bool is = ax_jparser_is_name(p, name);
    if (is) {
        ax_jparser_next(p);
    }
    return is;
}

void ax_jparser_set_unexpected(struct ax_jparser *p, const char *what) {
    static const char *const kinds[] = {
        [AX_JT_EOF] = "the end of the template",
        [AX_JT_DATA] = "text",
        [AX_JT_PRINT_BEGIN] = "'{{'",
        [AX_JT_PRINT_END] = "'}}'",
        [AX_JT_BLOCK_BEGIN] = "'{%'",
        [AX_JT_BLOCK_END] = "'%}'",
        [AX_JT_STRING] = "a string",
        [AX_JT_NUMBER] = "a number",
        [AX_JT_INTEGER] = "a number",
        [AX_JT_OP] = "an operator",
    };
    const struct ax_jtoken *t = p->token;
    if (t->kind == AX_JT_NAME) {
        ax_jtree_set_error(p->tree, t->line, "expected %s, got '%.*s'", what,
                           (int)t->value.str->len, t->value.str->data);
    } else if (t->kind == AX_JT_OP) {
        ax_jtree_set_error(p->tree, t->line, "expected %s, got '%s'", what, ax_jop_text(t->op));
    } else {
        ax_jtree_set_error(p->tree, t->line, "expected %s, got %s", what, kinds[t->kind]);
    }
}

enum ax_status ax_jparser_expect_op(struct ax_jparser *p, enum ax_jop op, const char *what) {
    return ax_jparser_skip_op(p, op) ? AX_OK : ax_jparser_unexpected(p, what);
}

enum ax_status ax_jparser_expect_name(struct ax_jparser *p, struct ax_jstr **name) {
    if (p->token->kind != AX_JT_NAME) {
        return ax_jparser_unexpected(p, "a name");
    }
    *name = p->token->value.str;
    ax_jparser_next(p);
    return AX_OK;
}

enum ax_status ax_jparser_name(struct ax_jparser *p, struct ax_jstr *name, uint32_t *number) {
    struct ax_jdict *names = p->tree->names;
    const struct ax_jval *known = ax_jdict_get_str(names, name);
    if (known != NULL) {
        *number = (uint32_t)known->integer;
        return AX_OK;
    }
    *number = (uint32_t)names->n;
    return ax_jdict_set(p->tree->arena, names, ax_jstring(name), ax_jint(*number));
}

/* ---- nodes ---- */

enum ax_status ax_jnode_new(struct ax_jparser *p, enum ax_jnode_kind kind, int line,
                            struct ax_jnode **out) {
    struct ax_jnode *n;
    AX_TRY(ax_jarena_alloc(p->tree->arena, &n, 1, sizeof *n));
    n->kind = kind;
    n->line = line;
    *out = n;
    return AX_OK;
}

enum ax_status ax_jnode_append(struct ax_jparser *p, struct ax_jnodes *list,
                               struct ax_jnode *child) {
    if (list->n == list->cap) {
        size_t cap = list->cap > 0 ? 2 * list->cap : 4;
        struct ax_jnode **items;
        AX_TRY(ax_jarena_alloc(p->tree->arena, &items, cap, sizeof *items));
        if (list->n > 0) {
            memcpy(items, list->items, list->n * sizeof *items);
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = child;
    return AX_OK;
}

enum ax_status ax_jparser_enter(struct ax_jparser *p) {
    if (++p->depth > AX_JHEIGHT_MAX) {
        return ax_jtree_error(p->tree, p->token->line, "nested more than %d deep", AX_JHEIGHT_MAX);
    }
    return AX_OK;
}

void ax_jparser_leave(struct ax_jparser *p) {
    p->depth--;
}

/* A node with one or two operands. */
enum ax_status ax_jnode_operation(struct ax_jparser *p, enum ax_jnode_kind kind, enum ax_jop op,
                                  int line, struct ax_jnode *left, struct ax_jnode *right,
                                  struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, kind, line, out));
    (*out)->binary.op = op;
    (*out)->binary.left = left;
    (*out)->binary.right = right;
    return AX_OK;
}
