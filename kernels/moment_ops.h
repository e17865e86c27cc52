/* The arguments of ops that measure rows by their moments; notation: kernels/ops.h. */
#ifndef AX_KERNELS_MOMENT_OPS_H
#define AX_KERNELS_MOMENT_OPS_H

#include "kernels/tensor.h"

/* y = x·s for each row, s = rms(like)/rms(x), rms(v) = √mean(v²), that of x at least √floor: the streams of Gemma 3n
 * begin and end as large as the first one. x compute, like and y residual [T][D]; floor > 0. */
struct ax_match_rms_forward {
    struct ax_tensor x, like, y;
    double floor;
};
/* With m = ⟨dy, x⟩/D: dx = s·(dy − x·m/rms(x)²), or s·dy where the floor stands for rms(x)²;
 * dlike += like·m/(rms(x)·rms(like)), unless like is 0. dy, like, dlike residual; x, dx compute. */
struct ax_match_rms_backward {
    struct ax_tensor dy, x, like, dx, dlike;
    double floor;
};

/* y = max(0, x − mean(x) − z·std(x)) of each row, std over all its n elements by 1/n: for z = Φ⁻¹(s), of normal
 * elements a share s becomes 0 (Gemma 3n). x, y compute [T][F], y may be x. */
struct ax_sparsify_forward {
    struct ax_tensor x, y;
    double z;
};
/* With g = dy where y > 0, else 0: dx = g − mean(g)·(1 + z·(x − mean(x))/std(x)), without the fraction where std is
 * 0. dy, x, dx compute; dx may be dy or x. */
struct ax_sparsify_backward {
    struct ax_tensor dy, x, dx;
    double z;
};

#endif
