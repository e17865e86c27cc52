#include "model/boundary.h"

#include "model/core/lent.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/attend.h"
#include "model/parts/per_layer.h"

static void add(struct ax_message *to, struct ax_tensor t) {
    AX_ASSERT(to->n < AX_MESSAGE_PARTS);
    to->parts[to->n++] = t;
}

struct ax_message ax_boundary(const struct ax_model *m, enum ax_crossing what, int unit,
                              const struct ax_batch *batch, const struct ax_slot *slot) {
    const bool back = what == AX_CROSS_GRADIENT;
    const int64_t T = batch->T, rows = ax_tp_rows(m->rt, T);
    struct ax_message to = {.batch = batch};
    add(&to, !slot  ? ax_tensor_2d(m->accum, NULL, rows, ax_arch_stream_size(&m->arch))
             : back ? slot->grad
                    : slot->residual[unit - 1]);
    if (m->arch.per_layer.width > 0)
        add(&to, slot ? ax_per_layer_from(m, &slot->per_layer, unit - 1, rows)
                      : ax_per_layer_shape(m, unit - 1, rows));
    for (int64_t i = 0; i < m->arch.n_layers; i++) {
        if (!ax_lent_crosses(&m->arch, i, unit))
            continue;
        struct ax_tensor shape = ax_lent_shape(m, i, T);
        shape.dtype = back ? m->accum : m->dtype;
        const struct ax_lent none = {shape, shape, shape, shape},
                             *lent = slot ? &slot->lent[i] : &none;
        add(&to, back ? lent->dk : lent->k);
        add(&to, back ? lent->dv : lent->v);
    }
    return to;
}

enum ax_status ax_boundary_arrive(struct ax_pass *p, int unit) {
    const struct ax_model *m = p->model;
    for (int64_t i = 0; p->cache && i < m->arch.n_layers; i++) {
        if (!ax_lent_crosses(&m->arch, i, unit))
            continue;
        const struct ax_layer *l = &m->layers[i];
        const struct ax_lent *lent = &p->slot->lent[i];
        const int64_t heads = ax_lent_heads(m, &l->spec), hd = l->spec.head_dim;
        const struct ax_tensor k = ax_tensor_heads(&lent->k, heads, hd),
                               v = ax_tensor_heads(&lent->v, heads, hd),
                               own_k = ax_own_kv_heads(p, l, &k), own_v = ax_own_kv_heads(p, l, &v);
        AX_TRY(ax_kvcache_write(p->cache, m->rt->q, l->nth_keys, &own_k, &own_v));
    }
    return AX_OK;
}

size_t ax_boundary_bytes(const struct ax_model *m, int64_t T) {
    const struct ax_batch longest = {.T = T};
    size_t most = 0;
    for (int i = 0; i < m->chunks.n; i++) {
        const int first = m->chunks.list[i].first;
        for (int what = AX_CROSS_OUTPUT; first > 0 && what <= AX_CROSS_GRADIENT; what++) {
            const struct ax_message message =
                ax_boundary(m, (enum ax_crossing)what, first, &longest, NULL);
            const size_t bytes = ax_message_bytes(&message);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}
