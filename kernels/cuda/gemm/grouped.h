/* Grouped products by tensor cores: one launch for all groups, whose rows the device knows. */
#ifndef AX_KERNELS_CUDA_GEMM_GROUPED_H
#define AX_KERNELS_CUDA_GEMM_GROUPED_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/operands.h"

/* Whether grouped_tiles computes it: bf16 in rows of 16 bytes, and no experts so large that the library's
 * products, for which the host waits, are faster. By what the host knows. */
bool ax_cuda_grouped_suits(const struct ax_grouped_gemm *a);
enum ax_status ax_cuda_grouped_tiles(struct ax_queue *q, const struct ax_grouped_gemm *a);

#ifdef __cplusplus
}
#endif

#endif
