/* A model whose scores of completions are rewards: frozen, in the runtime, on the mesh and in the plan
 * of the model that trains, with its compute dtype. What it reads, and what its logits mean, the
 * reward function knows that asks it (cmd/train/reward_model.h). */
#ifndef AX_OPTIM_ROLLOUT_REWARD_MODEL_H
#define AX_OPTIM_ROLLOUT_REWARD_MODEL_H

#include "ckpt/hf/peft.h"
#include "model/generate/classify.h"

/* Which model's frozen weights it reads in place of its own (ax_model_options.lender): the policy's, or
 * the value model's. */
enum ax_lender { AX_LENDER_NONE, AX_LENDER_POLICY, AX_LENDER_VALUE };

struct ax_reward_model {
    /* ---- set by its user; all borrowed ---- */
    const char *name;
    const struct ax_arch *arch;    /* with a classifier */
    const struct ax_hf *weights;   /* NULL: random */
    const struct ax_peft *adapter; /* NULL: none */
    int64_t max_len, tokens;       /* longest document; of a pass, at least as many */
    enum ax_lender lender; /* whose weights are those of the same folder, if it is an adapter's
                                      base, too */
    /* ---- while a run is open ---- */
    struct ax_model model;
};

/* Takes its memory, beside a model's; `lender` may be NULL. */
enum ax_status ax_reward_model_create(struct ax_reward_model *r, const struct ax_model *beside,
                                      const struct ax_model *lender);
enum ax_status ax_reward_model_load(struct ax_reward_model *r);
void ax_reward_model_free(struct ax_reward_model *r); /* safe if it was not created */
/* What ax_classify gives for the documents of this data rank; all ranks together. While planning: the
 * memory of a pass. */
enum ax_status ax_reward_model_read(struct ax_reward_model *r, int n,
                                    const struct ax_document *docs, double *logits);

#endif
