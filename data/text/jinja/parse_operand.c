/* Tokens → operands: names and literals, with what follows: .name, [key], (arguments), filters and
 * tests. Filters and tests bind only to the operand on their left. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/parse.h"

/* Attribute names and string literals tell what a template reads. */
static enum ax_status note_word(struct ax_jparser *p, struct ax_jstr *word) {
    return ax_jdict_set(p->tree->arena, p->tree->words, ax_jstring(word), ax_jbool(true));
}

/* ---- primaries ---- */

static enum ax_status constant(struct ax_jparser *p, struct ax_jval v, struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, AX_JN_CONST, p->token->line, out));
    (*out)->value = v;
    ax_jparser_next(p);
    return AX_OK;
}

static enum ax_status parse_name(struct ax_jparser *p, bool nsref, struct ax_jnode **out) {
    const struct ax_jstr *s = p->token->value.str;
    if (ax_jstr_is(s, "true") || ax_jstr_is(s, "True"))
        return constant(p, ax_jbool(true), out);
    if (ax_jstr_is(s, "false") || ax_jstr_is(s, "False"))
        return constant(p, ax_jbool(false), out);
    if (ax_jstr_is(s, "none") || ax_jstr_is(s, "None"))
        return constant(p, ax_jnone(), out);
    if (p->functions > 0 &&
        (ax_jstr_is(s, "varargs") || ax_jstr_is(s, "kwargs") || ax_jstr_is(s, "caller"))) {
        return ax_jtree_error(p->tree, p->token->line, "the variable %.*s is not supported",
                              (int)s->len, s->data);
    }
    AX_TRY(ax_jnode_new(p, AX_JN_NAME, p->token->line, out));
    AX_TRY(ax_jparser_name(p, p->token->value.str, &(*out)->name.number));
    ax_jparser_next(p);
    if (nsref && ax_jparser_skip_op(p, AX_JOP_DOT)) {
        (*out)->kind = AX_JN_NSREF;
        return ax_jparser_expect_name(p, &(*out)->name.attr);
    }
    return AX_OK;
}

static enum ax_status parse_strings(struct ax_jparser *p, struct ax_jnode **out) {
    struct ax_jstr *s = p->token->value.str;
    AX_TRY(constant(p, p->token->value, out));
    while (p->token->kind == AX_JT_STRING) {
        AX_TRY(ax_jstr_concat(p->tree->arena, &s, s, p->token->value.str));
        ax_jstr_chars(s);
        ax_jstr_hash(s);
        ax_jparser_next(p);
    }
    s->tail = NULL; /* constants are shared, so nothing may be appended in place */
    (*out)->value.str = s;
    return note_word(p, s);
}

/* [a, b] and {a: b, c: d}, with the bracket as the current token. */
static enum ax_status parse_list(struct ax_jparser *p, bool is_dict, struct ax_jnode **out) {
    const enum ax_jop end = is_dict ? AX_JOP_RBRACE : AX_JOP_RBRACKET;
    AX_TRY(ax_jnode_new(p, is_dict ? AX_JN_DICT : AX_JN_LIST, p->token->line, out));
    ax_jparser_next(p);
    while (!ax_jparser_is_op(p, end)) {
        struct ax_jnode *item;
        AX_TRY(ax_jparse_expression(p, &item));
        AX_TRY(ax_jnode_append(p, &(*out)->items, item));
        if (is_dict) {
            AX_TRY(ax_jparser_expect_op(p, AX_JOP_COLON, "':'"));
            AX_TRY(ax_jparse_expression(p, &item));
            AX_TRY(ax_jnode_append(p, &(*out)->items, item));
        }
        if (!ax_jparser_is_op(p, end))
            AX_TRY(ax_jparser_expect_op(p, AX_JOP_COMMA, is_dict ? "',' or '}'" : "',' or ']'"));
    }
    ax_jparser_next(p);
    return AX_OK;
}

enum ax_status ax_jparse_primary(struct ax_jparser *p, bool nsref, struct ax_jnode **out) {
    switch (p->token->kind) {
    case AX_JT_NAME:
        return parse_name(p, nsref, out);
    case AX_JT_STRING:
        return parse_strings(p, out);
    case AX_JT_NUMBER:
    case AX_JT_INTEGER:
        return constant(p, p->token->value, out);
    default:
        break;
    }
    if (ax_jparser_skip_op(p, AX_JOP_LPAREN)) {
        AX_TRY(ax_jparse_tuple(p, true, true, NULL, out));
        return ax_jparser_expect_op(p, AX_JOP_RPAREN, "')'");
    }
    if (ax_jparser_is_op(p, AX_JOP_LBRACKET))
        return parse_list(p, false, out);
    if (ax_jparser_is_op(p, AX_JOP_LBRACE))
        return parse_list(p, true, out);
    return ax_jparser_unexpected(p, "an expression");
}

