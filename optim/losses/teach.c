#include "optim/losses/teach.h"

#include <math.h>

#define LEAST_SUM 1e-8 /* TRL's iw_opd_epsilon */

void ax_teach(const struct ax_teach_options *o, int64_t n, const double *logprob,
              const double *teacher, double *advantages, double *weights) {
    double all = 0, before = 0;
    for (int64_t t = 0; t < n; t++)
        all += fabs(teacher[t] - logprob[t]);
    all = fmax(all, LEAST_SUM);
    for (int64_t t = 0; t < n; t++) {
        const double advantage = teacher[t] - logprob[t];
        weights[t] = 1 + o->gamma * (1 - before / all);
        advantages[t] = weights[t] * advantage;
        before += fabs(advantage);
    }
}
