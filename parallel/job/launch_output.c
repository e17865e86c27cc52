/* Lines of ranks: prefixed with the rank, or held until it is known that they matter. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "parallel/job/launch.h"

static void print_line(int target, int rank, const char *line, size_t n) {
    char out[4096 + 32];
    int len = snprintf(out, sizeof out, "[%d] %.*s\n", rank, (int)n, line);
    for (int at = 0; at < len;) {
        const ssize_t w = write(target, out + at, (size_t)(len - at));
        if (w < 0 && errno != EINTR)
            return; /* nobody reads it */
        at += w > 0 ? (int)w : 0;
    }
}

/* Keeps the last lines that fit. */
static void hold(struct ax_launch_stream *s, const char *line, size_t n) {
    while (s->n_held + n + 1 > sizeof s->held) {
        const char *end = memchr(s->held, '\n', s->n_held);
        const size_t first = end ? (size_t)(end - s->held) + 1 : s->n_held;
        memmove(s->held, s->held + first, s->n_held - first);
        s->n_held -= first;
    }
    memcpy(s->held + s->n_held, line, n);
    s->held[s->n_held + n] = '\n';
    s->n_held += n + 1;
}

static void take_line(struct ax_launch_stream *s, int rank, const char *line, size_t n) {
    if (s->target >= 0)
        print_line(s->target, rank, line, n);
    else
        hold(s, line, n);
}

static void take_lines(struct ax_launch_stream *s, int rank, bool last) {
    size_t at = 0;
    for (const char *end; (end = memchr(s->line + at, '\n', s->len - at));) {
        take_line(s, rank, s->line + at, (size_t)(end - s->line) - at);
        at = (size_t)(end - s->line) + 1;
    }
    const bool full = at == 0 && s->len == sizeof s->line - 1;
    if ((last || full) && s->len > at) {
        take_line(s, rank, s->line + at, s->len - at);
        at = s->len;
    }
    memmove(s->line, s->line + at, s->len - at);
    s->len -= at;
}

bool ax_launch_stream_read(struct ax_launch_stream *s, int rank) {
    const ssize_t n = read(s->fd, s->line + s->len, sizeof s->line - 1 - s->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    s->len += n > 0 ? (size_t)n : 0;
    take_lines(s, rank, n <= 0);
    return n > 0;
}

void ax_launch_stream_tell(struct ax_launch_stream *s, int rank) {
    for (size_t at = 0; at < s->n_held;) {
        const char *line = s->held + at, *end = memchr(line, '\n', s->n_held - at);
        print_line(STDERR_FILENO, rank, line, (size_t)(end - line));
        at += (size_t)(end - line) + 1;
    }
    s->n_held = 0;
}
