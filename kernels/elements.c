#include "kernels/elements.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/finite.h"

#define CHUNK 4096 /* elements read at a time; the cache has them until they are checked */

struct ax_elements ax_elements_of(enum ax_dtype dtype, const void *data) {
    return (struct ax_elements){.dtype = dtype, .data = data};
}

static bool allows_nonfinite(void) {
    const char *wish = getenv("AXTRAIN_NONFINITE");
    return wish && strcmp(wish, "allow") == 0;
}

enum ax_status ax_elements_check(const struct ax_elements *e, int64_t first, int64_t n,
                                 const void *values) {
    if (!e->name)
        return AX_OK;
    const int64_t at = ax_first_nonfinite(e->dtype, values, n);
    if (at == n || allows_nonfinite())
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "%s: tensor %s: element %lld is %g; get another copy, or look at this one with "
                    "AXTRAIN_NONFINITE=allow in the environment",
                    e->file, e->name, (long long)(first + at), ax_load(e->dtype, values, at));
}

enum ax_status ax_elements_read(const struct ax_elements *e, int64_t first, int64_t n,
                                enum ax_dtype wanted, void *out) {
    double buffer[CHUNK]; /* large enough for any dtype */
    for (int64_t i = 0, m; i < n; i += m) {
        char *to = (char *)out + (size_t)i * ax_dtype_size(wanted);
        const void *from;
        m = n - i < CHUNK ? n - i : CHUNK;
        if (e->read) {
            from = e->dtype == wanted ? (void *)to : buffer;
            AX_TRY(e->read(e->ctx, first + i, m, (void *)(uintptr_t)from));
        } else {
            from = (const char *)e->data + (size_t)(first + i) * ax_dtype_size(e->dtype);
        }
        if (from != to)
            ax_convert(wanted, to, e->dtype, from, m);
        AX_TRY(ax_elements_check(e, first + i, m, from));
    }
    return AX_OK;
}
