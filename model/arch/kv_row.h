/* The size of a token in the KV cache, in each layer; and of a sequence in layers with a state. */
#ifndef AX_MODEL_ARCH_KV_ROW_H
#define AX_MODEL_ARCH_KV_ROW_H

#include "kernels/queue.h"

struct ax_arch;
struct ax_mesh;
struct ax_state_size;

struct ax_kv_row {
    int64_t n_heads; /* KV heads that this rank's queries attend to */
    int64_t key_dim, value_dim;
    /* a value is the first value_dim elements of its key: latents (mla.c) */
    bool values_in_keys;
};
/* *rows, freed by the caller: those of all layers that keep keys and values, on a rank of tp. */
enum ax_status ax_kv_rows(const struct ax_arch *a, int tp, struct ax_kv_row **rows);
/* True if a layer keeps keys and values of its own. */
bool ax_kv_keeps(const struct ax_arch *a, int64_t layer);
/* The state of layers that have one (part.h), on a rank; zeros without. */
struct ax_state_size ax_state_size(const struct ax_arch *a, const struct ax_mesh *mesh);
/* Layers that also keep the keys of their indexer. */
int64_t ax_index_layers(const struct ax_arch *a);
/* Layers that keep keys and values; and those with a state: where there are any, a token depends on all before it, and
 * no layer can start from a place in the middle of a sequence but with a state of that place. */
int64_t ax_kv_layers(const struct ax_arch *a);
int64_t ax_state_layers(const struct ax_arch *a);
/* Bytes of a token in all of them. */
int64_t ax_kv_token_bytes(const struct ax_arch *a, int tp, enum ax_dtype dtype);

#endif
