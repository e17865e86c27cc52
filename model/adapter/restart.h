/* ReLoRA (Lialin et al. 2023, arXiv 2307.05695): from time to time W becomes W + s·B·A and the
 * adapter starts anew, so that the sum of many low-rank changes has a high rank. */
#ifndef AX_MODEL_ADAPTER_RESTART_H
#define AX_MODEL_ADAPTER_RESTART_H

#include "model/core/model.h"

/* AX_ERR_CONFIG or AX_ERR_UNSUPPORTED, naming the key, if the model's adapter cannot be merged into
 * its base during training or could not start anew without changing the model. */
enum ax_status ax_adapter_restart_check(const struct ax_model *m);
/* Merges all adapters into this rank's part of the base, rounded once to the compute dtype, and
 * draws new ones; the model stays the same, but for this rounding. */
enum ax_status ax_adapter_restart(struct ax_model *m, uint64_t seed);

#endif
