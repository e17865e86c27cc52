/* Converts a model for inference: weights in the order in which GEMMs of few rows read them. */
#include "kernels/panels.h"
#include "model/core/model.h"

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

/* A packed matrix, whose codes are read where they are. */
static enum ax_status make_code_panels(struct ax_model *m, struct ax_param *p) {
    const struct ax_packed packed = ax_unit_packed(&m->units[p->unit], p);
    struct ax_code_panels panels = {.codes = packed.codes,
                                    .scale = packed.scale,
                                    .rows = p->local_shape[0],
                                    .cols = p->local_shape[1],
                                    .block = packed.block,
                                    .kind = packed.kind};
    if (packed.nested.data || m->dtype != AX_BF16 || !ax_code_panels_wanted(m->rt->q, &panels))
        return AX_OK;
    p->panels = true;
    return ax_code_panels_make(m->rt->q, &panels);
}

static enum ax_status make_panels(struct ax_model *m, struct ax_param *p) {
    if (p->storage != AX_STORAGE_PLAIN)
        return make_code_panels(m, p);
    struct ax_tensor w = ax_unit_weight(&m->units[p->unit], p);
    p->panels = ax_panels_wanted(m->rt->q, &w);
    return p->panels ? ax_panels_make(m->rt->q, &w) : AX_OK;
}

enum ax_status ax_model_make_panels(struct ax_model *m) {
    if (m->train || m->adapter || m->bank || m->rt->mesh.size[AX_ROLE_FSDP] > 1)
        return AX_OK;
    for (int i = 0; i < m->n_params; i++) {
        struct ax_param *p = &m->params[i];
        struct ax_unit *unit = &m->units[p->unit];
        if (looked_into(m, p))
            continue;
        AX_TRY(ax_unit_gather(unit, m->rt));
        AX_TRY(make_panels(m, p));
        ax_unit_release(unit);
    }
    return AX_OK;
}
