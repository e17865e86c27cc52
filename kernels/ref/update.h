/* What the reference updates share: the three ways to keep weights, moments, random words. Formulas
 * and streams: kernels/ops.h. */
#ifndef AX_KERNELS_REF_UPDATE_H
#define AX_KERNELS_REF_UPDATE_H

#include "base/rng.h"
#include "kernels/ref/ref.h"

struct ax_ref_weights {
    const struct ax_tensor *master, *copy, *remainder;
    const struct ax_draw *draw;
    const struct ax_step_scalars *scalars;
};
#define AX_REF_WEIGHTS(a)                                                                          \
    { &(a)->master, &(a)->copy, &(a)->remainder, &(a)->draw, (a)->scalars }

/* Element i of the operands, in row-major order. */
double ax_ref_weight(const struct ax_ref_weights *w, int64_t i);
void ax_ref_set_weight(const struct ax_ref_weights *w, int64_t i, double value);

static inline double ax_ref_at(const struct ax_tensor *t, int64_t i) {
    return ax_load(t->dtype, t->data, i);
}

/* Element i of the gradient, clipped. */
static inline double ax_ref_grad(const struct ax_tensor *grad, int64_t i,
                                 const struct ax_step_scalars *s) {
    return ax_ref_at(grad, i) * s->clip;
}

#endif
