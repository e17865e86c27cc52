/* The recurrences by tensor cores, in training: bf16, one decay per head, keys of up to 128 elements. */
#ifndef AX_KERNELS_CUDA_DELTA_TENSOR_H
#define AX_KERNELS_CUDA_DELTA_TENSOR_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether shapes allow it; the workspace is planned for it then. */
bool ax_tensor_delta_fits(const struct ax_delta_rule *a);
/* Whether these kernels compute a call: also by strides, addresses and the shared memory of the thread's GPU.
 * b: NULL for forward. */
bool ax_tensor_delta_suits(const struct ax_delta_rule *a, const struct ax_delta_backward *b);

/* Bytes of workspace. */
size_t ax_tensor_delta_forward_work(const struct ax_delta_rule *a);
size_t ax_tensor_delta_backward_work(const struct ax_delta_backward *b);

/* Rows of no document are left as they are. */
enum ax_status ax_tensor_delta_forward(struct ax_queue *q, const struct ax_delta_rule *a,
                                       void *work);
/* All gradients but dq and dk: scale·dq̂ and dk̂ of each value head, [T][Hv][dk]. */
enum ax_status ax_tensor_delta_backward(struct ax_queue *q, const struct ax_delta_backward *b,
                                        float *q_sums, float *k_sums, void *work);

#ifdef __cplusplus
}
#endif

#endif
