/* Texts that people see, in buffers of fixed size. A text that is too long loses its middle: it begins with what it
 * is about and ends with what to do; of more than 16 KiB, the end is lost, too. Access tokens (hf_…, ghp_…,
 * github_pat_…, sk-…) are masked first. Never fails. */
#ifndef AX_BASE_FIT_H
#define AX_BASE_FIT_H

#include <stdarg.h>
#include <stddef.h>

/* `out` may be an argument; size: at least 8. Characters stay complete. */
void ax_fit(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void ax_vfit(char *out, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

#endif
