/* The embedding: the tokens' rows [T][D], summed over tp, which splits the vocabulary. If the model
 * trains for a scheme with an embedding (model/core/fake_quant.h), the rows' quantized values:
 * scales are per row, so only the rows of the batch's tokens are rounded. */
#ifndef AX_MODEL_PARTS_EMBED_H
#define AX_MODEL_PARTS_EMBED_H

#include "model/core/pass.h"

/* residual[0] = this rank's rows, with noise (NEFTune) and the embedding's factor. */
enum ax_status ax_embed_forward(struct ax_pass *p);
/* Gradients of the matrix and of its adapter, from slot->grad. */
enum ax_status ax_embed_backward(struct ax_pass *p);

#endif
