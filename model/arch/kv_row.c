#include "model/arch/kv_row.h"

#include "model/arch/arch.h"

struct ax_kv_row ax_kv_row(const struct ax_arch *a, int64_t layer, int tp) {
    const int64_t heads = ax_layer_kv_heads(a, &a->layers[layer]);
    if (a->mla.kv_rank > 0)
        return (struct ax_kv_row){.n_heads = 1,
                                  .key_dim = a->mla.kv_rank + a->mla.rope,
                                  .value_dim = a->mla.kv_rank,
                                  .values_in_keys = true};
    return (struct ax_kv_row){
        .n_heads = heads < tp ? 1 : heads / tp, .key_dim = a->head_dim, .value_dim = a->v_head_dim};
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

int64_t ax_kv_layers(const struct ax_arch *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_layers; i++)
        n += a->layers[i].mixer->keys;
    return n;
}

int64_t ax_state_layers(const struct ax_arch *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_layers; i++)
        n += a->layers[i].mixer->state != NULL;
    return n;
}

void ax_kv_rows(const struct ax_arch *a, int tp, struct ax_kv_row *rows) {
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].mixer->keys)
            *rows++ = ax_kv_row(a, i, tp);
}

int64_t ax_kv_token_bytes(const struct ax_arch *a, int tp, enum ax_dtype dtype) {
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_kv_row row = ax_kv_row(a, i, tp);
        n += a->layers[i].mixer->keys ? row_elements(&row) : 0;
    }
    return n * (int64_t)ax_dtype_size(dtype);
}
