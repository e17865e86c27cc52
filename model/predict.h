/* The layer for multi-token prediction (DeepSeek-AI 2024, DeepSeek-V3, §2.2; transformers' MtpModel): from
 * the model's normed state of token t and the embedding of the next token it predicts the token after
 * that, with the model's own embedding and head. With x the residual stream after the last layer:
 *
 *   h = norm(x)
 *   u = [norm_e(E[id_{t+1}]); norm_h(h)]·Wᵀ                       W: eh_proj [D][2D]
 *   y = layer(u),  logits = head(norm_s(y))                       norm_s: shared_head.norm, the head's
 *   loss = Σ weight_{t+1}·(−log p[label_{t+1}]) / Σ weight        labels and weights as the model's
 *
 * In training the gradient of a step is that of its loss + ahead_coef·this one. A document's last token has no next
 * one: token 0 takes its place, nothing is predicted from it, and no other attends to it. To draft tokens, the layer
 * is by itself, beside a model without it (drafter.h).
 *
 * Its unit is the last before the head, and has the model's final norm, because the gradient of h comes from
 * both. What it passes on as the stream is h, so that the head has no norm left to do. */
#ifndef AX_MODEL_PREDICT_H
#define AX_MODEL_PREDICT_H

#include "model/pass.h"

/* Adds the parameters beside those of the layer, in its unit; and in the head's. A drafter has norm_s in the layer's,
 * as it has no head. */
void ax_predict_init(struct ax_builder *b, struct ax_layer *l);
void ax_predict_init_end(struct ax_builder *b);
void ax_predict_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f);
/* out [T][D] = h; in training slot->ahead = y. out NULL: recomputes for backward. */
enum ax_status ax_predict_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                  const struct ax_tensor *x, const struct ax_tensor *out);
/* slot->grad: in, the head's gradient of h; out, that of x. slot->ahead: the gradient of y, is changed. */
enum ax_status ax_predict_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                   const struct ax_tensor *x);

/* In a pass of inference: y from h [T/tp][D] and the next tokens' embeddings (accumulation [T/tp][D]). Appends to the
 * layer's keys and values if there is a cache. */
enum ax_status ax_predict_of(const struct ax_layer *l, struct ax_pass *p,
                             const struct ax_tensor *state, const struct ax_tensor *rows,
                             const struct ax_tensor *out);

#endif
