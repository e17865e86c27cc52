/* Names, numbers and string literals inside tags; for lex.c. */
#ifndef AX_DATA_TEXT_JINJA_LEX_LITERAL_H
#define AX_DATA_TEXT_JINJA_LEX_LITERAL_H

#include "data/text/jinja/ast.h"

/* Each reads a literal at pos and sets *end after it; *end = pos if there is none. */
enum ax_status ax_jlex_number(struct ax_jtree *t, int line, const char *s, size_t len, size_t pos,
                              struct ax_jtoken *out, size_t *end);
enum ax_status ax_jlex_name(struct ax_jtree *t, const char *s, size_t len, size_t pos,
                            struct ax_jtoken *out, size_t *end);
/* The text of a string literal between its quotes (escapes as in Python). */
enum ax_status ax_jlex_string(struct ax_jtree *t, int line, const char *s, size_t len,
                              struct ax_jstr **out);
/* Position after the quote that closes the one at pos, or 0. */
size_t ax_jlex_string_end(const char *s, size_t len, size_t pos);

#endif
