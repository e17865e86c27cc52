#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fit.h"
#include "base/mem_guard.h"
#include "base/status.h"
#include "base/term.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static _Atomic int log_level = AX_LOG_INFO;

void ax_log_set_level(enum ax_log_level level) {
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

enum ax_log_level ax_log_get_level(void) {
    return (enum ax_log_level)atomic_load_explicit(&log_level, memory_order_relaxed);
}

void ax_log(enum ax_log_level level, const char *fmt, ...) {
    if (level > ax_log_get_level())
        return;
    int saved_errno = errno;
    char line[AX_LOG_LINE];
    /* a progress bar may be on the terminal's last line: the message replaces it */
    const char *clear = ax_term_has_cursor(STDERR_FILENO) ? "\r\x1b[K" : "";
    size_t n = (size_t)snprintf(line, sizeof line, "%s%s ", clear, level_names[level]);
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(line + n, sizeof line - n, fmt, ap);
    va_end(ap);
    n += strlen(line + n);
    /* tests ask that no part is missing at its end, such as the text of an error that there was not */
    AX_ASSERT(line[n - 1] != ' ' || !ax_mem_is_guarded());
    line[n++] = '\n'; /* replaces the NUL */
    ssize_t w;
    do {
        w = write(STDERR_FILENO, line, n);
    } while (w < 0 && errno == EINTR);
    errno = saved_errno;
}
