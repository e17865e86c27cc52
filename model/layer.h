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
/* Runs half of a layer linear by linear, for a caller that changes their weights in between. b is
 * the layer's mixer or ffn, x [T][D] its input; the frame is declared and pushed for inference.
 * *out [T][in] = what the first of its two linears reads; or, if `second`, what the second one
 * reads, computed with the first. Valid as long as the frame. */
enum ax_status ax_branch_read(const struct ax_layer *l, const struct ax_branch *b,
                              struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x,
                              bool second, struct ax_tensor *out);
/* out = the branch's output. read: what the second linear reads; NULL: computes the entire
 * branch. */
enum ax_status ax_branch_finish(const struct ax_layer *l, const struct ax_branch *b,
                                struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x,
                                const struct ax_tensor *read, const struct ax_tensor *out);
/* dx: in, the gradient of the layer's output; out, the gradient of its input. */
enum ax_status ax_layer_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                 const struct ax_tensor *x, const struct ax_tensor *dx);
/* The same while indexers warm up, before which no forward is needed: nothing else trains. */
enum ax_status ax_layer_warm_up(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x);

#endif
