/* Attention of our own by tensor cores: bf16, heads of a multiple of 8 elements up to 256, rows at multiples
 * of 16 bytes; but for decoding, keys one after the other. */
#ifndef AX_KERNELS_CUDA_ATTENTION_TENSOR_H
#define AX_KERNELS_CUDA_ATTENTION_TENSOR_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By shapes, strides and addresses. b: NULL for forward. */
bool ax_tensor_attention_suits(const struct ax_attention *a, const struct ax_attention_backward *b);
enum ax_status ax_tensor_attention_forward(struct ax_queue *q, const struct ax_attention *a);
/* dq, dk and dv. delta: Σ out·dout, [queries][query heads]. */
enum ax_status ax_tensor_attention_backward(struct ax_queue *q,
                                            const struct ax_attention_backward *b,
                                            const float *delta);

/* Forward where a document has one query at most, in decoding, also to keys in blocks (decode.cu). */
bool ax_decode_attention_suits(const struct ax_attention *a);
/* Bytes of workspace, however many documents there are. */
size_t ax_decode_attention_work(const struct ax_attention *a);
enum ax_status ax_decode_attention_forward(struct ax_queue *q, const struct ax_attention *a,
                                           void *work);

#ifdef __cplusplus
}
#endif

#endif
