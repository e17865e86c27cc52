/* What a configuration trains: the keys rl, reward_model, process_reward_model, kd_teacher and
 * kd_trainer, and those of their losses, as an objective. method_policy.c has those of grpo and gdpo. */
#ifndef AX_CMD_TRAIN_METHOD_H
#define AX_CMD_TRAIN_METHOD_H

#include "cmd/config/config.h"
#include "model/arch/classifier.h"
#include "optim/losses/distill.h"
#include "optim/losses/kto.h"
#include "optim/losses/policy.h"
#include "optim/losses/preference.h"
#include "optim/losses/reward.h"

struct ax_setup_method {
    struct ax_objective objective; /* borrows the others: a method stays where it is read */
    struct ax_sft_options sft;
    struct ax_preference preference;
    struct ax_kto kto;
    struct ax_policy policy;
    const char *measures[AX_MEASURES + 1]; /* names of the measures of PPO's policy */
    struct ax_reward reward;
    struct ax_distill_options distill;
};

/* True if the model samples what it trains on. Then data sets have prompts. */
bool ax_setup_samples_answers(const struct ax_config *cfg);
/* How answers are sampled. */
void ax_setup_read_sampling(struct ax_sampling *s, const struct ax_config *cfg);
/* True for PPO, which has a value model. */
bool ax_setup_is_ppo(const struct ax_config *cfg);
/* The key that says how many tokens an answer may have. */
const char *ax_setup_answer_key(const struct ax_config *cfg);
/* The head that the configuration trains; NULL: a language model's. */
const struct ax_classifier *ax_setup_classifier(const struct ax_config *cfg);
enum ax_status ax_setup_method_policy(struct ax_setup_method *m, const struct ax_config *cfg);
enum ax_status ax_setup_method_read(struct ax_setup_method *m, const struct ax_config *cfg);

#endif
