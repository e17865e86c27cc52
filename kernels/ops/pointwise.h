/* Options of cases of gated units; private to kernels/ops and tests. */
#ifndef AX_KERNELS_OPS_POINTWISE_H
#define AX_KERNELS_OPS_POINTWISE_H

#include "kernels/ops.h"

struct ax_swiglu_options {
    struct ax_gating how;
    bool apart; /* ups in a tensor of their own */
    int ranges; /* rows of range; 0: none */
};

#endif
