/* packed_gemm of few rows: codes become values in registers, and go to the tensor cores from there. */
#ifndef AX_KERNELS_CUDA_QUANT_PACKED_FEW_H
#define AX_KERNELS_CUDA_QUANT_PACKED_FEW_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By shapes and dtypes alone. */
bool ax_cuda_packed_few_fits(const struct ax_packed_gemm *a);
/* Takes no workspace. */
enum ax_status ax_cuda_packed_few(struct ax_queue *q, const struct ax_packed_gemm *a);

#ifdef __cplusplus
}
#endif

#endif
