#include "kernels/finite.h"

#include <math.h>

#define PART ((int64_t)1 << 16) /* elements per block */

static bool bad_f32(const uint32_t *u, int64_t n) {
    uint32_t bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++)
        bad |= (u[i] & 0x7f800000U) == 0x7f800000U;
    return bad != 0;
}

int64_t ax_tensor_first_nonfinite(const struct ax_tensor *t) {
    const int64_t n = ax_tensor_numel(t);
    int64_t first = n;
#pragma omp parallel for schedule(static) reduction(min : first) if (n >= 4 * PART)
    for (int64_t part = 0; part < n; part += PART) {
        const int64_t end = part + PART < n ? part + PART : n;
        if (t->dtype == AX_F32 && !bad_f32((const uint32_t *)t->data + part, end - part))
            continue;
        for (int64_t i = part; i < end && i < first; i++)
            if (!isfinite(ax_load(t->dtype, t->data, i)))
                first = i;
    }
    return first < n ? first : -1;
}