/* ---- what follows a primary ---- */

static enum ax_status parse_argument(struct ax_jparser *p, struct ax_jargs *args) {
    struct ax_jnode *value;
    if (ax_jparser_skip_op(p, AX_JOP_MUL)) {
        if (args->star != NULL)
            return ax_jtree_error(p->tree, p->token->line, "a second *argument");
        return ax_jparse_expression(p, &args->star);
    }
    if (ax_jparser_is_op(p, AX_JOP_POW))
        return ax_jtree_error(p->tree, p->token->line, "** in a call is not supported");
    if (p->token->kind == AX_JT_NAME && p->token[1].kind == AX_JT_OP &&
        p->token[1].op == AX_JOP_ASSIGN) {
        struct ax_jnode *key;
        for (size_t i = 0; i < args->keyword.n; i += 2)
            if (ax_jstr_equal(args->keyword.items[i]->value.str, p->token->value.str))
                return ax_jtree_error(p->tree, p->token->line, "an argument appears twice");
        AX_TRY(constant(p, p->token->value, &key));
        ax_jparser_next(p);
        AX_TRY(ax_jparse_expression(p, &value));
        AX_TRY(ax_jnode_append(p, &args->keyword, key));
        return ax_jnode_append(p, &args->keyword, value);
    }
    if (args->star != NULL || args->keyword.n > 0)
        return ax_jtree_error(p->tree, p->token->line,
                              "a positional argument follows a keyword argument");
    AX_TRY(ax_jparse_expression(p, &value));
    return ax_jnode_append(p, &args->positional, value);
}

/* "(…)" with the parenthesis as the current token. */
static enum ax_status parse_arguments(struct ax_jparser *p, struct ax_jargs *args) {
    ax_jparser_next(p);
    while (!ax_jparser_is_op(p, AX_JOP_RPAREN)) {
        AX_TRY(parse_argument(p, args));
        if (!ax_jparser_is_op(p, AX_JOP_RPAREN))
            AX_TRY(ax_jparser_expect_op(p, AX_JOP_COMMA, "',' or ')'"));
    }
    ax_jparser_next(p);
    return AX_OK;
}

static enum ax_status parse_call(struct ax_jparser *p, struct ax_jnode *of, struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, AX_JN_CALL, p->token->line, out));
    (*out)->call.of = of;
    return parse_arguments(p, &(*out)->call.args);
}

static bool at_slice_end(const struct ax_jparser *p) {
    return ax_jparser_is_op(p, AX_JOP_RBRACKET) || ax_jparser_is_op(p, AX_JOP_COLON);
}

static enum ax_status parse_bound(struct ax_jparser *p, struct ax_jnode **bound) {
    return at_slice_end(p) ? AX_OK : ax_jparse_expression(p, bound);
}

/* The contents of brackets: a key or a slice. */
static enum ax_status parse_subscript(struct ax_jparser *p, struct ax_jnode *of,
                                      struct ax_jnode **out) {
    struct ax_jnode *n, *key = NULL;
    AX_TRY(ax_jnode_new(p, AX_JN_GETITEM, p->token->line, &n));
    n->get.of = of;
    ax_jparser_next(p);
    *out = n;
    if (!ax_jparser_is_op(p, AX_JOP_COLON) && !ax_jparser_is_op(p, AX_JOP_RBRACKET))
        AX_TRY(ax_jparse_expression(p, &key));
    if (ax_jparser_skip_op(p, AX_JOP_COLON)) {
        n->kind = AX_JN_SLICE;
        n->get.start = key;
        AX_TRY(parse_bound(p, &n->get.stop));
        if (ax_jparser_skip_op(p, AX_JOP_COLON))
            AX_TRY(parse_bound(p, &n->get.step));
        return ax_jparser_expect_op(p, AX_JOP_RBRACKET, "']'");
    }
    if (key == NULL)
        return ax_jparser_unexpected(p, "a key");
    n->get.key = key;
    return ax_jparser_expect_op(p, AX_JOP_RBRACKET, "']'");
}

