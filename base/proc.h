/* Small kernel files (/proc, /sys): read without heap or fault points, because querying memory use
 * must not change a fault sweep's counts. */
#ifndef AX_BASE_PROC_H
#define AX_BASE_PROC_H

#include <stdbool.h>
#include <stddef.h>

/* Reads up to size-1 bytes of path into buf and NUL-terminates them; false on failure. */
bool ax_proc_read(const char *path, char *buf, size_t size);

#endif
