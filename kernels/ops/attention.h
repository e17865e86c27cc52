/* Options of attention shapes beyond kernels/shapes.h. */
#ifndef AX_KERNELS_OPS_ATTENTION_H
#define AX_KERNELS_OPS_ATTENTION_H

#include "kernels/ops.h"

struct ax_attention_options {
    int64_t window, block_size; /* block_size > 0: with a block table */
    int64_t value_dim;          /* 0 = head_dim */
    int64_t ahead;
    double softcap;
    bool not_causal, sink, chosen;
};

/* True if `chosen` has what the op reads of it, for `rows` queries. */
bool ax_chosen_fits(const struct ax_tensor *chosen, int64_t rows, int64_t max_k);

#endif
