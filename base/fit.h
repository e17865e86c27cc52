/* Texts that people see, in buffers of fixed size. A text that is too long loses its middle: it begins with what it
 * is about and ends with what to do. Tokens are masked before. Never fails. */
#ifndef AX_BASE_FIT_H
#define AX_BASE_FIT_H

#include <stdarg.h>
#include <stddef.h>

/* `out` may be an argument. Characters stay complete. */
void ax_fit(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void ax_vfit(char *out, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

#endif
