/* Architecture: the contents of config.json in the terms that the layers use.
 *
 * Reads both spellings: transformers 5 (rope_parameters, dtype) and 4 (rope_theta, rope_scaling,
 * torch_dtype). A family (one file each: llama.c, mistral.c, qwen.c) is a registry entry that holds
 * what is special about it. Settings that would change the result but are not implemented are
 * rejected. */
#ifndef AX_MODEL_ARCH_ARCH_H
#define AX_MODEL_ARCH_ARCH_H

#include "base/text/json.h"
#include "kernels/quant/scheme.h"
#include "model/arch/part.h"
#include "model/arch/rope.h"
#include "parallel/units/param.h"

struct ax_arch;
struct ax_hf_unused;

struct ax_family {
    const char *model_type;   /* config.json: model_type */
    const char *architecture; /* architectures[0] */
    const char *classifier;   /* its classifiers' begin so; NULL: as the architecture */
    const char *models;       /* as people call them: "Llama 2 and 3" */
    const char *lacks;        /* abilities that others have, or NULL: none */
    int64_t head_dim;         /* default if the config does not say; 0 = hidden_size / heads */
    struct ax_rope_usual rope;
    /* Sets the members that differ from Llama; `config` is the root of config.json. */
    enum ax_status (*parse)(struct ax_arch *arch, struct ax_json config);
    bool own_width; /* `parse` sets intermediate_size, which the config may lack */
    bool own_rope;  /* `parse` reads the rope, whose part of heads the common reader would refuse */
    const char *own_act; /* a hidden_act that `parse` reads and others lack, or NULL */
    /* a list with an entry for each layer, which counts them if num_hidden_layers is absent; or NULL */
    const char *layer_list;
    bool has_dropout; /* published configs do; `parse` reads attention_dropout, too */
    bool predicts;    /* its layer for multi-token prediction can train (ax_arch_predict) */
    double balance;   /* router_aux_loss_coef if the config does not say; 0: 0.001 */
};
const struct ax_family *ax_family_find(const char *model_type); /* NULL: unknown */
const struct ax_family *ax_family_at(size_t i);                 /* NULL: there are no more */
/* The model_type most like an unknown one, or NULL. */
const char *ax_family_nearest(const char *model_type);
/* What no layer here computes of what an unknown type's config asks for, by its keys and layer types:
 * "; missing here: short convolutions (conv_L_cache)"; empty if nothing is known. */
const char *ax_family_missing(struct ax_json config, char *buf, size_t size);

/* Checkpoint names of the parts of a mixture of experts: the router's weight and bias (NULL = none),
 * EXPERTS.E.{gate,up,down}.weight, the module of the shared expert and its gate's weight (NULL =
 * none); %d is the layer. */
struct ax_moe_names {
    const char *router, *experts, *gate, *up, *down;
    const char *bias, *shared, *shared_gate;
    const char *router_bias;  /* NULL: none */
    const char *expert_scale; /* factors of the weights, [E]; NULL: none */
    const char *module;       /* what PEFT calls the experts, below the layer; NULL: mlp.experts */
    const char *latent_in, *latent_out; /* modules around experts with a latent; NULL: none */
    bool bias_is_row;                   /* `bias` is [1][E] in files, not [E] */
};

/* Checkpoint names where the experts' matrices are stacked in one tensor each, [E][in][out], or [E][out][in] if
 * `out_first`, with biases [E][out] or none (NULL). Gate and up are neighbors in it if the gating is interleaved,
 * else all of the gate comes first. */
struct ax_moe_stacked {
    const char *gate_up, *gate_up_bias, *down, *down_bias;
    bool out_first;
};

