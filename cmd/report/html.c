#include "cmd/report/html.h"

#include <stdarg.h>
#include <string.h>
#include <utf8proc.h>

static const char *reference(utf8proc_int32_t c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return (c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7f && c < 0xa0) ? "\xef\xbf\xbd"
                                                                               : NULL;
    }
}

/* Appends text for content and quoted attributes: & < > " ' become references; invalid UTF-8 and
 * control characters other than tab and newline become U+FFFD. */
static enum ax_status put_text(struct ax_buf *out, const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        utf8proc_int32_t c = -1;
        const utf8proc_ssize_t read =
            utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)left, &c);
        const size_t n = read > 0 ? (size_t)read : 1;
        const char *instead = read > 0 ? reference(c) : "\xef\xbf\xbd";
        AX_TRY(instead ? ax_buf_puts(out, instead) : ax_buf_append(out, text, n));
        text += n;
        left -= n;
    }
    return AX_OK;
}

enum ax_status ax_html_put(struct ax_buf *out, const char *markup, ...) {
    enum ax_status st = AX_OK;
    va_list ap;
    va_start(ap, markup);
    while (st == AX_OK && *markup) {
        const size_t n = strcspn(markup, "%");
        st = ax_buf_append(out, markup, n);
        markup += n;
        if (st != AX_OK || !*markup)
            break;
        const char *text = va_arg(ap, const char *);
        st = put_text(out, text ? text : "\xe2\x80\x93");
        markup++;
    }
    va_end(ap);
    return st;
}
