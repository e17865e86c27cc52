/* Reads a text from the terminal: editing, history, several lines, pasted text as it is.
 *
 * Reading order: this file, line_edit.c (keys and what they do), line_text.h (changes and places),
 * line_draw.c (what is seen), line_history.h (earlier texts), term.h (how the terminal treats what
 * is typed). */
#ifndef AX_BASE_LINE_EDIT_H
#define AX_BASE_LINE_EDIT_H

#include "base/line_history.h"
#include "base/mem.h"

#define AX_LINE_MAX ((size_t)1 << 20) /* bytes of a text; what is typed beyond is refused */

enum ax_line_end {
    AX_LINE_TEXT,      /* Enter */
    AX_LINE_INTERRUPT, /* Ctrl-C; the text is what was discarded */
    AX_LINE_EOF        /* Ctrl-D on an empty text, or the terminal is gone */
};

/* Does Enter end this text? −1: yes. n ≥ 0: no, it continues on a new line without its last n
 * bytes. */
typedef int ax_line_more(const char *text, size_t len);

struct ax_line_edit {
    const char *prompt; /* ASCII, before the first line */
    ax_line_more *more; /* NULL: Enter always ends */
    struct ax_line_history history;

    struct ax_buf text; /* UTF-8, lines separated by \n */
    size_t cursor;      /* byte in text */
    /* private */
    struct ax_buf draft, killed; /* the new text while an earlier one is shown; for Ctrl-Y */
    size_t entry;                /* of the history that is shown; history.n: the new text */
    int row;                     /* of the cursor on the screen, from the first drawn one */
    unsigned char in[1024];      /* bytes read and not yet used */
    size_t n_in, used;
};
/* Reads a text into e->text. The terminal's input is AX_TERM_KEYS meanwhile and AX_TERM_QUIET
 * after, so that what is typed before the next call is not echoed, and is read then. */
enum ax_status ax_line_edit_read(struct ax_line_edit *e, enum ax_line_end *end);
void ax_line_edit_free(struct ax_line_edit *e); /* the terminal is as found; the history closed */

#endif
