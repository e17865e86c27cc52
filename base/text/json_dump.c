/* Writes JSON byte for byte like Python's json.dumps(indent=2), so that a file that is read, edited
 * and written back differs only where it was edited. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

static enum ax_status put_indent(struct ax_buf *b, int depth) {
    AX_TRY(ax_buf_append(b, "\n", 1));
    for (int i = 0; i < depth; i++)
        AX_TRY(ax_buf_append(b, "  ", 2));
    return AX_OK;
}

/* Decodes one character of valid UTF-8 (jansson stores no other). */
static uint32_t next_char(const char **s) {
    const unsigned char *p = (const unsigned char *)*s;
    int more = p[0] < 0x80 ? 0 : p[0] < 0xE0 ? 1 : p[0] < 0xF0 ? 2 : 3;
    uint32_t c = more == 0 ? p[0] : p[0] & (0x3FU >> more);
    for (int i = 1; i <= more; i++)
        c = c << 6 | (p[i] & 0x3FU);
    *s += more + 1;
    return c;
}

static enum ax_status put_char(struct ax_buf *b, uint32_t c) {
    static const char special[] = "\"\\\n\r\t\b\f";
    static const char letters[] = "\"\\nrtbf";
    const char *found = c != 0 && c < 0x80 ? strchr(special, (int)c) : NULL;
    if (found != NULL) {
        char escape[2] = {'\\', letters[found - special]};
        return ax_buf_append(b, escape, 2);
    }
    if (c >= 0x20 && c < 0x7F) {
        char plain = (char)c;
        return ax_buf_append(b, &plain, 1);
    }
    if (c < 0x10000)
        return ax_buf_printf(b, "\\u%04x", c);
    c -= 0x10000;
    return ax_buf_printf(b, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FFU));
}

static enum ax_status put_string(struct ax_buf *b, const char *s, size_t n) {
    AX_TRY(ax_buf_append(b, "\"", 1));
    for (const char *end = s + n; s < end;)
        AX_TRY(put_char(b, next_char(&s)));
    return ax_buf_append(b, "\"", 1);
}

/* The fewest digits that read back as x, as "-d.ddde-XX" in e; returns how many. Below a power of
 * two doubles are denser than above it, so there a number of few digits may be found only by
 * rounding up. (A last digit 9 would carry into fewer digits, which were tried before.) */
static int shortest_digits(char *e, size_t size, double x) {
    int exponent;
    bool power_of_two = fabs(frexp(x, &exponent)) == 0.5;
    for (int digits = 1; digits < 17; digits++) {
        snprintf(e, size, "%.*e", digits - 1, x);
        if (strtod(e, NULL) == x)
            return digits;
        char *last = strchr(e, 'e') - 1;
        if (power_of_two && *last != '9') {
            ++*last;
            if (strtod(e, NULL) == x)
                return digits;
        }
    }
    snprintf(e, size, "%.16e", x);
    return 17;
}

char *ax_real_repr(double x, char text[AX_REAL_TEXT]) {
    if (isnan(x) || isinf(x)) {
        snprintf(text, AX_REAL_TEXT, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return text;
    }
    const int digits = shortest_digits(text, AX_REAL_TEXT, x);
    const int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    /* digits after the point: at least one, as a real stays a real */
    const int decimals = digits - 1 - exponent;
    if (exponent >= -4 && exponent < 16)
        snprintf(text, AX_REAL_TEXT, "%.*f", decimals > 1 ? decimals : 1, x);
    return text;
}

static enum ax_status put_real(struct ax_buf *b, double x) {
    char text[AX_REAL_TEXT];
    return ax_buf_puts(b, ax_real_repr(x, text));
}

static enum ax_status put_value(struct ax_buf *b, const json_t *v, int depth);

static enum ax_status put_array(struct ax_buf *b, const json_t *v, int depth) {
    size_t n = json_array_size(v);
    AX_TRY(ax_buf_puts(b, "["));
    for (size_t i = 0; i < n; i++) {
        AX_TRY(ax_buf_puts(b, i > 0 ? "," : ""));
        AX_TRY(put_indent(b, depth + 1));
        AX_TRY(put_value(b, json_array_get(v, i), depth + 1));
    }
    if (n > 0)
        AX_TRY(put_indent(b, depth));
    return ax_buf_puts(b, "]");
}

static enum ax_status put_object(struct ax_buf *b, const json_t *v, int depth) {
    json_t *object = (json_t *)v; /* required by the iterators; not modified */
    AX_TRY(ax_buf_puts(b, "{"));
    const char *separator = "";
    for (void *it = json_object_iter(object); it != NULL; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        AX_TRY(ax_buf_puts(b, separator));
        AX_TRY(put_indent(b, depth + 1));
        AX_TRY(put_string(b, key, strlen(key)));
        AX_TRY(ax_buf_puts(b, ": "));
        AX_TRY(put_value(b, json_object_iter_value(it), depth + 1));
        separator = ",";
    }
    if (json_object_size(v) > 0)
        AX_TRY(put_indent(b, depth));
    return ax_buf_puts(b, "}");
}

static enum ax_status put_value(struct ax_buf *b, const json_t *v, int depth) {
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return put_object(b, v, depth);
    case JSON_ARRAY:
        return put_array(b, v, depth);
    case JSON_STRING:
        return put_string(b, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
        return ax_buf_printf(b, "%lld", (long long)json_integer_value(v));
    case JSON_REAL:
        return put_real(b, json_real_value(v));
    case JSON_TRUE:
        return ax_buf_puts(b, "true");
    case JSON_FALSE:
        return ax_buf_puts(b, "false");
    case JSON_NULL:
        break;
    }
    return ax_buf_puts(b, "null");
}

enum ax_status ax_json_dump(const json_t *v, char **text, size_t *len) {
    struct ax_buf b = {0};
    enum ax_status st = put_value(&b, v, 0);
    if (st != AX_OK) {
        ax_buf_free(&b);
        return st;
    }
    *text = b.data;
    *len = b.len;
    return AX_OK;
}
