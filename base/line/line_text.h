/* The text of a line editor: changes to it, and positions in it. Private to the line editor. */
#ifndef AX_BASE_LINE_LINE_TEXT_H
#define AX_BASE_LINE_LINE_TEXT_H

#include "base/line/line_edit.h"

#define AX_LINE_TAB 4 /* columns per tab */

/* Inserts at the cursor and moves it; rejects a text that would exceed AX_LINE_MAX, with a bell. */
enum ax_status ax_line_insert(struct ax_line_edit *e, const char *s, size_t n);
enum ax_status ax_line_set(struct ax_line_edit *e, const char *text); /* cursor at the end */
/* Removes [from, to). */
enum ax_status ax_line_cut(struct ax_line_edit *e, size_t from, size_t to);

/* Start and end of the line that contains byte `at`; of the word before and after the cursor. */
size_t ax_line_start(const struct ax_line_edit *e, size_t at);
size_t ax_line_end(const struct ax_line_edit *e, size_t at);
size_t ax_line_word_start(const struct ax_line_edit *e);
size_t ax_line_word_end(const struct ax_line_edit *e);

/* Start of the next or previous character (with its combining marks). */
size_t ax_line_next(const struct ax_line_edit *e, size_t at);
size_t ax_line_previous(const struct ax_line_edit *e, size_t at);
int ax_line_columns(uint32_t cp); /* columns on the screen; not for \n */

/* Draws the text over the previous drawing. */
enum ax_status ax_line_draw(struct ax_line_edit *e);

#endif
