/* rope: rotary position embedding in place. */
#include "kernels/ref/ref.h"

enum ax_status ax_ref_rope(struct ax_queue *q, const struct ax_rope *a, void *work) {
    (void)q;
    (void)work;
    int64_t half = a->cos.shape[1];
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        int32_t position = ax_ref_i32(&a->positions, t);
        AX_ASSERT(position >= 0 && position < a->cos.shape[0]);
        for (int64_t h = 0; h < a->x.shape[1]; h++) {
            int64_t col = h * a->x.shape[2] + a->first;
            for (int64_t i = 0; i < half; i++) {
                double c = ax_ref_get(&a->cos, position, i);
                double s = ax_ref_get(&a->sin, position, i) * (a->inverse ? -1 : 1);
                int64_t one = col + (a->interleaved ? 2 * i : i);
                int64_t two = one + (a->interleaved ? 1 : half);
                double x1 = ax_ref_get(&a->x, t, one);
                double x2 = ax_ref_get(&a->x, t, two);
                ax_ref_set(&a->x, t, one, x1 * c - x2 * s);
                ax_ref_set(&a->x, t, two, x2 * c + x1 * s);
            }
        }
    }
    return AX_OK;
}
