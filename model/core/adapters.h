/* The adapters that a model has been created with. */
#ifndef AX_MODEL_CORE_ADAPTERS_H
#define AX_MODEL_CORE_ADAPTERS_H

#include "model/core/model.h"

#define AX_ADAPTER_NONE (-1) /* the base alone */

struct ax_adapter_place {
    struct ax_adapter *at, *of;
};
struct ax_expert_place {
    struct ax_expert_adapter *at, *of;
};

/* Several adapters over one base: the tensors of all are loaded, and at most one adapter is
 * active.
 *
 * Every place that can have an adapter (a matrix of a linear, embedding, head, experts' weights)
 * has room for each adapter, and switching selects one for that place. So the ops are those of a
 * model with that adapter alone, on the same values. Base weights that an adapter replaces
 * (modules_to_save, the matrices that PEFT stores next to adapters of embedding and head) are read
 * again from its file or the base's. For inference.
 *
 * The caller sets n and pefts; all three must outlive the model. */
struct ax_adapter_bank {
    int n;                       /* ≥ 1 */
    const struct ax_peft *pefts; /* [n], open */

    /* members set by the model created with it */
    const struct ax_hf *hf;
    int active; /* index, or AX_ADAPTER_NONE */
    bool tied;  /* the base's embedding is its head; an adapter may have separated them */
    int n_places, n_experts;
    struct ax_adapter_place *places;
    struct ax_expert_place *experts;
    bool *replaced; /* [n_params]: the parameter currently has an adapter's values */
};

/* Config k of a model's adapters; NULL after the last. Without a bank, k = 0 is its only one, if
 * any. */
const struct ax_peft_config *ax_adapter_config(const struct ax_model *m, int k);
/* Prefixes an error with adapter k's folder if there may be several. */
enum ax_status ax_adapter_named(const struct ax_model *m, int k, enum ax_status st);
/* True if an adapter makes two matrices of a tied base's embedding and head. */
bool ax_adapter_any_unties(const struct ax_model *m);

#endif
