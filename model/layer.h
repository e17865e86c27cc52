/* A layer of two parts, a mixer and an ffn, each a branch of the residual stream. */
#ifndef AX_MODEL_LAYER_H
#define AX_MODEL_LAYER_H

#include "model/pass.h"
#include "model/arch/part.h"

/* AX_ERR_CONFIG: the adapter's settings do not fit the model. */
enum ax_status ax_layer_init(struct ax_builder *b, struct ax_layer *l);
void ax_layer_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f);
/* out = layer(x); out NULL: recompute for backward. */
enum ax_status ax_layer_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x, const struct ax_tensor *out);
/* Half of a layer that is run by linears, for who changes their weights in between; b is its mixer or its
 * ffn, x [T][D] what enters it, the frame declared and pushed for inference. What the first of two linears
 * reads, and, computed with that one, what the second reads: [T][in], valid as long as the frame. */
enum ax_status ax_branch_read(const struct ax_layer *l, const struct ax_branch *b,
                              struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x,
                              bool second, struct ax_tensor *out);
/* out = what leaves it. read: what the second linear reads; NULL: all of the half is computed. */
enum ax_status ax_branch_finish(const struct ax_layer *l, const struct ax_branch *b,
                                struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x,
                                const struct ax_tensor *read, const struct ax_tensor *out);
/* dx: in, the gradient of the layer's output; out, that of its input. */
enum ax_status ax_layer_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                 const struct ax_tensor *x, const struct ax_tensor *dx);

#endif
