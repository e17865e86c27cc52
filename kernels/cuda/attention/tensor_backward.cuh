/* What attention_backward by tensor cores is given, with mma.sync (tensor_backward.cu) or with wgmma
 * (wgmma_backward.cu). */
#ifndef AX_KERNELS_CUDA_ATTENTION_TENSOR_BACKWARD_CUH
#define AX_KERNELS_CUDA_ATTENTION_TENSOR_BACKWARD_CUH

#include "kernels/cuda/attention/tensor.cuh"

struct backward_args {
    pattern p;
    divider group;
    scaling by;
    short_heads<const bf16> q, k, v, dout;
    short_heads<bf16> dq, dk, dv;
    rows_of<const float> lse;
    const float *delta; /* [queries][query heads] */
    int heads;          /* those of queries */
};

/* A row without keys has an lse of −∞, and scores of −∞: its probabilities are to be 0. */
__device__ static inline float base_of(float lse) {
    return lse == -INFINITY ? 0 : lse * LOG2E;
}

/* By wgmma, whether this queue's GPU and these shapes can. */
bool ax_wgmma_attention_suits(const struct ax_queue *q, const struct ax_attention *a);
enum ax_status ax_wgmma_attention_backward(struct ax_queue *q, const struct ax_attention *a,
                                           const backward_args &args);

#endif
