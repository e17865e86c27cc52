/* The largest singular values of a matrix and their vectors, by subspace iteration. */
#ifndef AX_MODEL_LORA_LOW_RANK_H
#define AX_MODEL_LORA_LOW_RANK_H

#include "base/rng.h"
#include "base/status.h"

struct ax_low_rank {
    const float *w; /* [rows][cols] */
    int64_t rows, cols, r;
    int iterations; /* products with w and wᵀ after the first; 0: until the vectors converge */
    struct ax_rng_key key;
    /* out, to be ax_freed: w ≈ Σ_j s_j·u_j·v_jᵀ, the largest first */
    double *u, *s, *v; /* [r][rows], [r], [r][cols] */
};

/* r at most min(rows, cols). The same bits for any number of threads. */
enum ax_status ax_low_rank_find(struct ax_low_rank *l);
void ax_low_rank_free(struct ax_low_rank *l);

#endif
