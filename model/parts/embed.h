/* The embedding: the tokens' rows [T][D], summed over tp, which splits the vocabulary. If the model
 * trains for a scheme with an embedding (model/core/fake_quant.h), the rows' quantized values:
 * scales are per row, so only the rows of the batch's tokens are rounded. */
#ifndef AX_MODEL_PARTS_EMBED_H
#define AX_MODEL_PARTS_EMBED_H

#include "model/core/pass.h"

/* out [T/tp][D] = this rank's rows of tokens i32 [T], times the embedding's factor. The embedding's unit
 * must be gathered. */
enum ax_status ax_embed_rows(struct ax_pass *p, const struct ax_tensor *tokens,
                             const struct ax_tensor *out);
/* Adds the gradients of the matrix and of its adapter; d [T/tp][D], that of `out`, is changed. */
enum ax_status ax_embed_rows_backward(struct ax_pass *p, const struct ax_tensor *tokens,
                                      const struct ax_tensor *d);

/* residual[0] = the rows of the batch's tokens, with noise (NEFTune). */
enum ax_status ax_embed_forward(struct ax_pass *p);
/* Gradients of the matrix and of its adapter, from slot->grad. */
enum ax_status ax_embed_backward(struct ax_pass *p);

#endif
