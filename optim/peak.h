/* The fastest matrix product of this process: what MFU is measured against. */
#ifndef AX_OPTIM_PEAK_H
#define AX_OPTIM_PEAK_H

#include "kernels/queue.h"

/* FLOPs per second of the best of a few 1024-cubed products in `dtype` on the queue's threads,
 * after one to warm up. Takes about 0.1 s and 8 MiB of heap, given back. */
enum ax_status ax_measure_gemm_peak(struct ax_queue *q, enum ax_dtype dtype, double *flops);

#endif
