/* Per-step values that kernels need, kept in device memory so that no launch argument changes and a
 * step can be captured and replayed. Written by ops and by ax_queue_write. */
#ifndef AX_KERNELS_SCALARS_H
#define AX_KERNELS_SCALARS_H

#include <stdint.h>

struct ax_step_scalars {
    double lr;         /* this step's learning rate */
    double weight;     /* Σ weight over all micro-batches and data ranks */
    double documents;  /* likewise; of a step with a loss by sequence, or of indexers */
    double tokens;     /* likewise, of all documents; of a step with a loss of indexers */
    double inv_weight; /* 1 / weight; 0 = no tokens to train on; set by op begin_step */
    double max_norm;   /* gradient clipping; ≤ 0 = off */
    double sumsq;      /* Σ g², each element once; set by op sumsq, summed over ranks */
    double grad_norm;  /* √sumsq, before clipping; set by op clip */
    double clip;       /* min(1, max_norm / (grad_norm + 1e-6)); set by op clip */
    double loss;       /* Σ weight·loss·inv_weight so far this step */
    double aux_loss;   /* the routers' balancing loss, before its coefficient; not part of loss */
    /* the routers' loss by sequence, before its coefficient; not part of loss */
    double sequence_loss;
    /* the indexers' divergence, summed over them, before its coefficient; not part of loss */
    double index_loss;
    double hold_above; /* a step with a larger loss is skipped until the host has looked at it */
    int64_t step;      /* number of this update, from 1 (bias correction); advanced by begin_step */
    int64_t skip;      /* 1: no tokens to train on, loss or norm not finite, or the loss above
                          hold_above: weights must not change; set by op clip */
    uint64_t seed;
};

/* Measures of an objective on documents in a step: means over some of the step's documents or of
 * their tokens, each as numerator and denominator. */
#define AX_MEASURES 16
struct ax_step_measures {
    /* number of tokens by which terms per token are divided: all of the step; for pairs, those of
     * the chosen answers */
    double tokens;
    double entropy_tokens; /* those of them whose entropy is at least entropy_cut */
    double entropy_cut;    /* set by the host: see ax_step */
    double kl;             /* KTO's estimate for the step, by the host */
    double sum[AX_MEASURES], of[AX_MEASURES];
};

/* Sums of a device's own time (ax_queue_time). */
#define AX_TIMES 3
struct ax_times {
    double last; /* the clock at the last call, in seconds */
    double seconds[AX_TIMES];
};

#endif
