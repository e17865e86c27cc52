#include "data/tools/schema.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/json.h"
#include "base/text/unicode.h"
#include "data/text/jinja/unicode.h"

const json_t *ax_tool_function(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *own = json_string_value(json_object_get(f, "name"));
        if (own && strcmp(own, name) == 0)
            return f;
    }
    return NULL;
}

/* ---- types ---- */

#define MOST_REFERENCES 8 /* in a row */

static const struct {
    const char *name, *article;
} types[] = {
    {"string", "a string"},   {"integer", "an integer"}, {"number", "a number"},
    {"boolean", "a boolean"}, {"array", "a list"},       {"object", "an object"},
};

static bool is_of(const json_t *v, const char *type) {
    return strcmp(type, "string") == 0    ? json_is_string(v)
           : strcmp(type, "integer") == 0 ? json_is_integer(v)
           : strcmp(type, "number") == 0  ? json_is_number(v)
           : strcmp(type, "boolean") == 0 ? json_is_boolean(v)
           : strcmp(type, "null") == 0    ? json_is_null(v)
           : strcmp(type, "array") == 0   ? json_is_array(v)
           : strcmp(type, "object") == 0  ? json_is_object(v)
                                          : true;
}

/* The type that a schema names, of several the i-th; NULL: no more, or it names none. */
static const char *type_at(const json_t *schema, size_t i) {
    const json_t *type = json_object_get(schema, "type");
    return json_is_array(type) ? json_string_value(json_array_get(type, i))
           : i == 0            ? json_string_value(type)
                               : NULL;
}

static bool fits(const json_t *v, const json_t *schema) {
    const char *type;
    size_t i = 0;
    if (json_is_null(v) && json_is_true(json_object_get(schema, "nullable")))
        return true;
    for (; (type = type_at(schema, i)) != NULL; i++)
        if (is_of(v, type))
            return true;
    return i == 0;
}

const json_t *ax_tool_schema_of(const json_t *parameters, const char *name) {
    const json_t *schema = json_object_get(json_object_get(parameters, "properties"), name);
    for (int i = 0; i < MOST_REFERENCES; i++) {
        const char *to = json_string_value(json_object_get(schema, "$ref")),
                   *last = to ? strrchr(to, '/') : NULL;
        char list[16];
        if (!to || strncmp(to, "#/", 2) != 0 || last < to + 2 ||
            (size_t)(last - to - 2) >= sizeof list)
            break;
        snprintf(list, sizeof list, "%.*s", (int)(last - to - 2), to + 2);
        const json_t *found = json_object_get(json_object_get(parameters, list), last + 1);
        if (!json_is_object(found))
            break;
        schema = found;
    }
    return schema;
}

/* ---- text → what the schema says, as transformers' parser of responses has it ---- */

#define MOST_TEXT 64 /* of a number, a truth value or null */

/* The text without white space around it; "": it is longer, or has a NUL. */
static void trim(const json_t *text, char out[MOST_TEXT]) {
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    for (; n > 0 && isspace((unsigned char)*s); n--)
        s++;
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    n = n < MOST_TEXT && !memchr(s, '\0', n) ? n : 0;
    memcpy(out, s, n);
    out[n] = '\0';
}

/* A number as Python reads it: digits may have underscores between them. NULL: it is none, or none of 64 bits. `real`:
 * it may have a fraction, and has one if it has a point. */
static json_t *number_of(const char *text, bool real) {
    char plain[MOST_TEXT], *end;
    size_t n = 0;
    for (const char *p = text; *p; p++)
        if (*p != '_')
            plain[n++] = *p;
        else if (p == text || !isdigit((unsigned char)p[-1]) || !isdigit((unsigned char)p[1]))
            return NULL;
    plain[n] = '\0';
    if (n == 0 || plain[strspn(plain, "+-.0123456789eE")])
        return NULL;
    errno = 0;
    const long long whole = strtoll(plain, &end, 10);
    if (*end == '\0' && errno == 0)
        return json_integer(whole);
    const double x = strtod(plain, &end);
    if (*end != '\0' || !isfinite(x))
        return NULL;
    if (x == floor(x) && fabs(x) < 0x1p63 && !(real && strchr(plain, '.')))
        return json_integer((json_int_t)x);
    return real ? json_real(x) : NULL;
}

