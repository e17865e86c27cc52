#include "base/line/line_text.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/text/unicode.h"

enum ax_status ax_line_insert(struct ax_line_edit *e, const char *s, size_t n) {
    if (n > AX_LINE_MAX - e->text.len) {
        fputs("\a", stdout);
        return AX_OK;
    }
    AX_TRY(ax_buf_append(&e->text, s, n)); /* only makes space, at the end */
    char *at = e->text.data + e->cursor;
    memmove(at + n, at, e->text.len - n - e->cursor);
    memcpy(at, s, n);
    e->cursor += n;
    return AX_OK;
}

enum ax_status ax_line_set(struct ax_line_edit *e, const char *text) {
    e->text.len = e->cursor = 0;
    AX_TRY(ax_buf_append(&e->text, text, strlen(text)));
    e->cursor = e->text.len;
    return AX_OK;
}

enum ax_status ax_line_cut(struct ax_line_edit *e, size_t from, size_t to) {
    memmove(e->text.data + from, e->text.data + to, e->text.len - to);
    e->text.len -= to - from;
    e->text.data[e->text.len] = '\0';
    e->cursor = from;
    return AX_OK;
}

size_t ax_line_start(const struct ax_line_edit *e, size_t at) {
    while (at > 0 && e->text.data[at - 1] != '\n')
        at--;
    return at;
}

size_t ax_line_end(const struct ax_line_edit *e, size_t at) {
    while (at < e->text.len && e->text.data[at] != '\n')
        at++;
    return at;
}

static bool in_word(const struct ax_line_edit *e, size_t at) {
    size_t len;
    return ax_unicode_is_word(ax_utf8_decode((const unsigned char *)e->text.data + at, &len));
}

size_t ax_line_word_start(const struct ax_line_edit *e) {
    size_t at = e->cursor;
    while (at > 0 && !in_word(e, ax_line_previous(e, at)))
        at = ax_line_previous(e, at);
    while (at > 0 && in_word(e, ax_line_previous(e, at)))
        at = ax_line_previous(e, at);
    return at;
}

size_t ax_line_word_end(const struct ax_line_edit *e) {
    size_t at = e->cursor;
    while (at < e->text.len && !in_word(e, at))
        at = ax_line_next(e, at);
    while (at < e->text.len && in_word(e, at))
        at = ax_line_next(e, at);
    return at;
}

int ax_line_columns(uint32_t cp) {
    return cp == '\t' ? AX_LINE_TAB : utf8proc_charwidth((utf8proc_int32_t)cp);
}

size_t ax_line_next(const struct ax_line_edit *e, size_t at) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    const bool newline = at < e->text.len && s[at] == '\n';
    for (size_t len; at < e->text.len;) {
        (void)ax_utf8_decode(s + at, &len);
        at += len;
        if (newline || at == e->text.len || s[at] == '\n' || s[at] == '\t' ||
            ax_line_columns(ax_utf8_decode(s + at, &len)) > 0)
            break;
    }
    return at;
}

size_t ax_line_previous(const struct ax_line_edit *e, size_t at) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    for (size_t len; at > 0;) {
        const uint32_t cp = ax_utf8_decode_before(s + at, &len);
        at -= len;
        if (cp == '\n' || ax_line_columns(cp) > 0)
            break;
    }
    return at;
}
