/* ppo: TRL's PPOTrainer on recorded completions. Policy and value model are two models in one runtime,
 * each with a step of its own: with AdamW and without clipping, the two are one optimizer.
 *
 * run_ppo.c (opening, steps), run_ppo_rollout.c (what a batch of completions is worth). */
#ifndef TESTS_GOLDENS_RUN_PPO_H
#define TESTS_GOLDENS_RUN_PPO_H

#include "tests/goldens/run.h"
#include "optim/losses/gae.h"
#include "optim/losses/value.h"

struct ax_ppo_settings {
    double gamma, lambda, kl_coef, penalty; /* penalty: of completions without EOS */
    bool penalizes;
    enum ax_kl_estimator kl;
    int64_t width;              /* longest completion */
    int rows, accumulation;     /* of a micro-batch; micro-batches of a step */
    int batches, micro, epochs; /* rollout batches, micro-batches of each, times that it is used */
    int32_t pad, eos;
};

/* A completion of n tokens, and n_values values: one more, if it is shorter than the longest. */
struct ax_ppo_row {
    int64_t n, n_values;
    bool ended; /* has EOS */
    double score;
    double *logprob, *reference, *value, *advantage, *raw, *returned; /* [width] each */
};

struct ax_ppo {
    struct ax_run *policy, *value;
    struct ax_run_micro *scored; /* [n_micro]: the value model's documents with a score alone */
    struct ax_ppo_settings s;
    struct ax_ppo_row *rows; /* [batches·micro·rows] */
    double *numbers;         /* of the rows, owned */
};

/* Row i of micro-batch k. */
static inline struct ax_ppo_row *ax_ppo_row(const struct ax_ppo *p, int k, int i) {
    return &p->rows[k * p->s.rows + i];
}

/* Takes the micro-batches' documents from the recorded queries and responses. */
enum ax_status ax_ppo_read(struct ax_ppo *p);
/* The reference's log-probs and the reward model's scores of all batches: of the models at the
 * start. */
enum ax_status ax_ppo_judge(struct ax_ppo *p, struct ax_model *policy, struct ax_model *value);
/* What batch b is worth to the models as they are: advantages and returns, also as columns. */
enum ax_status ax_ppo_rate(struct ax_ppo *p, int b, struct ax_model *policy,
                           struct ax_model *value);
enum ax_status ax_ppo_compare_batch(const struct ax_ppo *p, int b);
/* Metrics of batch b that its steps do not change. */
void ax_ppo_rollout_metrics(const struct ax_ppo *p, int b, struct ax_run_metrics *out);
void ax_ppo_free(struct ax_ppo *p);

#endif
