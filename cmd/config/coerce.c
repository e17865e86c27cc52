/* Converts values to the kind of their key ("1e-5" in quotes to a number, yes to true), so that
 * readers need no further checks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cmd/config/build.h"

static void become_bool(struct ax_yaml_node *node, bool v) {
    node->kind = AX_YAML_BOOL;
    node->boolean = v;
    node->quoted = false;
}

static void become_int(struct ax_yaml_node *node, int64_t v) {
    node->kind = AX_YAML_INT;
    node->integer = v;
    node->number = (double)v;
    node->quoted = false;
}

static void become_float(struct ax_yaml_node *node, double v) {
    node->kind = AX_YAML_FLOAT;
    node->number = v;
    node->quoted = false;
}

/* The words that mean true and false when quoted. */
static bool word_bool(const char *s, bool *v) {
    static const char *const words[][2] = {{"true", "false"}, {"yes", "no"}, {"on", "off"},
                                           {"t", "f"},        {"y", "n"},    {"1", "0"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (int j = 0; j < 2; j++) {
            if (strcasecmp(s, words[i][j]) == 0) {
                *v = j == 0;
                return true;
            }
        }
    }
    return false;
}

/* A quoted decimal number; underscores between digits are allowed. */
static bool word_number(const char *s, double *v) {
    char plain[64];
    size_t n = 0;
    for (; *s != '\0'; s++) {
        if (*s == '_' && n > 0)
            continue;
        if (strchr("0123456789+-.eE", *s) == NULL || n + 1 == sizeof plain)
            return false;
        plain[n++] = *s;
    }
    plain[n] = '\0';
    char *end;
    *v = strtod(plain, &end);
    return n > 0 && *end == '\0' && isfinite(*v);
}

static bool number_fits(unsigned types, struct ax_yaml_node *node, double v) {
    if ((types & AX_T_INT) && v == floor(v) && fabs(v) < 9e18) {
        become_int(node, (int64_t)v);
        return true;
    }
    if ((types & AX_T_NUM) && isfinite(v)) {
        become_float(node, v);
        return true;
    }
    return false;
}

static bool string_fits(const struct ax_config_key *key, unsigned types,
                        struct ax_yaml_node *node) {
    bool flag;
    double number;
    if ((types & AX_T_STR) &&
        (key->choices == NULL || ax_config_choice(key->choices, node->text))) {
        node->kind = AX_YAML_STRING;
        return true;
    }
    if ((types & AX_T_STR) && key->choices != NULL && node->text[0] == '\0') {
        node->kind = AX_YAML_NULL; /* an empty choice counts as unset */
        return true;
    }
    if ((types & AX_T_BOOL) && word_bool(node->text, &flag)) {
        become_bool(node, flag);
        return true;
    }
    return (types & (AX_T_INT | AX_T_NUM)) && word_number(node->text, &number) &&
           number_fits(types, node, number);
}

bool ax_config_coerce(const struct ax_config_key *key, unsigned types, struct ax_yaml_node *node) {
    if (types & AX_T_ANY)
        return true;
    switch (node->kind) {
    case AX_YAML_BOOL:
        if (types & AX_T_BOOL)
            return true;
        if (types & AX_T_INT) {
            become_int(node, node->boolean);
            return true;
        }
        if (types & AX_T_NUM) {
            become_float(node, node->boolean);
            return true;
        }
        /* `no` may be meant as a word: it becomes a string only if it is one of the choices */
        return key->choices != NULL && string_fits(key, types & AX_T_STR, node);
    case AX_YAML_INT:
        if (types & (AX_T_INT | AX_T_NUM))
            return true;
        if ((types & AX_T_BOOL) && (node->integer == 0 || node->integer == 1)) {
            become_bool(node, node->integer == 1);
            return true;
        }
        return string_fits(key, types & AX_T_STR, node);
    case AX_YAML_FLOAT:
        return number_fits(types, node, node->number) || string_fits(key, types & AX_T_STR, node);
    case AX_YAML_STRING:
        return string_fits(key, types, node);
    case AX_YAML_LIST:
        return types & AX_T_LIST;
    case AX_YAML_MAP:
        return types & AX_T_MAP;
    default:
        return false;
    }
}
