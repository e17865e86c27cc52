/* Sums whose bits do not depend on who computes them: elementwise, in rank order. */
#ifndef AX_PARALLEL_FABRIC_REDUCE_H
#define AX_PARALLEL_FABRIC_REDUCE_H

#include "parallel/fabric/comm.h"

/* out[count] = in[0] + in[1] + … (or their maximum; NaN wins). Floating sums are in accumulation
 * dtype, rounded once at the end; integers wrap. `out` may be one of the inputs but must not
 * overlap one otherwise. */
void ax_reduce_ordered(enum ax_reduction reduction, enum ax_dtype dtype, void *out,
                       const void *const *in, int n, int64_t count);

#endif
