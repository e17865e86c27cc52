/* Workspaces of the delta rule, in doubles. */
#ifndef AX_KERNELS_REF_DELTA_H
#define AX_KERNELS_REF_DELTA_H

#include "kernels/ref/ref.h"

int64_t ax_ref_delta_forward_doubles(const struct ax_delta_forward *f);
int64_t ax_ref_delta_backward_doubles(const struct ax_delta_backward *b);

#endif
