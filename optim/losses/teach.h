/* On-policy distillation by sampled tokens: a policy gradient whose rewards are a teacher's (Gu et al. 2024, MiniLLM, arXiv
 * 2306.08543; Thinking Machines 2025; TRL 1.16's SDFT and SDPO with distillation_mode sampled_token). With s
 * the probability that the model drew a token y with, and t the teacher's,
 *
 *   A = log t(y) − log s(y)
 *
 * is the token's advantage: the expected gradient of −A·log s(y) is that of the reverse divergence KL(s‖t) at its
 * place. What the token does to later places is left out (a discount of 0). IW-OPD (TRL's IWOPDTrainer) lets early
 * tokens count more: A times w = 1 + gamma·(1 − Σ|A| of the tokens before / Σ|A| of all). Plain C on doubles, one
 * completion at a time. */
#ifndef AX_OPTIM_LOSSES_TEACH_H
#define AX_OPTIM_LOSSES_TEACH_H

#include <stdint.h>

/* The cap of a ratio, as SDFT's distillation_is_clip. */
#define AX_TEACH_CAP 2.0

struct ax_teach_options {
    double coef;  /* weight of a teacher's advantages beside those of rewards */
    double gamma; /* IW-OPD's; 0: all tokens count alike */
};

/* advantages [n]: w·A of a completion's sampled tokens; weights [n]: w. logprob, teacher [n]: log s and log t. */
void ax_teach(const struct ax_teach_options *o, int64_t n, const double *logprob,
              const double *teacher, double *advantages, double *weights);

#endif
