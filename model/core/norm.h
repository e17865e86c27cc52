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

/* The residual stream's gradient d [T][D] in the compute dtype, for GEMMs: d itself, or the slot's copy, which holds until
 * the next one is made. */
enum ax_status ax_residual_narrow(const struct ax_pass *p, const struct ax_tensor *d,
                                  struct ax_tensor *dy);
/* Is that of the slot's gradient what the unit's backward begins with? */
bool ax_residual_narrows(const struct ax_pass *p, int unit);
/* ax_norm_backward of d. narrow: ax_residual_narrow of d is what reads it next, so the copy is made, too. */
enum ax_status ax_residual_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                         const struct ax_param *w, const struct ax_tensor *dy,
                                         const struct ax_tensor *x, const struct ax_tensor *rstd,
                                         const struct ax_tensor *d, bool accumulate, bool narrow);

#endif
