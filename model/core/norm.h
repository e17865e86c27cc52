/* Conversions between the residual stream (accumulation dtype) and the compute dtype. */
#ifndef AX_MODEL_CORE_NORM_H
#define AX_MODEL_CORE_NORM_H

#include "model/core/pass.h"

/* RMSNorm with the arch's eps; w is a parameter of `unit`, or NULL: every weight is 1. x [T][D] or [T][H][hd], compute or
 * accumulation dtype; y the same shape, compute; rstd accumulation, without the last dimension. */
enum ax_status ax_norm_forward(struct ax_pass *p, const struct ax_unit *unit,
                               const struct ax_param *w, const struct ax_tensor *x,
                               const struct ax_tensor *y, const struct ax_tensor *rstd);
/* dx += (accumulate) or =; dw +=. */
enum ax_status ax_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                const struct ax_param *w, const struct ax_tensor *dy,
                                const struct ax_tensor *x, const struct ax_tensor *rstd,
                                const struct ax_tensor *dx, bool accumulate);

/* The residual stream's gradient in the compute dtype, for GEMMs: dx itself, or a copy in
 * scratch. */
enum ax_status ax_residual_narrow(const struct ax_pass *p, const struct ax_tensor *dx,
                                  struct ax_tensor *dy);

#endif
