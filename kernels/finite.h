/* A fast search for infinities and NaNs: a run checks gigabytes of weights before it starts. */
#ifndef AX_KERNELS_FINITE_H
#define AX_KERNELS_FINITE_H

#include "kernels/queue.h"

/* Index of the first infinite or NaN element of n floats, which may be unaligned; n if there is none.
 * Faster than copying them. */
int64_t ax_first_nonfinite(enum ax_dtype dtype, const void *data, int64_t n);

/* The first infinite or NaN element of a dense tensor that the queue reads (NULL: in the host's
 * memory); `at` is −1 if there is none. Uses all threads. */
struct ax_nonfinite {
    int64_t at;
    double value;
};
enum ax_status ax_tensor_first_nonfinite(struct ax_queue *q, const struct ax_tensor *t,
                                         struct ax_nonfinite *out);

#endif
