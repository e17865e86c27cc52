/* Adds the parameters of adapters while a model is built (model/core/builder.h). */
#ifndef AX_MODEL_ADAPTER_ATTACH_H
#define AX_MODEL_ADAPTER_ATTACH_H

#include "model/core/builder.h"

/* Parts of ax_model_create and ax_model_free: the places of a bank, if the model has one (adapters.h). */
enum ax_status ax_adapter_bank_begin(struct ax_model *m);
void ax_adapter_bank_end(struct ax_model *m);

/* Sets the storage of a layer's linears as the builder says, and attaches adapters to those that
 * the config targets, and to its experts. */
enum ax_status ax_adapter_attach(struct ax_builder *b, struct ax_layer *l);
/* The same for the embedding or, if unit is the last, for the head. */
enum ax_status ax_adapter_attach_end(struct ax_builder *b, int unit);
/* Call it after all units: AX_ERR_CONFIG names an entry of the config that matched no module. */
enum ax_status ax_adapter_check(const struct ax_model *m);

#endif
