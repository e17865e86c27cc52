#include "optim/step/router_bias.h"

enum ax_status ax_router_bias_check(const struct ax_arch *a, double speed) {
    if (speed == 0 || (a->moe.n_experts > 0 && a->moe.names->bias))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "router_bias_update_speed: the routers of %s models have no bias that chooses "
                    "experts (those of deepseek_v3 and glm4_moe do)",
                    a->family->model_type);
}

/* Elements [first, first + n) of a layer's bias, which are this rank's. */
struct change {
    int64_t n_experts, first, n;
    enum ax_dtype dtype;
    double speed;
};

static enum ax_status change(struct ax_queue *q, const void *args, void *const *at) {
    const struct change *c = args;
    const struct ax_step_scalars *scalars = at[0];
    const double *loads = at[1]; /* [n_experts] */
    void *bias = at[2];          /* [n] */
    double mean = 0;
    (void)q;
    for (int64_t e = 0; e < c->n_experts; e++)
        mean += loads[e] / (double)c->n_experts;
    for (int64_t i = 0; i < c->n && !scalars->skip; i++) {
        const double load = loads[c->first + i];
        const double sign = load < mean ? 1 : load > mean ? -1 : 0;
        const double moved = ax_load(c->dtype, bias, i) + c->speed * sign;
        ax_store(c->dtype, bias, i, (double)(float)moved); /* as it is saved */
    }
    return AX_OK;
}

enum ax_status ax_router_bias_update(struct ax_step *s, int unit) {
    const struct ax_model *m = &s->model;
    if (s->o.router_bias_speed == 0 || unit == 0 || unit > m->arch.n_layers)
        return AX_OK;
    const struct ax_layer *l = &m->layers[unit - 1];
    const struct ax_param *p = l->moe.bias;
    if (!p)
        return AX_OK;
    const struct ax_unit *u = &m->units[unit];
    const struct ax_segment *seg = &u->segments[p->segment];
    const struct ax_tensor loads = ax_tensor_rows(&m->expert_loads, l->index, 1);
    struct change c = {
        .n_experts = m->arch.moe.n_experts, .dtype = seg->compute, .speed = s->o.router_bias_speed};
    int64_t at;
    ax_unit_owned(u, &s->rt->mesh, p, &c.first, &c.n, &at);
    const struct ax_tensor bias = ax_tensor_rows(&seg->shard, c.n > 0 ? at : 0, c.n);
    const struct ax_view views[] = {{s->scalars, sizeof *s->scalars, AX_VIEW_READ},
                                    ax_view_of(&loads, AX_VIEW_READ),
                                    ax_view_of(&bias, AX_VIEW_UPDATE)};
    return ax_queue_call(s->rt->q, change, &c, sizeof c, views, 3);
}
