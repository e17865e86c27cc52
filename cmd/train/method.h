/* Training methods: what a configuration trains, by rl, reward_model, process_reward_model, kd_teacher
 * and kd_trainer. A row of the table in method.c says all that depends on the method; the keys of its
 * loss become an objective. */
#ifndef AX_CMD_TRAIN_METHOD_H
#define AX_CMD_TRAIN_METHOD_H

#include "cmd/config/config.h"
#include "data/records/format/format.h"
#include "model/arch/classifier.h"
#include "optim/losses/distill.h"
#include "optim/losses/kto.h"
#include "optim/losses/policy.h"
#include "optim/losses/preference.h"
#include "optim/losses/reward.h"
#include "optim/losses/teach.h"

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

struct ax_pair_keys {
    const struct ax_yaml_node *terms, *weights; /* dpo_loss_type, dpo_loss_weights; NULL: unset */
};

struct ax_method {
    const char *name;    /* a value of rl, unless `when` says what else chooses the method */
    const char *when;    /* condition on a configuration without rl (cmd/config/rules.h) */
    const char *command; /* `axtrain COMMAND` trains it; NULL: only `axtrain train` does */
    enum ax_task task; /* what records become; PROMPT: the model samples the answers to train on */
    const struct ax_classifier *head; /* the head to train; NULL: a language model's */
    bool value;                       /* a value model is trained beside the policy */
    bool framed_by_ids;               /* as in struct ax_format_answers */
    bool normalize_then_sum;          /* as in struct ax_advantage_options, unless a key says */
    const char *answer_key;           /* the key that limits the length of sampled answers */
    enum ax_status (*read)(struct ax_setup_method *m, const struct ax_config *cfg);
};

/* The i-th method, those of rl first; NULL after the last. */
const struct ax_method *ax_method_at(size_t i);
/* The method that the configuration chooses. */
const struct ax_method *ax_method_of(const struct ax_config *cfg);
/* Reads the keys of its loss. */
enum ax_status ax_setup_method_read(struct ax_setup_method *m, const struct ax_config *cfg);
/* Reads how the answers to train on are sampled. */
void ax_setup_read_sampling(struct ax_sampling *s, const struct ax_config *cfg);

#endif
