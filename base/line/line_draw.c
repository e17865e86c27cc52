/* Draws the text: lines wider than the screen are wrapped, and if the text is higher than the
 * screen, only the rows around the cursor are drawn. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/line/line_text.h"
#include "base/term.h"
#include "base/text/unicode.h"

struct place {
    int row, column;
};

/* True if a character does not fit into the rest of the row. The last column stays empty, since
 * terminals differ in where the cursor is after writing to it. */
static bool wraps(struct place p, int columns, int width) {
    return p.column + columns >= width;
}

static struct place newline(struct place p, const struct ax_line_edit *e) {
    return (struct place){p.row + 1, (int)strlen(e->prompt)};
}

/* The place of the character at byte `at`. */
static struct place find(const struct ax_line_edit *e, size_t at, int width) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    struct place p = {0, (int)strlen(e->prompt)};
    for (size_t i = 0, len; i < e->text.len; i += len) {
        const uint32_t cp = ax_utf8_decode(s + i, &len);
        const int columns = ax_line_columns(cp);
        if (cp != '\n' && wraps(p, columns, width))
            p = (struct place){p.row + 1, 0};
        if (i >= at)
            return p;
        if (cp == '\n')
            p = newline(p, e);
        else
            p.column += columns;
    }
    return wraps(p, 1, width) ? (struct place){p.row + 1, 0} : p;
}

/* Appends rows [first, first + height) to b; *last is the place after the last one drawn. */
static enum ax_status put_rows(const struct ax_line_edit *e, int width, int first, int height,
                               struct ax_buf *b, struct place *last) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    const int indent = (int)strlen(e->prompt);
    struct place p = {0, indent};
    if (first == 0)
        AX_TRY(ax_buf_puts(b, e->prompt));
    for (size_t i = 0, len = 0; i <= e->text.len; i += len) {
        const bool end = i == e->text.len;
        const uint32_t cp = end ? ' ' : ax_utf8_decode(s + i, &len);
        const bool broken = cp != '\n' && wraps(p, ax_line_columns(cp), width);
        struct place next = cp == '\n' ? newline(p, e) : (struct place){p.row + broken, 0};
        if (next.row >= first + height)
            break;
        if (next.row > p.row && next.row > first)
            AX_TRY(ax_buf_puts(b, "\r\n"));
        if (next.row > p.row && next.row >= first && cp == '\n')
            AX_TRY(ax_buf_printf(b, "%*s", indent, indent > 1 ? "| " : ""));
        if (cp != '\n') {
            next.column = (broken ? 0 : p.column) + (end ? 0 : ax_line_columns(cp));
            if (!end && next.row >= first && cp == '\t')
                AX_TRY(ax_buf_printf(b, "%*s", AX_LINE_TAB, ""));
            else if (!end && next.row >= first)
                AX_TRY(ax_buf_append(b, s + i, len));
        }
        p = next;
        if (end)
            break;
    }
    *last = p;
    return AX_OK;
}

enum ax_status ax_line_draw(struct ax_line_edit *e) {
    const int width = ax_term_width(STDOUT_FILENO) < 8 ? 8 : ax_term_width(STDOUT_FILENO);
    const int height = ax_term_height(STDOUT_FILENO) < 2 ? 2 : ax_term_height(STDOUT_FILENO);
    const struct place cursor = find(e, e->cursor, width);
    const int first = cursor.row < height ? 0 : cursor.row - height + 1;
    struct place last;
    struct ax_buf b = {0};
    enum ax_status st = ax_buf_puts(&b, "\r");
    if (st == AX_OK && e->row > 0)
        st = ax_buf_printf(&b, "\x1b[%dA", e->row);
    if (st == AX_OK)
        st = ax_buf_puts(&b, "\x1b[J");
    if (st == AX_OK)
        st = put_rows(e, width, first, height, &b, &last);
    if (st == AX_OK && last.row > cursor.row)
        st = ax_buf_printf(&b, "\x1b[%dA", last.row - cursor.row);
    if (st == AX_OK)
        st = ax_buf_puts(&b, "\r");
    if (st == AX_OK && cursor.column > 0)
        st = ax_buf_printf(&b, "\x1b[%dC", cursor.column);
    if (st == AX_OK && (fwrite(b.data, 1, b.len, stdout) != b.len || fflush(stdout) != 0))
        st = ax_error(AX_ERR_IO, "standard output: %m");
    e->row = cursor.row - first;
    ax_buf_free(&b);
    return st;
}
