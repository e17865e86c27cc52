/* Sampling of answers in a run, and their rewards: the keys of optim/rollout/rollout.h. */
#ifndef AX_CMD_TRAIN_ROLLOUT_H
#define AX_CMD_TRAIN_ROLLOUT_H

#include "data/text/stop_tokens.h"
#include "cmd/train/data/data.h"
#include "data/reward/rewards.h"
#include "optim/evaluate/score/best_of.h"
#include "optim/rollout/reward_model.h"
#include "optim/train/train.h"
#include "optim/losses/value.h"

struct ax_setup_reward_model_options {
    const char *name;                  /* name as the user writes it */
    bool planning;                     /* needs config.json alone */
    int64_t answer;                    /* longest answer with its prompt, in the policy's tokens */
    int64_t tokens;                    /* tokens of a micro-batch */
    const struct ax_tokenizer *policy; /* borrowed */
};

/* A reward function that is a model: a folder or hub id of a reward model, or of a process reward model
 * ("DIR:product"). Must not move while it is open. */
struct ax_setup_reward_model {
    struct ax_setup_reward_model_options o;
    char *path;
    /* name in metrics, as in TRL: the last part of the path; points into `path` */
    const char *title;
    const char *by;           /* "min", … of steps; NULL: not named */
    struct ax_best_of reader; /* reads answers; not while planning */
    struct ax_arch arch;      /* while planning */
    struct ax_peft adapter;   /* its adapter, if it has one; not while planning */
    struct ax_reward_model model;
    bool told; /* a warning that an answer has no reward was given */
};

struct ax_reward_keys {
    const struct ax_yaml_node *functions, *weights; /* lists; NULL: unset */
    const char *model;                              /* ppo.reward_model_path; NULL: unset */
};

struct ax_rollout_keys {
    int64_t batch_size, batches; /* trl.generation_batch_size, steps_per_generation; 0: unset */
    const struct ax_yaml_node *stops; /* trl.generation_kwargs */
    const char *scale;                /* trl.scale_rewards */
    const char *kl_estimator;         /* ppo's */
};

/* What environments of one name have given. */
struct ax_setup_earned {
    const struct ax_tools *tools;
    const char *title;
};

/* Must not move while it is open. */
struct ax_setup_rollout {
    struct ax_rollout_keys keys;
    struct ax_reward_keys reward_keys;
    struct ax_stop_tokens stop;
    int n_stop_strings;
    const char *stop_strings[AX_MAX_STOP_TOKENS]; /* borrowed from the configuration */
    struct ax_rewards *rewards;
    /* with tools: of each environment, or one for all answers */
    struct ax_tool_chat chats[AX_TOOLS_MOST_ENVIRONMENTS];
    struct ax_episode_rules turns[AX_TOOLS_MOST_ENVIRONMENTS];
    struct ax_setup_earned earned[AX_TOOLS_MOST_ENVIRONMENTS];
    struct ax_setup_reward_model *models; /* [n_models], of the rewards with their numbers; zeroed
                                             where the reward is none */
    int n_models;
    /* ---- of PPO ---- */
    struct ax_rollout_ppo ppo;
    struct ax_value_options value_options;
    struct ax_objective value;
    struct ax_arch value_arch; /* borrows the base's parts; unused if it is a reward model's */
    struct ax_peft_config value_adapter; /* if the policy has one */
};
/* Adjusts o->data to answers and sets o->rollout; the step, the mesh and data must be read. `base` is
 * the base model's folder; NULL while planning: then of reward functions only models are opened, for
 * their sizes. */
enum ax_status ax_setup_rollout_read(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_setup_data *d, const char *base,
                                     struct ax_train_options *o);
/* Reward functions and models; while planning models alone. Sets o->rollout's; its sizes must be
 * set. */
enum ax_status ax_setup_rewards_open(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_tokenizer *tokenizer, bool planning,
                                     struct ax_train_options *o);
void ax_setup_rewards_close(struct ax_setup_rollout *r);
/* Answers that call tools, if there are tools; tools.c. Their ends must be set. */
enum ax_status ax_setup_turns_read(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                   const struct ax_setup_data *d, bool planning,
                                   struct ax_rollout_options *o);
void ax_setup_rollout_close(struct ax_setup_rollout *r);

#endif
