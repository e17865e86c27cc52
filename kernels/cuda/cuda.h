/* What the files of this backend share. A queue has one stream; ops only enqueue on it.
 *
 * Built with nvcc, or with CUDA=emulated for the host (emulated/): then `cuda` computes on the
 * processor what a GPU would, by the same kernels and calls, for tests. Ops take F32 and BF16; what is
 * F64 belongs to ref. */
#ifndef AX_KERNELS_CUDA_CUDA_H
#define AX_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/queue.h"

extern const struct ax_device ax_device_cuda;
extern const struct ax_ops ax_ops_cuda;

/* Ops that have an entry `ax_cuda_OP`: kernels of this folder, or a library's. Those with WORK have
 * `ax_cuda_OP_work`, too: bytes of workspace, from shapes and dtypes alone. */
#define AX_CUDA_POINTWISE(X)                                                                       \
    X(fill)                                                                                        \
    X(copy)                                                                                        \
    X(add)                                                                                         \
    X(scale)                                                                                       \
    X(softcap_backward)
#define AX_CUDA_STEP(X)                                                                            \
    X(begin_step)                                                                                  \
    X(sumsq)                                                                                       \
    X(clip)
#define AX_CUDA_STEP_WORK(X) X(sumsq)

#define AX_CUDA_LAYERS(X)                                                                          \
    X(rmsnorm_forward)                                                                             \
    X(rmsnorm_backward)                                                                            \
    X(rope)                                                                                        \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)
#define AX_CUDA_LAYERS_WORK(X) X(rmsnorm_backward)
#define AX_CUDA_COLUMNS(X)                                                                         \
    X(colsum)                                                                                      \
    X(coldot)                                                                                      \
    X(grouped_colsum)
#define AX_CUDA_COLUMNS_WORK(X)                                                                    \
    X(colsum)                                                                                      \
    X(coldot)
#define AX_CUDA_EMBEDDING(X)                                                                       \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(neftune)
#define AX_CUDA_HEAD(X)                                                                            \
    X(softmax_stats)                                                                               \
    X(softmax_merge)                                                                               \
    X(softmax_backward)                                                                            \
    X(nll_loss)                                                                                    \
    X(scatter_topk)                                                                                \
    X(argmax)
#define AX_CUDA_ROWS(X)                                                                            \
    X(scatter_rows)                                                                                \
    X(group_rows)                                                                                  \
    X(combine_forward)                                                                             \
    X(combine_backward)                                                                            \
    X(router_forward)                                                                              \
    X(router_balance)                                                                              \
    X(router_backward)
#define AX_CUDA_ROWS_WORK(X)                                                                       \
    X(group_rows)                                                                                  \
    X(router_forward)
#define AX_CUDA_ADAPTER(X)                                                                         \
    X(dropout)                                                                                     \
    X(colscale)                                                                                    \
    X(dora_norm)                                                                                   \
    X(dora_scale)                                                                                  \
    X(merge_low_rank)                                                                              \
    X(merged_squares)
#define AX_CUDA_BLAS(X)                                                                            \
    X(gemm)                                                                                        \
    X(grouped_gemm)
#define AX_CUDA_UPDATE(X)                                                                          \
    X(adamw)                                                                                       \
    X(sgd)                                                                                         \
    X(lion)                                                                                        \
    X(muon_apply)                                                                                  \
    X(muon_momentum)                                                                               \
    X(adamw_8bit)                                                                                  \
    X(adafactor)
#define AX_CUDA_UPDATE_WORK(X)                                                                     \
    X(muon_momentum)                                                                               \
    X(adafactor)
#define AX_CUDA_ATTENTION(X)                                                                       \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(attention_merge)
#define AX_CUDA_ATTENTION_WORK(X) X(attention_backward)
#define AX_CUDA_CHOICE(X)                                                                          \
    X(sample)                                                                                      \
    X(truncate)                                                                                    \
    X(top_logits)                                                                                  \
    X(top_entropy)
#define AX_CUDA_CHOICE_WORK(X) X(sample)
#define AX_CUDA_QUANT(X)                                                                           \
    X(quantize)                                                                                    \
    X(dequantize)                                                                                  \
    X(quant_range)                                                                                 \
    X(fake_quantize)                                                                               \
    X(fake_quantize_backward)                                                                      \
    X(packed_gemm)
#define AX_CUDA_QUANT_WORK(X)                                                                      \
    X(packed_gemm)                                                                                 \
    X(quantize)                                                                                    \
    X(fake_quantize)                                                                               \
    X(fake_quantize_backward)
#define AX_CUDA_DISTILL(X)                                                                         \
    X(divergence)                                                                                  \
    X(divergence_merge)                                                                            \
    X(distill_loss)                                                                                \
    X(distill_backward)

#define AX_CUDA_OPS(X)                                                                             \
    AX_CUDA_POINTWISE(X)                                                                           \
    AX_CUDA_STEP(X)                                                                                \
    AX_CUDA_LAYERS(X)                                                                              \
    AX_CUDA_COLUMNS(X)                                                                             \
    AX_CUDA_EMBEDDING(X)                                                                           \
    AX_CUDA_HEAD(X)                                                                                \
    AX_CUDA_ROWS(X)                                                                                \
    AX_CUDA_ADAPTER(X)                                                                             \
    AX_CUDA_BLAS(X)                                                                                \
    AX_CUDA_UPDATE(X)                                                                              \
    AX_CUDA_ATTENTION(X)                                                                           \
    AX_CUDA_CHOICE(X)                                                                              \
    AX_CUDA_QUANT(X)                                                                               \
    AX_CUDA_DISTILL(X)
#define AX_CUDA_WORK(X)                                                                            \
    AX_CUDA_STEP_WORK(X)                                                                           \
    AX_CUDA_LAYERS_WORK(X)                                                                         \
    AX_CUDA_COLUMNS_WORK(X)                                                                        \
    AX_CUDA_ROWS_WORK(X)                                                                           \
    AX_CUDA_UPDATE_WORK(X)                                                                         \
    AX_CUDA_ATTENTION_WORK(X)                                                                      \
    AX_CUDA_CHOICE_WORK(X)                                                                         \
    AX_CUDA_QUANT_WORK(X)                                                                          \
    AX_CUDA_BLAS(X)

#define AX_CUDA_ENTRY(op)                                                                          \
    enum ax_status ax_cuda_##op(struct ax_queue *q, const struct ax_##op *args, void *work);
AX_CUDA_OPS(AX_CUDA_ENTRY)
#undef AX_CUDA_ENTRY
#define AX_CUDA_WORK_OF(op) size_t ax_cuda_##op##_work(const struct ax_##op *args);
AX_CUDA_WORK(AX_CUDA_WORK_OF)
#undef AX_CUDA_WORK_OF

cudaStream_t ax_cuda_stream(const struct ax_queue *q);
/* AX_OK, or what CUDA says about `what`: the call or the kernel. */
enum ax_status ax_cuda_check(cudaError_t e, const char *what);
/* The device computes the time by its own clock: t->last and t->seconds[into], as ax_times_add. */
enum ax_status ax_cuda_time(struct ax_queue *q, struct ax_times *t, int into);

#define AX_CUDA_TRY(call) AX_TRY(ax_cuda_check(call, #call))

/* Makes the calling thread use this process's GPU (ax_cuda_local_rank), after looking for
 * driver and device. AX_ERR_UNSUPPORTED says what is missing. */
enum ax_status ax_cuda_use(void);

#ifdef __cplusplus
}
#endif

#endif
