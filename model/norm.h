/* The ways between the residual stream, which is in accum, and what computes in the model's dtype.
 */
#ifndef AX_MODEL_NORM_H
#define AX_MODEL_NORM_H

#include "model/pass.h"

/* RMSNorm with the arch's eps; w is a parameter of `unit`. x [T][D] or [T][H][hd], real or accum;
 * y like it, real; rstd accum, without the last dimension. */
enum ax_status ax_norm_forward(struct ax_pass *p, const struct ax_unit *unit,
                               const struct ax_param *w, const struct ax_tensor *x,
                               const struct ax_tensor *y, const struct ax_tensor *rstd);
/* dx += (accumulate) or =; dw +=. */
enum ax_status ax_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                const struct ax_param *w, const struct ax_tensor *dy,
                                const struct ax_tensor *x, const struct ax_tensor *rstd,
                                const struct ax_tensor *dx, bool accumulate);

/* The residual stream's gradient as products read it, in the model's dtype: itself, or a copy in
 * scratch. */
enum ax_status ax_residual_narrow(const struct ax_pass *p, const struct ax_tensor *dx,
                                  struct ax_tensor *dy);

#endif
