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

/* Index of the first of n elements; n if there is none. */
static int64_t search(enum ax_dtype dtype, const void *data, int64_t n) {
    int64_t first = n;
#pragma omp parallel for schedule(static) reduction(min : first) if (n >= 4 * PART)
    for (int64_t part = 0; part < n; part += PART) {
        const int64_t end = part + PART < n ? part + PART : n;
        if (dtype == AX_F32 && !bad_f32((const uint32_t *)data + part, end - part))
            continue;
        for (int64_t i = part; i < end && i < first; i++)
            if (!isfinite(ax_load(dtype, data, i)))
                first = i;
    }
    return first;
}

enum ax_status ax_tensor_first_nonfinite(struct ax_queue *q, const struct ax_tensor *t,
                                         struct ax_nonfinite *out) {
    const size_t size = ax_dtype_size(t->dtype);
    const int64_t n = ax_tensor_numel(t), most = (int64_t)(AX_QUEUE_PIECE / size);
    *out = (struct ax_nonfinite){.at = -1};
    for (int64_t first = 0, piece; first < n && out->at < 0; first += piece) {
        const void *data;
        piece = n - first < most ? n - first : most;
        AX_TRY(ax_queue_begin_read(q, (const char *)t->data + (size_t)first * size,
                                   (size_t)piece * size, &data));
        const int64_t at = search(t->dtype, data, piece);
        if (at < piece)
            *out = (struct ax_nonfinite){first + at, ax_load(t->dtype, data, at)};
        ax_queue_end_read(q, data);
    }
    return AX_OK;
}
