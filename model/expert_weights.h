/* The matrices of a layer's experts on this rank, one tensor for the grouped products. */
#ifndef AX_MODEL_EXPERT_WEIGHTS_H
#define AX_MODEL_EXPERT_WEIGHTS_H

#include "model/layer.h"

/* `experts` is the first parameter of all experts, `parts` are one expert's (2: gate and up; 1:
 * down). *out = [n_local][parts·rows][cols]; packed ones are unpacked into scratch. */
enum ax_status ax_expert_weights(const struct ax_layer *l, const struct ax_model *m,
                                 const struct ax_param *experts, int parts, struct ax_tensor *out);
/* Their gradients in the same shape; without data where they are frozen. */
struct ax_tensor ax_expert_gradients(const struct ax_layer *l, const struct ax_expert_group *g,
                                     const struct ax_param *experts, int parts);

#endif
