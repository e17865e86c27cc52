/* The fastest GEMM of this process: the reference for MFU. */
#ifndef AX_OPTIM_PLAN_PEAK_H
#define AX_OPTIM_PLAN_PEAK_H

#include "parallel/runtime.h"

/* *flops = FLOPs per second of the best of two to thirty GEMMs in `dtype` (result in accumulation
 * dtype) on this rank's threads: of a 384 × 1536 and a 1536 × 1536 matrix, on a GPU of two 4096 ×
 * 4096 matrices, of normal numbers. Stops when the best two agree, after about 0.1 s or two GEMMs at most. Uses a
 * temporary arena (about 15 MiB, on a GPU 128 MiB). Below about 8 GFLOP/s (ref, emulated
 * processors) only the first 48 rows are multiplied, so that it takes seconds, not minutes. */
enum ax_status ax_measure_gemm_peak(const struct ax_runtime_options *o, enum ax_dtype dtype,
                                    double *flops);

/* The peak of a machine: its fastest products in any instruction set and compute dtype that it uses
 * by default. */
struct ax_peak {
    double flops; /* per second */
    enum ax_dtype dtype;
    const char *kernels; /* an instruction set ("avx512bf16"), or a backend */
};
enum ax_status ax_measure_peak(const struct ax_runtime_options *o, struct ax_peak *peak);
/* The peak of the cpu's default instruction set, if a slower one is in use; else peak->flops is
 * 0. */
enum ax_status ax_measure_faster_set(const struct ax_runtime_options *o, struct ax_peak *peak);
/* "431 G FLOP/s (bfloat16, avx512bf16)"; returns buf. */
const char *ax_peak_text(const struct ax_peak *peak, char *buf, size_t size);

#endif
