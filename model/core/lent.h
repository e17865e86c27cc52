/* Keys and values that layers lend to later ones (parts/lending_attention.c): their memory in a micro-batch's slot. The layers
 * that borrow may be on later stages of a pipeline; then keys and values are there, too, and in between. */
#ifndef AX_MODEL_CORE_LENT_H
#define AX_MODEL_CORE_LENT_H

#include "model/core/pass.h"

/* Heads of keys that this rank has of a layer that lends or borrows. */
int64_t ax_lent_heads(const struct ax_model *m, const struct ax_layer_spec *spec);
/* True if the layer is before the unit, and one from there on uses its keys. */
bool ax_lent_crosses(const struct ax_arch *arch, int64_t layer, int unit);
/* The shape of its keys and of its values, compute [T][heads·head_dim]. */
struct ax_tensor ax_lent_shape(const struct ax_model *m, int64_t layer, int64_t T);

/* In a pass, before the first unit: takes memory for them, sums of gradients as zeros. */
enum ax_status ax_lent_begin(struct ax_pass *p);

#endif
