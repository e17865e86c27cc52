/* The head: final norm, chunked logits, and the results computed from them. [T][V] is never
 * materialized. */
#ifndef AX_MODEL_PARTS_HEAD_H
#define AX_MODEL_PARTS_HEAD_H

#include "model/core/pass.h"

/* Rows per chunk: as many as keep the logits (accumulation dtype), and their states, within 64 MiB,
 * a multiple of 32; more if the backend wants larger chunks; at most T. */
int64_t ax_head_chunk_tokens(const struct ax_model *m, int64_t T);

/* The tensors that a pass keeps of the head: the normed state of this rank's rows, and in inference
 * of all rows. */
enum { AX_HEAD_NORMED, AX_HEAD_RSTD, AX_HEAD_ALL_NORMED, AX_HEAD_N_NORMED };

void ax_head_declare(const struct ax_pass *p, struct ax_frame *f);
/* x: the last residual. In training with a linear objective, leaves the gradient of the normed
 * hidden state in slot->grad; with any other objective, keeps logprob, lse and entropy of all rows
 * in the slot. */
enum ax_status ax_head_forward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x);
/* Leaves the gradient of x in slot->grad. */
enum ax_status ax_head_backward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x);

/* ---- logits ---- */

/* This rank's rows of the head's matrix as products read them: themselves, or their quantized
 * values, in scratch, if the model trains for a scheme with a head. The head's unit must be
 * gathered, here and below. */
enum ax_status ax_head_weight(const struct ax_model *m, struct ax_tensor *w);
/* logits = hidden·Wᵀ + bias, with the model's factor and softcap; w from ax_head_weight. rows:
 * index of each row in the sequence, for adapters; data NULL if not needed. */
enum ax_status ax_head_logits(struct ax_pass *p, const struct ax_tensor *w,
                              const struct ax_tensor *rows, const struct ax_tensor *hidden,
                              const struct ax_tensor *logits);
/* The normed state that inference keeps, [T][D]. */
const struct ax_tensor *ax_pass_final_hidden(const struct ax_pass *p);

/* Logits (accumulation [n][V]) of the given rows of the final hidden state. Gathers the head
 * unit. */
enum ax_status ax_pass_logits(struct ax_pass *p, int64_t first, int64_t n, struct ax_tensor *out);
/* The same for any rows: row i of `out` has the logits of row rows[i], computed as one GEMM. rows
 * i32 [n], device. `work`: compute, at least [n][D]. */
enum ax_status ax_pass_logits_of(struct ax_pass *p, const struct ax_tensor *rows,
                                 const struct ax_tensor *work, const struct ax_tensor *out);

#endif
