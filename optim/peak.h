/* The fastest matrix product of this process: what MFU is measured against. */
#ifndef AX_OPTIM_PEAK_H
#define AX_OPTIM_PEAK_H

#include "parallel/runtime.h"

/* FLOPs per second of the best of a few products of 1536 × 1536 matrices in `dtype` (result in the
 * accum type) on this rank's threads, after one to warm up. Uses an arena of its own (about 20 MiB,
 * given back) and takes about 0.2 s. */
enum ax_status ax_measure_gemm_peak(const struct ax_runtime_options *o, enum ax_dtype dtype,
                                    double *flops);

#endif
