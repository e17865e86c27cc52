/* A text that a test makes, compared with the file that keeps it: what differs is shown, and if it is intended,
 * AX_UPDATE=1 writes the file, for git to show. Include after cmocka.h. */
#ifndef AX_TESTS_RECORD_H
#define AX_TESTS_RECORD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

static inline void record_put(struct ax_buf *out, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_int_equal(ax_buf_puts(out, line), AX_OK);
}

/* Lines that do not begin with a blank are titles, up to their comma. */
static inline void record_compare(const char *path, struct ax_buf *now) {
    char *all, title[64] = "";
    size_t len;
    if (getenv("AX_UPDATE"))
        assert_int_equal(ax_write_file_atomic(path, now->data, now->len), AX_OK);
    assert_int_equal(ax_read_file(path, 1 << 20, &all, &len), AX_OK);
    for (const char *got = now->data, *want = all; *got || *want;) {
        const int n = (int)strcspn(got, "\n"), m = (int)strcspn(want, "\n");
        if (*got != ' ')
            snprintf(title, sizeof title, "%.*s", (int)strcspn(got, ",\n"), got);
        if (n != m || memcmp(got, want, (size_t)n) != 0)
            fail_msg("%s, at %s:\nrecorded %.*s\nnow      %.*s\nAX_UPDATE=1 records it", path,
                     title, m, want, n, got);
        got += n + (got[n] == '\n');
        want += m + (want[m] == '\n');
    }
    ax_free(all);
    ax_buf_free(now);
}

#endif
