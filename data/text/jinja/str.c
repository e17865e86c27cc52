/* Strings of value.h. */
#include <string.h>

#include "base/hash/hash.h"
#include "data/text/jinja/unicode.h"
#include "data/text/jinja/value.h"

enum ax_status ax_jstr_borrow(struct ax_jarena *a, struct ax_jstr **out, const char *data,
                              size_t len) {
    struct ax_jstr *s;
    AX_TRY(ax_jarena_alloc(a, &s, 1, sizeof *s));
    s->data = data;
    s->len = len;
    s->chars = AX_JUNCOUNTED;
    *out = s;
    return AX_OK;
}

enum ax_status ax_jstr_copy(struct ax_jarena *a, struct ax_jstr **out, const char *data,
                            size_t len) {
    char *copy;
    AX_TRY(ax_jarena_alloc(a, &copy, len, 1));
    if (len > 0)
        memcpy(copy, data, len);
    return ax_jstr_borrow(a, out, copy, len);
}

/* Shorter results are allocated exactly; longer ones get free space for the next piece. */
#define TAIL_MIN ((size_t)256)

enum ax_status ax_jstr_concat(struct ax_jarena *a, struct ax_jstr **out, const struct ax_jstr *left,
                              const struct ax_jstr *right) {
    size_t len = left->len + right->len;
    struct ax_jtail *tail = left->tail;
    char *data;
    if (tail != NULL && tail->used == left->len && tail->cap - tail->used >= right->len) {
        data = (char *)(tail + 1); /* the text follows its tail's header */
        memcpy(data + left->len, right->data, right->len);
        tail->used = len;
    } else {
        size_t cap = len < TAIL_MIN ? len : 2 * len;
        AX_TRY(ax_jarena_alloc(a, &tail, 1, sizeof *tail + cap));
        *tail = (struct ax_jtail){.used = len, .cap = cap};
        data = (char *)(tail + 1);
        memcpy(data, left->data, left->len);
        memcpy(data + left->len, right->data, right->len);
    }
    AX_TRY(ax_jstr_borrow(a, out, data, len));
    (*out)->tail = tail;
    return AX_OK;
}

enum ax_status ax_jstr_slice(struct ax_jarena *a, struct ax_jstr **out, const struct ax_jstr *s,
                             size_t start, size_t end) {
    AX_ASSERT(start <= end && end <= s->len);
    AX_TRY(ax_jstr_borrow(a, out, s->data + start, end - start));
    (*out)->safe = s->safe;
    return AX_OK;
}

size_t ax_jstr_chars(struct ax_jstr *s) {
    if (s->chars == AX_JUNCOUNTED)
        s->chars = ax_python_count(s->data, s->len);
    return s->chars;
}

uint32_t ax_jstr_hash(struct ax_jstr *s) {
    if (s->hash == 0) {
        uint32_t h = (uint32_t)ax_hash64(s->data, s->len, 0);
        s->hash = h != 0 ? h : 1;
    }
    return s->hash;
}

bool ax_jstr_equal(const struct ax_jstr *a, const struct ax_jstr *b) {
    return a->len == b->len && (a->data == b->data || memcmp(a->data, b->data, a->len) == 0);
}

bool ax_jstr_is(const struct ax_jstr *s, const char *text) {
    return strlen(text) == s->len && memcmp(s->data, text, s->len) == 0;
}

size_t ax_jstr_find(const struct ax_jstr *s, const struct ax_jstr *needle, size_t from) {
    if (needle->len > s->len || from > s->len - needle->len)
        return SIZE_MAX;
    if (needle->len == 0)
        return from;
    const char *p = memmem(s->data + from, s->len - from, needle->data, needle->len);
    return p != NULL ? (size_t)(p - s->data) : SIZE_MAX;
}