static enum ax_status parse_dot(struct ax_jparser *p, struct ax_jnode *of, struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, AX_JN_GETATTR, p->token->line, out));
    (*out)->get.of = of;
    ax_jparser_next(p);
    if (p->token->kind == AX_JT_NAME) {
        (*out)->get.attr = p->token->value.str;
        AX_TRY(note_word(p, p->token->value.str));
        ax_jparser_next(p);
        return AX_OK;
    }
    if (p->token->kind != AX_JT_INTEGER)
        return ax_jparser_unexpected(p, "a name or number");
    (*out)->kind = AX_JN_GETITEM;
    return constant(p, p->token->value, &(*out)->get.key);
}

enum ax_status ax_jparse_postfix(struct ax_jparser *p, struct ax_jnode **n) {
    for (;;)
        if (ax_jparser_is_op(p, AX_JOP_DOT))
            AX_TRY(parse_dot(p, *n, n));
        else if (ax_jparser_is_op(p, AX_JOP_LBRACKET))
            AX_TRY(parse_subscript(p, *n, n));
        else if (ax_jparser_is_op(p, AX_JOP_LPAREN))
            AX_TRY(parse_call(p, *n, n));
        else
            return AX_OK;
}

static void note_unknown(struct ax_jparser *p, const struct ax_jnode *n) {
    if (n->call.fn == NULL && p->ifs == 0 && p->unknown == NULL)
        p->unknown = n;
}

enum ax_status ax_jparse_filters(struct ax_jparser *p, struct ax_jnode *of, bool first_without_pipe,
                                 struct ax_jnode **out) {
    *out = of;
    while (first_without_pipe || ax_jparser_skip_op(p, AX_JOP_PIPE)) {
        struct ax_jnode *n;
        AX_TRY(ax_jnode_new(p, AX_JN_FILTER, p->token->line, &n));
        n->call.of = *out;
        AX_TRY(ax_jparser_expect_name(p, &n->call.name));
        n->call.fn = ax_jfilter_find(n->call.name, p->tree->plain);
        note_unknown(p, n);
        if (ax_jparser_is_op(p, AX_JOP_LPAREN))
            AX_TRY(parse_arguments(p, &n->call.args));
        *out = n;
        first_without_pipe = false;
    }
    return AX_OK;
}

/* True if an argument without parentheses follows a test. Almost any operand can, even names
 * such as `if`. */
static bool at_test_argument(const struct ax_jparser *p) {
    switch (p->token->kind) {
    case AX_JT_NAME:
        return !ax_jparser_is_name(p, "else") && !ax_jparser_is_name(p, "or") &&
               !ax_jparser_is_name(p, "and");
    case AX_JT_STRING:
    case AX_JT_NUMBER:
    case AX_JT_INTEGER:
        return true;
    default:
        return ax_jparser_is_op(p, AX_JOP_LBRACKET) || ax_jparser_is_op(p, AX_JOP_LBRACE);
    }
}

static enum ax_status parse_test(struct ax_jparser *p, struct ax_jnode *of, struct ax_jnode **out) {
    int line = p->token->line;
    ax_jparser_next(p);
    bool negated = ax_jparser_skip_name(p, "not");
    struct ax_jnode *n;
    AX_TRY(ax_jnode_new(p, AX_JN_TEST, line, &n));
    n->call.of = of;
    AX_TRY(ax_jparser_expect_name(p, &n->call.name));
    n->call.fn = ax_jtest_find(n->call.name);
    note_unknown(p, n);
    if (ax_jparser_is_op(p, AX_JOP_LPAREN)) {
        AX_TRY(parse_arguments(p, &n->call.args));
    } else if (at_test_argument(p)) {
        if (ax_jparser_is_name(p, "is"))
            return ax_jtree_error(p->tree, p->token->line, "tests cannot be chained with 'is'");
        struct ax_jnode *arg;
        AX_TRY(ax_jparse_primary(p, false, &arg));
        AX_TRY(ax_jparse_postfix(p, &arg));
        AX_TRY(ax_jnode_append(p, &n->call.args.positional, arg));
    }
    *out = n;
    return negated ? ax_jnode_operation(p, AX_JN_NOT, AX_JOP_NONE, line, n, NULL, out) : AX_OK;
}

enum ax_status ax_jparse_filters_and_tests(struct ax_jparser *p, struct ax_jnode **n) {
    for (;;)
        if (ax_jparser_is_op(p, AX_JOP_PIPE))
            AX_TRY(ax_jparse_filters(p, *n, false, n));
        else if (ax_jparser_is_name(p, "is"))
            AX_TRY(parse_test(p, *n, n));
        else if (ax_jparser_is_op(p, AX_JOP_LPAREN))
            AX_TRY(parse_call(p, *n, n));
        else
            return AX_OK;
}
