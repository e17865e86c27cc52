/* The fastest GEMM of this process: the reference for MFU. */
#ifndef AX_OPTIM_PLAN_PEAK_H
#define AX_OPTIM_PLAN_PEAK_H

#include "parallel/runtime.h"

/* The peak of a machine. */
struct ax_peak {
    double flops;   /* per second, of the fastest products */
    double slowest; /* that of the slowest round: far below, something else was running */
    enum ax_dtype dtype;
    const char *kernels; /* an instruction set ("avx512bf16"), or a backend */
};
#define AX_PEAK_SECONDS 0.1  /* a limit for who asks for the figure */
#define AX_PEAK_SHARE   0.02 /* share of a run that may be spent on it */
/* Products in `dtype` (result in accumulation dtype) on this rank's threads: of a 384 × 1536 and a 1536 × 1536
 * matrix, on a GPU of two 4096 × 4096 matrices, of normal numbers. They take five rounds of 10 ms or more; after `limit`
 * seconds no other begins, but there are two products at least. Uses a temporary arena (about 15 MiB, on a GPU 128 MiB).
 * Below about 8 GFLOP/s (ref, emulated processors) only the first 48 rows are multiplied, so that it takes seconds, not
 * minutes. Leaves `kernels` as it is. */
enum ax_status ax_measure_gemm_peak(const struct ax_runtime_options *o, enum ax_dtype dtype,
                                    double limit, struct ax_peak *peak);
/* The fastest products in any instruction set and compute dtype that the machine uses by default. */
enum ax_status ax_measure_peak(const struct ax_runtime_options *o, double limit,
                               struct ax_peak *peak);
/* The peak of the cpu's default instruction set, if a slower one is in use; else peak->flops is
 * 0. */
enum ax_status ax_measure_faster_set(const struct ax_runtime_options *o, struct ax_peak *peak);
/* "431 GFLOP/s (bfloat16, avx512bf16)", and how much less it was at times, if that was a sixth or more; returns buf,
 * AX_PEAK_TEXT bytes. */
#define AX_PEAK_TEXT 160
const char *ax_peak_text(const struct ax_peak *peak, char *buf, size_t size);

#endif
