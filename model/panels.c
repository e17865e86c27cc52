/* Converts a model for inference: weights in the order in which GEMMs of few rows read them. */
#include "kernels/panels.h"
#include "model/model.h"

/* True for weights also read other than by a GEMM along k: by adapters, experts, routers, and the
 * queries of latents. */
static bool looked_into(const struct ax_model *m, const struct ax_param *p) {
    if (p == m->embed || p == m->lm_head)
        return false;
    if (p->unit == 0 || p->unit == m->n_units - 1)
        return true;
    const struct ax_layer *l = &m->layers[p->unit - 1];
    return l->moe.router != NULL || p == l->mla.kv.weight[0];
}

enum ax_status ax_model_make_panels(struct ax_model *m) {
    if (m->train || m->adapter || m->bank || m->rt->mesh.size[AX_ROLE_FSDP] > 1)
        return AX_OK;
    for (int i = 0; i < m->n_params; i++) {
        struct ax_param *p = &m->params[i];
        struct ax_unit *unit = &m->units[p->unit];
        if (p->storage != AX_STORE_PLAIN || looked_into(m, p))
            continue;
        AX_TRY(ax_unit_gather(unit, m->rt));
        struct ax_tensor w = ax_unit_weight(unit, p);
        p->panels = ax_panels_wanted(m->rt->q, &w);
        if (p->panels)
            AX_TRY(ax_panels_make(m->rt->q, &w));
        ax_unit_release(unit);
    }
    return AX_OK;
}
