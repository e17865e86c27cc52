/* The parameters of adapters, while a model is built (model/builder.h). */
#ifndef AX_MODEL_ADAPTER_ATTACH_H
#define AX_MODEL_ADAPTER_ATTACH_H

#include "model/builder.h"

/* While a layer is built: stores its linears' matrices as the builder says, and gives those that
 * the config means, and its experts, an adapter. */
enum ax_status ax_adapter_attach(struct ax_builder *b, struct ax_layer *l);
/* The same of the embedding and, where unit is the last, of the head. */
enum ax_status ax_adapter_attach_end(struct ax_builder *b, int unit);
/* Afterwards: every name of the config has met a module. AX_ERR_CONFIG names what has not. */
enum ax_status ax_adapter_check(const struct ax_model *m);

#endif
