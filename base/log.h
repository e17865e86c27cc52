/* Log lines on stderr: "level message key=value …". The level is the program's only global. */
#ifndef AX_BASE_LOG_H
#define AX_BASE_LOG_H

#include <stdbool.h>

enum ax_log_level { AX_LOG_ERROR, AX_LOG_WARN, AX_LOG_INFO, AX_LOG_DEBUG };

#define AX_LOG_LINE 4096 /* bytes of a line at most, with its newline */

void ax_log_set_level(enum ax_log_level level);
enum ax_log_level ax_log_get_level(void);
/* One full line per call, written with one write(2); adds the newline. A long line loses its middle. Never
 * fails. */
void ax_log(enum ax_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define ax_log_error(...) ax_log(AX_LOG_ERROR, __VA_ARGS__)
#define ax_log_warn(...)  ax_log(AX_LOG_WARN, __VA_ARGS__)
#define ax_log_info(...)  ax_log(AX_LOG_INFO, __VA_ARGS__)
#define ax_log_debug(...) ax_log(AX_LOG_DEBUG, __VA_ARGS__)

#endif
