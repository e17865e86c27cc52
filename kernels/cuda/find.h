/* Whether this program can compute on a GPU. */
#ifndef AX_KERNELS_CUDA_FIND_H
#define AX_KERNELS_CUDA_FIND_H

#include "kernels/ops.h"

/* The table of the backend cuda, of which a GPU need not be there. AX_ERR_UNSUPPORTED: this build has none. */
enum ax_status ax_cuda_find(const struct ax_ops **out);

#endif
