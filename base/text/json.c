/* Reads JSON: a scan of the text before jansson parses it, parsing, the getters. */
#include "base/text/json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fit.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/text/lfs_pointer.h"
#include "base/text/unicode.h"

#define MAX_DEPTH 512
/* Longest integer that a double can hold: DBL_MAX has 309 digits. */
#define MAX_DIGITS 309

/* ---- the scan ---- */

/* AX_ERR_DATA "name:line:column: …" for a byte offset; columns count characters from 1. */
static enum ax_status error_at(const char *name, const char *text, size_t offset,
                               const char *message) {
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xC0U) != 0x80U) {
            column++;
        }
    }
    return ax_error(AX_ERR_DATA, "%s:%zu:%zu: %s", name, line, column, message);
}

static size_t span_string(const char *s, size_t n) {
    size_t i = 1;
    while (i < n && s[i] != '"')
        i += s[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

static size_t span_number(const char *s, size_t n) {
    size_t i = 1;
    while (i < n && s[i] != '\0' && strchr("0123456789+-.eE", s[i]) != NULL)
        i++;
    return i;
}

/* True if the number token is an integer that fits a double but not int64. */
static bool is_big_integer(const char *s, size_t n) {
    size_t sign = s[0] == '-';
    size_t digits = n - sign;
    if (digits < 19 || digits > MAX_DIGITS || s[sign] == '0')
        return false;
    char copy[MAX_DIGITS + 2];
    for (size_t i = sign; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    memcpy(copy, s, n);
    copy[n] = '\0';
    errno = 0;
    (void)strtoll(copy, NULL, 10);
    return errno == ERANGE && strtod(copy, NULL) - strtod(copy, NULL) == 0.0;
}

/* Writes the integer as 17 digits and an exponent: exact for a double, and never longer than the
 * original 19 or more digits. Padded with blanks, so later columns stay correct. */
static void rewrite_integer(char *s, size_t n) {
    char copy[MAX_DIGITS + 2];
    char text[32];
    memcpy(copy, s, n);
    copy[n] = '\0';
    snprintf(text, sizeof text, "%.16e", strtod(copy, NULL)); /* d.dddddddddddddddde+XX */
    size_t sign = text[0] == '-';
    memmove(text + sign + 1, text + sign + 2, 16);
    int exponent = (int)strtol(text + sign + 19, NULL, 10) - 16;
    int m = snprintf(copy, sizeof copy, "%.*se%d", (int)(sign + 17), text, exponent);
    memcpy(s, copy, (size_t)m);
    memset(s + m, ' ', n - (size_t)m);
}

static bool is_word(const char *s, size_t n, const char *word) {
    size_t len = strlen(word);
    return n >= len && memcmp(s, word, len) == 0;
}

/* In place of Infinity: the text of a string of as many bytes, of a character that no text has. */
#define INFINITE      "\"\\uFFFF\""
#define INFINITE_READ "\xEF\xBF\xBF"

/* Checks one bracket or word; *depth tracks the nesting. Returns NULL or the error. */
static const char *complaint(const char *s, size_t n, int *depth) {
    if (*s == '[' || *s == '{') {
        ++*depth;
        return *depth > MAX_DEPTH ? "nested deeper than 512 levels" : NULL;
    }
    if (*s == ']' || *s == '}')
        --*depth;
    if (is_word(s, n, "NaN") || is_word(s, n, "Infinity")) {
        return "NaN and Infinity are not JSON numbers, though Python writes them; put null or a "
               "number in its place";
    }
    return NULL;
}

/* Infinity, and neither −Infinity nor a member's name. */
static bool is_infinity(const char *text, size_t len, size_t i) {
    if (!is_word(text + i, len - i, "Infinity") || (i > 0 && text[i - 1] == '-'))
        return false;
    i += strlen("Infinity");
    while (i < len && text[i] != '\0' && strchr(" \t\r\n", text[i]))
        i++;
    return i == len || text[i] != ':';
}

static enum ax_status copy_text(const char *text, size_t len, char **copy) {
    if (*copy)
        return AX_OK;
    AX_TRY(ax_alloc(copy, len + 1, 1));
    memcpy(*copy, text, len);
    return AX_OK;
}

/* Rejects nesting deeper than MAX_DEPTH and the NaN and Infinity that Python writes, of which INFINITE replaces
 * those that stand alone if `infinite` is not NULL, and sets it. Integers beyond
 * 64 bits (HF writes model_max_length as 10^30) would be an error in jansson; if there are any,
 * *rewritten is a copy of the text with reals of the same length instead, else NULL. Free with
 * ax_free. */
static enum ax_status scan(const char *name, const char *text, size_t len, bool *infinite,
                           char **rewritten) {
    char *copy = NULL;
    enum ax_status st = AX_OK;
    int depth = 0;
    size_t span;
    for (size_t i = 0; i < len; i += span) {
        const char *s = text + i;
        span = 1;
        if (*s == '"') {
            span = span_string(s, len - i);
        } else if ((*s >= '0' && *s <= '9') || *s == '-') {
            span = span_number(s, len - i);
            if (is_big_integer(s, span)) {
                AX_TRY_GOTO(copy_text(text, len, &copy), st, fail);
                rewrite_integer(copy + i, span);
            }
        } else if (infinite && is_infinity(text, len, i)) {
            span = strlen("Infinity");
            AX_TRY_GOTO(copy_text(text, len, &copy), st, fail);
            memcpy(copy + i, INFINITE, span);
            *infinite = true;
        } else {
            const char *message = complaint(s, len - i, &depth);
            if (message != NULL)
                AX_TRY_GOTO(error_at(name, text, i, message), st, fail);
        }
    }
    *rewritten = copy;
    return AX_OK;
fail:
    ax_free(copy);
    return st;
}

/* ---- parsing ---- */

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
    return error_at(name, text, offset, e->text);
}

enum ax_status ax_json_first(const char *text, size_t len, struct ax_json_first *out) {
    json_error_t e;
    alloc_failed = false;
    *out = (struct ax_json_first){0};
    out->v = json_loadb(text, len, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (alloc_failed) {
        json_decref(out->v);
        out->v = NULL;
        return ax_error(AX_ERR_NOMEM, "out of memory while reading JSON of %zu bytes", len);
    }
    if (out->v)
        out->used = (size_t)e.position;
    else
        memcpy(out->why, e.text, sizeof out->why);
    return AX_OK;
}

static bool is_infinite(const json_t *v) {
    return json_string_length(v) == strlen(INFINITE_READ) &&
           strcmp(json_string_value(v), INFINITE_READ) == 0;
}

/* Puts objects in place of the strings; false: no memory. */
static bool put_infinite(json_t *v) {
    const char *key;
    json_t *member;
    size_t i;
    bool ok = true;
    if (json_is_array(v))
        json_array_foreach(v, i, member) ok =
            ok && (is_infinite(member)
                       ? json_array_set_new(v, i, json_pack("{ss}", "__float__", "Infinity")) == 0
                       : put_infinite(member));
    if (json_is_object(v))
        json_object_foreach(v, key, member) ok =
            ok &&
            (is_infinite(member)
                 ? json_object_set_new(v, key, json_pack("{ss}", "__float__", "Infinity")) == 0
                 : put_infinite(member));
    return ok;
}

static enum ax_status parse(struct ax_json_doc *doc, const char *name, const char *text, size_t len,
                            bool of_python) {
    bool infinite = false;
    *doc = (struct ax_json_doc){0};
    AX_TRY(ax_lfs_refuse(name, text, len));
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3; /* byte order mark of Windows editors */
        len -= 3;
    }
    char *rewritten = NULL;
    char *name_copy = NULL;
    enum ax_status st;
    AX_TRY_GOTO(scan(name, text, len, of_python ? &infinite : NULL, &rewritten), st, done);
    AX_TRY_GOTO(ax_strdup(&name_copy, name), st, done);
    json_error_t e;
    alloc_failed = false;
    json_t *root = json_loadb(rewritten != NULL ? rewritten : text, len,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (alloc_failed || (root && infinite && !put_infinite(root))) {
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

enum ax_status ax_json_parse(struct ax_json_doc *doc, const char *name, const char *text,
                             size_t len) {
    return parse(doc, name, text, len, false);
}

enum ax_status ax_json_parse_file(struct ax_json_doc *doc, const char *name, const char *text,
                                  size_t len) {
    return parse(doc, name, text, len, true);
}

enum ax_status ax_json_load(struct ax_json_doc *doc, const char *path, size_t max_bytes) {
    *doc = (struct ax_json_doc){0};
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, max_bytes, &text, &len));
    enum ax_status st = ax_json_parse_file(doc, path, text, len);
    ax_free(text);
    return st;
}

void ax_json_free(struct ax_json_doc *doc) {
    json_decref(doc->root);
    ax_free(doc->name);
    *doc = (struct ax_json_doc){0};
}

/* ---- getters ---- */

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
    ax_vfit(text, sizeof text, fmt, ap);
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
        return ax_json_error(v, "expected %s, got %.17g%s", expected, json_real_value(v.v),
                             fabs(json_real_value(v.v)) < 1e15 &&
                                     rint(json_real_value(v.v)) == json_real_value(v.v)
                                 ? ".0"
                                 : "");
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

json_t *ax_json_repaired(const char *bytes) {
    struct ax_buf text = {0};
    json_t *v = NULL;
    if (ax_utf8_repair(&text, bytes, strlen(bytes)) == AX_OK)
        v = json_stringn(text.data, text.len);
    ax_buf_free(&text);
    return v;
}
