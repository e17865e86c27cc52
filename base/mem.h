/* Counted heap allocation with a fault point ("malloc") and checked sizes.
 *
 * All heap allocation of the program goes through here (jansson's too), so that tests can fail each
 * call and debug builds can assert that a running step allocates nothing. */
#ifndef AX_BASE_MEM_H
#define AX_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* *(T **)out = n zeroed elements of `size` bytes (64-byte aligned). n*size is checked for overflow;
 * n = 0 gives a valid pointer. AX_ERR_NOMEM names the bytes requested. `out` is untouched on
 * failure. */
enum ax_status ax_alloc(void *out, size_t n, size_t size);
/* Grows *(T **)inout from old_n to n elements, keeping contents and zeroing the new part. */
enum ax_status ax_regrow(void *inout, size_t old_n, size_t n, size_t size);
/* Space for one more than n elements in *(T **)inout, a list that has space for *cap and doubles when it is full. What
 * is behind the n elements is zero. On failure nothing has changed. */
enum ax_status ax_grow(void *inout, size_t n, size_t *cap, size_t size);
void ax_free(void *p); /* NULL is fine */

/* *(T **)out = `bytes` uninitialized bytes, in huge pages if available: for large copies, where
 * faulting in small pages costs more than the copy. */
enum ax_status ax_alloc_huge(void *out, size_t bytes);
enum ax_status ax_strdup(char **out, const char *s);
enum ax_status ax_strndup(char **out, const char *s, size_t n);
enum ax_status ax_sprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool ax_mul_overflow(size_t a, size_t b, size_t *out);
/* product of n non-negative sizes; AX_ERR_DATA if it exceeds INT64_MAX, even if a size is 0. */
enum ax_status ax_product(const int64_t *v, int n, int64_t *out);

/* Process totals since start: calls of ax_alloc/ax_regrow and friends, and blocks alive now. */
uint64_t ax_mem_calls(void);
uint64_t ax_mem_live_blocks(void);

/* malloc/free with the same counting, for libraries that take hooks; NULL on failure. */
void *ax_malloc_hook(size_t n);
void ax_free_hook(void *p);

/* A growable byte string. Zero-initialize; ax_buf_free when done. data is NUL-terminated. */
struct ax_buf {
    char *data;
    size_t len, cap;
};
enum ax_status ax_buf_append(struct ax_buf *b, const void *data, size_t n);
enum ax_status ax_buf_puts(struct ax_buf *b, const char *s);
enum ax_status ax_buf_printf(struct ax_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void ax_buf_free(struct ax_buf *b);

/* Peak resident set of this process in bytes (VmHWM), and the current one (VmRSS). 0 if unknown. */
uint64_t ax_mem_peak_rss(void);
uint64_t ax_mem_rss(void);
uint64_t ax_mem_minor_faults(void); /* getrusage ru_minflt */

#endif
