#include "model/arch/kv_row.h"

#include "model/arch/arch.h"

struct ax_kv_row ax_kv_row(const struct ax_arch *a, int tp) {
    if (a->mla.kv_rank > 0)
        return (struct ax_kv_row){.n_heads = 1,
                                  .key_dim = a->mla.kv_rank + a->mla.rope,
                                  .value_dim = a->mla.kv_rank,
                                  .values_in_keys = true};
    return (struct ax_kv_row){.n_heads = a->n_kv_heads < tp ? 1 : a->n_kv_heads / tp,
                              .key_dim = a->head_dim,
                              .value_dim = a->v_head_dim};
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
        n += a->layers[i].mixer->state == NULL;
    return n;
}

int64_t ax_kv_token_bytes(const struct ax_arch *a, int tp, enum ax_dtype dtype) {
    const struct ax_kv_row row = ax_kv_row(a, tp);
    return ax_kv_layers(a) * row_elements(&row) * (int64_t)ax_dtype_size(dtype);
}
