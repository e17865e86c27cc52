/* JSON text → values, with integers of any size: what jansson's 64 bits cannot hold.
 *
 * The text has already been accepted by ax_json_parse, so syntax errors here are our own bugs and
 * get no message with a place. */
#include <stdlib.h>
#include <string.h>

#include "data/jinja_big.h"
#include "data/jinja_unicode.h"
#include "data/jinja_vm.h"

struct reader {
    struct ax_jvm *vm;
    const char *s;
    size_t len, p;
};

static char peek(struct reader *r) {
    while (r->p < r->len && strchr(" \t\r\n", r->s[r->p]) != NULL && r->s[r->p] != '\0') {
        r->p++;
    }
    return r->p < r->len ? r->s[r->p] : '\0';
}

#define bad(r) ax_jvm_error((r)->vm, "the input is not JSON at byte %zu", (r)->p)

static enum ax_status expect(struct reader *r, char c) {
    if (peek(r) != c) {
        return bad(r);
    }
    r->p++;
    return AX_OK;
}

/* ---- strings ---- */

static uint32_t hex4(const struct reader *r, size_t p) {
    char digits[5] = {0};
    if (p + 4 <= r->len) {
        memcpy(digits, r->s + p, 4);
    }
    return (uint32_t)strtoul(digits, NULL, 16);
}

/* The escape behind a backslash at p; moves p behind it. */
static enum ax_status read_escape(struct reader *r) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = r->p < r->len ? r->s[r->p++] : '\0';
    const char *k = c != '\0' ? strchr(from, c) : NULL;
    if (k != NULL) {
        return ax_jvm_put(r->vm, &to[k - from], 1);
    }
    if (c != 'u') {
        return bad(r);
    }
    uint32_t code = hex4(r, r->p);
    r->p += 4;
    if (code >= 0xd800 && code < 0xdc00) { /* its other half follows: jansson has checked */
        code = 0x10000 + ((code & 0x3ff) << 10 | (hex4(r, r->p + 2) & 0x3ff));
        r->p += 6;
    }
    return ax_jvm_put_char(r->vm, code);
}

static enum ax_status read_string(struct reader *r, struct ax_jstr **out) {
    AX_TRY(expect(r, '"'));
    struct ax_jcapture c = ax_jvm_capture(r->vm);
    for (;;) {
        size_t start = r->p;
        while (r->p < r->len && r->s[r->p] != '"' && r->s[r->p] != '\\') {
            r->p++;
        }
        AX_TRY(ax_jvm_put(r->vm, r->s + start, r->p - start));
        if (r->p >= r->len) {
            return bad(r);
        }
        if (r->s[r->p++] == '"') {
            return ax_jvm_take(r->vm, c, out);
        }
        AX_TRY(read_escape(r));
    }
}

/* ---- numbers and words ---- */

static enum ax_status read_number(struct reader *r, struct ax_jval *out) {
    size_t start = r->p;
    bool real = false;
    while (r->p < r->len && r->s[r->p] != '\0' && strchr("+-0123456789.eE", r->s[r->p]) != NULL) {
        real = real || strchr(".eE", r->s[r->p]) != NULL;
        r->p++;
    }
    size_t n = r->p - start;
    bool negative = n > 0 && r->s[start] == '-';
    if (n == (size_t)negative) {
        return bad(r);
    }
    if (real) {
        char *text; /* the input need not end with a NUL */
        AX_TRY(ax_jarena_alloc(&r->vm->arena, &text, n + 1, 1));
        memcpy(text, r->s + start, n);
        *out = ax_jreal(strtod(text, NULL));
        return AX_OK;
    }
    return ax_jbig_parse(&r->vm->arena, r->s + start + negative, n - negative, 10, negative, out);
}

static enum ax_status read_word(struct reader *r, struct ax_jval *out) {
    static const struct {
        const char *word;
        struct ax_jval value;
    } words[] = {{"true", {.kind = AX_JBOOL, .boolean = true}},
                 {"false", {.kind = AX_JBOOL, .boolean = false}},
                 {"null", {.kind = AX_JNONE}}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);
        if (n <= r->len - r->p && memcmp(r->s + r->p, words[i].word, n) == 0) {
            r->p += n;
            *out = words[i].value;
            return AX_OK;
        }
    }
    return read_number(r, out);
}

/* ---- values ---- */

static enum ax_status read_value(struct reader *r, struct ax_jval *out);

static enum ax_status read_array(struct reader *r, struct ax_jval *out) {
    struct ax_jitems items = {0};
    AX_TRY(expect(r, '['));
    while (peek(r) != ']') {
        struct ax_jval v;
        if (items.n > 0) {
            AX_TRY(expect(r, ','));
        }
        AX_TRY(read_value(r, &v));
        AX_TRY(ax_jitems_add(&r->vm->arena, &items, v));
    }
    r->p++;
    return ax_jitems_done(&r->vm->arena, &items, AX_JLIST, out);
}

static enum ax_status read_object(struct reader *r, struct ax_jval *out) {
    struct ax_jdict *d;
    AX_TRY(expect(r, '{'));
    AX_TRY(ax_jdict_new(&r->vm->arena, &d));
    while (peek(r) != '}') {
        struct ax_jstr *key;
        struct ax_jval v;
        if (d->n > 0) {
            AX_TRY(expect(r, ','));
            peek(r);
        }
        AX_TRY(read_string(r, &key));
        AX_TRY(expect(r, ':'));
        AX_TRY(read_value(r, &v));
        AX_TRY(ax_jdict_set(&r->vm->arena, d, ax_jstring(key), v));
    }
    r->p++;
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

static enum ax_status read_value(struct reader *r, struct ax_jval *out) {
    AX_TRY(ax_jvm_enter(r->vm));
    char c = peek(r);
    if (c == '{') {
        AX_TRY(read_object(r, out));
    } else if (c == '[') {
        AX_TRY(read_array(r, out));
    } else if (c == '"') {
        out->kind = AX_JSTR;
        AX_TRY(read_string(r, &out->str));
    } else {
        AX_TRY(read_word(r, out));
    }
    r->vm->depth--;
    return AX_OK;
}

enum ax_status ax_jval_from_text(struct ax_jvm *vm, const char *text, size_t len,
                                 struct ax_jval *out) {
    struct reader r = {.vm = vm, .s = text, .len = len};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        r.p = 3; /* byte order mark */
    }
    return read_value(&r, out);
}
