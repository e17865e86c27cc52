/* A text that a test makes, compared with the file that keeps it: what differs is shown, and if it is intended,
 * AX_UPDATE=1 writes the file, for git to show. Include after cmocka.h. */
#ifndef AX_TESTS_RECORD_H
#define AX_TESTS_RECORD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

static inline void record_put(struct ax_buf *out, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_int_equal(ax_buf_puts(out, line), AX_OK);
}

static inline bool record_same_line(const char *got, const char *want) {
    const size_t n = strcspn(got, "\n");
    return n == strcspn(want, "\n") && memcmp(got, want, n) == 0;
}

/* Lines that do not begin with a blank are titles. `same`: of two lines, which end in a newline or the text's end. */
static inline void record_compare_by(bool (*same)(const char *got, const char *want),
                                     const char *path, struct ax_buf *now) {
    char *all, title[100] = "";
    size_t len;
    if (getenv("AX_UPDATE"))
        assert_int_equal(ax_write_file_atomic(path, now->data, now->len), AX_OK);
    assert_int_equal(ax_read_file(path, 1 << 22, &all, &len), AX_OK);
    for (const char *got = now->data, *want = all; *got || *want;) {
        const int n = (int)strcspn(got, "\n"), m = (int)strcspn(want, "\n");
        if (*got != ' ')
            snprintf(title, sizeof title, "%.*s", n, got);
        if (!same(got, want))
            fail_msg("%s, at %s:\nrecorded %.*s\nnow      %.*s\nAX_UPDATE=1 records it", path,
                     title, m, want, n, got);
        got += n + (got[n] == '\n');
        want += m + (want[m] == '\n');
    }
    ax_free(all);
    ax_buf_free(now);
}

static inline void record_compare(const char *path, struct ax_buf *now) {
    record_compare_by(record_same_line, path, now);
}

#endif
