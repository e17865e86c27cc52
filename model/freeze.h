/* Which parameters train, by name (unfrozen_parameters). What does not has no gradient, master or
 * optimizer state. */
#ifndef AX_MODEL_FREEZE_H
#define AX_MODEL_FREEZE_H

#include "ckpt/hf/peft.h"
#include "parallel/param.h"

/* Of n parameters those train whose name one of the expressions matches from its start; "." stands
 * for itself, as axolotl has it. */
enum ax_status ax_freeze_except(const struct ax_peft_names *patterns, int n,
                                struct ax_param *params);

struct ax_model;
/* Afterwards: every expression has met a parameter, and the experts of a layer train together.
 * AX_ERR_CONFIG. */
enum ax_status ax_freeze_check(const struct ax_model *m, const struct ax_peft_names *patterns);

#endif
