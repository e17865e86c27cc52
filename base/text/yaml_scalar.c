/* The meaning of a plain scalar: YAML 1.1's resolver as in PyYAML, plus the floats of YAML 1.2
 * (2e-5 has no point and would be a string in 1.1, which nobody intends). Sexagesimals stay
 * strings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/yaml_tree.h"

/* Longest number; anything longer is text. */
#define MAX_NUMBER 400

static bool is_digit(char c, int base) {
    int v = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;
    return v < base;
}

/* Equal to `word`, "Word" or "WORD". */
static bool is_word(const char *s, const char *word) {
    size_t n = strlen(word);
    if (strlen(s) != n)
        return false;
    bool lower = strcmp(s, word) == 0;
    bool title = s[0] == word[0] - 'a' + 'A' && strcmp(s + 1, word + 1) == 0;
    bool upper = true;
    for (size_t i = 0; i < n; i++)
        upper = upper && s[i] == word[i] - 'a' + 'A';
    return lower || title || upper;
}

static bool resolve_word(struct ax_yaml_node *node, const char *s) {
    static const char *const yes[] = {"true", "yes", "on"};
    static const char *const no[] = {"false", "no", "off"};
    if (s[0] == '\0' || strcmp(s, "~") == 0 || is_word(s, "null")) {
        node->kind = AX_YAML_NULL;
        return true;
    }
    for (size_t i = 0; i < 3; i++) {
        if (is_word(s, yes[i]) || is_word(s, no[i])) {
            node->kind = AX_YAML_BOOL;
            node->boolean = is_word(s, yes[i]);
            return true;
        }
    }
    const char *unsigned_part = s + (s[0] == '-' || s[0] == '+');
    if (unsigned_part[0] == '.' && is_word(unsigned_part + 1, "inf")) {
        node->kind = AX_YAML_FLOAT;
        node->number = s[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (s[0] == '.' && (is_word(s + 1, "nan") || strcmp(s, ".NaN") == 0)) {
        node->kind = AX_YAML_FLOAT;
        node->number = NAN;
        return true;
    }
    return false;
}

/* Digits of `base` with underscores between them, to the end, that fit int64. */
static bool resolve_digits(struct ax_yaml_node *node, const char *s, int base, bool negative) {
    int64_t value = 0; /* kept negative, so that -2^63 fits */
    bool any = false;
    for (; *s != '\0'; s++) {
        if (*s == '_')
            continue;
        int digit = *s <= '9' ? *s - '0' : (*s & 0xDF) - 'A' + 10;
        if (!is_digit(*s, base) || __builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, digit, &value)) {
            return false;
        }
        any = true;
    }
    if (!any || (!negative && value == INT64_MIN))
        return false;
    node->kind = AX_YAML_INT;
    node->integer = negative ? value : -value;
    node->number = (double)node->integer;
    return true;
}

static bool resolve_int(struct ax_yaml_node *node, const char *s) {
    bool negative = s[0] == '-';
    s += s[0] == '-' || s[0] == '+';
    if (s[0] < '0' || s[0] > '9')
        return false;
    if (s[0] != '0')
        return resolve_digits(node, s, 10, negative);
    switch (s[1]) {
    case 'x':
        return resolve_digits(node, s + 2, 16, negative);
    case 'o':
        return resolve_digits(node, s + 2, 8, negative);
    case 'b':
        return resolve_digits(node, s + 2, 2, negative);
    default:
        return resolve_digits(node, s, 8, negative);
    }
}

/* Copies a run of digits, dropping underscores if allowed; returns how many digits. */
static size_t take_digits(const char **s, char **to, bool underscores) {
    size_t n = 0;
    for (; is_digit(**s, 10) || (underscores && **s == '_'); (*s)++) {
        if (**s != '_') {
            *(*to)++ = **s;
            n++;
        }
    }
    return n;
}

/* Sign, digits with a point or an exponent or both; or an integer that int64 cannot hold. */
static bool resolve_float(struct ax_yaml_node *node, const char *s) {
    char digits[MAX_NUMBER + 1];
    char *to = digits;
    if (strlen(s) > MAX_NUMBER)
        return false;
    if (*s == '-' || *s == '+')
        *to++ = *s++;
    if (!is_digit(s[0], 10) && !(s[0] == '.' && is_digit(s[1], 10)))
        return false;
    bool is_float = *s != '0'; /* decimal, and resolve_int has rejected it */
    (void)take_digits(&s, &to, true);
    if (*s == '.') {
        is_float = true;
        *to++ = *s++;
        (void)take_digits(&s, &to, true);
    }
    if (*s == 'e' || *s == 'E') {
        is_float = true;
        *to++ = *s++;
        if (*s == '-' || *s == '+')
            *to++ = *s++;
        if (take_digits(&s, &to, false) == 0)
            return false;
    }
    if (*s != '\0' || !is_float)
        return false;
    *to = '\0';
    node->kind = AX_YAML_FLOAT;
    node->number = strtod(digits, NULL);
    return true;
}

void ax_yaml_resolve(struct ax_yaml_node *node) {
    const char *s = node->text;
    if (!resolve_word(node, s) && !resolve_int(node, s) && !resolve_float(node, s))
        node->kind = AX_YAML_STRING;
}
