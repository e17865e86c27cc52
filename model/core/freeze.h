/* Which parameters are trainable, by name (unfrozen_parameters). Frozen ones have no gradient,
 * master or optimizer state. */
#ifndef AX_MODEL_CORE_FREEZE_H
#define AX_MODEL_CORE_FREEZE_H

#include "ckpt/hf/peft.h"
#include "parallel/units/param.h"

/* Makes those of n parameters trainable whose name matches one of the expressions from its start;
 * "." is literal, as in axolotl. */
enum ax_status ax_freeze_except(const struct ax_peft_names *patterns, int n,
                                struct ax_param *params);

struct ax_model;
/* Checks that every expression matches a parameter and that the experts of a layer train together;
 * AX_ERR_CONFIG otherwise. */
enum ax_status ax_freeze_check(const struct ax_model *m, const struct ax_peft_names *patterns);

#endif
