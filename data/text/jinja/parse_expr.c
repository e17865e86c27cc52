/* The parser's base (errors, tokens, nodes), then tokens → operands, expressions, tightest operator first,
 * tuples and targets.
 *
 * The grammar is Jinja's, quirks included: ~ binds tighter than + and looser than *. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "data/text/jinja/builtin.h"
#include "data/text/jinja/parse.h"

void ax_jtree_set_error(const struct ax_jtree *t, int line, const char *fmt, ...) {
    char text[1800];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)ax_error(AX_ERR_DATA, "%s:%d: %s", t->name, line, text);
}

/* ---- tokens ---- */

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

static enum ax_status expect_name(struct ax_jparser *p, struct ax_jstr **name) {
    if (p->token->kind != AX_JT_NAME)
        return ax_jparser_unexpected(p, "a name");
    *name = p->token->value.str;
    ax_jparser_next(p);
    return AX_OK;
}

/* ---- nodes ---- */

/* A node with one or two operands. */
static enum ax_status new_operation(struct ax_jparser *p, enum ax_jnode_kind kind, enum ax_jop op,
                                    int line, struct ax_jnode *left, struct ax_jnode *right,
                                    struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, kind, line, out));
    (*out)->binary.op = op;
    (*out)->binary.left = left;
    (*out)->binary.right = right;
    return AX_OK;
}

/* ---- operands ----
 *
 * Names and literals, with what follows: .name, [key], (arguments), filters and tests. Filters and
 * tests bind only to the operand on their left. */

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
        return expect_name(p, &(*out)->name.attr);
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

