/* What the terminal can do: width, colors (honors NO_COLOR, --color, TERM=dumb). */
#ifndef AX_BASE_TERM_H
#define AX_BASE_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

enum ax_color_mode { AX_COLOR_AUTO, AX_COLOR_ALWAYS, AX_COLOR_NEVER };

bool ax_term_is_tty(int fd);
int ax_term_width(int fd);       /* columns; 80 where unknown */
int ax_term_height(int fd);      /* rows; 24 if unknown */
bool ax_term_has_cursor(int fd); /* a terminal that can overwrite its last line */
/* Shows "answers 3/17" in the last line of stderr, and removes it when all are done; only on a
 * terminal. */
void ax_term_progress(const char *what, int64_t done, int64_t of);
/* "auto", "always" or "never"; AX_ERR_CONFIG names `option` and the word. */
enum ax_status ax_color_mode_parse(const char *option, const char *word, enum ax_color_mode *mode);
/* The i-th of these words; NULL after the last. */
const char *ax_color_mode_word(size_t i);
bool ax_term_use_color(int fd, enum ax_color_mode mode);

/* Appends text that must not control a terminal: control characters but tab and line feed are shown as
 * control pictures, and those from U+0080 to U+009F, which have none, as U+FFFD. */
enum ax_status ax_term_safe(struct ax_buf *out, const char *s, size_t n);
/* Prints text of others on standard output, so if it is a terminal, else as it is. */
enum ax_status ax_term_print(const char *s, size_t n);

/* AX_ERR_STORAGE, AX_ERR_IO: what was printed has not all arrived, though somebody reads it. */
enum ax_status ax_flush_stdout(void);
/* True if what was printed has not all arrived because its reader has gone (`| head -1`). */
bool ax_stdout_is_left(void);

#endif
