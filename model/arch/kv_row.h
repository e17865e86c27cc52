/* The size of a token in the KV cache, per layer. */
#ifndef AX_MODEL_ARCH_KV_ROW_H
#define AX_MODEL_ARCH_KV_ROW_H

#include "kernels/queue.h"

struct ax_arch;

struct ax_kv_row {
    int64_t n_heads; /* KV heads that this rank's queries attend to */
    int64_t key_dim, value_dim;
    /* a value is the first value_dim elements of its key: latents (mla.c) */
    bool values_in_keys;
};
/* The row on a rank of tp. */
struct ax_kv_row ax_kv_row(const struct ax_arch *a, int tp);
/* Bytes of a token in all layers. */
int64_t ax_kv_token_bytes(const struct ax_arch *a, int tp, enum ax_dtype dtype);

#endif
