/* pass@k: the chance that at least one of k answers is right (Chen et al. 2021, "Evaluating Large
 * Language Models Trained on Code", eq. 1). */
#ifndef AX_DATA_REWARD_PASS_AT_K_H
#define AX_DATA_REWARD_PASS_AT_K_H

#include <stdint.h>

/* The unbiased estimate from n ≥ k answers of which c are right: 1 − C(n−c, k) / C(n, k). */
double ax_pass_at_k(int64_t n, int64_t c, int64_t k);

#endif
