#include "base/mem_guard.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* What precedes a block. As many bytes of guard directly follow it. */
struct head {
    void *start; /* of the allocation */
    size_t bytes;
    unsigned char guard[48];
};

enum {
    GUARD = 0xA5,
    FREED = 0xDB,
    MOST_FREED = 4096, /* bytes of a freed block that are overwritten: touching all takes time */
};

bool ax_mem_is_guarded(void) {
#ifdef __SANITIZE_ADDRESS__
    return false; /* the sanitizer has guards of its own */
#endif
    enum { UNKNOWN, NO, YES };
    static _Atomic int known = UNKNOWN;
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == UNKNOWN) {
        is = getenv("AX_CHECK_MEMORY") ? YES : NO;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is == YES;
}

void *ax_guarded_alloc(size_t alignment, size_t bytes) {
    const size_t before = alignment > sizeof(struct head) ? alignment : sizeof(struct head);
    const size_t needed = before + bytes + sizeof(struct head);
    /* aligned_alloc takes several times as long as malloc */
    char *start = alignment <= alignof(max_align_t)
                      ? malloc(needed)
                      : aligned_alloc(alignment, (needed + alignment - 1) / alignment * alignment);
    if (start == NULL)
        return NULL;
    char *p = start + before;
    struct head *h = (struct head *)(void *)(p - sizeof *h);
    h->start = start;
    h->bytes = bytes;
    memset(h->guard, GUARD, sizeof h->guard);
    memset(p + bytes, GUARD, sizeof h->guard);
    return p;
}

static bool is_intact(const void *guard) {
    const unsigned char *bytes = guard; /* the first is right, and each equals its neighbor */
    return bytes[0] == GUARD && memcmp(bytes, bytes + 1, sizeof((struct head *)0)->guard - 1) == 0;
}

void ax_guarded_free(void *p) {
    struct head *h = (struct head *)(void *)((char *)p - sizeof *h);
    AX_ASSERT(is_intact(h->guard));             /* else memory before the block was written, … */
    AX_ASSERT(is_intact((char *)p + h->bytes)); /* … or after it */
    memset(p, FREED, h->bytes < MOST_FREED ? h->bytes : MOST_FREED);
    free(h->start);
}
