/* Options of the delta rule's shapes beyond kernels/shapes.h. */
#ifndef AX_KERNELS_OPS_DELTA_H
#define AX_KERNELS_OPS_DELTA_H

#include <stdbool.h>
#include <stdint.h>

struct ax_delta_options {
    int64_t value_dim; /* 0 = head_dim */
    bool states;       /* some documents enter and leave with one */
    bool pieces;       /* generation: nk tokens of a document have been computed */
    bool additive;     /* Mamba-2's, with skip */
    bool channels;     /* KDA's: a decay per channel */
};

#endif
