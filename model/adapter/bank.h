/* Several adapters over one base: the tensors of all are loaded, and at most one adapter is
 * active.
 *
 * Every place that can have an adapter (a matrix of a linear, embedding, head, experts' weights)
 * has room for each adapter, and switching selects one for that place. So the ops are those of a
 * model with that adapter alone, on the same values. Base weights that an adapter replaces
 * (modules_to_save, the matrices that PEFT stores next to adapters of embedding and head) are read
 * again from its file or the base's. For inference. */
#ifndef AX_MODEL_ADAPTER_BANK_H
#define AX_MODEL_ADAPTER_BANK_H

#include "model/core/adapters.h"

/* Parts of ax_model_create and ax_model_free. */
enum ax_status ax_adapter_bank_begin(struct ax_model *m);
void ax_adapter_bank_end(struct ax_model *m);
/* While a place is built, for each k = 0 … n − 1: where adapter k is stored. Without a bank, the
 * place itself. */
struct ax_adapter *ax_adapter_bank_place(struct ax_model *m, int k, struct ax_adapter *at);
struct ax_expert_adapter *ax_adapter_bank_experts(struct ax_model *m, int k,
                                                  struct ax_expert_adapter *at);

/* Reads all adapters and checks that they fit. Call it after ax_model_load; afterwards none is
 * active. `hf` is the base and stays open. */
enum ax_status ax_adapter_bank_load(struct ax_model *m, const struct ax_hf *hf);
/* Activates an adapter, or none. Earlier results, such as cached keys and values, belong to the
 * previous one. While planning, only the places change. */
enum ax_status ax_adapter_bank_use(struct ax_model *m, int which);

#endif
