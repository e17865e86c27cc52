/* The growable byte string of mem.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Reserves n more bytes and the NUL. Doubling keeps the sum of all copies linear. */
static enum ax_status reserve(struct ax_buf *b, size_t n) {
    if (n > (size_t)PTRDIFF_MAX - b->len - 1) {
        return ax_error(AX_ERR_NOMEM, "out of memory: could not allocate %zu bytes after %zu", n,
                        b->len);
    }
    size_t need = b->len + n + 1;
    if (need <= b->cap)
        return AX_OK;
    size_t cap = 64;
    while (cap < need)
        cap *= 2;
    AX_TRY(ax_regrow(&b->data, b->cap, cap, 1));
    b->cap = cap;
    return AX_OK;
}

enum ax_status ax_buf_append(struct ax_buf *b, const void *data, size_t n) {
    AX_TRY(reserve(b, n));
    if (n > 0)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return AX_OK;
}

enum ax_status ax_buf_puts(struct ax_buf *b, const char *s) {
    return ax_buf_append(b, s, strlen(s));
}

enum ax_status ax_buf_printf(struct ax_buf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    AX_ASSERT(n >= 0);
    enum ax_status st = reserve(b, (size_t)n);
    if (st == AX_OK) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return st;
}

void ax_buf_free(struct ax_buf *b) {
    ax_free(b->data);
    *b = (struct ax_buf){0};
}
