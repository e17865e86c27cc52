/* Conditions over a configuration: read, evaluated, and put into words. */
#include "cmd/config_rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct term {
    bool not_, set;
    char key[AX_CONFIG_PATH];
    enum { TRUTHY, EQUALS, DIFFERS, ABOVE } op;
    char values[AX_CONFIG_PATH];
};

/* Reads one term and what follows it: '&', '|' or the end. */
static const char *read_term(const char *s, struct term *t, char *then) {
    s += strspn(s, " ");
    t->not_ = *s == '!';
    s += t->not_;
    t->set = *s == '?';
    s += t->set;
    size_t len = strcspn(s, " !=>&|");
    snprintf(t->key, sizeof t->key, "%.*s", (int)len, s);
    s += len;
    t->op = TRUTHY;
    t->values[0] = '\0';
    if (*s == '=' || *s == '>' || (s[0] == '!' && s[1] == '=')) {
        t->op = *s == '=' ? EQUALS : *s == '>' ? ABOVE : DIFFERS;
        s += t->op == DIFFERS ? 2 : 1;
        len = strcspn(s, " ");
        snprintf(t->values, sizeof t->values, "%.*s", (int)len, s);
        s += len;
    }
    s += strspn(s, " ");
    *then = *s;
    return *s == '\0' ? s : s + 1;
}

static bool any_value(const char *values, const char *text) {
    char one[AX_CONFIG_PATH];
    for (const char *s = values; *s != '\0';) {
        size_t len = strcspn(s, ",");
        snprintf(one, sizeof one, "%.*s", (int)len, s);
        if (fnmatch(one, text, 0) == 0) {
            return true;
        }
        s += len + (s[len] == ',');
    }
    return false;
}

/* Does the value, or one of a list's, match? */
static bool matches(const char *values, const struct ax_yaml_node *node) {
    if (node == NULL) {
        return any_value(values, "");
    }
    if (node->kind == AX_YAML_BOOL) {
        return any_value(values, node->boolean ? "true" : "false");
    }
    for (size_t i = 0; node->kind == AX_YAML_LIST && i < node->n; i++) {
        const char *text = node->entries[i].value->text;
        if (text != NULL && any_value(values, text)) {
            return true;
        }
    }
    return node->text != NULL && any_value(values, node->text);
}

static bool term_holds(const struct ax_config *cfg, const struct term *t) {
    const struct ax_yaml_node *node = ax_config_value_of(cfg, t->key);
    if (t->set) {
        const struct ax_yaml_node *set = ax_config_lookup(cfg, t->key);
        return (set != NULL && set->kind != AX_YAML_NULL) != t->not_;
    }
    bool number = node != NULL && (node->kind == AX_YAML_INT || node->kind == AX_YAML_FLOAT);
    bool holds = false;
    switch (t->op) {
    case TRUTHY:
        holds = ax_config_truthy(node);
        break;
    case EQUALS:
        holds = matches(t->values, node);
        break;
    case DIFFERS:
        holds = !matches(t->values, node);
        break;
    case ABOVE:
        holds = number && node->number > strtod(t->values, NULL);
        break;
    }
    return holds != t->not_;
}

bool ax_config_holds(const struct ax_config *cfg, const char *condition) {
    const char *s = condition;
    bool group = false; /* one of the alternatives so far holds */
    char then = '&';
    while (then != '\0') {
        struct term t;
        s = read_term(s, &t, &then);
        group = group || term_holds(cfg, &t);
        if (then != '|' && !group) {
            return false;
        }
        group = then == '|' && group;
    }
    return true;
}

bool ax_config_condition_key(const char *condition, size_t i, char *buf, size_t size) {
    char then = '&';
    while (then != '\0') {
        struct term t;
        condition = read_term(condition, &t, &then);
        if (i-- == 0) {
            snprintf(buf, size, "%s", t.key);
            return true;
        }
    }
    return false;
}

enum ax_status ax_config_condition_text(const char *condition, struct ax_buf *out) {
    static const char *const joins[] = {
        [TRUTHY] = "", [EQUALS] = ": ", [DIFFERS] = " other than ", [ABOVE] = " above "};
    char then = '&';
    while (then != '\0') {
        struct term t;
        condition = read_term(condition, &t, &then);
        AX_TRY(ax_buf_printf(out, "%s%s%s", t.not_ ? "no " : "", t.key, joins[t.op]));
        for (const char *v = t.values; *v != '\0'; v++) {
            AX_TRY(*v == ',' ? ax_buf_puts(out, " or ") : ax_buf_append(out, v, 1));
        }
        AX_TRY(ax_buf_puts(out, then == '&' ? " and " : then == '|' ? " or " : ""));
    }
    return AX_OK;
}
