/* Time: monotonic seconds for durations, and small formatters for people. */
#ifndef AX_BASE_CLOCK_H
#define AX_BASE_CLOCK_H

#include <stddef.h>

double ax_clock_now(void); /* monotonic, seconds */
/* Seconds since this process was started, at the kernel's resolution of 1/100 s; NaN if /proc does
 * not say. */
double ax_clock_since_start(void);

/* "1.50 GiB", "3m 20s", "12.3 G"; written to buf, returned. */
const char *ax_format_bytes(char *buf, size_t size, double bytes);
const char *ax_format_seconds(char *buf, size_t size, double seconds);
const char *ax_format_count(char *buf, size_t size, double count);

#endif
