/* Small kernel files (/proc, /sys): read without heap and without fault points, because asking how
 * much memory is in use must not change what a fault sweep counts. */
#ifndef AX_BASE_PROC_H
#define AX_BASE_PROC_H

#include <stdbool.h>
#include <stddef.h>

/* Reads up to size-1 bytes of path into buf and ends them with NUL; false where it cannot. */
bool ax_proc_read(const char *path, char *buf, size_t size);

#endif
