/* Reads a text from the terminal: editing, history, several lines, pasted text unchanged.
 *
 * Reading order: this file, line_edit.c, line_history.h (earlier texts), term_input.h (input modes of
 * the terminal). */
#ifndef AX_BASE_LINE_LINE_EDIT_H
#define AX_BASE_LINE_LINE_EDIT_H

#include "base/line/line_history.h"
#include "base/mem.h"

#define AX_LINE_MAX ((size_t)1 << 20) /* bytes of a text; more is rejected */

enum ax_line_end {
    AX_LINE_TEXT,      /* Enter */
    AX_LINE_INTERRUPT, /* Ctrl-C; the text is the discarded one */
    AX_LINE_EOF        /* Ctrl-D on an empty text, or the terminal is gone */
};

/* Whether Enter ends the text: −1 if it does; n ≥ 0 if the text continues on a new line, without
 * its last n bytes. */
typedef int ax_line_more(const char *text, size_t len);

struct ax_line_edit {
    const char *prompt; /* ASCII, before the first line */
    ax_line_more *more; /* NULL: Enter always ends the text */
    struct ax_line_history history;

    struct ax_buf text; /* UTF-8, lines separated by \n */
    size_t cursor;      /* byte offset in text */
    /* private */
    struct ax_buf draft;    /* new text while an earlier one is shown */
    size_t entry;           /* shown entry of the history; history.n: the new text */
    int row;                /* cursor's row on the screen, counted from the first drawn one */
    unsigned char in[1024]; /* bytes read but not yet used */
    size_t n_in, used;
};
/* Reads a text into e->text. Sets the terminal's input to AX_TERM_KEYS, and to AX_TERM_QUIET
 * afterwards: what is typed before the next call is not echoed, but read by that call. */
enum ax_status ax_line_edit_read(struct ax_line_edit *e, enum ax_line_end *end);
void ax_line_edit_free(struct ax_line_edit *e); /* restores the terminal and closes the history */

#endif
