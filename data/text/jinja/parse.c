/* Tags and text → statements. Expressions are in parse_expr.c.
 *
 * Read parse_body first, then the table of tags above it. */
#include "data/text/jinja/parse.h"

#include "data/text/jinja/builtin.h"

/* ---- bodies ---- */

static enum ax_status parse_statement(struct ax_jparser *p, struct ax_jnode **out);

/* The names that may end a body; the one that did is the current token afterwards. */
struct ends {
    const char *names[3];
};

static bool at_end_tag(const struct ax_jparser *p, const struct ends *ends) {
    for (size_t i = 0; i < 3 && ends->names[i] != NULL; i++)
        if (ax_jparser_is_name(p, ends->names[i]))
            return true;
    return false;
}

static enum ax_status parse_data(struct ax_jparser *p, struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, AX_JN_DATA, p->token->line, out));
    (*out)->text = p->token->value.str;
    ax_jparser_next(p);
    return AX_OK;
}

static enum ax_status parse_print(struct ax_jparser *p, struct ax_jnode **out) {
    ax_jparser_next(p);
    AX_TRY(ax_jnode_new(p, AX_JN_PRINT, p->token->line, out));
    AX_TRY(ax_jparse_tuple(p, true, false, NULL, &(*out)->print));
    if (p->token->kind != AX_JT_PRINT_END)
        return ax_jparser_unexpected(p, "the end of the print tag");
    ax_jparser_next(p);
    return AX_OK;
}

static enum ax_status expect_block_end(struct ax_jparser *p) {
    if (p->token->kind != AX_JT_BLOCK_END)
        return ax_jparser_unexpected(p, "the end of the tag");
    ax_jparser_next(p);
    return AX_OK;
}

/* Statements up to one of the end tags (ends NULL: up to the end of the template), appended to a
 * list of parent's. */
static enum ax_status parse_body(struct ax_jparser *p, struct ax_jnode *parent,
                                 struct ax_jnodes *list, const struct ends *ends) {
    while (p->token->kind != AX_JT_EOF) {
        struct ax_jnode *node;
        if (p->token->kind == AX_JT_DATA) {
            AX_TRY(parse_data(p, &node));
        } else if (p->token->kind == AX_JT_PRINT_BEGIN) {
            AX_TRY(parse_print(p, &node));
        } else {
            AX_ASSERT(p->token->kind == AX_JT_BLOCK_BEGIN);
            ax_jparser_next(p);
            if (ends != NULL && at_end_tag(p, ends))
                return AX_OK;
            AX_TRY(parse_statement(p, &node));
            AX_TRY(expect_block_end(p));
        }
        AX_TRY(ax_jnode_append(p, list, node));
    }
    if (ends != NULL) {
        return ax_jtree_error(p->tree, parent->line,
                              "this tag is never closed: {%% %s %%} is "
                              "missing",
                              ends->names[2] != NULL   ? ends->names[2]
                              : ends->names[1] != NULL ? ends->names[1]
                                                       : ends->names[0]);
    }
    return AX_OK;
}

/* Parses the rest of an opening tag and the body; the end tag's name is then the current token. */
static enum ax_status parse_block(struct ax_jparser *p, struct ax_jnode *parent,
                                  struct ax_jnodes *list, struct ends ends) {
    ax_jparser_skip_op(p, AX_JOP_COLON);
    AX_TRY(expect_block_end(p));
    return parse_body(p, parent, list, &ends);
}

/* The same for tags with a single end tag, which is skipped. */
static enum ax_status parse_simple_block(struct ax_jparser *p, struct ax_jnode *parent,
                                         struct ax_jnodes *list, const char *end) {
    AX_TRY(parse_block(p, parent, list, (struct ends){{end}}));
    ax_jparser_next(p);
    return AX_OK;
}

/* ---- tags ---- */

