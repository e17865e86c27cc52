/* A fast search for infinities and NaNs: a run checks gigabytes of weights before it starts. */
#ifndef AX_KERNELS_FINITE_H
#define AX_KERNELS_FINITE_H

#include "kernels/tensor.h"

/* Index of the first infinite or NaN element of a dense tensor; −1 if there is none. Uses all
 * threads. */
int64_t ax_tensor_first_nonfinite(const struct ax_tensor *t);

#endif
