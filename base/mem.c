/* The only access to the heap. Read ax_alloc first; the rest uses raw_alloc. */
#include "base/mem.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem_guard.h"

/* A cache line, and the width of the widest vector load. */
#define ALIGNMENT ((size_t)64)
/* The address space of a process: requests beyond it cannot succeed, so none is made. */
#define MAX_BYTES ((size_t)1 << 47)

static _Atomic uint64_t calls, live_blocks;

static bool fault_says_no(void) {
    return ax_fault_point(AX_FAULT_MALLOC) != AX_FAULT_NONE;
}

static void *counted(void *p) {
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (p != NULL)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

/* Not zeroed, aligned, and of a size that is a multiple of the alignment; NULL on failure. */
static void *raw_alloc(size_t alignment, size_t bytes) {
    if (fault_says_no() || bytes > MAX_BYTES)
        return counted(NULL);
    if (ax_mem_is_guarded())
        return counted(ax_guarded_alloc(alignment, bytes));
    size_t rounded = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
    return counted(aligned_alloc(alignment, rounded));
}

static enum ax_status no_memory(size_t bytes) {
    char text[32];
    return ax_error(AX_ERR_NOMEM, "out of memory: could not allocate %s (%zu bytes)",
                    ax_format_bytes(text, sizeof text, (double)bytes), bytes);
}

static enum ax_status checked_bytes(size_t n, size_t size, size_t *bytes) {
    if (ax_mul_overflow(n, size, bytes)) {
        return ax_error(AX_ERR_NOMEM, "out of memory: could not allocate %zu elements of %zu bytes",
                        n, size);
    }
    return AX_OK;
}

enum ax_status ax_alloc(void *out, size_t n, size_t size) {
    size_t bytes;
    AX_TRY(checked_bytes(n, size, &bytes));
    void *p = raw_alloc(ALIGNMENT, bytes);
    if (p == NULL)
        return no_memory(bytes);
    memset(p, 0, bytes);
    memcpy(out, &p, sizeof p); /* out is a T **: copied, so that any T is allowed */
    return AX_OK;
}

enum ax_status ax_alloc_huge(void *out, size_t bytes) {
    const size_t page = (size_t)2 << 20;
    void *p = raw_alloc(page, bytes);
    if (p == NULL)
        return no_memory(bytes);
    madvise(p, bytes, MADV_HUGEPAGE); /* advice: a kernel without them is fine */
    memcpy(out, &p, sizeof p);
    return AX_OK;
}

enum ax_status ax_regrow(void *inout, size_t old_n, size_t n, size_t size) {
    AX_ASSERT(old_n <= n);
    void *old;
    memcpy(&old, inout, sizeof old);
    size_t bytes;
    AX_TRY(checked_bytes(n, size, &bytes));
    void *p = raw_alloc(ALIGNMENT, bytes);
    if (p == NULL)
        return no_memory(bytes);
    size_t kept = old_n * size;
    if (kept > 0)
        memcpy(p, old, kept);
    memset((char *)p + kept, 0, bytes - kept);
    ax_free(old);
    memcpy(inout, &p, sizeof p);
    return AX_OK;
}

enum ax_status ax_grow(void *inout, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return AX_OK;
    const size_t more = n > 0 ? 2 * n : 16;
    AX_TRY(ax_regrow(inout, n, more, size));
    *cap = more;
    return AX_OK;
}

void ax_free(void *p) {
    if (p != NULL) {
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
        if (ax_mem_is_guarded())
            ax_guarded_free(p);
        else
            free(p);
    }
}

void *ax_malloc_hook(size_t n) {
    if (fault_says_no())
        return counted(NULL);
    return counted(ax_mem_is_guarded() ? ax_guarded_alloc(alignof(max_align_t), n)
                                       : malloc(n > 0 ? n : 1));
}

void ax_free_hook(void *p) {
    ax_free(p);
}

enum ax_status ax_strdup(char **out, const char *s) {
    return ax_strndup(out, s, strlen(s));
}

enum ax_status ax_strndup(char **out, const char *s, size_t n) {
    n = strnlen(s, n);
    char *copy;
    AX_TRY(ax_alloc(&copy, n + 1, 1));
    memcpy(copy, s, n);
    *out = copy;
    return AX_OK;
}

enum ax_status ax_sprintf(char **out, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    AX_ASSERT(n >= 0);
    char *text = NULL;
    enum ax_status st = ax_alloc(&text, (size_t)n + 1, 1);
    if (st == AX_OK) {
        vsnprintf(text, (size_t)n + 1, fmt, again);
        *out = text;
    }
    va_end(again);
    return st;
}

bool ax_mul_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}

enum ax_status ax_product(const int64_t *v, int n, int64_t *out) {
    int64_t product = 1;
    bool zero = false;
    for (int i = 0; i < n; i++) {
        if (v[i] < 0)
            return ax_error(AX_ERR_DATA, "size %lld is negative", (long long)v[i]);
        if (v[i] == 0)
            zero = true;
        else if (__builtin_mul_overflow(product, v[i], &product))
            return ax_error(AX_ERR_DATA, "the product of %d sizes exceeds 2^63", n);
    }
    *out = zero ? 0 : product;
    return AX_OK;
}

uint64_t ax_mem_calls(void) {
    return atomic_load_explicit(&calls, memory_order_relaxed);
}

uint64_t ax_mem_live_blocks(void) {
    return atomic_load_explicit(&live_blocks, memory_order_relaxed);
}