static enum ax_status parse_for(struct ax_jparser *p, int line, struct ax_jnode **out) {
    struct ax_jnode *n;
    AX_TRY(ax_jnode_new(p, AX_JN_FOR, line, &n));
    p->loops++;
    AX_TRY(ax_jparse_target(p, false, "in", &n->loop.target));
    if (!ax_jparser_skip_name(p, "in"))
        return ax_jparser_unexpected(p, "'in'");
    AX_TRY(ax_jparse_tuple(p, false, false, "recursive", &n->loop.iter));
    if (ax_jparser_skip_name(p, "if"))
        AX_TRY(ax_jparse_expression(p, &n->loop.test));
    if (ax_jparser_is_name(p, "recursive"))
        return ax_jtree_error(p->tree, line, "a recursive for tag is not supported");
    AX_TRY(parse_block(p, n, &n->loop.body, (struct ends){{"else", "endfor"}}));
    bool otherwise = ax_jparser_is_name(p, "else");
    ax_jparser_next(p);
    p->loops--;
    if (otherwise)
        AX_TRY(parse_simple_block(p, n, &n->loop.otherwise, "endfor"));
    *out = n;
    return AX_OK;
}

static enum ax_status parse_if(struct ax_jparser *p, int line, struct ax_jnode **out) {
    struct ax_jnode *first, *n;
    AX_TRY(ax_jnode_new(p, AX_JN_IF, line, &first));
    n = first;
    p->ifs++;
    for (;;) {
        AX_TRY(ax_jparse_tuple(p, false, false, NULL, &n->branch.test));
        AX_TRY(parse_block(p, n, &n->branch.body, (struct ends){{"elif", "else", "endif"}}));
        if (ax_jparser_skip_name(p, "endif"))
            break;
        bool is_elif = ax_jparser_is_name(p, "elif");
        ax_jparser_next(p);
        AX_TRY(ax_jnode_new(p, AX_JN_IF, p->token->line, &n->branch.next));
        n = n->branch.next;
        if (!is_elif) {
            AX_TRY(parse_simple_block(p, n, &n->branch.body, "endif"));
            break;
        }
    }
    p->ifs--;
    *out = first;
    return AX_OK;
}

static enum ax_status parse_set(struct ax_jparser *p, int line, struct ax_jnode **out) {
    struct ax_jnode *n;
    AX_TRY(ax_jnode_new(p, AX_JN_ASSIGN, line, &n));
    AX_TRY(ax_jparse_target(p, true, NULL, &n->assign.target));
    *out = n;
    if (ax_jparser_skip_op(p, AX_JOP_ASSIGN))
        return ax_jparse_tuple(p, true, false, NULL, &n->assign.value);
    n->kind = AX_JN_SET_BLOCK;
    AX_TRY(ax_jparse_filters(p, NULL, false, &n->assign.filter));
    return parse_simple_block(p, n, &n->assign.body, "endset");
}

/* (a, b=1): parameters, and defaults of the last ones. */
static enum ax_status parse_parameters(struct ax_jparser *p, struct ax_jnode *n) {
    AX_TRY(ax_jparser_expect_op(p, AX_JOP_LPAREN, "'('"));
    while (!ax_jparser_is_op(p, AX_JOP_RPAREN)) {
        if (n->macro.params.n > 0)
            AX_TRY(ax_jparser_expect_op(p, AX_JOP_COMMA, "','"));
        struct ax_jnode *param, *value;
        AX_TRY(ax_jparse_target_name(p, &param));
        for (size_t i = 0; i < n->macro.params.n; i++)
            if (n->macro.params.items[i]->name.number == param->name.number)
                return ax_jtree_error(p->tree, param->line, "a parameter appears twice");
        AX_TRY(ax_jnode_append(p, &n->macro.params, param));
        if (ax_jparser_skip_op(p, AX_JOP_ASSIGN)) {
            AX_TRY(ax_jparse_expression(p, &value));
            AX_TRY(ax_jnode_append(p, &n->macro.defaults, value));
        } else if (n->macro.defaults.n > 0) {
            return ax_jtree_error(p->tree, param->line,
                                  "a parameter without a default follows one with a default");
        }
    }
    ax_jparser_next(p);
    return AX_OK;
}

