/* The targets of a new adapter, as its adapter_config.json names them. */
#ifndef AX_MODEL_ADAPTER_TARGETS_H
#define AX_MODEL_ADAPTER_TARGETS_H

#include "ckpt/hf/peft.h"

struct ax_model;

/* For a model with experts, replaces what `c` targets by names that PEFT understands alike with every
 * transformers: the model, which was created with `c`, would get the same adapters. */
enum ax_status ax_adapter_settle_targets(const struct ax_model *m, struct ax_peft_config *c);

#endif
