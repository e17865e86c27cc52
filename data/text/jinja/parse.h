/* Shared by the parts of the parser: parse.c (tags), parse_expr.c (tokens, nodes, operands,
 * operators). */
#ifndef AX_DATA_TEXT_JINJA_PARSE_H
#define AX_DATA_TEXT_JINJA_PARSE_H

#include <string.h>

#include "data/text/jinja/ast.h"

struct ax_jparser {
    struct ax_jtree *tree;
    const struct ax_jtoken *token; /* the current token; never moves past AX_JT_EOF */
    int depth;
    int loops;     /* enclosing for tags, within the current macro */
    int functions; /* enclosing macros and generation blocks */
    int ifs;       /* enclosing if tags: inside, an unknown filter fails only when reached */
    const struct ax_jnode *unknown; /* the first unknown filter or test outside if tags */
};

/* ---- tokens ---- */

static inline void ax_jparser_next(struct ax_jparser *p) {
    if (p->token->kind != AX_JT_EOF)
        p->token++;
}

static inline bool ax_jparser_is_op(const struct ax_jparser *p, enum ax_jop op) {
    return p->token->kind == AX_JT_OP && p->token->op == op;
}

static inline bool ax_jparser_is_name(const struct ax_jparser *p, const char *name) {
    return p->token->kind == AX_JT_NAME && ax_jstr_is(p->token->value.str, name);
}

static inline bool ax_jparser_skip_op(struct ax_jparser *p, enum ax_jop op) {
    bool is = ax_jparser_is_op(p, op);
    if (is)
        ax_jparser_next(p);
    return is;
}

static inline bool ax_jparser_skip_name(struct ax_jparser *p, const char *name) {
    bool is = ax_jparser_is_name(p, name);
    if (is)
        ax_jparser_next(p);
    return is;
}

/* "expected WHAT, got …" at the current token. */
void ax_jparser_set_unexpected(struct ax_jparser *p, const char *what);
#define ax_jparser_unexpected(p, what) (ax_jparser_set_unexpected((p), (what)), AX_ERR_DATA)

static inline enum ax_status ax_jparser_expect_op(struct ax_jparser *p, enum ax_jop op,
                                                  const char *what) {
    return ax_jparser_skip_op(p, op) ? AX_OK : ax_jparser_unexpected(p, what);
}

/* ---- nodes ---- */

static inline enum ax_status ax_jnode_new(struct ax_jparser *p, enum ax_jnode_kind kind, int line,
                                          struct ax_jnode **out) {
    struct ax_jnode *n;
    AX_TRY(ax_jarena_alloc(p->tree->arena, &n, 1, sizeof *n));
    n->kind = kind;
    n->line = line;
    *out = n;
    return AX_OK;
}

static inline enum ax_status ax_jnode_append(struct ax_jparser *p, struct ax_jnodes *list,
                                             struct ax_jnode *child) {
    if (list->n == list->cap) {
        size_t cap = list->cap > 0 ? 2 * list->cap : 4;
        struct ax_jnode **items;
        AX_TRY(ax_jarena_alloc(p->tree->arena, &items, cap, sizeof *items));
        if (list->n > 0)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = child;
    return AX_OK;
}

/* Guards recursion: AX_TRY(enter), and leave on the way out. */
static inline enum ax_status ax_jparser_enter(struct ax_jparser *p) {
    if (++p->depth > AX_JHEIGHT_MAX)
        return ax_jtree_error(p->tree, p->token->line, "nested more than %d deep", AX_JHEIGHT_MAX);
    return AX_OK;
}

static inline void ax_jparser_leave(struct ax_jparser *p) {
    p->depth--;
}

/* The number of a variable's name. */
static inline enum ax_status ax_jparser_name(struct ax_jparser *p, struct ax_jstr *name,
                                             uint32_t *number) {
    struct ax_jdict *names = p->tree->names;
    const struct ax_jval *known = ax_jdict_get_str(names, name);
    if (known != NULL) {
        *number = (uint32_t)known->integer;
        return AX_OK;
    }
    *number = (uint32_t)names->n;
    return ax_jdict_set(p->tree->arena, names, ax_jstring(name), ax_jint(*number));
}

/* ---- expressions ---- */

enum ax_status ax_jparse_expression(struct ax_jparser *p, struct ax_jnode **out);
/* One expression, or a comma-separated tuple. `stop` is a name that ends it, or NULL. */
enum ax_status ax_jparse_tuple(struct ax_jparser *p, bool cond, bool in_parens, const char *stop,
                               struct ax_jnode **out);
/* name(.name)* with arguments, repeated after each "|". `of` NULL: for a block's text. */
enum ax_status ax_jparse_filters(struct ax_jparser *p, struct ax_jnode *of, bool first_without_pipe,
                                 struct ax_jnode **out);
/* Target of set (nsref: also name.attr), for or with; `stop` as above. */
enum ax_status ax_jparse_target(struct ax_jparser *p, bool nsref, const char *stop,
                                struct ax_jnode **out);
/* A single name as a target. */
enum ax_status ax_jparse_target_name(struct ax_jparser *p, struct ax_jnode **out);

#endif
