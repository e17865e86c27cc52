/* The projections to q, k and v of this rank's heads: from a matrix each, or from one for all
 * three. That one is on every rank of tp; then each rank computes its rows for all heads, and ranks
 * exchange them. */
#ifndef AX_MODEL_PARTS_QKV_H
#define AX_MODEL_PARTS_QKV_H

#include "model/core/pass.h"

/* How many heads this rank computes: all heads of k and v if there are fewer than ranks of tp. */
int64_t ax_qkv_q_heads(const struct ax_layer *l, const struct ax_arch *a);
int64_t ax_qkv_kv_heads(const struct ax_layer *l, const struct ax_arch *a);

/* qkv [T][q | k | v of these heads] from the layer's input. */
enum ax_status ax_qkv_forward(const struct ax_layer *l, const struct ax_pass *p,
                              const struct ax_tensor *h, const struct ax_tensor *qkv);
/* Gradients of the parameters and, if not NULL, of h. */
enum ax_status ax_qkv_backward(const struct ax_layer *l, const struct ax_pass *p,
                               const struct ax_tensor *h, const struct ax_tensor *d_qkv,
                               const struct ax_tensor *dh);

#endif