/* Mixture of experts: a router sends each token to n_active of n_experts MLPs. */
struct ax_moe_config {
    int64_t n_experts, n_active; /* 0: no layer has experts */
    int64_t width;               /* feed-forward size of an expert */
    int64_t shared_width;        /* feed-forward size of the shared expert; 0 = none */
    int64_t latent;              /* size of what experts read and write; 0: hidden_size */
    struct ax_routing routing;
    /* an expert's input, not its output, is multiplied by its weight; n_active is 1 */
    bool weighs_input;
    /* coefficient of the balancing loss (model/parts/router.h) in training; 0 = none */
    double balance_coef;
    const struct ax_moe_names *names;
    const struct ax_moe_stacked *stacked; /* NULL: a tensor for each expert's matrix */
};

/* Sizes of multi-head latent attention (mla.c); head_dim = nope + rope. */
struct ax_mla_config {
    int64_t q_rank, kv_rank; /* sizes of the latents; q_rank 0: queries have none */
    int64_t nope, rope;      /* elements of a head that are not rotated, and those that are */
    bool bias;               /* the projections to latents and to the output have biases */
};

/* Sparse attention (model/parts/indexer.h): queries attend to the `top` keys that heads of head_dim choose. */
struct ax_index_config {
    int64_t heads, head_dim, top; /* top 0: no layer has it */
    bool interleaved;             /* its rope, as ax_rope */
};

/* Parameter names of the RMSNorms around a part of a layer, y = x + out(part(in(x))), with %d for
 * the layer; NULL = no norm. */
struct ax_norm_names {
    const char *in, *out;
};

/* The model's rope tables: a layer has the main or the local one, or none. QUERIES: that of queries where it
 * is another than the layer's (own_queries). */
enum ax_rope_use { AX_ROPE_MAIN, AX_ROPE_LOCAL, AX_ROPE_QUERIES, AX_ROPE_NONE };

/* One layer; a model's layers may differ. */
struct ax_layer_spec {
    const struct ax_part_type *mixer, *ffn;
    struct ax_norm_names mixer_norms, ffn_norms;
    int64_t window; /* sliding window in keys, 0 = none */
    bool chunked;   /* tokens attend within their chunk of the document (arch.chunk) */
    enum ax_rope_use rope;
    bool
        own_queries; /* the rope of queries is AX_ROPE_QUERIES; with latent attention besides the layer's */
    bool sinks; /* a score per head without a key: self_attn.sinks */
    /* the ffn reads the mixer's input: y = x + mixer(h) + ffn(h), h = norm(x); mixer_norms.in alone */
    bool parallel;
    /* 0: the model's; head_dim is that of lending attention (lending_attention.c), width its MLP's */
    int64_t kv_heads, head_dim, width;
    bool values_of_keys; /* no v_proj: values are what k_proj gives */
    bool lends, borrows; /* later layers use its keys and values; it uses those of layer `source` */
    int64_t source;
    const struct ax_part_type *extra; /* a third branch, or NULL */
    struct ax_norm_names extra_norms;
    bool predicts; /* it is for multi-token prediction (model/predict.h); only the last layer */
    bool sparse; /* gates of its MLP stay if they are above the mean by `cut` standard deviations */
    double cut;
};

/* How all RMSNorms compute: x̂·(offset + weight); `once`: x̂ is not rounded before the weight
 * (kernels/ops.h). With `centers` they are LayerNorms (not those of heads). */
struct ax_norm_style {
    double offset;
    bool once, centers;
};

/* RMSNorm of q and of k. */
enum ax_qk_norm {
    AX_QK_NORM_NONE,
    AX_QK_NORM_HEAD, /* each head separately, one shared weight [head_dim] */
    AX_QK_NORM_FULL, /* all heads of a token together */
    AX_QK_NORM_UNIT, /* each head separately, without weights; not in layers without rope */
};

struct ax_classifier;
struct ax_wrapper;

/* A short causal convolution of each channel (kernels/mixer_ops.h). */
struct ax_conv_config {
    int64_t taps;
    bool bias; /* it has one, and so have the projections around it */
};

