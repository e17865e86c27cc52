#include "base/grow.h"

enum ax_status ax_grow(void *inout, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return AX_OK;
    const size_t more = n > 0 ? 2 * n : 16;
    AX_TRY(ax_regrow(inout, n, more, size));
    *cap = more;
    return AX_OK;
}
