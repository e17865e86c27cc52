#include "model/expert_weights.h"

/* The matrices of the experts here, `parts` parameters each, as [n_local][parts·rows][cols];
 * weights or gradients. */
static struct ax_tensor
matrices(const struct ax_layer *l, const struct ax_expert_group *g, const struct ax_param *experts,
         int parts, struct ax_tensor (*look_up)(const struct ax_unit *, const struct ax_param *)) {
    const struct ax_param *p = experts + parts * g->first;
    const int64_t rows = parts * p->shape[0], cols = p->shape[1];
    const struct ax_tensor first = look_up(l->unit, p);
    struct ax_tensor all = ax_tensor_3d(first.dtype, first.data, g->n_local, rows, cols);
    if (g->n_local > 1)
        all.row_stride = p[parts].offset - p->offset;
    for (int64_t i = 0; i < parts * g->n_local; i++)
        AX_ASSERT(p[i].segment == p->segment && p[i].offset == p->offset +
                                                                   i / parts * all.row_stride +
                                                                   i % parts * p->shape[0] * cols);
    return all;
}

enum ax_status ax_expert_weights(const struct ax_layer *l, const struct ax_model *m,
                                 const struct ax_param *experts, int parts, struct ax_tensor *out) {
    const struct ax_expert_group *g = &m->experts;
    const struct ax_param *p = experts + parts * g->first;
    if (!ax_unit_is_packed(l->unit, p)) {
        *out = matrices(l, g, experts, parts, ax_unit_weight);
        return AX_OK;
    }
    const int64_t rows = p->shape[0], cols = p->shape[1];
    *out =
        ax_tensor_3d(l->unit->segments[p->segment].compute, NULL, g->n_local, parts * rows, cols);
    out->data = ax_stack_push(&m->rt->arena.scratch, "unpacked experts", ax_tensor_bytes(out));
    const struct ax_tensor all =
        ax_tensor_2d(out->dtype, out->data, parts * g->n_local * rows, cols);
    for (int64_t i = 0; i < parts * g->n_local; i++) {
        const struct ax_tensor one = ax_tensor_rows(&all, i * rows, rows);
        const struct ax_packed packed = ax_unit_packed(l->unit, &p[i]);
        AX_TRY(ax_packed_read(m->rt->q, &packed, &one));
    }
    return AX_OK;
}

struct ax_tensor ax_expert_gradients(const struct ax_layer *l, const struct ax_expert_group *g,
                                     const struct ax_param *experts, int parts) {
    return ax_unit_is_packed(l->unit, experts + parts * g->first)
               ? (struct ax_tensor){0}
               : matrices(l, g, experts, parts, ax_unit_grad);
}
