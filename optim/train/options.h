/* What follows from a run's options alone: which parts a run has, and the options of its passes
 * (ax_train_step_options is in train.h, for plans). */
#ifndef AX_OPTIM_TRAIN_OPTIONS_H
#define AX_OPTIM_TRAIN_OPTIONS_H

#include "optim/train/train.h"

/* True if the model samples what it trains on. */
bool ax_train_has_rollout(const struct ax_train_options *o);
/* Are generations drawn by other weights, or by other ranks, than those that train on them? */
bool ax_train_runs_ahead(const struct ax_train_options *o);
/* True if a value model trains beside the policy. */
bool ax_train_has_value(const struct ax_train_options *o);
/* True if the objective compares with the reference's log-probs. */
bool ax_train_has_reference(const struct ax_train_options *o);
/* True if the reference of sampled answers is a model of its own; else it is the base of a new adapter. */
bool ax_train_copies_reference(const struct ax_train_options *o);
/* The adapter that a run writes as a folder; NULL: the run writes models. With restarts it writes
 * models, because the adapter fits only the run's own base. */
const struct ax_peft_config *ax_train_saved_adapter(const struct ax_train_options *o);
/* How many sequences are read at a time with this many data ranks. */
int64_t ax_train_sequences_per_step(const struct ax_train_options *o, int data_ranks);

/* Options for the passes of evaluations, and for those that compute the reference's log-probs. */
struct ax_eval_options ax_train_eval_options(const struct ax_train_options *o);
struct ax_eval_options ax_train_reference_options(const struct ax_train_options *o);

#endif
