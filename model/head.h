/* The head: final norm, chunked logits, and the results computed from them. [T][V] is never
 * materialized. */
#ifndef AX_MODEL_HEAD_H
#define AX_MODEL_HEAD_H

#include "model/pass.h"

/* Rows per chunk: the most that keep the logits (accumulation dtype), and their states, within 64
 * MiB, a multiple of 32; more if the backend wants larger chunks; at most T. */
int64_t ax_head_chunk_tokens(const struct ax_model *m, int64_t T);

void ax_head_declare(const struct ax_pass *p, struct ax_frame *f);
/* x: the last residual. In training with a linear objective, leaves the gradient of the normed
 * hidden state in slot->grad; with any other objective, keeps logprob, lse and entropy of all rows
 * in the slot. */
enum ax_status ax_head_forward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x);
/* Leaves the gradient of x in slot->grad. */
enum ax_status ax_head_backward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x);

#endif
