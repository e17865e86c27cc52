#include "model/core/lent.h"

#include "model/parallel/tensor_parallel.h"

int64_t ax_lent_heads(const struct ax_model *m, const struct ax_layer_spec *spec) {
    const struct ax_mesh *mesh = &m->rt->mesh;
    const int64_t n = spec->kv_heads;
    return ax_tp_kv_replicated(mesh, n) ? n : n / mesh->size[AX_ROLE_TP];
}

bool ax_lent_crosses(const struct ax_arch *arch, int64_t layer, int unit) {
    if (!arch->layers[layer].lends || layer + 1 >= unit)
        return false;
    bool used = false;
    for (int64_t i = unit - 1; i < arch->n_layers; i++)
        used = used || (arch->layers[i].borrows && arch->layers[i].source == layer);
    return used;
}

struct ax_tensor ax_lent_shape(const struct ax_model *m, int64_t layer, int64_t T) {
    const struct ax_layer_spec *spec = &m->arch.layers[layer];
    return ax_tensor_2d(m->dtype, NULL, T, ax_lent_heads(m, spec) * spec->head_dim);
}

/* Does a chunk make keys that other layers use, or need them? With a cache they are there, but for those that come from
 * another stage, or go there. */
static bool has(const struct ax_pass *p, const struct ax_chunk *c, int64_t layer) {
    const struct ax_arch *a = &p->model->arch;
    const bool own = a->layers[layer].lends && layer + 1 >= c->first && layer + 1 < c->end;
    return (own && !p->cache) || ax_lent_crosses(a, layer, c->first) ||
           ax_lent_crosses(a, layer, c->end);
}

/* A pass without backward runs all chunks of the stage. */
static bool pass_has(const struct ax_pass *p, int64_t layer) {
    const struct ax_chunks *chunks = &p->model->chunks;
    if (p->recompute != AX_RECOMPUTE_INFERENCE)
        return has(p, &chunks->list[p->chunk], layer);
    bool any = false;
    for (int i = 0; i < chunks->n; i++)
        any = any || has(p, &chunks->list[i], layer);
    return any;
}

static enum ax_status take_sum(struct ax_pass *p, const char *name, const struct ax_tensor *like,
                               struct ax_tensor *out) {
    *out = ax_stack_take(p->slot->stack, name,
                         ax_tensor_2d(p->model->accum, NULL, like->shape[0], like->shape[1]));
    return ax_run_fill(p->model->rt->q, &(struct ax_fill){*out, 0});
}

enum ax_status ax_lent_begin(struct ax_pass *p) {
    struct ax_stack *stack = p->slot->stack;
    for (int64_t i = 0; i < p->model->arch.n_layers; i++) {
        struct ax_lent *lent = &p->slot->lent[i];
        *lent = (struct ax_lent){0};
        if (!pass_has(p, i))
            continue;
        const struct ax_tensor shape = ax_lent_shape(p->model, i, p->batch->T);
        lent->k = ax_stack_take(stack, "lent k", shape);
        lent->v = ax_stack_take(stack, "lent v", shape);
        if (p->recompute == AX_RECOMPUTE_INFERENCE)
            continue;
        AX_TRY(take_sum(p, "gradient of lent k", &shape, &lent->dk));
        AX_TRY(take_sum(p, "gradient of lent v", &shape, &lent->dv));
    }
    return AX_OK;
}
