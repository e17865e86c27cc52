/* The embedding: the tokens' rows [T][D], summed over tp, which splits the vocabulary. If the model trains
 * for a scheme with an embedding (model/core/fake_quant.h), their values: formats are of rows, so only the rows
 * that tokens name are rounded. */
#ifndef AX_MODEL_PARTS_EMBED_H
#define AX_MODEL_PARTS_EMBED_H

#include "model/core/pass.h"

/* This rank's rows of it become residual[0], with noise (NEFTune) and the embedding's factor. */
enum ax_status ax_embed_forward(struct ax_pass *p);
/* Gradients of the matrix and of its adapter, from the slot's. */
enum ax_status ax_embed_backward(struct ax_pass *p);

#endif
