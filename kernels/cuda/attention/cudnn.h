/* Attention by cuDNN where it is installed and takes a call: what a queue keeps for it, and how a call is
 * described to it. Where it is not, or does not, our own kernels compute. */
#ifndef AX_KERNELS_CUDA_ATTENTION_CUDNN_H
#define AX_KERNELS_CUDA_ATTENTION_CUDNN_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/attention/cudnn_shim.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ax_dnn;

/* The functions of our library and cuDNN's version (91901 for 9.19.1). AX_ERR_UNSUPPORTED: which of the two
 * is missing or too old. */
enum ax_status ax_dnn_find(const struct ax_cudnn_calls **calls, void **function, size_t *version);
/* Never fails for want of cuDNN: then, or with AXTRAIN_CUDNN=off, it takes no call. */
enum ax_status ax_dnn_open(struct ax_dnn **out);
void ax_dnn_close(struct ax_dnn *d); /* NULL is fine */

/* True if it may take such calls, by what the host knows. b: NULL for forward, here and below. */
bool ax_dnn_suits(const struct ax_attention *a, const struct ax_attention_backward *b);
/* The kind of a call; of backward, AX_CUDNN_FIXED. Counts are rounded up, so that kinds are few: to four significant bits, or with a block
 * table, where no two passes are alike, to one; what is the table's and the cache's stays the same. */
struct ax_cudnn_shape ax_dnn_shape(const struct ax_attention *a,
                                   const struct ax_attention_backward *b);
/* Bytes of cuDNN's own workspace that a plan of memory has for a kind: what its documentation and
 * frontend add up to, and some room. */
size_t ax_dnn_room(const struct ax_cudnn_shape *s);

/* Whether it takes such calls, which is asked once per kind. The first refusal is logged. */
bool ax_dnn_takes(struct ax_queue *q, const struct ax_cudnn_shape *s);
/* One that it takes. work: ax_dnn_room bytes, at a multiple of 256. */
enum ax_status ax_dnn_run(struct ax_queue *q, const struct ax_cudnn_shape *s,
                          const struct ax_cudnn_operands *o, void *work);

/* How many calls it has computed. */
int ax_dnn_calls(const struct ax_dnn *d, bool backward);

/* ---- its operands, by kernels of ours (attention_rows.cu) ---- */

/* The lists of o, from the documents and the block table of a, at `lists`: as many bytes as
 * ax_dnn_list_bytes. */
size_t ax_dnn_list_bytes(const struct ax_cudnn_shape *s);
enum ax_status ax_dnn_list(struct ax_queue *q, const struct ax_attention *a,
                           const struct ax_cudnn_shape *s, void *lists,
                           struct ax_cudnn_operands *o);
/* Rows that see no key, or are in no document, which cuDNN leaves as they are: out 0, lse −inf or the
 * sink. */
enum ax_status ax_dnn_finish_forward(struct ax_queue *q, const struct ax_attention *a);
/* With a soft cap, backward masks before it subtracts lse, which has to be a number also in rows that a tile
 * has beside its document's. to [rows of lse + AX_DNN_BEHIND][Hq] = lse, or 0 in rows of no document. */
enum { AX_DNN_BEHIND = 256 };
enum ax_status ax_dnn_finite_lse(struct ax_queue *q, const struct ax_attention *a,
                                 const struct ax_tensor *to);
/* t = 0 in rows that are in no document of cu. */
enum ax_status ax_dnn_finish_backward(struct ax_queue *q, const struct ax_tensor *t,
                                      const struct ax_tensor *cu);

/* ---- our own kernels ---- */

enum ax_status ax_cuda_own_attention_forward(struct ax_queue *q, const struct ax_attention *a);
size_t ax_cuda_own_attention_backward_work(const struct ax_attention_backward *b);
enum ax_status ax_cuda_own_attention_backward(struct ax_queue *q,
                                              const struct ax_attention_backward *b, void *work);
/* Only dsink; the same work. */
enum ax_status ax_cuda_own_attention_dsink(struct ax_queue *q,
                                           const struct ax_attention_backward *b, void *work);

#ifdef __cplusplus
}
#endif

#endif