static enum ax_status jparse_primary(struct ax_jparser *p, bool nsref, struct ax_jnode **out) {
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

/* Appends .name, [key] and (arguments) to *n; the next one, filters, tests and further calls. */
static enum ax_status jparse_postfix(struct ax_jparser *p, struct ax_jnode **n) {
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
        AX_TRY(expect_name(p, &n->call.name));
        n->call.fn = ax_jfilter_find(n->call.name);
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
    AX_TRY(expect_name(p, &n->call.name));
    n->call.fn = ax_jtest_find(n->call.name);
    note_unknown(p, n);
    if (ax_jparser_is_op(p, AX_JOP_LPAREN)) {
        AX_TRY(parse_arguments(p, &n->call.args));
    } else if (at_test_argument(p)) {
        if (ax_jparser_is_name(p, "is"))
            return ax_jtree_error(p->tree, p->token->line, "tests cannot be chained with 'is'");
        struct ax_jnode *arg;
        AX_TRY(jparse_primary(p, false, &arg));
        AX_TRY(jparse_postfix(p, &arg));
        AX_TRY(ax_jnode_append(p, &n->call.args.positional, arg));
    }
    *out = n;
    return negated ? new_operation(p, AX_JN_NOT, AX_JOP_NONE, line, n, NULL, out) : AX_OK;
}

static enum ax_status jparse_filters_and_tests(struct ax_jparser *p, struct ax_jnode **n) {
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

/* ---- operators, tightest first ---- */

static enum ax_status parse_unary(struct ax_jparser *p, bool with_filters, struct ax_jnode **out) {
    int line = p->token->line;
    bool minus = ax_jparser_is_op(p, AX_JOP_SUB);
    if (minus || ax_jparser_is_op(p, AX_JOP_ADD)) {
        ax_jparser_next(p);
        AX_TRY(ax_jparser_enter(p));
        AX_TRY(parse_unary(p, false, out));
        ax_jparser_leave(p);
        AX_TRY(new_operation(p, minus ? AX_JN_NEG : AX_JN_POS, AX_JOP_NONE, line, *out, NULL, out));
    } else {
        AX_TRY(jparse_primary(p, false, out));
    }
    AX_TRY(jparse_postfix(p, out));
    return with_filters ? jparse_filters_and_tests(p, out) : AX_OK;
}

/* The binary operators from the loosest to the tightest; all associate to the left. */
enum { SUM, CONCAT, PRODUCT, N_LEVELS };
static const signed char level_of[] = {
    [AX_JOP_ADD] = SUM,     [AX_JOP_SUB] = SUM,     [AX_JOP_TILDE] = CONCAT,
    [AX_JOP_MUL] = PRODUCT, [AX_JOP_DIV] = PRODUCT, [AX_JOP_FLOORDIV] = PRODUCT,
    [AX_JOP_MOD] = PRODUCT,
};

static bool at_level(const struct ax_jparser *p, int level) {
    return p->token->kind == AX_JT_OP && p->token->op >= AX_JOP_ADD &&
           p->token->op <= AX_JOP_TILDE && p->token->op != AX_JOP_POW &&
           level_of[p->token->op] == level;
}

static enum ax_status parse_binary(struct ax_jparser *p, int level, struct ax_jnode **out) {
    const int line = p->token->line;
    if (level == N_LEVELS) {
        AX_TRY(parse_unary(p, true, out));
        return ax_jparser_is_op(p, AX_JOP_POW)
                   ? ax_jtree_error(p->tree, line, "the operator ** is not supported")
                   : AX_OK;
    }
    AX_TRY(parse_binary(p, level + 1, out));
    while (at_level(p, level)) {
        const enum ax_jop op = p->token->op;
        struct ax_jnode *right;
        ax_jparser_next(p);
        AX_TRY(parse_binary(p, level + 1, &right));
        AX_TRY(new_operation(p, AX_JN_BINARY, op, line, *out, right, out));
    }
    return AX_OK;
}

/* Skips and returns the comparison operator at the current token; AX_JOP_NONE if there is none. */
static enum ax_jop comparison(struct ax_jparser *p) {
    if (p->token->kind == AX_JT_OP && p->token->op >= AX_JOP_EQ && p->token->op <= AX_JOP_GE) {
        enum ax_jop op = p->token->op;
        ax_jparser_next(p);
        return op;
    }
    if (ax_jparser_skip_name(p, "in"))
        return AX_JOP_IN;
    const struct ax_jtoken *next = p->token + 1;
    if (ax_jparser_is_name(p, "not") && next->kind == AX_JT_NAME &&
        ax_jstr_is(next->value.str, "in")) {
        ax_jparser_next(p);
        ax_jparser_next(p);
        return AX_JOP_NOT_IN;
    }
    return AX_JOP_NONE;
}

/* a < b < c is (a < b) and (b < c). */
static enum ax_status parse_compare(struct ax_jparser *p, struct ax_jnode **out) {
    const int line = p->token->line;
    struct ax_jnode *left, *right, *chain = NULL;
    enum ax_jop op;
    AX_TRY(parse_binary(p, SUM, &left));
    *out = left;
    while ((op = comparison(p)) != AX_JOP_NONE) {
        AX_TRY(parse_binary(p, SUM, &right));
        AX_TRY(new_operation(p, AX_JN_COMPARE, op, line, left, right, out));
        if (chain != NULL)
            AX_TRY(new_operation(p, AX_JN_AND, AX_JOP_NONE, line, chain, *out, out));
        chain = *out;
        left = right;
    }
    return AX_OK;
}

static enum ax_status parse_not(struct ax_jparser *p, struct ax_jnode **out) {
    int line = p->token->line;
    if (!ax_jparser_skip_name(p, "not"))
        return parse_compare(p, out);
    AX_TRY(ax_jparser_enter(p));
    AX_TRY(parse_not(p, out));
    ax_jparser_leave(p);
    return new_operation(p, AX_JN_NOT, AX_JOP_NONE, line, *out, NULL, out);
}

static enum ax_status parse_and(struct ax_jparser *p, struct ax_jnode **out) {
    int line = p->token->line;
    AX_TRY(parse_not(p, out));
    while (ax_jparser_skip_name(p, "and")) {
        struct ax_jnode *right;
        AX_TRY(parse_not(p, &right));
        AX_TRY(new_operation(p, AX_JN_AND, AX_JOP_NONE, line, *out, right, out));
    }
    return AX_OK;
}

static enum ax_status parse_no_cond(struct ax_jparser *p, struct ax_jnode **out) {
    int line = p->token->line;
    AX_TRY(ax_jparser_enter(p));
    AX_TRY(parse_and(p, out));
    while (ax_jparser_skip_name(p, "or")) {
        struct ax_jnode *right;
        AX_TRY(parse_and(p, &right));
        AX_TRY(new_operation(p, AX_JN_OR, AX_JOP_NONE, line, *out, right, out));
    }
    ax_jparser_leave(p);
    return AX_OK;
}

enum ax_status ax_jparse_expression(struct ax_jparser *p, struct ax_jnode **out) {
    int line = p->token->line;
    const struct ax_jnode *unknown = p->unknown;
    AX_TRY(parse_no_cond(p, out));
    while (ax_jparser_skip_name(p, "if")) {
        struct ax_jnode *n;
        AX_TRY(ax_jnode_new(p, AX_JN_COND, line, &n));
        n->cond.yes = *out;
        AX_TRY(parse_no_cond(p, &n->cond.test));
        if (ax_jparser_skip_name(p, "else")) {
            AX_TRY(ax_jparser_enter(p));
            AX_TRY(ax_jparse_expression(p, &n->cond.no));
            ax_jparser_leave(p);
        }
        *out = n;
        p->unknown = unknown; /* as in an if tag */
    }
    return AX_OK;
}

/* ---- tuples and targets ---- */

static bool at_tuple_end(const struct ax_jparser *p, const char *stop) {
    return p->token->kind == AX_JT_PRINT_END || p->token->kind == AX_JT_BLOCK_END ||
           ax_jparser_is_op(p, AX_JOP_RPAREN) || (stop != NULL && ax_jparser_is_name(p, stop));
}

/* How the items of a tuple are read. */
enum item_kind { EXPRESSION, NO_COND, TARGET, NS_TARGET };

static enum ax_status parse_items(struct ax_jparser *p, enum item_kind kind, bool in_parens,
                                  const char *stop, struct ax_jnode **out) {
    struct ax_jnode *tuple = NULL, *item = NULL;
    int line = p->token->line;
    while (!at_tuple_end(p, stop)) {
        if (kind == EXPRESSION)
            AX_TRY(ax_jparse_expression(p, &item));
        else if (kind == NO_COND)
            AX_TRY(parse_no_cond(p, &item));
        else
            AX_TRY(jparse_primary(p, kind == NS_TARGET, &item));
        bool comma = ax_jparser_is_op(p, AX_JOP_COMMA);
        if (comma && tuple == NULL)
            AX_TRY(ax_jnode_new(p, AX_JN_TUPLE, line, &tuple));
        if (tuple != NULL)
            AX_TRY(ax_jnode_append(p, &tuple->items, item));
        if (!comma)
            break;
        ax_jparser_next(p);
    }
    if (tuple == NULL && item == NULL) {
        if (!in_parens)
            return ax_jparser_unexpected(p, "an expression");
        AX_TRY(ax_jnode_new(p, AX_JN_TUPLE, line, &tuple));
    }
    *out = tuple != NULL ? tuple : item;
    return AX_OK;
}

enum ax_status ax_jparse_tuple(struct ax_jparser *p, bool cond, bool in_parens, const char *stop,
                               struct ax_jnode **out) {
    return parse_items(p, cond ? EXPRESSION : NO_COND, in_parens, stop, out);
}

static enum ax_status make_target(struct ax_jparser *p, struct ax_jnode *n) {
    switch (n->kind) {
    case AX_JN_NAME:
        if (p->loops > 0 && n->name.number == p->tree->loop)
            return ax_jtree_error(p->tree, n->line, "loop cannot be set inside a for tag");
        return AX_OK;
    case AX_JN_NSREF:
        return AX_OK;
    case AX_JN_TUPLE:
        for (size_t i = 0; i < n->items.n; i++)
            AX_TRY(make_target(p, n->items.items[i]));
        return AX_OK;
    default:
        return ax_jtree_error(p->tree, n->line, "only names can be assigned to");
    }
}

enum ax_status ax_jparse_target(struct ax_jparser *p, bool nsref, const char *stop,
                                struct ax_jnode **out) {
    AX_TRY(parse_items(p, nsref ? NS_TARGET : TARGET, false, stop, out));
    return make_target(p, *out);
}

enum ax_status ax_jparse_target_name(struct ax_jparser *p, struct ax_jnode **out) {
    if (p->token->kind != AX_JT_NAME)
        return ax_jparser_unexpected(p, "a name");
    AX_TRY(jparse_primary(p, false, out));
    return make_target(p, *out);
}
