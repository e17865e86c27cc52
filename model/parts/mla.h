/* What the files of latent attention share: mla.c, the mixer, and mla_cached.c, its attention over a
 * KV cache. */
#ifndef AX_MODEL_PARTS_MLA_H
#define AX_MODEL_PARTS_MLA_H

#include "model/core/pass.h"

/* Heads that this rank computes. */
int64_t ax_mla_heads(const struct ax_layer *l, const struct ax_arch *a);

/* Rope on the elements from `first` on of each of the H heads in the rows of t. */
enum ax_status ax_mla_rotate(const struct ax_pass *p, const struct ax_tensor *t, int64_t H,
                             int64_t first, bool inverse);

struct ax_mla_cached {
    struct ax_tensor q;        /* [T][H·head_dim], rotated; overwritten */
    struct ax_tensor normed;   /* [T/tp][kv_rank], this rank's rows */
    struct ax_tensor rope_key; /* [T/tp][rope], not rotated */
    struct ax_tensor out, lse; /* [T][H·v_head_dim], accumulation [T][H] */
};
/* Writes the rows' latents and rope keys to the pass's cache, and attends to all that it has. */
enum ax_status ax_mla_attend_cached(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_mla_cached *m);

#endif
