/* Shared by the parts of the parser: parse.c (tags), parse_expr.c (tokens, nodes, operands,
 * operators). */
#ifndef AX_DATA_TEXT_JINJA_PARSE_H
#define AX_DATA_TEXT_JINJA_PARSE_H

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

enum ax_status ax_jnode_new(struct ax_jparser *p, enum ax_jnode_kind kind, int line,
                            struct ax_jnode **out);
enum ax_status ax_jnode_append(struct ax_jparser *p, struct ax_jnodes *list,
                               struct ax_jnode *child);

/* Guards recursion: AX_TRY(enter), and leave on the way out. */
enum ax_status ax_jparser_enter(struct ax_jparser *p);
void ax_jparser_leave(struct ax_jparser *p);

/* ---- expressions ---- */

enum ax_status ax_jparse_expression(struct ax_jparser *p, struct ax_jnode **out);
/* The number of a variable's name. */
enum ax_status ax_jparser_name(struct ax_jparser *p, struct ax_jstr *name, uint32_t *number);
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
