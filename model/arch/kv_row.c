#include "model/arch/kv_row.h"

#include "base/mem.h"
#include "model/arch/arch.h"

bool ax_kv_keeps(const struct ax_arch *a, int64_t layer) {
    return a->layers[layer].mixer->keys && !a->layers[layer].borrows;
}

static struct ax_kv_row row_of(const struct ax_arch *a, int64_t layer, int tp) {
    const struct ax_layer_spec *spec = &a->layers[layer];
    const int64_t heads = ax_layer_kv_heads(a, spec);
    if (a->mla.kv_rank > 0)
        return (struct ax_kv_row){.n_heads = 1,
                                  .key_dim = a->mla.kv_rank + a->mla.rope,
                                  .value_dim = a->mla.kv_rank,
                                  .values_in_keys = true};
    return (struct ax_kv_row){.n_heads = heads < tp ? 1 : heads / tp,
                              .key_dim = spec->head_dim > 0 ? spec->head_dim : a->head_dim,
                              .value_dim = spec->head_dim > 0 ? spec->head_dim : a->v_head_dim};
}

enum ax_status ax_kv_rows(const struct ax_arch *a, int tp, struct ax_kv_row **rows) {
    int64_t n = 0;
    AX_TRY(ax_alloc(rows, (size_t)a->n_layers, sizeof **rows));
    for (int64_t i = 0; i < a->n_layers; i++)
        if (ax_kv_keeps(a, i))
            (*rows)[n++] = row_of(a, i, tp);
    return AX_OK;
}

static int64_t row_elements(const struct ax_kv_row *row) {
    return row->n_heads * (row->key_dim + (row->values_in_keys ? 0 : row->value_dim));
}

struct ax_state_size ax_state_size(const struct ax_arch *a, const struct ax_mesh *mesh) {
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].mixer->state)
            return a->layers[i].mixer->state(a, mesh);
    return (struct ax_state_size){0};
}

int64_t ax_index_layers(const struct ax_arch *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_layers; i++)
        n += a->layers[i].mixer == &ax_mixer_dsa;
    return n;
}

int64_t ax_kv_layers(const struct ax_arch *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_layers; i++)
        n += ax_kv_keeps(a, i);
    return n;
}

int64_t ax_state_layers(const struct ax_arch *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_layers; i++)
        n += a->layers[i].mixer->state != NULL;
    return n;
}

int64_t ax_kv_token_bytes(const struct ax_arch *a, int tp, enum ax_dtype dtype) {
    int64_t elements = ax_index_layers(a) * a->index.head_dim;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_kv_row row = row_of(a, i, tp);
        elements += ax_kv_keeps(a, i) ? row_elements(&row) : 0;
    }
    return elements * (int64_t)ax_dtype_size(dtype);
}
