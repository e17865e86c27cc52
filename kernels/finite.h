/* Values that are no numbers, found fast: gigabytes of weights are looked at before a run. */
#ifndef AX_KERNELS_FINITE_H
#define AX_KERNELS_FINITE_H

#include "kernels/tensor.h"

/* Index of the first element of a dense tensor that is infinite or NaN; −1: there is none. All
 * threads look, each at parts. */
int64_t ax_tensor_first_nonfinite(const struct ax_tensor *t);

#endif
