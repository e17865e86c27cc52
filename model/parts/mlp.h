/* The MLP of a layer, or the shared expert of a mixture. */
#ifndef AX_MODEL_PARTS_MLP_H
#define AX_MODEL_PARTS_MLP_H

#include "model/core/builder.h"

/* Adds the MLP `module` (one %d for the layer), `width` wide, as the layer's. */
void ax_mlp_init(struct ax_builder *b, struct ax_layer *l, const char *module, int64_t width);

#endif