/* Only memory is an error; *out NULL: it is not that. */
static enum ax_status json_of(const json_t *text, const char *type, json_t **out) {
    const char *s = json_string_value(text);
    const size_t n = json_string_length(text);
    struct ax_json_first first;
    AX_TRY(ax_json_first(s, n, &first));
    while (first.used < n && isspace((unsigned char)s[first.used]))
        first.used++;
    *out = first.used == n && is_of(first.v, type) ? json_incref(first.v) : NULL;
    json_decref(first.v);
    return AX_OK;
}

static enum ax_status parse_as(const json_t *text, const char *type, json_t **out) {
    char s[MOST_TEXT];
    trim(text, s);
    const bool yes = strcasecmp(s, "true") == 0 || strcmp(s, "1") == 0;
    if (strcmp(type, "object") == 0 || strcmp(type, "array") == 0)
        return json_of(text, type, out);
    if (strcmp(type, "integer") == 0)
        *out = number_of(s, false);
    else if (strcmp(type, "number") == 0)
        *out = number_of(s, true);
    else if (strcmp(type, "boolean") == 0)
        *out = yes || strcasecmp(s, "false") == 0 || strcmp(s, "0") == 0 ? json_boolean(yes) : NULL;
    else if (strcmp(type, "null") == 0)
        *out = strcmp(s, "null") == 0 || strcmp(s, "None") == 0 ? json_null() : NULL;
    return AX_OK;
}

/* *out: the first of the schema's types, those of its choices included, that the text is; NULL: none. */
static enum ax_status coerce(const json_t *text, const json_t *schema, int depth, json_t **out) {
    static const char *const unions[] = {"anyOf", "oneOf"};
    const char *type;
    for (size_t i = 0; !*out && (type = type_at(schema, i)) != NULL; i++)
        AX_TRY(parse_as(text, type, out));
    for (size_t i = 0; depth < MOST_REFERENCES && i < sizeof unions / sizeof *unions; i++) {
        const json_t *choices = json_object_get(schema, unions[i]);
        for (size_t k = 0; !*out && k < json_array_size(choices); k++)
            AX_TRY(coerce(text, json_array_get(choices, k), depth + 1, out));
    }
    if (!*out && json_is_true(json_object_get(schema, "nullable")))
        return parse_as(text, "null", out);
    return AX_OK;
}

static bool coerce_arguments(json_t *arguments, const json_t *function) {
    const json_t *parameters = json_object_get(function, "parameters");
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(arguments, next, key, v) {
        json_t *parsed = NULL;
        if (json_is_string(v) &&
            (coerce(v, ax_tool_schema_of(parameters, key), 0, &parsed) != AX_OK ||
             (parsed && json_object_set_new(arguments, key, parsed) != 0)))
            return false;
    }
    return true;
}

bool ax_tool_coerce(json_t *calls, const json_t *tools) {
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_object_get(json_array_get(calls, i), "function");
        json_t *arguments = json_object_get(call, "arguments");
        const char *name = json_string_value(json_object_get(call, "name"));
        if (json_is_object(arguments) &&
            !coerce_arguments(arguments, ax_tool_function(tools, name)))
            return false;
    }
    return true;
}

/* ---- calls that do not fit ---- */

static const char *python_type(const json_t *v) {
    return json_is_string(v)    ? "str"
           : json_is_integer(v) ? "int"
           : json_is_real(v)    ? "float"
           : json_is_boolean(v) ? "bool"
           : json_is_null(v)    ? "NoneType"
           : json_is_array(v)   ? "list"
                                : "dict";
}

