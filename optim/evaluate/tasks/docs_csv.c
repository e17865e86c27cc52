/* Types of CSV columns as pandas infers them: the first of enum column_type that fits all fields.
 * Missing values (empty, NA, …) become null; integers become floating point if any are missing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/evaluate/tasks/docs.h"

enum column_type { INTEGERS, NUMBERS, BOOLEANS, TEXTS };

static bool is_missing(const char *s) {
    static const char *const words[] = {"",         "#N/A", "#N/A N/A", "#NA",    "-1.#IND",
                                        "-1.#QNAN", "-NaN", "-nan",     "1.#IND", "1.#QNAN",
                                        "<NA>",     "N/A",  "NA",       "NULL",   "NaN",
                                        "None",     "n/a",  "nan",      "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0)
            return true;
    return false;
}

static bool is_integer(const char *s) {
    s += *s == '-' || *s == '+';
    const size_t n = strspn(s, "0123456789");
    return n > 0 && n < 19 && s[n] == '\0';
}

/* Accepts decimal numbers, not hexadecimal ones. */
static bool is_number(const char *s) {
    char *end;
    if (strpbrk(s, "xXnN")) /* nan is missing; inf is a number for pandas, but text here */
        return false;
    strtod(s, &end);
    return end > s && *end == '\0';
}

static bool is_boolean(const char *s) {
    return strcmp(s, "True") == 0 || strcmp(s, "TRUE") == 0 || strcmp(s, "true") == 0 ||
           strcmp(s, "False") == 0 || strcmp(s, "FALSE") == 0 || strcmp(s, "false") == 0;
}

static bool fits(enum column_type type, const char *s) {
    return type == TEXTS || (type == INTEGERS && is_integer(s)) ||
           (type == NUMBERS && is_number(s)) || (type == BOOLEANS && is_boolean(s));
}

static enum column_type type_of(const struct ax_task_docs *d, size_t from, const char *name) {
    bool missing = false, any = false;
    enum column_type type = INTEGERS;
    for (size_t i = from; i < d->n; i++) {
        const char *s = json_string_value(json_object_get(d->list[i], name));
        if (!s)
            continue;
        if (is_missing(s)) {
            missing = true;
            continue;
        }
        while (!fits(type, s)) /* earlier fields must fit the next type as well */
            type = type == NUMBERS && any ? TEXTS : (enum column_type)(type + 1);
        any = true;
    }
    return type == INTEGERS && missing ? NUMBERS : type;
}

static json_t *typed(enum column_type type, const char *s) {
    if (is_missing(s))
        return json_null();
    switch (type) {
    case INTEGERS:
        return json_integer(strtoll(s, NULL, 10));
    case NUMBERS:
        return json_real(strtod(s, NULL));
    case BOOLEANS:
        return json_boolean(s[0] == 'T' || s[0] == 't');
    default:
        return NULL;
    }
}

enum ax_status ax_task_docs_type_csv(struct ax_task_docs *d, size_t from) {
    if (from == d->n)
        return AX_OK;
    json_t *columns = json_copy(d->list[from]), *unused;
    const char *name;
    if (!columns)
        return ax_error(AX_ERR_NOMEM, "out of memory for the columns of a file");
    json_object_foreach(columns, name, unused) {
        const enum column_type type = type_of(d, from, name);
        for (size_t i = from; i < d->n; i++) {
            const char *s = json_string_value(json_object_get(d->list[i], name));
            json_t *v = s ? typed(type, s) : NULL;
            if (v)
                json_object_set_new(d->list[i], name, v);
        }
    }
    json_decref(columns);
    return AX_OK;
}
