/* The model families, each in a file of model/families/, or related ones in one; family.c finds them. A family
 * reads what its config.json has beyond Llama's: CONTRIBUTING.md says how to add one. */
#ifndef AX_MODEL_ARCH_FAMILY_H
#define AX_MODEL_ARCH_FAMILY_H

#include "model/arch/arch.h"

/* In the order of messages. */
#define AX_FAMILY_LIST(X)                                                                          \
    X(afmoe)                                                                                       \
    X(arcee)                                                                                       \
    X(cohere)                                                                                      \
    X(cohere2)                                                                                     \
    X(cwm)                                                                                         \
    X(deepseek_v2)                                                                                 \
    X(deepseek_v3)                                                                                 \
    X(deepseek_v32)                                                                                \
    X(dots1)                                                                                       \
    X(ernie4_5)                                                                                    \
    X(ernie4_5_moe)                                                                                \
    X(exaone4)                                                                                     \
    X(exaone_moe)                                                                                  \
    X(falcon_h1)                                                                                   \
    X(flex_olmo)                                                                                   \
    X(gemma)                                                                                       \
    X(gemma2)                                                                                      \
    X(gemma3)                                                                                      \
    X(gemma3n)                                                                                     \
    X(gemma4)                                                                                      \
    X(glm)                                                                                         \
    X(glm4)                                                                                        \
    X(glm4_moe)                                                                                    \
    X(glm4_moe_lite)                                                                               \
    X(glm4v)                                                                                       \
    X(glm_moe_dsa)                                                                                 \
    X(gpt_oss)                                                                                     \
    X(granite)                                                                                     \
    X(granitemoe)                                                                                  \
    X(granitemoehybrid)                                                                            \
    X(granitemoeshared)                                                                            \
    X(helium)                                                                                      \
    X(hunyuan_v1_dense)                                                                            \
    X(hunyuan_v1_moe)                                                                              \
    X(hyperclovax)                                                                                 \
    X(internlm3)                                                                                   \
    X(iquestcoder)                                                                                 \
    X(kimi_linear)                                                                                 \
    X(lfm2)                                                                                        \
    X(lfm2_moe)                                                                                    \
    X(llama)                                                                                       \
    X(llama4_text)                                                                                 \
    X(mellum)                                                                                      \
    X(mimo_v2_flash)                                                                               \
    X(minimax_m2)                                                                                  \
    X(minicpm3)                                                                                    \
    X(ministral)                                                                                   \
    X(ministral3)                                                                                  \
    X(mistral)                                                                                     \
    X(mistral4)                                                                                    \
    X(mixtral)                                                                                     \
    X(nemotron_h)                                                                                  \
    X(olmo2)                                                                                       \
    X(olmo3)                                                                                       \
    X(olmo_hybrid)                                                                                 \
    X(olmoe)                                                                                       \
    X(phi3)                                                                                        \
    X(qwen2)                                                                                       \
    X(qwen2_moe)                                                                                   \
    X(qwen3)                                                                                       \
    X(qwen3_5)                                                                                     \
    X(qwen3_5_moe)                                                                                 \
    X(qwen3_moe)                                                                                   \
    X(qwen3_next)                                                                                  \
    X(seed_oss)                                                                                    \
    X(smollm3)                                                                                     \
    X(solar_open)                                                                                  \
    X(vaultgemma)                                                                                  \
    X(youtu)
#define AX_FAMILY_DECLARE(name) extern const struct ax_family ax_family_##name;
AX_FAMILY_LIST(AX_FAMILY_DECLARE)
#undef AX_FAMILY_DECLARE

/* A model that contains the text model of a family. */
struct ax_wrapper {
    const char *model_type, *architecture; /* as in struct ax_family */
    const char *text;   /* model_type of the text model if its config does not say */
    const char *module; /* what precedes "model." in its modules' names in transformers */
};
/* *text = the config of the text model, completed with defaults as transformers does, and its
 * *wrapper. If config.json is not of such a model, *text is its root and *wrapper NULL.
 * AX_ERR_UNSUPPORTED for a model that cannot be trained. */
enum ax_status ax_wrapper_open(struct ax_json_doc *doc, struct ax_json *text,
                               const struct ax_wrapper **wrapper); /* wrappers.c */
/* The i-th wrapper, or NULL. */
const struct ax_wrapper *ax_wrapper_at(size_t i);

/* Sets the activation that a config names under `key`, or the usual one. AX_ERR_UNSUPPORTED for an
 * unknown one. */
enum ax_status ax_activation_parse(struct ax_arch *arch, struct ax_json config, const char *key,
                                   const char *usual); /* fields.c */

/* Reads the norms' eps; `usual` if the config does not say. */
enum ax_status ax_norm_eps_parse(struct ax_arch *arch, struct ax_json config, const char *key,
                                 double usual); /* fields.c */
/* *out: the cap of scores or logits under `key`, the usual one if it is absent; 0: none. */
enum ax_status ax_cap_parse(struct ax_json config, const char *key, double usual,
                            double *out); /* fields.c */

/* Keys whose only value that the family has here is `usual`, which they also have if they are absent.
 * AX_ERR_UNSUPPORTED names another one. Some of them transformers ignores, others it does not. */
enum ax_status ax_field_only(struct ax_json config, const char *key,
                             const char *usual); /* fields.c */
enum ax_status ax_field_only_bool(struct ax_json config, const char *key,
                                  bool usual); /* fields.c */
/* The same of limits of q, k and v (clip_qkv), of which only null is here. */
enum ax_status ax_refuse_clip(struct ax_json config); /* fields.c */

