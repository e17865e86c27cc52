/* Reads JSON. In order: parsing (scan, jansson, error position), then the getters. */
#include "base/text/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json_scan.h"

/* jansson's lexer silently drops bytes when its buffer cannot grow, so a parse is only trusted when
 * no allocation failed in it. */
static _Thread_local bool alloc_failed;

static void *json_alloc(size_t n) {
    void *p = ax_malloc_hook(n);
    if (p == NULL)
        alloc_failed = true;
    return p;
}

/* Before main, because jansson must have its allocator before the first value is created, also
 * outside this file. */
__attribute__((constructor)) static void route_jansson(void) {
    json_set_alloc_funcs(json_alloc, ax_free_hook);
}

/* jansson's position is after the token that it names in "… near 'TOKEN'": go back to its start. */
static enum ax_status syntax_error(const char *name, const char *text, size_t len,
                                   const json_error_t *e) {
    size_t offset = e->position > 0 ? (size_t)e->position : 0;
    offset = offset <= len ? offset : len;
    const char *near = strstr(e->text, " near '");
    if (near != NULL) {
        near += strlen(" near '");
        size_t n = strlen(near) - 1; /* without the last quote */
        if (n <= offset && memcmp(text + offset - n, near, n) == 0)
            offset -= n;
    }
    return ax_json_error_at(name, text, offset, e->text);
}

enum ax_status ax_json_parse(struct ax_json_doc *doc, const char *name, const char *text,
                             size_t len) {
    *doc = (struct ax_json_doc){0};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3; /* byte order mark of Windows editors */
        len -= 3;
    }
    char *rewritten = NULL;
    char *name_copy = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_json_scan(name, text, len, &rewritten), st, done);
    AX_TRY_GOTO(ax_strdup(&name_copy, name), st, done);
    json_error_t e;
    alloc_failed = false;
    json_t *root = json_loadb(rewritten != NULL ? rewritten : text, len,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (alloc_failed) {
        json_decref(root);
        st = ax_error(AX_ERR_NOMEM, "%s: out of memory while reading JSON of %zu bytes", name, len);
    } else if (root == NULL) {
        st = syntax_error(name, text, len, &e);
    } else {
        *doc = (struct ax_json_doc){.root = root, .name = name_copy};
        name_copy = NULL;
    }
done:
    ax_free(name_copy);
    ax_free(rewritten);
    return st;
}

enum ax_status ax_json_load(struct ax_json_doc *doc, const char *path, size_t max_bytes) {
    *doc = (struct ax_json_doc){0};
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, max_bytes, &text, &len));
    enum ax_status st = ax_json_parse(doc, path, text, len);
    ax_free(text);
    return st;
}

void ax_json_free(struct ax_json_doc *doc) {
    json_decref(doc->root);
    ax_free(doc->name);
    *doc = (struct ax_json_doc){0};
}

struct ax_json ax_json_root(const struct ax_json_doc *doc) {
    return (struct ax_json){.v = doc->root, .doc = doc->name};
}

struct ax_json ax_json_get(struct ax_json parent, const char *key) {
    struct ax_json child = {.doc = parent.doc};
    const json_t *v = json_object_get(parent.v, key);
    child.v = json_is_null(v) ? NULL : v;
    const char *dot = parent.path[0] != '\0' ? "." : "";
    if (snprintf(child.path, sizeof child.path, "%s%s%s", parent.path, dot, key) < 0)
        child.path[0] = '\0';
    return child;
}

struct ax_json ax_json_at(struct ax_json parent, size_t index) {
    struct ax_json child = {.doc = parent.doc};
    const json_t *v = json_array_get(parent.v, index);
    child.v = json_is_null(v) ? NULL : v;
    if (snprintf(child.path, sizeof child.path, "%s[%zu]", parent.path, index) < 0)
        child.path[0] = '\0';
    return child;
}

size_t ax_json_size(struct ax_json a) {
    return json_is_array(a.v) ? json_array_size(a.v) : json_object_size(a.v);
}

