/* What a pseudo-terminal was sent. */
#ifndef AX_TESTS_TERMINAL_TEXT_H
#define AX_TESTS_TERMINAL_TEXT_H

#include <string.h>
#include <unistd.h>

/* All that was written to `slave` before this call, zero-terminated in `text`. A read of `master` gives
 * only what the kernel has passed on so far, so a mark is written after it and waited for. */
static inline void terminal_text(int master, int slave, char *text, size_t size) {
    size_t n = 0;
    assert_int_equal(write(slave, "\x1e", 1), 1);
    while (n == 0 || text[n - 1] != '\x1e') {
        const ssize_t got = read(master, text + n, size - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    text[n - 1] = '\0';
}

#endif