/* The names as Python lists them: 'a', 'b', and 'c'. */
static enum ax_status put_missing(struct ax_buf *out, const char *name, const json_t *missing) {
    const size_t n = json_array_size(missing);
    AX_TRY(ax_buf_printf(out, "%s() missing %zu required positional argument%s: ", name, n,
                         n == 1 ? "" : "s"));
    for (size_t i = 0; i < n; i++)
        AX_TRY(ax_buf_printf(out, "%s'%s'",
                             i == 0      ? ""
                             : i + 1 < n ? ", "
                             : n == 2    ? " and "
                                         : ", and ",
                             json_string_value(json_array_get(missing, i))));
    return AX_OK;
}

static enum ax_status check_missing(const json_t *required, const json_t *arguments,
                                    const char *name, struct ax_buf *why) {
    json_t *missing = json_array();
    enum ax_status st = missing ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a call");
    for (size_t i = 0; st == AX_OK && i < json_array_size(required); i++) {
        json_t *key = json_array_get(required, i);
        if (!json_object_get(arguments, json_string_value(key)))
            (void)json_array_append(missing, key);
    }
    if (json_array_size(missing) > 0)
        st = put_missing(why, name, missing);
    json_decref(missing);
    return st;
}

static enum ax_status check_type(const char *name, const char *key, const json_t *v,
                                 const json_t *schema, struct ax_buf *why) {
    const char *type = type_at(schema, 0);
    if (fits(v, schema))
        return AX_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0)
            type = types[i].article;
    return ax_buf_printf(why, "%s() argument '%s' must be %s, not %s", name, key, type,
                         python_type(v));
}

enum ax_status ax_tool_misfit(const json_t *function, const json_t *arguments, struct ax_buf *why) {
    const char *name = json_string_value(json_object_get(function, "name")), *key;
    const json_t *parameters = json_object_get(function, "parameters");
    const json_t *properties = json_object_get(parameters, "properties");
    json_t *v;
    if (!json_is_object(arguments))
        return ax_buf_printf(why, "%s() argument after ** must be a mapping, not %s", name,
                             python_type(arguments));
    json_object_foreach((json_t *)(uintptr_t)arguments, key, v) {
        const json_t *schema = json_object_get(properties, key);
        if (!schema && !json_is_true(json_object_get(parameters, "additionalProperties")))
            return ax_buf_printf(why, "%s() got an unexpected keyword argument '%s'", name, key);
        AX_TRY(check_type(name, key, v, schema, why));
        if (why->len > 0)
            return AX_OK;
    }
    return check_missing(json_object_get(parameters, "required"), arguments, name, why);
}

/* ---- Python's repr ---- */

/* The first n bytes of s: a code point, or bytes that are none, which stay. */
static enum ax_status put_repr_char(struct ax_buf *out, const char *s, size_t n, bool valid,
                                    char quote) {
    size_t used;
    const uint32_t c = valid ? ax_utf8_decode((const unsigned char *)s, &used) : 0;
    if (valid && (c == (unsigned char)quote || c == '\\'))
        return ax_buf_printf(out, "\\%c", (int)c);
    if (c == '\n' || c == '\r' || c == '\t')
        return ax_buf_puts(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    if (!valid || ax_python_is_printable(c))
        return ax_buf_append(out, s, n);
    return ax_buf_printf(out,
                         c < 0x100     ? "\\x%02x"
                         : c < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                         (unsigned)c);
}

static enum ax_status put_repr(struct ax_buf *out, const char *s) {
    const char quote = strchr(s, '\'') && !strchr(s, '"') ? '"' : '\'';
    AX_TRY(ax_buf_printf(out, "%c", quote));
    for (size_t left = strlen(s), n; left > 0; s += n, left -= n) {
        const enum ax_utf8_kind kind = ax_utf8_next((const unsigned char *)s, left, &n);
        AX_TRY(put_repr_char(out, s, n, kind == AX_UTF8_VALID, quote));
    }
    return ax_buf_printf(out, "%c", quote);
}

enum ax_status ax_tool_error_text(struct ax_buf *out, const char *text) {
    AX_TRY(ax_buf_puts(out, "{'error': "));
    AX_TRY(put_repr(out, text));
    return ax_buf_puts(out, "}");
}
