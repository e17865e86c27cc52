/* Libraries that are opened when they are first needed: what is rarely used costs no start-up time,
 * and a machine without it runs everything else. */
#ifndef AX_BASE_DYNLIB_H
#define AX_BASE_DYNLIB_H

#include <stddef.h>

#include "base/status.h"

/* A function of the library, and the function pointer that gets it. */
struct ax_symbol {
    const char *name;
    void *slot; /* T (**)(…) */
};

/* Opens the first of the NULL-terminated names (file names for the loader, or paths) that is there,
 * and fills in all slots. It stays open until the process ends. AX_ERR_UNSUPPORTED says what the
 * loader said; nothing is known then about the slots. */
enum ax_status ax_library_open(const char *const *names, const struct ax_symbol *symbols, size_t n);

#endif