/* The gated delta rule (kernels/delta_ops.h) as a mixer (model/parts/delta.c). */
enum ax_delta_layout {
    AX_DELTA_JOINED,  /* one matrix of q, k and v, and one of its convolutions */
    AX_DELTA_GROUPED, /* the same with z, and one of b and a; rows are by key head */
    AX_DELTA_APART,   /* each its own */
    AX_DELTA_CHANNELS /* the same, but decays, which channels have of their own, and z are by latents (KDA) */
};
struct ax_delta_config {
    int64_t key_heads, value_heads, key_dim, value_dim; /* value_heads 0: no layer has it */
    enum ax_delta_layout layout;
    double beta_scale, norm_eps; /* β is 0 … beta_scale; eps of the output's norm */
};

/* Mamba-2 (model/parts/mamba.c). Heads of a group share B and C. */
struct ax_ssd_config {
    int64_t heads, head_dim, groups, state; /* heads 0: no layer has it */
    double low, high;                       /* limits of the time step */
    bool bias, conv_bias;                   /* the projections have one; the convolution has */
    bool norm;                              /* RMSNorm of each group's gated elements */
    double scale[5];                        /* factors of z, x, B, C, dt */
};

/* A part's factors where two read one input (model/parts/beside.c): of what it reads, and of its output. */
struct ax_beside_scale {
    double in, out;
};

/* Embeddings of each layer (model/parts/per_layer.c): `width` elements for each layer, `columns` for all, of `rows`
 * tokens. */
#define AX_PER_LAYER_TABLE "model.embed_tokens_per_layer.weight"
struct ax_per_layer_config {
    int64_t width, columns, rows; /* width 0: none */
    int64_t stored;               /* rows in the checkpoint if fewer than `rows`; 0 = rows */
    bool shares_first;            /* further tokens have the first row, else there can be none */
};

/* AltUp (model/parts/altup.h): a token has several streams, of which layers compute the active one. */
#define AX_MAX_STREAMS 8
struct ax_streams_config {
    int64_t n, active; /* n 0: one stream, no AltUp */
};

/* A part of parameter names that a family has otherwise. */
struct ax_rename {
    const char *from, *to; /* NULL: the end of a list */
};

