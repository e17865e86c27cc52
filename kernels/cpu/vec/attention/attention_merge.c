/* attention_merge: attention to some keys and to others becomes attention to all. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

/* out = keep·out + take·part, n elements from `at` on; out is float32. */
AX_INLINE void mix(enum ax_dtype dtype, float *out, const void *part, int64_t at, int64_t n,
                   float keep, float take) {
    for (int64_t i = 0; i < n; i += AX_LANES) {
        const int64_t lanes = least(n - i, AX_LANES);
        const v_float x = v_load(dtype, part, at + i, lanes) * v_set(take);
        v_store(AX_F32, out, at + i, lanes,
                v_fma(v_load(AX_F32, out, at + i, lanes), v_set(keep), x));
    }
}

enum ax_status AX_VEC(ax_cpu_attention_merge)(struct ax_queue *q,
                                              const struct ax_attention_merge *args, void *work) {
    (void)work;
    const struct ax_tensor *part = &args->part;
    const int64_t heads = part->shape[1], vd = part->shape[2];
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(part)), t, part->shape[0]) {
        float *out = ax_tensor_row(&args->out, t), *lse = ax_tensor_row(&args->lse, t);
        const float *part_lse = ax_tensor_row(&args->part_lse, t);
        const void *row = ax_tensor_row(part, t);
        for (int64_t h = 0; h < heads; h++) {
            const float max = fmaxf(lse[h], part_lse[h]);
            float keep = 0, take = 0, all = max;
            if (max > -INFINITY) {
                const double a = exp((double)lse[h] - (double)max),
                             b = exp((double)part_lse[h] - (double)max);
                keep = (float)(a / (a + b));
                take = (float)(b / (a + b));
                all = (float)((double)max + log(a + b));
            }
            mix(part->dtype, out, row, h * vd, vd, keep, take);
            lse[h] = all;
        }
    }
    return AX_OK;
}
