/* Libraries opened on first use: rarely used ones cost no start-up time, and everything else runs
 * on machines without them. */
#ifndef AX_BASE_DYNLIB_H
#define AX_BASE_DYNLIB_H

#include <stddef.h>

#include "base/status.h"

/* A function of the library, and the function pointer to set. */
struct ax_symbol {
    const char *name;
    void *slot; /* T (**)(…) */
};

/* Opens the first of the NULL-terminated names (file names for the loader, or paths) that exists,
 * and sets all slots. It stays open until the process ends. AX_ERR_UNSUPPORTED has the loader's
 * message; the slots are then undefined. */
enum ax_status ax_library_open(const char *const *names, const struct ax_symbol *symbols, size_t n);

#endif
