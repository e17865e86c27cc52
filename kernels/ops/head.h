/* Options of the head ops' shapes beyond kernels/shapes.h. */
#ifndef AX_KERNELS_OPS_HEAD_H
#define AX_KERNELS_OPS_HEAD_H

#include <stdbool.h>
#include <stdint.h>

struct ax_head_options {
    int64_t shards; /* softmax_merge */
    bool all_grads; /* g_lse and g_entropy are given */
    bool smoothing; /* label smoothing: mean_logprob and its gradient */
    bool soft;      /* label smoothing by a target of each token */
    bool z_loss;
    bool dynamic; /* nll_loss */
    bool entropy; /* distill_loss */
    bool two;     /* support_logits, tail_logits: the support has two parts */
    bool equal;   /* top_logits: all logits are */
    int64_t top;  /* top_entropy, top_logits: k */
    double alpha;
    double beta; /* beta of divergences */
};

#endif
