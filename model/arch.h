/* Architecture: what a config.json says, in the words the layers use.
 *
 * Both spellings are read: transformers 5 (rope_parameters, dtype) and 4 (rope_theta, rope_scaling,
 * torch_dtype). A family (one file each: llama.c, mistral.c, qwen.c) is a registry row that says
 * what is special about it. Values that would change the result but are not implemented are
 * refused. */
#ifndef AX_MODEL_ARCH_H
#define AX_MODEL_ARCH_H

#include "base/json.h"
#include "model/rope.h"

struct ax_arch;

struct ax_family {
    const char *model_type;   /* config.json: model_type */
    const char *architecture; /* architectures[0] */
    int64_t head_dim;         /* where the config is silent; 0 = hidden_size / heads */
    /* Fills what differs from Llama; `config` is the root of config.json. */
    enum ax_status (*parse)(struct ax_arch *arch, struct ax_json config);
};
const struct ax_family *ax_family_find(const char *model_type); /* NULL: unknown */
/* "llama, mistral, …" for messages. */
const char *ax_family_list(char *buf, size_t size);

struct ax_part_type;

/* What a checkpoint calls the parts of a mixture of experts: ROUTER.weight and
 * EXPERTS.E.{gate,up,down}.weight; %d is the layer. */
struct ax_moe_names {
    const char *router, *experts, *gate, *up, *down;
};

/* Mixture of experts: a router sends each token to n_active of n_experts SwiGLU MLPs. */
struct ax_moe_config {
    int64_t n_experts, n_active; /* 0: no layer has experts */
    int64_t width;               /* feed-forward size of an expert */
    bool renormalize;            /* the weights of the chosen add up to one */
    const struct ax_moe_names *names;
};

/* RMSNorms around a part of a layer, y = x + out(part(in(x))): their parameters' names, with %d for
 * the layer; NULL = no norm there. */
struct ax_norm_names {
    const char *in, *out;
};

/* One layer; layers of a model may differ. */
struct ax_layer_spec {
    const struct ax_part_type *mixer, *ffn;
    struct ax_norm_names mixer_norms, ffn_norms;
    int64_t window; /* sliding window in keys, 0 = none */
};

/* RMSNorm of q and of k, before rope. */
enum ax_qk_norm {
    AX_QK_NORM_NONE,
    AX_QK_NORM_HEAD, /* each head by itself, with one weight [head_dim] */
    AX_QK_NORM_FULL, /* all heads of a token together; supports only tp 1 so far */
};

struct ax_arch {
    const struct ax_family *family;
    int64_t vocab_size, hidden_size, intermediate_size;
    int64_t vocab_stored; /* rows of embedding and head in the checkpoint where they are fewer than
                             vocab_size; 0 = as many */
    bool new_rows_mean;   /* those behind begin as the mean of these, else at random */
    int64_t n_layers, n_heads, n_kv_heads;
    int64_t head_dim, v_head_dim; /* of a head of q and k, and of v */
    int64_t max_positions;
    double norm_eps;
    bool tied; /* lm_head is embed_tokens */
    bool qkv_bias, o_bias, mlp_bias;
    enum ax_qk_norm qk_norm;
    double softmax_scale;
    double init_range;
    int32_t pad_token;   /* its embedding row gets no gradient from look-ups; −1 = none */
    enum ax_dtype dtype; /* of the checkpoint, as the config says; F32 where it does not */
    struct ax_rope_config rope;
    struct ax_moe_config moe;
    struct ax_layer_spec *layers; /* [n_layers] */
};

enum ax_status ax_arch_parse(struct ax_arch *arch, struct ax_json config);
/* Does `path` name a config.json (it ends in .json) rather than a folder with weights? */
bool ax_arch_path_is_config(const char *path);
/* Reads DIR/config.json, or the file itself when `path` is one. */
enum ax_status ax_arch_load(struct ax_arch *arch, const char *path);
void ax_arch_free(struct ax_arch *arch);

/* Parameters that train: embeddings, blocks with all their experts, head; tied ones once. */
int64_t ax_arch_parameters(const struct ax_arch *arch);
/* FLOPs of one trained token: 6 per matrix parameter that the token meets (tied or not, the head
 * counts once; the embedding look-up does not; of the experts those it goes to) +
 * 6·layers·heads·head_dim·seq for causal attention (half of the full 12·L·H·hd·seq; where the heads
 * of v have another size, hd is the mean of both). Formula name:
 * "6N+6LHS causal". */
double ax_arch_flops_per_token(const struct ax_arch *arch, int64_t seq);

#endif