struct ax_arch {
    const struct ax_family *family;
    /* the model that this text model is a part of (families/family.h), or NULL */
    const struct ax_wrapper *wrapper;
    int64_t vocab_size, hidden_size, intermediate_size;
    int64_t vocab_stored; /* rows of embedding and head in the checkpoint if fewer than vocab_size;
                             0 = vocab_size */
    bool new_rows_mean;   /* new rows start as the mean of the stored ones, else random */
    int64_t n_layers, n_heads, n_kv_heads;
    int64_t head_dim, v_head_dim; /* per head: q and k; v */
    int64_t max_positions;
    double norm_eps;
    bool tied;                              /* lm_head is embed_tokens */
    bool unties;                            /* not tied, against its config: the weights differ */
    const struct ax_classifier *classifier; /* NULL: a language model (classifier.h) */
    int64_t n_labels; /* rows of a classifier's score.weight, which replaces lm_head; else 0 */
    /* the folder has a language model's head, which is dropped; score.* starts as new */
    bool new_head;
    bool qkv_bias, o_bias, mlp_bias;
    bool fused_qkv, fused_gate_up; /* one matrix: self_attn.qkv_proj, mlp.gate_up_proj */
    enum ax_qk_norm qk_norm;
    bool qk_norm_after;              /* after rope, not before it */
    const char *q_norm, *k_norm;     /* names, %d = the layer */
    const struct ax_rename *renames; /* names of the parts' parameters; NULL: as they are */
    struct ax_norm_style norm;
    struct ax_gating gating; /* the gate of MLPs and experts */
    bool gate_apart;         /* the gate of gated attention has a matrix of its own */
    bool ungated;            /* MLPs and experts have no gate: down(max(0, up)²) */
    double mlp_scale[2];     /* factors of an MLP's gate, before its activation, and of its up */
    double softmax_scale, score_softcap;
    double value_scale; /* factor of v */
    /* factor of looked-up rows; `_rounded`: Gemma's, which is rounded to the compute dtype first, and which
     * NEFTune's noise does not have */
    double embedding_scale;
    bool embedding_scale_rounded;
    /* factor of each branch's output before it is added to the residual stream */
    double residual_scale;
    double middle_scale;               /* factor of the residual stream between a layer's parts */
    double logit_scale, logit_softcap; /* applied to a language model's logits; softcap 0 = none */
    double init_range;
    int32_t pad_token;   /* its embedding row gets no gradient from look-ups; −1 = none */
    int32_t score_pad;   /* pad of ax_score_position for a reward model's texts; −1 = none */
    enum ax_dtype dtype; /* dtype of the checkpoint, from the config; F32 if not given */
    struct ax_rope_config rope, rope_local; /* dim 0: not used */
    struct ax_rope_config rope_queries;     /* dim 0: not used */
    int64_t chunk; /* tokens that chunked layers attend within; 0: there are none */
    struct ax_mla_config mla;
    struct ax_index_config index;
    struct ax_conv_config conv;
    struct ax_delta_config delta;
    struct ax_ssd_config ssd;
    struct ax_beside_scale beside_attention, beside_mamba;
    struct ax_moe_config moe;
    struct ax_per_layer_config per_layer;
    struct ax_streams_config streams;
    int64_t laurel_rank;     /* rank of the path beside attention (model/parts/laurel.c) */
    const char *layer_scale; /* name of the factor of a layer's output, a buffer [1]; NULL: none */
    bool quantizes_input;    /* the folder's weights are quantized for activations in `input` */
    struct ax_number_format input;
    const char
        *unfollowed; /* key of what else is quantized while the model runs (ckpt/hf/compressed.h) */
    /* quant_method in config.json's quantization_config; "": the folder is not quantized */
    char quant_method[24];
    /* the storage that can have the codes of a GPTQ's or bitsandbytes' folder; AX_STORAGE_PLAIN: none */
    enum ax_storage codes;
    /* further layers in the folder after the last one, for multi-token prediction. They are kept
     * and not used (but see ax_arch_predict and model/drafter.h) */
    int64_t n_unused;
    const char *unused_prefix;    /* prefix of such tensors in no layer; or NULL */
    struct ax_layer_spec *layers; /* [n_layers] */
};

static inline const char *ax_moe_module(const struct ax_arch *a) {
    return a->moe.names && a->moe.names->module ? a->moe.names->module : "mlp.experts";
}
static inline int64_t ax_spec_width(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    return spec->width > 0 ? spec->width : a->intermediate_size;
}

enum ax_status ax_arch_parse(struct ax_arch *arch, struct ax_json config);
/* Can the layer for multi-token prediction, which the model's folders have after the last one, be used?
 * AX_ERR_CONFIG if there is none, AX_ERR_UNSUPPORTED if there are several or the family's are only kept; the
 * messages begin with `key`. */
enum ax_status ax_arch_check_predict(const struct ax_arch *arch, const char *key);
/* Checks it, and makes it the last layer. */
enum ax_status ax_arch_predict(struct ax_arch *arch, const char *key);
/* The same for a copy, with a checked layer: the caller frees its `layers`, all else is borrowed. An error leaves
 * *copy as it was. */
enum ax_status ax_arch_with_prediction(const struct ax_arch *arch, struct ax_arch *copy);
static inline bool ax_arch_predicts(const struct ax_arch *a) {
    return a->n_layers > 0 && a->layers[a->n_layers - 1].predicts;
}
/* Folders have copies of the embedding (i = 0) and of the head (1) beside that layer: writes the name
 * of one. */
#define AX_ARCH_COPIES 2
const char *ax_arch_copy_name(const struct ax_arch *arch, int i, char *buf, size_t size);
/* Parses a file's contents, with `fields` (an object, or NULL) replacing members. If it is the
 * config of a model that contains a text model, the text model's part is parsed. Changes `doc`. */
