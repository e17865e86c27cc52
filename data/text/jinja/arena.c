/* The arena of arena.h: chunks double up to CHUNK_MAX; big blocks are separate. */
#include "data/text/jinja/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)1 << 20)
#define ALIGNMENT ((size_t)16)

struct ax_jarena_chunk {
    struct ax_jarena_chunk *older;
    size_t unused; /* pads the header to ALIGNMENT */
};

void ax_jarena_init(struct ax_jarena *a, size_t limit) {
    *a = (struct ax_jarena){.chunk_size = CHUNK_MIN, .limit = limit};
}

static enum ax_status add_chunk(struct ax_jarena *a, size_t bytes, char **data) {
    size_t total = sizeof(struct ax_jarena_chunk) + bytes;
    if (total > a->limit || a->held > a->limit - total) {
        char text[32];
        return ax_error(AX_ERR_DATA, "the template needs more than %s of memory",
                        ax_format_bytes(text, sizeof text, (double)a->limit));
    }
    struct ax_jarena_chunk *c;
    AX_TRY(ax_alloc(&c, total, 1));
    c->older = a->chunks;
    a->chunks = c;
    a->held += total;
    *data = (char *)c + sizeof *c;
    return AX_OK;
}

enum ax_status ax_jarena_alloc(struct ax_jarena *a, void *out, size_t n, size_t size) {
    size_t bytes;
    if (ax_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 4)
        bytes = SIZE_MAX / 4; /* rejected by the limit below, with its message */
    bytes = bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *p;
    if (bytes <= (size_t)(a->end - a->next)) {
        p = a->next;
        a->next += bytes;
    } else if (bytes > a->chunk_size / 4) {
        AX_TRY(add_chunk(a, bytes, &p));
    } else {
        AX_TRY(add_chunk(a, a->chunk_size, &p));
        a->next = p + bytes;
        a->end = p + a->chunk_size;
        a->chunk_size = a->chunk_size < CHUNK_MAX ? a->chunk_size * 2 : CHUNK_MAX;
    }
    memcpy(out, &p, sizeof p); /* out is a T ** */
    return AX_OK;
}

void ax_jarena_free(struct ax_jarena *a) {
    struct ax_jarena_chunk *c = a->chunks;
    while (c != NULL) {
        struct ax_jarena_chunk *older = c->older;
        ax_free(c);
        c = older;
    }
    *a = (struct ax_jarena){0};
}
