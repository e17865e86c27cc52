/* The parts that a layer is made of: a mixer and an ffn, or one of them. A family says which a layer has. */
#ifndef AX_MODEL_ARCH_PART_H
#define AX_MODEL_ARCH_PART_H

#include "base/status.h"
#include "kernels/tensor.h"

struct ax_arch;
struct ax_builder;
struct ax_layer;
struct ax_layer_spec;
struct ax_linear;
struct ax_mesh;
struct ax_pass;
struct ax_saved;

/* Number of elements of a part's parameters, including all its experts; buffers do not count. */
struct ax_part_size {
    int64_t matrices, active; /* matrix elements in total; those that a token passes through */
    int64_t vectors;
};

/* What a layer keeps of a sequence for its next token, on a rank of tp, beside or instead of keys and values: the
 * last `rows` inputs of a convolution, `channels` wide; and the state of the delta rule, or of Mamba-2, with its running chunk
 * (kernels/delta_ops.h), if there are value heads. */
struct ax_state_size {
    int64_t rows, channels;
    int64_t key_heads, value_heads, key_dim, value_dim;
    bool channel_decays; /* each channel of the keys has a decay of its own */
};

/* The functions of a mixer (mixes tokens) or an ffn (each token separately). */
struct ax_part_type {
    const char *name;
    int n_saved; /* number of intermediate tensors s[0 … n_saved − 1], see stash.h */
    /* It is two linears, of which the first reads h and the second s[between]. */
    bool two_linears;
    int between;
    bool keys; /* a mixer that keeps keys and values (kv_row.h) */
    /* Adds its parameters. */
    void (*init)(struct ax_builder *b, struct ax_layer *l);
    /* Lists its linears in model order, for adapters and packed storage; returns how many. */
    int (*linears)(struct ax_layer *l, struct ax_linear **out);
    struct ax_part_size (*size)(const struct ax_arch *a, const struct ax_layer_spec *spec);
    /* FLOPs of a token's forward pass, in a sequence of seq, that are products with no matrix of the part;
     * NULL: none. */
    double (*mixing)(const struct ax_arch *a, const struct ax_layer_spec *spec, int64_t seq);
    /* FLOPs of a token's forward pass to which backward has no counterpart; NULL: none. */
    double (*choosing)(const struct ax_arch *a, int64_t seq);
    /* Size of a mixer's state; NULL: it has none. */
    struct ax_state_size (*state)(const struct ax_arch *a, const struct ax_mesh *mesh);
    /* Declares the tensors of s that it needs in this pass; the others take no memory. */
    void (*declare)(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s);
    /* out [T][D] = part(h), plus x if not NULL; out NULL: recomputes only what backward needs.
     * Computes whatever is missing in s. */
    enum ax_status (*forward)(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                              const struct ax_tensor *h, const struct ax_tensor *x,
                              const struct ax_tensor *out);
    /* dh = gradient of h (NULL: not requested), given dy, the gradient of the part's output. dy NULL: only what
     * trains by a loss of the part's own (index_training.h). */
    enum ax_status (*backward)(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                               const struct ax_tensor *h, const struct ax_tensor *dy,
                               const struct ax_tensor *dh);
};

extern const struct ax_part_type ax_mixer_attention; /* attention.c */
extern const struct ax_part_type ax_mixer_mla;       /* mla.c */
extern const struct ax_part_type ax_mixer_dsa;       /* mla.c: with an indexer */
extern const struct ax_part_type
    ax_mixer_dsa_shared;                           /* mla.c: with the choice of the last indexer */
extern const struct ax_part_type ax_mixer_gated;   /* gated_attention.c */
extern const struct ax_part_type ax_mixer_lending; /* lending_attention.c */
extern const struct ax_part_type ax_mixer_laurel;  /* laurel.c: the same beside a low-rank path */
extern const struct ax_part_type ax_mixer_shortconv; /* shortconv.c */
extern const struct ax_part_type ax_mixer_delta;     /* delta.c */
extern const struct ax_part_type ax_mixer_mamba;     /* mamba.c */
extern const struct ax_part_type ax_mixer_beside;    /* beside.c */
extern const struct ax_part_type ax_part_none;       /* none.c: a layer without one of the two */
extern const struct ax_part_type ax_ffn_swiglu;      /* mlp.c */
extern const struct ax_part_type ax_ffn_moe;         /* moe.c */
extern const struct ax_part_type ax_ffn_moe_shared;  /* shared_expert.c */
extern const struct ax_part_type ax_ffn_moe_beside;  /* moe_beside.c */
extern const struct ax_part_type ax_extra_per_layer; /* per_layer.c */
/* n_saved of parts that others have inside them */
#define AX_ATTENTION_SAVED 6
#define AX_LENDING_SAVED   9
#define AX_PER_LAYER_SAVED 2
#define AX_MAMBA_SAVED     12
#define AX_MOE_SAVED       14

#endif
