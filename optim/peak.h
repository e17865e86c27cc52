/* The fastest GEMM of this process: the reference for MFU. */
#ifndef AX_OPTIM_PEAK_H
#define AX_OPTIM_PEAK_H

#include "parallel/runtime.h"

/* FLOPs per second of the best of a few GEMMs of 1536 × 1536 matrices in `dtype` (result in
 * accumulation dtype) on this rank's threads, after one warm-up. Uses a temporary arena (about 20
 * MiB); takes about 0.2 s. */
enum ax_status ax_measure_gemm_peak(const struct ax_runtime_options *o, enum ax_dtype dtype,
                                    double *flops);

#endif