/* A body that runs as a function: break and continue cannot leave it. */
static enum ax_status parse_function(struct ax_jparser *p, struct ax_jnode *n, const char *end) {
    const int loops = p->loops;
    p->loops = 0;
    p->functions++;
    AX_TRY(parse_simple_block(p, n, &n->macro.body, end));
    p->functions--;
    p->loops = loops;
    return AX_OK;
}

static enum ax_status parse_macro(struct ax_jparser *p, int line, struct ax_jnode **out) {
    struct ax_jnode *n;
    AX_TRY(ax_jnode_new(p, AX_JN_MACRO, line, &n));
    AX_TRY(ax_jparse_target_name(p, &n->macro.name));
    AX_TRY(parse_parameters(p, n));
    *out = n;
    return parse_function(p, n, "endmacro");
}

static enum ax_status parse_filter_block(struct ax_jparser *p, int line, struct ax_jnode **out) {
    struct ax_jnode *n;
    AX_TRY(ax_jnode_new(p, AX_JN_FILTER_BLOCK, line, &n));
    AX_TRY(ax_jparse_filters(p, NULL, true, &n->assign.filter));
    *out = n;
    return parse_simple_block(p, n, &n->assign.body, "endfilter");
}

static enum ax_status parse_generation(struct ax_jparser *p, int line, struct ax_jnode **out) {
    AX_TRY(ax_jnode_new(p, AX_JN_GENERATION, line, out));
    p->tree->has_generation = true;
    return parse_function(p, *out, "endgeneration");
}

static enum ax_status parse_jump(struct ax_jparser *p, int line, struct ax_jnode **out) {
    const bool stop = ax_jstr_is(p->token[-1].value.str, "break");
    if (p->loops == 0) {
        return ax_jtree_error(p->tree, line, "{%% %s %%} outside of a for tag",
                              stop ? "break" : "continue");
    }
    return ax_jnode_new(p, stop ? AX_JN_BREAK : AX_JN_CONTINUE, line, out);
}

static const struct {
    const char *name;
    enum ax_status (*parse)(struct ax_jparser *p, int line, struct ax_jnode **out);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"generation", parse_generation},
    {"break", parse_jump},
    {"continue", parse_jump},
    {"filter", parse_filter_block},
};

static enum ax_status parse_statement(struct ax_jparser *p, struct ax_jnode **out) {
    if (p->token->kind != AX_JT_NAME)
        return ax_jparser_unexpected(p, "the name of a tag");
    const struct ax_jstr *name = p->token->value.str;
    int line = p->token->line;
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (ax_jstr_is(name, tags[i].name)) {
            AX_TRY(ax_jparser_enter(p));
            ax_jparser_next(p);
            enum ax_status st = tags[i].parse(p, line, out);
            ax_jparser_leave(p);
            return st;
        }
    }
    if (ax_junsupported("tag", name)) {
        return ax_jtree_error(p->tree, line, "the tag {%% %.*s %%} is not supported",
                              (int)name->len, name->data);
    }
    return ax_jtree_error(p->tree, line, "unknown tag {%% %.*s %%}", (int)name->len, name->data);
}

enum ax_status ax_jparse(struct ax_jtree *t, const struct ax_jtoken *tokens) {
    struct ax_jparser p = {.tree = t, .token = tokens};
    struct ax_jnode *root; /* holds the body while it is built */
    struct ax_jstr *loop;
    AX_TRY(ax_jdict_new(t->arena, &t->names));
    AX_TRY(ax_jstr_borrow(t->arena, &loop, "loop", 4));
    AX_TRY(ax_jparser_name(&p, loop, &t->loop));
    AX_TRY(ax_jnode_new(&p, AX_JN_IF, 1, &root));
    AX_TRY(parse_body(&p, root, &root->branch.body, NULL));
    t->body = root->branch.body;
    if (p.unknown != NULL) {
        char text[160];
        return ax_jtree_error(
            t, p.unknown->line, "%s",
            ax_junknown(text, sizeof text, p.unknown->kind, p.unknown->call.name));
    }
    return AX_OK;
}
