/* The fastest copy of this process: what decoding, which reads every weight for each token, is
 * measured against. */
#ifndef AX_OPTIM_BANDWIDTH_H
#define AX_OPTIM_BANDWIDTH_H

#include "parallel/runtime.h"

/* Bytes read plus bytes written per second by the best of a few copies of 128 MiB on this rank's
 * threads, after one to warm up. Uses an arena of its own (256 MiB, given back), about 0.2 s. */
enum ax_status ax_measure_copy_bandwidth(const struct ax_runtime_options *o, double *bytes);

#endif
