/* The short convolution of a batch's rows (kernels/conv_ops.h), wherever the rows before them are: among this
 * rank's rows, on another rank of cp, or in the states of the cache. Shared by mixers that begin with one. */
#ifndef AX_MODEL_PARTS_CONVOLVE_H
#define AX_MODEL_PARTS_CONVOLVE_H

#include "model/core/pass.h"

struct ax_convolution {
    const struct ax_param *taps, *bias; /* [C][1][K] of this rank's channels; [C], NULL: none */
    bool silu;
};

/* y [T][C] from x [T][C]. With a cache, x is also written to the layer's state. */
enum ax_status ax_convolve_forward(struct ax_pass *p, const struct ax_layer *l,
                                   const struct ax_convolution *c, const struct ax_tensor *x,
                                   const struct ax_tensor *y);
/* dx from dy, and the gradients of taps and bias. */
enum ax_status ax_convolve_backward(struct ax_pass *p, const struct ax_layer *l,
                                    const struct ax_convolution *c, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx);

#endif
