/* Conditions over a configuration: parsed, evaluated, and put into words. */
#include "cmd/config/rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum token { TERM, AND, OR, OPEN, CLOSE, END };

/* The current token, with its term. */
struct reader {
    const char *s;  /* the text after the token */
    const char *at; /* path of the key whose condition it is; NULL: of none */
    enum token token;
    bool negated;
    enum { TRUTHY, SET, EQUALS, DIFFERS, ABOVE } op;
    char key[AX_CONFIG_PATH], values[AX_CONFIG_PATH];
};

static bool take(struct reader *r, const char *text) {
    const size_t n = strlen(text);
    r->s += strspn(r->s, " ");
    if (strncmp(r->s, text, n) != 0)
        return false;
    r->s += n;
    return true;
}

static void read_word(struct reader *r, char *out, size_t size, const char *end) {
    r->s += strspn(r->s, " ");
    const size_t n = strcspn(r->s, end);
    AX_ASSERT(n > 0 && n < size);
    snprintf(out, size, "%.*s", (int)n, r->s);
    r->s += n;
}

static void next(struct reader *r) {
    static const char *const marks[] = {[AND] = "&&", [OR] = "||", [OPEN] = "(", [CLOSE] = ")"};
    for (int t = AND; t <= CLOSE; t++) {
        if (take(r, marks[t])) {
            r->token = (enum token)t;
            return;
        }
    }
    if (*r->s == '\0') {
        r->token = END;
        return;
    }
    r->token = TERM;
    r->negated = take(r, "!");
    const bool set = take(r, "set(");
    read_word(r, r->key, sizeof r->key, " !=>&|()");
    r->values[0] = '\0';
    r->op = set             ? SET
            : take(r, "==") ? EQUALS
            : take(r, "!=") ? DIFFERS
            : take(r, ">")  ? ABOVE
                            : TRUTHY;
    AX_ASSERT(!set || take(r, ")"));
    if (r->op >= EQUALS)
        read_word(r, r->values, sizeof r->values, " )");
}

static bool any_value(const char *values, const char *text) {
    char one[AX_CONFIG_PATH];
    for (const char *s = values; *s != '\0';) {
        size_t len = strcspn(s, ",");
        snprintf(one, sizeof one, "%.*s", (int)len, s);
        if (fnmatch(one, text, 0) == 0)
            return true;
        s += len + (s[len] == ',');
    }
    return false;
}

/* True if the value, or one of a list's elements, matches. */
static bool matches(const char *values, const struct ax_yaml_node *node) {
    if (node == NULL)
        return any_value(values, "");
    for (size_t i = 0; node->kind == AX_YAML_LIST && i < node->n; i++) {
        const char *text = node->entries[i].value->text;
        if (text != NULL && any_value(values, text))
            return true;
    }
    const char *text = ax_config_scalar_text(node);
    return text != NULL && any_value(values, text);
}

/* The path of the term's key. */
static const char *path_of(const struct reader *r, char *buf, size_t size) {
    if (*r->key != '.')
        return r->key;
    AX_ASSERT(r->at && strrchr(r->at, '.'));
    snprintf(buf, size, "%.*s%s", (int)(strrchr(r->at, '.') - r->at), r->at, r->key);
    return buf;
}

static bool term_holds(const struct ax_config *cfg, const struct reader *r) {
    char buf[2 * AX_CONFIG_PATH];
    const char *path = path_of(r, buf, sizeof buf);
    const struct ax_yaml_node *node =
        r->op == SET ? ax_config_lookup(cfg, path) : ax_config_value_of(cfg, path);
    switch (r->op) {
    case SET:
        return node != NULL && node->kind != AX_YAML_NULL;
    case EQUALS:
        return matches(r->values, node);
    case DIFFERS:
        return !matches(r->values, node);
    case ABOVE:
        return node != NULL && (node->kind == AX_YAML_INT || node->kind == AX_YAML_FLOAT) &&
               node->number > strtod(r->values, NULL);
    default:
        return ax_config_truthy(node);
    }
}

/* Every part of a condition is read, even if the result is already known. */
static bool any_holds(const struct ax_config *cfg, struct reader *r);

static bool one_holds(const struct ax_config *cfg, struct reader *r) {
    AX_ASSERT(r->token == TERM || r->token == OPEN);
    bool holds;
    if (r->token == OPEN) {
        next(r);
        holds = any_holds(cfg, r);
        AX_ASSERT(r->token == CLOSE);
    } else {
        holds = term_holds(cfg, r) != r->negated;
    }
    next(r);
    return holds;
}

static bool all_hold(const struct ax_config *cfg, struct reader *r) {
    bool holds = one_holds(cfg, r);
    while (r->token == AND) {
        next(r);
        holds = one_holds(cfg, r) && holds;
    }
    return holds;
}

static bool any_holds(const struct ax_config *cfg, struct reader *r) {
    bool holds = all_hold(cfg, r);
    while (r->token == OR) {
        next(r);
        holds = all_hold(cfg, r) || holds;
    }
    return holds;
}

bool ax_config_holds(const struct ax_config *cfg, const char *condition) {
    return ax_config_holds_at(cfg, NULL, condition);
}

bool ax_config_holds_at(const struct ax_config *cfg, const char *at, const char *condition) {
    struct reader r = {.s = condition, .at = at};
    next(&r);
    const bool holds = any_holds(cfg, &r);
    AX_ASSERT(r.token == END);
    return holds;
}

bool ax_config_condition_key(const char *condition, size_t i, char *buf, size_t size) {
    struct reader r = {.s = condition};
    for (next(&r); r.token != END; next(&r)) {
        if (r.token == TERM && i-- == 0) {
            snprintf(buf, size, "%s", r.key);
            return true;
        }
    }
    return false;
}

static enum ax_status put_term(const struct reader *r, struct ax_buf *out) {
    static const char *const joins[] = {[TRUTHY] = "",
                                        [SET] = " set",
                                        [EQUALS] = ": ",
                                        [DIFFERS] = " other than ",
                                        [ABOVE] = " above "};
    const char *key = r->key + (*r->key == '.');
    if (r->op == SET && r->negated)
        return ax_buf_printf(out, "%s unset", key);
    AX_TRY(ax_buf_printf(out, "%s%s%s", r->negated ? "no " : "", key, joins[r->op]));
    for (const char *v = r->values; *v != '\0'; v++)
        AX_TRY(*v == ',' ? ax_buf_puts(out, " or ") : ax_buf_append(out, v, 1));
    return AX_OK;
}

enum ax_status ax_config_condition_text(const char *condition, struct ax_buf *out) {
    static const char *const marks[] = {
        [AND] = " and ", [OR] = " or ", [OPEN] = "(", [CLOSE] = ")"};
    struct reader r = {.s = condition};
    for (next(&r); r.token != END; next(&r))
        AX_TRY(r.token == TERM ? put_term(&r, out) : ax_buf_puts(out, marks[r.token]));
    return AX_OK;
}
