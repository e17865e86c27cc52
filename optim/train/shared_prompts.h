/* Which documents of a training run begin alike, so that a micro-batch has their first tokens once
 * (model/core/shared_prefix.h): the answers of a group that was sampled, and the two of a pair. */
#ifndef AX_OPTIM_TRAIN_SHARED_PROMPTS_H
#define AX_OPTIM_TRAIN_SHARED_PROMPTS_H

#include "optim/train/train.h"

/* Do the pairs of its data share their prompts? */
bool ax_train_pairs_share(const struct ax_train_options *o);
/* Sets alike, keys and, if fewer suffice, tokens of a step whose micro-batches have their sizes. */
void ax_train_share_prompts(struct ax_step_options *so, const struct ax_train_options *o);

#endif
