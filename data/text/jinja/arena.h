/* A bump arena: one per compiled template and one per render. Everything is freed together.
 *
 * The limit bounds the memory a hostile template or record can use. */
#ifndef AX_DATA_TEXT_JINJA_ARENA_H
#define AX_DATA_TEXT_JINJA_ARENA_H

#include <stddef.h>

#include "base/status.h"

struct ax_jarena_chunk;

struct ax_jarena {
    struct ax_jarena_chunk *chunks;
    char *next, *end;  /* free part of the newest chunk */
    size_t chunk_size; /* size of the next chunk */
    size_t held;       /* bytes in all chunks */
    size_t limit;
};

void ax_jarena_init(struct ax_jarena *a, size_t limit);
/* *(T **)out = n zeroed elements of `size` bytes, 16-byte aligned. AX_ERR_DATA "needs more than …"
 * beyond the limit, AX_ERR_NOMEM when the heap is exhausted. */
enum ax_status ax_jarena_alloc(struct ax_jarena *a, void *out, size_t n, size_t size);
void ax_jarena_free(struct ax_jarena *a);

#endif
