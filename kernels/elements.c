#include "kernels/elements.h"

#define CHUNK 4096 /* elements converted at a time */

struct ax_elements ax_elements_of(enum ax_dtype dtype, const void *data) {
    return (struct ax_elements){.dtype = dtype, .data = data};
}

static enum ax_status read_converted(const struct ax_elements *e, int64_t first, int64_t n,
                                     enum ax_dtype wanted, char *out) {
    double buffer[CHUNK]; /* large enough for any dtype */
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < CHUNK ? n - i : CHUNK;
        AX_TRY(e->read(e->ctx, first + i, m, buffer));
        ax_convert(wanted, out + (size_t)i * ax_dtype_size(wanted), e->dtype, buffer, m);
    }
    return AX_OK;
}

enum ax_status ax_elements_read(const struct ax_elements *e, int64_t first, int64_t n,
                                enum ax_dtype wanted, void *out) {
    if (e->read)
        return e->dtype == wanted ? e->read(e->ctx, first, n, out)
                                  : read_converted(e, first, n, wanted, out);
    const char *from = e->data;
    ax_convert(wanted, out, e->dtype, from + (size_t)first * ax_dtype_size(e->dtype), n);
    return AX_OK;
}
