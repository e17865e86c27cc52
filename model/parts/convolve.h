/* The short convolution of a batch's rows (kernels/mixer_ops.h), wherever the rows before them are: among this
 * rank's rows, on another rank of cp, or in the states of the cache. Shared by mixers that begin with one. */
#ifndef AX_MODEL_PARTS_CONVOLVE_H
#define AX_MODEL_PARTS_CONVOLVE_H

#include "model/core/pass.h"

/* Channels [first, first + n) of a parameter [C][1][K], as they are on this rank; in the states they are those
 * from `at` on. */
struct ax_convolution {
    const struct ax_param *taps, *bias; /* bias [C], NULL: none */
    int64_t first, n, at;
    bool silu;
};

/* y [T][n] from x [T][n]. With a cache, x is also written to the layer's state. */
enum ax_status ax_convolve_forward(struct ax_pass *p, const struct ax_layer *l,
                                   const struct ax_convolution *c, const struct ax_tensor *x,
                                   const struct ax_tensor *y);
/* dx from dy, and the gradients of taps and bias. */
enum ax_status ax_convolve_backward(struct ax_pass *p, const struct ax_layer *l,
                                    const struct ax_convolution *c, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx);

#endif