/* Reads llama_4_scaling_beta of the rope: how queries grow with their position, into *queries (rope.h), in periods of
 * the original context, or of `usual` positions. Period 0: they do not. */
enum ax_status ax_query_growth_parse(struct ax_json config, int64_t usual,
                                     struct ax_rope_config *queries); /* fields.c */
/* Reads attention_bias, which is of q, k, v and the output; false if the config does not say. */
enum ax_status ax_attention_bias_parse(struct ax_arch *arch, struct ax_json config); /* fields.c */
/* *window: sliding_window, at least `least`, or `usual` if it is absent; 0 for none, which it is for null. */
enum ax_status ax_window_parse(struct ax_json config, int64_t least, int64_t usual,
                               int64_t *window); /* fields.c */

/* AX_ERR_DATA unless a list, or a text with a letter for each, has the n entries of all layers. */
enum ax_status ax_check_per_layer(const struct ax_arch *a, struct ax_json list,
                                  size_t n); /* fields.c */

/* *kind: which of the known kinds, a list that ends in NULL, layer_types gives a layer; unchanged if the config
 * has no such list. AX_ERR_UNSUPPORTED for another one. */
enum ax_status ax_layer_kind(const struct ax_arch *a, struct ax_json config, int64_t layer,
                             const char *const *known, int *kind); /* fields.c */
/* The same of a list under another key. */
enum ax_status ax_listed_kind(const struct ax_arch *a, struct ax_json config, const char *key,
                              int64_t layer, const char *const *known, int *kind); /* fields.c */
/* Reads the sizes of the gated delta rule and of its convolutions; `usual` has those that a config may leave out. The
 * layout is JOINED. */
enum ax_status ax_delta_parse(struct ax_arch *a, struct ax_json config,
                              struct ax_delta_config usual); /* fields.c */
/* *slides: whether a layer has a sliding window, by layer_types, or `usual` if the config has no
 * such list. */
enum ax_status ax_layer_slides(const struct ax_arch *a, struct ax_json config, int64_t layer,
                               bool usual, bool *slides); /* fields.c */
/* Gives the layer the window if it slides. */
enum ax_status ax_layer_window(struct ax_arch *a, struct ax_json config, int64_t layer, bool usual,
                               int64_t window); /* fields.c */
/* Gives a sliding window to all layers but every `period`-th, unless layer_types says otherwise,
 * and each layer its rope: a sliding layer's is rope_local if the model has one. */
enum ax_status ax_layer_windows(struct ax_arch *a, struct ax_json config,
                                int64_t period); /* fields.c */

/* Reads the two ropes of Gemma 3: of full layers, and of those with a window. */
enum ax_status ax_gemma_ropes_parse(struct ax_arch *a, struct ax_json config); /* gemma.c */
/* Reads num_kv_shared_layers, the number of last layers that use the keys and values of another: of the last one before
 * them all with the same rope. */
enum ax_status ax_kv_sharing_parse(struct ax_arch *a, struct ax_json config,
                                   int64_t usual); /* fields.c */

/* Keys of Mamba-2's sizes, and what they are where a config does not say. width: heads · head_dim, as other keys have
 * it, from which head_dim follows where it is absent or "auto"; 0: there is no such key. lowest: the key of the lowest
 * time step, where none is the highest; NULL: time_step_limit has both. */
struct ax_ssd_keys {
    const char *heads, *head_dim, *groups, *state, *taps, *conv_bias, *bias, *lowest;
    struct {
        int64_t heads, head_dim, groups, state;
        double lowest;
    } usual;
    int64_t width;
};
/* Reads a->ssd and a->conv.taps. */
enum ax_status ax_ssd_parse(struct ax_arch *a, struct ax_json config,
                            const struct ax_ssd_keys *keys); /* mamba.c */

/* Reads the number of experts and of active experts, in either spelling (num_local_experts,
 * num_experts), into a->moe; the usual numbers if the config does not say. */
enum ax_status ax_moe_parse(struct ax_arch *a, struct ax_json config, int64_t usual_experts,
                            int64_t usual_active); /* mixtral.c */
/* Sizes of latent attention where a config does not say, as in struct ax_mla_config; null for q_lora_rank means that
 * queries have no latent, as does 0. */
struct ax_mla_usual {
    int64_t q_rank, kv_rank, nope, rope, v_head_dim;
};
/* Reads it but for its rope. */
enum ax_status ax_mla_parse(struct ax_arch *a, struct ax_json config,
                            const struct ax_mla_usual *usual); /* deepseek.c */
extern const struct ax_mla_usual ax_deepseek_mla;
/* Keys of DeepSeek's mixture that others spell in their way. */
struct ax_deepseek_keys {
    const char *experts, *active, *shared, *renormalize, *groups;
};
/* Defaults of DeepSeek's mixture where the config does not say. first_dense −1: the family says which layers have
 * experts. */
struct ax_deepseek_moe {
    int64_t n_experts, n_active, width, n_shared, first_dense, groups, groups_kept;
    double scale;
    bool renormalize;
    int group_best;                      /* not in the config */
    bool softmax;                        /* scores of experts, else sigmoids */
    const struct ax_moe_names *names;    /* NULL: DeepSeek-V3's */
    const struct ax_deepseek_keys *keys; /* NULL: DeepSeek's */
};
/* Reads a DeepSeek mixture: shared experts, which layers are dense, how experts are chosen and
 * weighed, and how many layers of multi-token prediction follow. */
enum ax_status ax_deepseek_moe_parse(struct ax_arch *a, struct ax_json config,
                                     const struct ax_deepseek_moe *usual); /* deepseek.c */
/* Checkpoint names of Qwen3's experts. */
extern const struct ax_moe_names ax_qwen_moe_names;

#endif
