#include "model/core/adapters.h"

#include "model/lora/match.h"

const struct ax_peft_config *ax_adapter_config(const struct ax_model *m, int k) {
    if (m->bank)
        return k < m->bank->n ? &m->bank->pefts[k].config : NULL;
    return k == 0 ? m->adapter : NULL;
}

enum ax_status ax_adapter_named(const struct ax_model *m, int k, enum ax_status st) {
    return m->bank && st != AX_OK ? ax_error_prefix(st, "%s", m->bank->pefts[k].dir) : st;
}

bool ax_adapter_any_unties(const struct ax_model *m) {
    const struct ax_peft_config *c;
    bool any = false;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        any = any || ax_adapter_unties(c);
    return any;
}
