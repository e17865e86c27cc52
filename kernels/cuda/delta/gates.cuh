/* What delta_gates.cu and ssd_gates.cu share. */
#ifndef AX_KERNELS_CUDA_DELTA_GATES_CUH
#define AX_KERNELS_CUDA_DELTA_GATES_CUH

#include "kernels/cuda/kernel.cuh"

/* ln(1 + e^x). */
__device__ static inline float softplus(float x) {
    return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

#endif
