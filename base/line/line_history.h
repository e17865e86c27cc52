/* Earlier input, newest last: in memory, and in a file that only its owner can read. */
#ifndef AX_BASE_LINE_LINE_HISTORY_H
#define AX_BASE_LINE_LINE_HISTORY_H

#include <stddef.h>

#include "base/status.h"

#define AX_LINE_HISTORY_TEXTS ((size_t)1000)     /* the oldest are dropped */
#define AX_LINE_HISTORY_TEXT  ((size_t)64 << 10) /* in bytes; a longer text is not kept */
#define AX_LINE_HISTORY_FILE  ((size_t)1 << 20)  /* a longer file is cut to its newest half */

struct ax_line_history {
    char *path; /* NULL: in memory only */
    char **texts;
    size_t n;
};
/* Reads the file, one JSON string per line; skips other lines; a missing file is empty. path NULL:
 * no file. After a failure h is empty and keeps texts only in memory. */
enum ax_status ax_line_history_open(struct ax_line_history *h, const char *path);
/* Adds a text, unless it equals the newest one, and appends it to the file, whose folder is created
 * if needed. If that fails, h still has it in memory. */
enum ax_status ax_line_history_add(struct ax_line_history *h, const char *text);
void ax_line_history_close(struct ax_line_history *h); /* safe on a zeroed one */

#endif
