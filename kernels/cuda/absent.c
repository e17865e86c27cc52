/* In place of the backend, in a build without CUDA. */
#include "kernels/cuda/find.h"

enum ax_status ax_cuda_find(const struct ax_ops **out) {
    (void)out;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "device cuda: this axtrain was built without CUDA. Build it where "
                    "nvcc is found (`make`), or use device: cpu.");
}
