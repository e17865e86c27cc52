/* What the files of this backend share. A queue has one stream; ops only enqueue on it.
 *
 * Ops take F32 and BF16; what is F64 belongs to ref. */
#ifndef AX_KERNELS_CUDA_CUDA_H
#define AX_KERNELS_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/queue.h"

extern const struct ax_device ax_device_cuda;
extern const struct ax_ops ax_ops_cuda;

/* An entry for every op: a kernel of this folder, or a library's. */
#define AX_CUDA_ENTRY(op)                                                                          \
    enum ax_status ax_cuda_##op(struct ax_queue *q, const struct ax_##op *args, void *work);
AX_OP_LIST(AX_CUDA_ENTRY)
#undef AX_CUDA_ENTRY
/* Ops that take workspace: bytes, from shapes and dtypes alone. */
#define AX_CUDA_WORK(X)                                                                            \
    X(gemm)                                                                                        \
    X(colsum)                                                                                      \
    X(conv_backward)                                                                               \
    X(rmsnorm_backward)                                                                            \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(top_keys)                                                                                    \
    X(delta_gates_backward)                                                                        \
    X(ssd_gates_backward)                                                                          \
    X(delta_forward)                                                                               \
    X(delta_backward)                                                                              \
    X(router_forward)                                                                              \
    X(group_rows)                                                                                  \
    X(grouped_gemm)                                                                                \
    X(sample)                                                                                      \
    X(sumsq)                                                                                       \
    X(adafactor)                                                                                   \
    X(muon_momentum)                                                                               \
    X(quantize)                                                                                    \
    X(packed_gemm)                                                                                 \
    X(fake_quantize)                                                                               \
    X(fake_quantize_backward)                                                                      \
    X(fp8_gemm)                                                                                    \
    X(coldot)
#define AX_CUDA_WORK_OF(op) size_t ax_cuda_##op##_work(const struct ax_##op *args);
AX_CUDA_WORK(AX_CUDA_WORK_OF)
#undef AX_CUDA_WORK_OF

/* Where to enqueue: comes after all ops so far (graphs.h). */
cudaStream_t ax_cuda_stream(const struct ax_queue *q);
/* The GPU's multiprocessors. */
int ax_cuda_processors(const struct ax_queue *q);
/* Whether kernels use wgmma there (ax_cuda_uses_wgmma). */
bool ax_cuda_has_wgmma(const struct ax_queue *q);
struct ax_graphs *ax_cuda_graphs(const struct ax_queue *q);
/* AX_OK, or what CUDA says about `what`: the call or the kernel. */
enum ax_status ax_cuda_check(cudaError_t e, const char *what);
/* The device computes the time by its own clock: t->last and t->seconds[into], as ax_times_add. */
struct ax_cuda_time {
    struct ax_times AX_DEVICE *t;
    int64_t into;
};
enum ax_status ax_cuda_time(struct ax_queue *q, const struct ax_cuda_time *args);
/* Copies whole words, in any order of the pieces. */
#define AX_CUDA_COPIES 16
struct ax_cuda_copy {
    uint32_t AX_DEVICE *to;
    const uint32_t AX_DEVICE *from;
    size_t words;
};
struct ax_cuda_copies {
    int n;
    struct ax_cuda_copy piece[AX_CUDA_COPIES];
};
enum ax_status ax_cuda_copy_all(struct ax_queue *q, const struct ax_cuda_copies *args);

#define AX_CUDA_TRY(call) AX_TRY(ax_cuda_check(call, #call))

/* Makes the calling thread use this process's GPU (ax_cuda_local_rank), after looking for
 * driver and device. AX_ERR_UNSUPPORTED says what is missing. Each thread calls it before it calls anything
 * of CUDA's that needs a GPU: that would be the first one, and take memory there. Later calls cost nothing. */
enum ax_status ax_cuda_use(void);
/* The number of that GPU; takes no memory there. */
enum ax_status ax_cuda_own(int *gpu);

#ifdef __cplusplus
}
#endif

#endif
