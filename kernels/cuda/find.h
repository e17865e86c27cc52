/* Whether this program can compute on a GPU. */
#ifndef AX_KERNELS_CUDA_FIND_H
#define AX_KERNELS_CUDA_FIND_H

#include "kernels/ops.h"

/* The table of the backend cuda, of which a GPU need not be there. AX_ERR_UNSUPPORTED: this build has none. */
enum ax_status ax_cuda_find(const struct ax_ops **out);
/* AX_OK, or AX_ERR_UNSUPPORTED with what is missing: the build's part, driver, GPU, or a library. Takes no memory of
 * a GPU: it may be called before the rank is known, and looks at that of rank 0 then. */
enum ax_status ax_cuda_usable(void);
/* The GPUs that this process sees, at least one; takes no memory there. */
enum ax_status ax_cuda_count(int *n);
/* AX_OK where ax_cuda_usable is, and how many GPUs are visible. */
enum ax_status ax_cuda_gpus(int *n);
/* AX_OK, or AX_ERR_UNSUPPORTED: a GPU that is too old, or of which this program has no code. archs: the Makefile's
 * CUDA_ARCHS, such as "80 90a". */
enum ax_status ax_cuda_check_gpu(const char *name, int major, int minor, const char *archs);
bool ax_cuda_is_built(void);
/* The GPU's compute capability, 90 for 9.0; 0: there is none. */
int ax_cuda_capability(void);
/* True if GPUs of x.y have wgmma (wgmma.cuh), this program has code for sm_90a, and AXTRAIN_WGMMA is not `off`. */
bool ax_cuda_uses_wgmma(int major, int minor);
/* This process is rank `rank` of its host, and uses the GPU of that number (of those visible; there may be
 * one for each process). */
void ax_cuda_local_rank(int rank);
/* Bytes of the GPU's memory that nobody uses; 0 = unknown. */
uint64_t ax_cuda_memory(void);

/* Texts for bug reports; empty: unknown. */
struct ax_cuda_facts {
    char runtime[32], driver[32], gpu[192], cublaslt[32], cudnn[448], nccl[448];
};
void ax_cuda_describe(struct ax_cuda_facts *f);

#endif
