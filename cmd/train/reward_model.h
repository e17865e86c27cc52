/* A reward function that is a model: a folder or hub id of a reward model, or of a process reward model
 * ("DIR:product"). It reads answers exactly as `axtrain eval --task reward|prm` does, with a tokenizer
 * and chat template of its own; its model is in the run's runtime (optim/rollout/reward_model.h). */
#ifndef AX_CMD_TRAIN_REWARD_MODEL_H
#define AX_CMD_TRAIN_REWARD_MODEL_H

#include "optim/evaluate/score/best_of.h"
#include "data/reward/rewards.h"
#include "optim/rollout/reward_model.h"

struct ax_setup_reward_model_options {
    const char *name;                  /* name as the user writes it */
    bool planning;                     /* needs config.json alone */
    int64_t answer;                    /* longest answer with its prompt, in the policy's tokens */
    int64_t tokens;                    /* tokens of a micro-batch */
    const struct ax_tokenizer *policy; /* borrowed */
};

/* Must not move while it is open. */
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

/* True for the name of a model: a folder that has one, or a hub id. */
bool ax_setup_is_reward_model(const char *name);
enum ax_status ax_setup_reward_model_open(struct ax_setup_reward_model *m,
                                          const struct ax_setup_reward_model_options *o);
void ax_setup_reward_model_close(struct ax_setup_reward_model *m); /* safe on a zeroed one */
/* struct ax_reward_function.score; ctx is the model. All ranks together. */
enum ax_status ax_setup_reward_model_score(void *ctx, size_t n, const struct ax_reward_item *items,
                                           double *out);

#endif
