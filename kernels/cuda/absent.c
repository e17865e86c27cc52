/* In place of the backend, in a build without CUDA. */
#include "kernels/cuda/find.h"

enum ax_status ax_cuda_find(const struct ax_ops **out) {
    (void)out;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "device cuda: this axtrain was built without CUDA. Build it where "
                    "nvcc is found (`make`), or use device: cpu.");
}

enum ax_status ax_cuda_usable(void) {
    const struct ax_ops *none;
    return ax_cuda_find(&none);
}

enum ax_status ax_cuda_gpus(int *n) {
    *n = 0;
    return ax_cuda_usable();
}

bool ax_cuda_is_built(void) {
    return false;
}

void ax_cuda_local_rank(int rank) {
    (void)rank;
}

uint64_t ax_cuda_memory(void) {
    return 0;
}

void ax_cuda_describe(struct ax_cuda_facts *f) {
    *f = (struct ax_cuda_facts){0};
}
