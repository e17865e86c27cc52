/* Inputs of each layer beside the residual stream (Gemma 3n and 4), made of the tokens and of the first stream x₀:
 *
 *   p = (√width·table[token] + norm(x₀·Wᵀ / √hidden)) / √2     [T][layers][width], norms of each layer's elements
 *
 * They are kept by layer, [layers][T][width], so that those of later layers are contiguous. Layer i reads its own rows pᵢ
 * and, in backward, writes their gradient over them. */
#ifndef AX_MODEL_PARTS_PER_LAYER_H
#define AX_MODEL_PARTS_PER_LAYER_H

#include "model/core/builder.h"
#include "model/core/pass.h"

/* Adds their parameters to the first unit, if the model has them. */
void ax_per_layer_init(struct ax_builder *b);
/* The shape of those of the layers from `layer` on, of T rows each; and these among all that there are. */
struct ax_tensor ax_per_layer_shape(const struct ax_model *m, int64_t layer, int64_t T);
struct ax_tensor ax_per_layer_from(const struct ax_model *m, const struct ax_tensor *all,
                                   int64_t layer, int64_t T);
/* In a pass, before the first unit: takes memory for those of its layers and of later ones. */
void ax_per_layer_begin(struct ax_pass *p);
/* In the first unit, after x₀. */
enum ax_status ax_per_layer_forward(struct ax_pass *p);
/* In the first unit's backward: gradients of its parameters, and the slot's gradient += that of x₀. */
enum ax_status ax_per_layer_backward(struct ax_pass *p);

#endif
