/* Inputs of each layer beside the residual stream (Gemma 3n and 4), made of the tokens and of the first stream x₀:
 *
 *   p = (√width·table[token] + norm(x₀·Wᵀ / √hidden)) / √2     [T][layers][width], norms of each layer's elements
 *
 * Layer i reads its own columns pᵢ and, in backward, writes their gradient over them. */
#ifndef AX_MODEL_PARTS_PER_LAYER_H
#define AX_MODEL_PARTS_PER_LAYER_H

#include "model/core/builder.h"

/* Adds their parameters to the first unit, if the model has them. */
void ax_per_layer_init(struct ax_builder *b);
/* In a pass, before the first unit: takes memory for them. */
void ax_per_layer_begin(struct ax_pass *p);
/* In the first unit, after x₀. */
enum ax_status ax_per_layer_forward(struct ax_pass *p);
/* In the first unit's backward: gradients of its parameters, and the slot's gradient += that of x₀. */
enum ax_status ax_per_layer_backward(struct ax_pass *p);

#endif