enum ax_status ax_arch_parse_file(struct ax_arch *arch, struct ax_json_doc *doc, json_t *fields);
/* "llama"; for a text model inside another, "qwen2 in qwen2_vl". For messages. */
const char *ax_arch_type(const struct ax_arch *arch, char *buf, size_t size);
/* True if `path` names a config.json (ends in .json) rather than a folder with weights. */
bool ax_arch_path_is_config(const char *path);
/* Reads DIR/config.json, or `path` itself if it is a file. */
enum ax_status ax_arch_load(struct ax_arch *arch, const char *path);
/* The same, with `fields` (an object, or NULL) replacing members of the file. */
enum ax_status ax_arch_load_with(struct ax_arch *arch, const char *path, json_t *fields);
/* Puts `fields` into a config, and converts `fields` to the config's spelling (transformers 4 or
 * 5). AX_ERR_CONFIG for a field that the config lacks (the message names `file`), except for those
 * that Hugging Face leaves out at their defaults. */
enum ax_status ax_arch_override(json_t *config, json_t *fields, const char *file);
void ax_arch_free(struct ax_arch *arch);

/* Copies an architecture with only the first layer of each kind; as[i] is the kind of layer i.
 * `each`: every layer is a kind of its own. The caller frees kinds->layers and nothing else, also
 * after an error. */
enum ax_status ax_arch_kinds(const struct ax_arch *arch, bool each, struct ax_arch *kinds, int *as);

/* Heads of k and v of a layer. */
static inline int64_t ax_layer_kv_heads(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    return spec->kv_heads > 0 ? spec->kv_heads : a->n_kv_heads;
}

/* What the model's folders have beside the tensors that it uses. */
struct ax_hf_unused ax_arch_unused(const struct ax_arch *arch);
/* True for a tensor of the model's folders that keeps its dtype, whatever the others are written
 * in: in a layer that is not used, or a buffer. */
bool ax_arch_keeps_dtype(const struct ax_arch *arch, const char *name);
/* Matrices of an MLP, or an expert, that read its input: gate and up, or up alone. */
static inline int ax_arch_ups(const struct ax_arch *arch) {
    return arch->ungated ? 1 : 2;
}
/* Elements of a token between layers. */
static inline int64_t ax_arch_stream_size(const struct ax_arch *arch) {
    return arch->hidden_size * (arch->streams.n > 0 ? arch->streams.n : 1);
}
/* What an expert reads and writes of a token. */
static inline int64_t ax_arch_expert_size(const struct ax_arch *arch) {
    return arch->moe.latent > 0 ? arch->moe.latent : arch->hidden_size;
}
/* True if a vocabulary of `size` needs more rows of the per-layer inputs' table, too. */
bool ax_arch_grows_inputs(const struct ax_arch *arch, int64_t size);
/* Adds rows to the tables of tokens, for a vocabulary of `size`; and the fields of config.json that say so, which stay
 * as they are where none were added. */
void ax_arch_grow(struct ax_arch *arch, int64_t size);
enum ax_status ax_arch_grown_fields(const struct ax_arch *arch, json_t *fields);
/* Logits per token: the vocabulary, or a classifier's labels. */
int64_t ax_arch_head_rows(const struct ax_arch *arch);
/* Trainable parameters: embeddings, layers with all their experts, head; tied ones counted once. Not
 * unused layers. */
int64_t ax_arch_parameters(const struct ax_arch *arch);
/* FLOPs of a token's forward pass in a unit (the embedding, a layer, …, the head): 2 per matrix
 * element that it passes through, attention as below, of layers that attend, and for a look-up 2 per element of the
 * row. */
double ax_arch_unit_flops(const struct ax_arch *arch, int64_t unit, int64_t seq);
/* Training FLOPs per token: 6 per matrix parameter the token passes through (the head counts once,
 * tied or not; embedding lookups do not count; only the token's active experts count) +
 * 6·layers·heads·head_dim·seq for causal attention (half of the full 12·L·H·hd·seq; if v heads have
 * another size, hd is the mean of both). Formula name: "6N+6LHS causal". */
double ax_arch_flops_per_token(const struct ax_arch *arch, int64_t seq);

#endif
