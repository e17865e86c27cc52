/* What was typed earlier, newest last: in memory, and in a file that only its owner can read. */
#ifndef AX_BASE_LINE_HISTORY_H
#define AX_BASE_LINE_HISTORY_H

#include <stddef.h>

#include "base/status.h"

#define AX_LINE_HISTORY_TEXTS ((size_t)1000)     /* the oldest are dropped */
#define AX_LINE_HISTORY_TEXT  ((size_t)64 << 10) /* bytes; a longer text is not kept */
#define AX_LINE_HISTORY_FILE  ((size_t)1 << 20)  /* a longer file is cut to its newest half */

struct ax_line_history {
    char *path; /* NULL: in memory only */
    char **texts;
    size_t n;
};
/* Reads the file: one JSON string per line; other lines are skipped, a missing file is empty. NULL:
 * no file. On failure h is empty and keeps texts in memory only. */
enum ax_status ax_line_history_open(struct ax_line_history *h, const char *path);
/* Adds a text unless it repeats the newest, and appends it to the file, creating its folder. On
 * failure of the file, h continues in memory. */
enum ax_status ax_line_history_add(struct ax_line_history *h, const char *text);
void ax_line_history_close(struct ax_line_history *h); /* safe on a zeroed one */

#endif
