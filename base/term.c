#include "base/term.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/io_sys.h"

bool ax_term_is_tty(int fd) {
    return isatty(fd) == 1;
}

int ax_term_width(int fd) {
    struct winsize w;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return 80;
}

int ax_term_height(int fd) {
    struct winsize w;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row > 0)
        return w.ws_row;
    return 24;
}

bool ax_term_has_cursor(int fd) {
    const char *term = getenv("TERM");
    return term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0 && ax_term_is_tty(fd);
}

bool ax_term_use_color(int fd, enum ax_color_mode mode) {
    if (mode != AX_COLOR_AUTO)
        return mode == AX_COLOR_ALWAYS;
    const char *no_color = getenv("NO_COLOR");
    if (no_color != NULL && no_color[0] != '\0')
        return false;
    return ax_term_has_cursor(fd);
}

static const char *const color_words[] = {
    [AX_COLOR_AUTO] = "auto", [AX_COLOR_ALWAYS] = "always", [AX_COLOR_NEVER] = "never"};

const char *ax_color_mode_word(size_t i) {
    return i <= AX_COLOR_NEVER ? color_words[i] : NULL;
}

enum ax_status ax_color_mode_parse(const char *option, const char *word, enum ax_color_mode *mode) {
    for (int i = AX_COLOR_AUTO; i <= AX_COLOR_NEVER; i++) {
        if (strcmp(color_words[i], word) != 0)
            continue;
        *mode = (enum ax_color_mode)i;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG, "%s: expected auto, always or never, got \"%s\"", option, word);
}

void ax_term_progress(const char *what, int64_t done, int64_t of) {
    if (!ax_term_has_cursor(STDERR_FILENO))
        return;
    if (done < of)
        fprintf(stderr, "\r%s %lld/%lld\x1b[K", what, (long long)done, (long long)of);
    else
        fputs("\r\x1b[K", stderr);
}

enum ax_status ax_term_safe(struct ax_buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        const unsigned picture = 0x2400U + (c == 0x7FU ? 0x21U : c);
        const char shown[] = {(char)(0xE0U | picture >> 12), (char)(0x80U | (picture >> 6 & 0x3FU)),
                              (char)(0x80U | (picture & 0x3FU))};
        const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
        if (c == 0xC2 && i + 1 < n && ((unsigned char)s[i + 1] & 0xE0U) == 0x80U) {
            AX_TRY(ax_buf_puts(out, "\xef\xbf\xbd"));
            i++;
            continue;
        }
        AX_TRY(control ? ax_buf_append(out, shown, 3) : ax_buf_append(out, s + i, 1));
    }
    return AX_OK;
}

enum ax_status ax_term_print(const char *s, size_t n) {
    struct ax_buf safe = {0};
    enum ax_status st = AX_OK;
    if (!ax_term_is_tty(STDOUT_FILENO)) {
        fwrite(s, 1, n, stdout);
        return AX_OK;
    }
    st = ax_term_safe(&safe, s, n);
    if (st == AX_OK && safe.len > 0)
        fwrite(safe.data, 1, safe.len, stdout);
    ax_buf_free(&safe);
    return st;
}

/* Does somebody read standard output, or is it no pipe? */
static bool is_read(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) < 0 || (p.revents & POLLERR) == 0;
}

bool ax_stdout_is_left(void) {
    return ferror(stdout) && !is_read();
}

/* A write that failed earlier has left its mark on the stream, and no errno; the next one has the same reason. */
enum ax_status ax_flush_stdout(void) {
    const bool failed = ferror(stdout) != 0;
    int why = fflush(stdout) == 0 ? 0 : errno;
    if (failed && why == 0)
        why = write(STDOUT_FILENO, "", 0) == 0 ? 0 : errno;
    if ((!failed && why == 0) || !is_read())
        return AX_OK;
    errno = why;
    return ax_error(ax_sys_status(), "standard output: %s",
                    why ? strerror(why) : "not all could be written");
}
