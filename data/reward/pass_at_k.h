/* pass@k: the probability that at least one of k answers is correct (Chen et al. 2021, "Evaluating
 * Large Language Models Trained on Code", eq. 1). */
#ifndef AX_DATA_REWARD_PASS_AT_K_H
#define AX_DATA_REWARD_PASS_AT_K_H

#include <stdint.h>

/* The unbiased estimate from n ≥ k answers, c of them correct: 1 − C(n−c, k) / C(n, k). */
double ax_pass_at_k(int64_t n, int64_t c, int64_t k);

#endif