enum ax_status ax_json_error(struct ax_json v, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ax_error(AX_ERR_DATA, "%s: %s%s%s", v.doc, v.path, v.path[0] != '\0' ? ": " : "", text);
}

/* At most `max` bytes of s, without splitting a character. */
static int shown_length(const char *s, int max) {
    int n = (int)strnlen(s, (size_t)max);
    while (n == max && ((unsigned char)s[n] & 0xC0U) == 0x80U)
        n = --max;
    return n;
}

/* "expected an integer, got "x"". */
static enum ax_status wrong_type(struct ax_json v, const char *expected) {
    switch (v.v != NULL ? json_typeof(v.v) : JSON_NULL) {
    case JSON_OBJECT:
        return ax_json_error(v, "expected %s, got an object", expected);
    case JSON_ARRAY:
        return ax_json_error(v, "expected %s, got a list", expected);
    case JSON_STRING:
        return ax_json_error(v, "expected %s, got \"%.*s\"", expected,
                             shown_length(json_string_value(v.v), 60), json_string_value(v.v));
    case JSON_INTEGER:
        return ax_json_error(v, "expected %s, got %lld", expected,
                             (long long)json_integer_value(v.v));
    case JSON_REAL:
        return ax_json_error(v, "expected %s, got %.17g", expected, json_real_value(v.v));
    case JSON_TRUE:
    case JSON_FALSE:
        return ax_json_error(v, "expected %s, got %s", expected,
                             json_is_true(v.v) ? "true" : "false");
    case JSON_NULL:
        break;
    }
    return ax_json_error(v, "missing; expected %s", expected);
}

enum ax_status ax_json_i64(struct ax_json v, int64_t min, int64_t max, int64_t *out) {
    if (!json_is_integer(v.v))
        return wrong_type(v, "an integer");
    int64_t i = json_integer_value(v.v);
    if (i < min) {
        return ax_json_error(v, "expected an integer of at least %lld, got %lld", (long long)min,
                             (long long)i);
    }
    if (i > max) {
        return ax_json_error(v, "expected an integer of at most %lld, got %lld", (long long)max,
                             (long long)i);
    }
    *out = i;
    return AX_OK;
}

enum ax_status ax_json_f64(struct ax_json v, double *out) {
    if (!json_is_number(v.v))
        return wrong_type(v, "a number");
    *out = json_number_value(v.v);
    return AX_OK;
}

enum ax_status ax_json_bool(struct ax_json v, bool *out) {
    if (!json_is_boolean(v.v))
        return wrong_type(v, "true or false");
    *out = json_is_true(v.v);
    return AX_OK;
}

enum ax_status ax_json_str(struct ax_json v, const char **out) {
    if (!json_is_string(v.v))
        return wrong_type(v, "a string");
    const char *s = json_string_value(v.v);
    if (strlen(s) != json_string_length(v.v))
        return ax_json_error(v, "the string contains a NUL character (\\u0000)");
    *out = s;
    return AX_OK;
}

enum ax_status ax_json_i64_or(struct ax_json v, int64_t min, int64_t max, int64_t def,
                              int64_t *out) {
    if (v.v == NULL) {
        *out = def;
        return AX_OK;
    }
    return ax_json_i64(v, min, max, out);
}

enum ax_status ax_json_f64_or(struct ax_json v, double def, double *out) {
    if (v.v == NULL) {
        *out = def;
        return AX_OK;
    }
    return ax_json_f64(v, out);
}

enum ax_status ax_json_bool_or(struct ax_json v, bool def, bool *out) {
    if (v.v == NULL) {
        *out = def;
        return AX_OK;
    }
    return ax_json_bool(v, out);
}

enum ax_status ax_json_str_or(struct ax_json v, const char *def, const char **out) {
    if (v.v == NULL) {
        *out = def;
        return AX_OK;
    }
    return ax_json_str(v, out);
}

json_t *ax_json_number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}
