/* The fastest memory copy of this process: the reference for decoding, which reads every weight for
 * each token. */
#ifndef AX_OPTIM_PLAN_BANDWIDTH_H
#define AX_OPTIM_PLAN_BANDWIDTH_H

#include "parallel/runtime.h"

/* *bytes = bytes read plus written per second in the best of a few 128 MiB copies on this rank's
 * threads, after one warm-up. Uses a temporary arena (256 MiB), about 0.2 s. If the device works
 * late, several copies are enqueued at a time. */
enum ax_status ax_measure_copy_bandwidth(const struct ax_runtime_options *o, double *bytes);

#endif
