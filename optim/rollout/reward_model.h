/* A model whose scores of completions are rewards: frozen, in the runtime, on the mesh and in the
 * plan of the model that trains, with its compute dtype. The reward function that asks it knows
 * which text it reads and what its logits mean (cmd/train/rollout.h). */
#ifndef AX_OPTIM_ROLLOUT_REWARD_MODEL_H
#define AX_OPTIM_ROLLOUT_REWARD_MODEL_H

#include "ckpt/hf/peft.h"
#include "model/generate/classify.h"

/* The model whose frozen weights it reads in place of its own (ax_model_options.lender). */
enum ax_lender { AX_LENDER_NONE, AX_LENDER_POLICY, AX_LENDER_VALUE };

struct ax_reward_model {
    /* ---- set by its user; all borrowed ---- */
    const char *name;
    const struct ax_arch *arch;    /* with a classifier */
    const struct ax_hf *weights;   /* NULL: random */
    const struct ax_peft *adapter; /* NULL: none */
    int64_t max_len, tokens;       /* longest document; tokens per pass, at least max_len */
    /* the model that has the weights of the same folder (also the base of an adapter), if any */
    enum ax_lender lender;
    /* ---- while a run is open ---- */
    struct ax_model model;
};

/* Allocates its memory beside a model's; `lender` may be NULL. */
enum ax_status ax_reward_model_create(struct ax_reward_model *r, const struct ax_model *beside,
                                      const struct ax_model *lender);
enum ax_status ax_reward_model_load(struct ax_reward_model *r);
void ax_reward_model_free(struct ax_reward_model *r); /* safe if it was not created */
/* Runs ax_classify on the documents of this data rank; all ranks call it together. While planning:
 * takes the memory of a pass. */
enum ax_status ax_reward_model_read(struct ax_reward_model *r, int n,
                                    const struct ax_document *docs, double *logits);

#endif
