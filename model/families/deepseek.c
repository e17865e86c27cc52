/* DeepSeek-V2 and V3 (DeepSeek-AI 2024): latent attention; a few dense layers, then mixtures of many
 * small experts with shared ones. DeepSeek-V3.2 (2025) and GLM-5 (Z.ai 2026): V3 with sparse attention. GLM-4.7-Flash
 * (Z.ai 2026): V3 with other sizes; Youtu-LLM (Tencent 2025): its attention without experts; MiniCPM 3 (OpenBMB
 * 2024): with factors on embeddings, branches and logits, too; Mistral 4 (Mistral AI 2026): V2's mixture, and queries
 * that grow with their position. Config keys and their defaults are transformers'. */
#include <math.h>
#include <string.h>

#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_DIM        (1LL << 24)
#define MAX_INDEX_HEAD 256

/* Heads: nope and rope elements; those of values are others. */
static enum ax_status head_sizes(struct ax_arch *a, struct ax_json c,
                                 const struct ax_mla_usual *u) {
    struct ax_mla_config *m = &a->mla;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "qk_nope_head_dim"), 1, 1024, u->nope, &m->nope));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "qk_rope_head_dim"), 2, 1024, u->rope, &m->rope));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "v_head_dim"), 1, 2048, u->v_head_dim, &a->v_head_dim));
    a->head_dim = m->nope + m->rope;
    if (a->v_head_dim < 1)
        return ax_json_error(c, "without v_head_dim, %lld elements do not give %lld heads any",
                             (long long)a->hidden_size, (long long)a->n_heads);
    if (a->n_kv_heads != a->n_heads)
        return ax_json_error(ax_json_get(c, "num_key_value_heads"),
                             "latent attention has as many as attention heads, %lld",
                             (long long)a->n_heads);
    return AX_OK;
}

/* The softmax scale grows with the length that rope stretches to. */
static double stretched_scale(const struct ax_rope_config *r) {
    if (r->factor <= 1)
        return 1;
    return 0.1 * r->mscale_all_dim * log(r->factor) + 1;
}

const struct ax_mla_usual ax_deepseek_mla = {1536, 512, 128, 64, 128};

enum ax_status ax_mla_parse(struct ax_arch *a, struct ax_json c, const struct ax_mla_usual *usual) {
    const int64_t q_usual = json_object_get(c.v, "q_lora_rank") ? 0 : usual->q_rank;
    struct ax_mla_config *m = &a->mla;
    AX_TRY(head_sizes(a, c, usual));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "q_lora_rank"), 1, MAX_DIM, q_usual, &m->q_rank));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "kv_lora_rank"), 1, MAX_DIM, usual->kv_rank, &m->kv_rank));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &m->bias));
    a->softmax_scale = 1 / sqrt((double)a->head_dim);
    return AX_OK;
}

/* Layers of latent attention with the rope that has been read. */
static enum ax_status rotated(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "rope_interleave"), true, &a->rope.interleaved));
    const double scale = stretched_scale(&a->rope);
    a->softmax_scale = scale * scale / sqrt((double)a->head_dim);
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].mixer = &ax_mixer_mla;
    return AX_OK;
}

static enum ax_status attention(struct ax_arch *a, struct ax_json c,
                                const struct ax_mla_usual *usual) {
    AX_TRY(ax_mla_parse(a, c, usual));
    AX_TRY(ax_rope_parse(&a->rope, c, a->family->rope, a->mla.rope, a->max_positions));
    return rotated(a, c);
}

static const struct ax_deepseek_keys usual_keys = {.experts = "n_routed_experts",
                                                   .active = "num_experts_per_tok",
                                                   .shared = "n_shared_experts",
                                                   .renormalize = "norm_topk_prob",
                                                   .groups = "n_group"};
static const struct ax_deepseek_keys *keys_of(const struct ax_deepseek_moe *usual) {
    return usual->keys ? usual->keys : &usual_keys;
}

static enum ax_status parse_groups(struct ax_arch *a, struct ax_json c,
                                   const struct ax_deepseek_moe *usual) {
    const struct ax_json groups = ax_json_get(c, keys_of(usual)->groups),
                         kept = ax_json_get(c, "topk_group");
    int64_t n, keep;
    AX_TRY(ax_json_i64_or(groups, 1, AX_ROUTER_GROUPS, usual->groups, &n));
    AX_TRY(ax_json_i64_or(kept, 1, AX_ROUTER_GROUPS, usual->groups_kept, &keep));
    if (n <= 1 || keep == n) /* all groups are kept */
        return AX_OK;
    const int64_t size = a->moe.n_experts / n;
    if (a->moe.n_experts % n != 0)
        return ax_json_error(groups, "%lld groups do not divide %lld experts", (long long)n,
                             (long long)a->moe.n_experts);
    if (keep > n || keep * size < a->moe.n_active)
        return ax_json_error(kept, "cannot choose %lld experts from %lld of %lld groups of %lld",
                             (long long)a->moe.n_active, (long long)keep, (long long)n,
                             (long long)size);
    if (size < usual->group_best)
        return ax_json_error(groups,
                             "%lld groups of %lld: a group's score is the sum of its best %d",
                             (long long)n, (long long)size, usual->group_best);
    a->moe.routing.group_best = usual->group_best;
    a->moe.routing.groups = (int)n;
    a->moe.routing.groups_kept = (int)keep;
    return AX_OK;
}

/* Every moe_layer_freq-th layer from first_k_dense_replace on; or those to which moe_layer_freq, a list, gives 1. */
static enum ax_status counted_layers(struct ax_arch *a, struct ax_json c, int64_t first_dense) {
    const struct ax_json freq = ax_json_get(c, "moe_layer_freq");
    const struct ax_part_type *sparse = a->moe.shared_width > 0 ? &ax_ffn_moe_shared : &ax_ffn_moe;
    int64_t first, every, has;
    if (json_is_array(freq.v))
        AX_TRY(ax_check_per_layer(a, freq, ax_json_size(freq)));
    for (int64_t i = 0; json_is_array(freq.v) && i < a->n_layers; i++) {
        AX_TRY(ax_json_i64(ax_json_at(freq, (size_t)i), 0, 1, &has));
        a->layers[i].ffn = has ? sparse : a->layers[i].ffn;
    }
    if (json_is_array(freq.v))
        return AX_OK;
    AX_TRY(
        ax_json_i64_or(ax_json_get(c, "first_k_dense_replace"), 0, INT32_MAX, first_dense, &first));
    AX_TRY(ax_json_i64_or(freq, 1, INT32_MAX, 1, &every));
    for (int64_t i = first; i < a->n_layers; i++)
        if (i % every == 0)
            a->layers[i].ffn = sparse;
    return AX_OK;
}

/* mlp_layer_types, if the config has it, comes before that. */
static enum ax_status sparse_layers(struct ax_arch *a, struct ax_json c, int64_t first_dense) {
    static const char *const known[] = {"dense", "sparse", NULL};
    const struct ax_part_type *sparse = a->moe.shared_width > 0 ? &ax_ffn_moe_shared : &ax_ffn_moe;
    AX_TRY(counted_layers(a, c, first_dense));
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind = a->layers[i].ffn == sparse;
        AX_TRY(ax_listed_kind(a, c, "mlp_layer_types", i, known, &kind));
        a->layers[i].ffn = kind ? sparse : &ax_ffn_swiglu;
    }
    return AX_OK;
}

#define MLP "model.layers.%d.mlp."
static const struct ax_moe_names v2_names = {
    .router = MLP "gate.weight",
    .experts = MLP "experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .shared = MLP "shared_experts",
};
static const struct ax_moe_names v3_names = {
    .router = MLP "gate.weight",
    .experts = MLP "experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .bias = MLP "gate.e_score_correction_bias",
    .shared = MLP "shared_experts",
};

enum ax_status ax_deepseek_moe_parse(struct ax_arch *a, struct ax_json c,
                                     const struct ax_deepseek_moe *usual) {
    const struct ax_deepseek_keys *keys = keys_of(usual);
    struct ax_moe_config *m = &a->moe;
    const struct ax_json experts = ax_json_get(c, keys->experts);
    const struct ax_json active = ax_json_get(c, keys->active);
    const struct ax_json shared = ax_json_get(c, keys->shared);
    const struct ax_json scale = ax_json_get(c, "routed_scaling_factor");
    /* absent means the usual number, null means none */
    const int64_t shared_usual = json_object_get(c.v, keys->shared) ? 0 : usual->n_shared;
    int64_t n, n_active, n_shared;
    AX_TRY(ax_json_i64_or(experts, 1, 4096, usual->n_experts, &n));
    AX_TRY(ax_json_i64_or(active, 1, 4096, usual->n_active, &n_active));
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    AX_TRY(ax_moe_parse(a, c, n, n_active));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_intermediate_size"), 1, MAX_DIM, usual->width,
                          &m->width));
    AX_TRY(ax_json_i64_or(shared, 0, 1024, shared_usual, &n_shared));
    m->shared_width = n_shared * m->width;
    m->names = usual->names ? usual->names : &v3_names;
    m->routing.sigmoid = !usual->softmax;
    AX_TRY(ax_json_f64_or(scale, usual->scale, &m->routing.scale));
    if (m->routing.scale <= 0)
        return ax_json_error(scale, "expected a positive number, got %g", m->routing.scale);
    AX_TRY(ax_json_bool_or(ax_json_get(c, keys->renormalize), usual->renormalize,
                           &m->routing.renormalize));
    AX_TRY(parse_groups(a, c, usual));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_nextn_predict_layers"), 0, 64, 0, &a->n_unused));
    return usual->first_dense < 0 ? AX_OK : sparse_layers(a, c, usual->first_dense);
}

static enum ax_status parse_v2(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 64,
                                                 .n_active = 6,
                                                 .width = 1407,
                                                 .n_shared = 2,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 1,
                                                 .group_best = 1,
                                                 .softmax = true,
                                                 .names = &v2_names};
    const struct ax_json method = ax_json_get(c, "topk_method");
    const char *name;
    AX_TRY(ax_field_only_bool(c, "mlp_bias", false));
    AX_TRY(ax_field_only_bool(c, "norm_topk_prob", false));
    AX_TRY(ax_field_only(c, "scoring_func", "softmax"));
    AX_TRY(attention(a, c, &ax_deepseek_mla));
    AX_TRY(ax_deepseek_moe_parse(a, c, &usual));
    AX_TRY(ax_json_str_or(method, "greedy", &name));
    if (strcmp(name, "greedy") == 0)
        a->moe.routing.groups = 0;
    else if (strcmp(name, "group_limited_greedy") != 0)
        return ax_field_only(c, "topk_method", "greedy or group_limited_greedy");
    return AX_OK;
}

static const struct ax_deepseek_moe v3_moe = {.n_experts = 256,
                                              .n_active = 8,
                                              .width = 2048,
                                              .n_shared = 1,
                                              .first_dense = 3,
                                              .groups = 8,
                                              .groups_kept = 4,
                                              .scale = 2.5,
                                              .renormalize = true,
                                              .group_best = 2};

/* V3 and what is made of it. */
static enum ax_status parse_newer(struct ax_arch *a, struct ax_json c,
                                  const struct ax_mla_usual *mla,
                                  const struct ax_deepseek_moe *moe) {
    AX_TRY(ax_field_only(c, "scoring_func", "sigmoid"));
    AX_TRY(ax_field_only(c, "topk_method", "noaux_tc"));
    AX_TRY(attention(a, c, mla));
    return ax_deepseek_moe_parse(a, c, moe);
}

static enum ax_status parse_v3(struct ax_arch *a, struct ax_json c) {
    return parse_newer(a, c, &ax_deepseek_mla, &v3_moe);
}

static enum ax_status parse_glm_lite(struct ax_arch *a, struct ax_json c) {
    static const struct ax_mla_usual mla = {768, 512, 192, 64, 256};
    static const struct ax_deepseek_moe moe = {.n_experts = 64,
                                               .n_active = 4,
                                               .width = 1536,
                                               .n_shared = 1,
                                               .first_dense = 1,
                                               .groups = 1,
                                               .groups_kept = 1,
                                               .scale = 1.8,
                                               .renormalize = true,
                                               .group_best = 2};
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    return parse_newer(a, c, &mla, &moe);
}

static enum ax_status parse_youtu(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    return attention(a, c, &ax_deepseek_mla);
}

/* *out: a positive number; null means `none`. */
static enum ax_status factor(struct ax_json c, const char *key, double usual, double none,
                             double *out) {
    const struct ax_json v = ax_json_get(c, key);
    *out = none;
    if (json_is_null(json_object_get(c.v, key)))
        return AX_OK;
    AX_TRY(ax_json_f64_or(v, usual, out));
    if (*out > 0 && *out < 1e30)
        return AX_OK;
    return ax_json_error(v, "expected a positive number, got %g", *out);
}

static enum ax_status parse_minicpm3(struct ax_arch *a, struct ax_json c) {
    const double layers = sqrt((double)a->n_layers), size = (double)a->hidden_size;
    const struct ax_mla_usual mla = {768, 256, 64, 32, a->hidden_size / a->n_heads};
    double depth, base;
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(attention(a, c, &mla));
    a->rope.interleaved = false;
    AX_TRY(factor(c, "scale_emb", 12, 1, &a->embedding_scale));
    a->embedding_scale_rounded = true;
    AX_TRY(factor(c, "scale_depth", 1.4, layers, &depth));
    AX_TRY(factor(c, "dim_model_base", 256, size, &base));
    a->residual_scale = depth / layers;
    a->logit_scale = base / size;
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

/* The rope's part is of the whole head here, whose end is qk_rope_head_dim. */
static enum ax_status part_of_heads(struct ax_arch *a, struct ax_json c) {
    const int64_t end = a->mla.rope;
    struct ax_rope_usual usual = a->family->rope;
    usual.part = (double)end / (double)a->head_dim;
    AX_TRY(ax_rope_parse(&a->rope, c, usual, a->head_dim, a->max_positions));
    if (a->rope.dim == end)
        return AX_OK;
    return ax_json_error(
        c, "partial_rotary_factor rotates %lld of %lld elements, qk_rope_head_dim %lld",
        (long long)a->rope.dim, (long long)a->head_dim, (long long)end);
}

/* All experts of a layer are in one tensor each. */
static const struct ax_moe_stacked stacked = {
    .gate_up = MLP "experts.gate_up_proj",
    .down = MLP "experts.down_proj",
    .out_first = true,
};

static enum ax_status parse_mistral4(struct ax_arch *a, struct ax_json c) {
    static const struct ax_mla_usual mla = {1024, 256, 64, 64, 128};
    static const struct ax_deepseek_moe moe = {.n_experts = 128,
                                               .n_active = 4,
                                               .width = 2048,
                                               .n_shared = 1,
                                               .groups = 1,
                                               .groups_kept = 1,
                                               .scale = 1,
                                               .renormalize = true,
                                               .group_best = 2,
                                               .softmax = true,
                                               .names = &v2_names};
    AX_TRY(ax_mla_parse(a, c, &mla));
    AX_TRY(part_of_heads(a, c));
    AX_TRY(rotated(a, c));
    a->rope_queries = (struct ax_rope_config){.kind = AX_ROPE_STILL, .dim = a->head_dim};
    AX_TRY(ax_query_growth_parse(c, a->max_positions, &a->rope_queries));
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].own_queries = a->rope_queries.period > 0;
    a->moe.stacked = &stacked;
    return ax_deepseek_moe_parse(a, c, &moe);
}

/* ---- sparse attention ---- */

static enum ax_status indexers(struct ax_arch *a, struct ax_json c, int64_t usual_heads) {
    struct ax_index_config *x = &a->index;
    const struct ax_json size = ax_json_get(c, "index_head_dim");
    if (a->mla.q_rank == 0)
        return ax_json_error(ax_json_get(c, "q_lora_rank"),
                             "the indexer reads the latent of queries; expected its size");
    AX_TRY(ax_json_i64_or(ax_json_get(c, "index_topk"), 1, INT32_MAX, 2048, &x->top));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "index_n_heads"), 1, 1024, usual_heads, &x->heads));
    AX_TRY(ax_json_i64_or(size, 1, MAX_INDEX_HEAD, 128, &x->head_dim));
    if (x->head_dim < a->mla.rope)
        return ax_json_error(size, "rope needs the %lld elements of qk_rope_head_dim, got %lld",
                             (long long)a->mla.rope, (long long)x->head_dim);
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].mixer = &ax_mixer_dsa;
    return AX_OK;
}

static enum ax_status parse_v32(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_field_only_bool(c, "mlp_bias", false));
    AX_TRY(parse_newer(a, c, &ax_deepseek_mla, &v3_moe));
    return indexers(a, c, 64);
}

/* A letter of index_topk_pattern, of which there is one for each layer. */
static enum ax_status kind_of_letter(const struct ax_arch *a, struct ax_json pattern, int64_t i,
                                     int *kind) {
    const char *letters = json_string_value(pattern.v);
    AX_TRY(ax_check_per_layer(a, pattern, strlen(letters)));
    if (letters[i] != 'F' && letters[i] != 'S')
        return ax_json_error(pattern, "expected letters F (full) and S (shared)");
    *kind = letters[i] == 'S';
    return AX_OK;
}

/* Layers that use the choice of the last indexer before them: by indexer_types; by index_topk_pattern, a list or a
 * text; else the first `offset` layers have indexers, then every `freq`-th, counted from the last of these. */
static enum ax_status shared_choices(struct ax_arch *a, struct ax_json c) {
    static const char *const known[] = {"full", "shared", NULL};
    const struct ax_json types = ax_json_get(c, "indexer_types"),
                         pattern = ax_json_get(c, "index_topk_pattern"),
                         every = ax_json_get(c, "index_topk_freq");
    const bool letters = !types.v && json_is_string(pattern.v);
    const char *list = types.v ? "indexer_types" : "index_topk_pattern";
    int64_t freq, offset;
    AX_TRY(ax_json_i64_or(every, 0, INT32_MAX, 1, &freq));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "index_skip_topk_offset"), 0, INT32_MAX, 2, &offset));
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind = freq > 1 && i >= offset && (i - offset + 1) % freq != 0;
        AX_TRY(letters ? kind_of_letter(a, pattern, i, &kind)
                       : ax_listed_kind(a, c, list, i, known, &kind));
        if (kind && i == 0)
            return ax_json_error(types.v     ? types
                                 : pattern.v ? pattern
                                             : every,
                                 "the first layer has no indexer before it to share");
        if (kind)
            a->layers[i].mixer = &ax_mixer_dsa_shared;
    }
    return AX_OK;
}

static enum ax_status parse_glm(struct ax_arch *a, struct ax_json c) {
    struct ax_mla_usual mla = ax_deepseek_mla;
    struct ax_deepseek_moe moe = v3_moe;
    mla.q_rank = 2048;
    moe.groups = moe.groups_kept = 1;
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_field_only_bool(c, "mlp_bias", false));
    AX_TRY(parse_newer(a, c, &mla, &moe));
    AX_TRY(indexers(a, c, 32));
    a->index.interleaved = true;
    return shared_choices(a, c);
}

const struct ax_family ax_family_deepseek_v2 = {.model_type = "deepseek_v2",
                                                .models = "DeepSeek-V2, V2-Lite, Coder-V2",
                                                .architecture = "DeepseekV2ForCausalLM",
                                                .head_dim = 64,
                                                .parse = parse_v2};
const struct ax_family ax_family_deepseek_v3 = {.model_type = "deepseek_v3",
                                                .models = "DeepSeek-V3, R1",
                                                .architecture = "DeepseekV3ForCausalLM",
                                                .head_dim = 64,
                                                .predicts = true,
                                                .parse = parse_v3};
const struct ax_family ax_family_deepseek_v32 = {
    .model_type = "deepseek_v32",
    .models = "DeepSeek-V3.2",
    .lacks = "training of the layers for multi-token prediction",
    .architecture = "DeepseekV32ForCausalLM",
    .head_dim = 64,
    .parse = parse_v32};
const struct ax_family ax_family_glm_moe_dsa = {
    .model_type = "glm_moe_dsa",
    .models = "GLM-5",
    .lacks = "training of the layers for multi-token prediction",
    .architecture = "GlmMoeDsaForCausalLM",
    .head_dim = 64,
    .parse = parse_glm};
const struct ax_family ax_family_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .models = "GLM-4.7-Flash",
    .lacks = "GGUF, training of the layers for multi-token prediction",
    .architecture = "Glm4MoeLiteForCausalLM",
    .head_dim = 64,
    .parse = parse_glm_lite};
const struct ax_family ax_family_youtu = {.model_type = "youtu",
                                          .models = "Youtu-LLM",
                                          .lacks = "GGUF",
                                          .architecture = "YoutuForCausalLM",
                                          .head_dim = 64,
                                          .parse = parse_youtu};
const struct ax_family ax_family_minicpm3 = {.model_type = "minicpm3",
                                             .models = "MiniCPM 3",
                                             .lacks = "GGUF",
                                             .architecture = "MiniCPM3ForCausalLM",
                                             .head_dim = 32,
                                             .parse = parse_minicpm3};
const struct ax_family ax_family_mistral4 = {
    .model_type = "mistral4",
    .models = "Mistral Small 4",
    .lacks = "GGUF",
    .architecture = "Mistral4ForCausalLM",
    .head_dim = 128,
    .own_rope = true,
    .rope.parameters = "{\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, \"factor\": 128.0, "
                       "\"original_max_position_embeddings\": 8192, \"beta_fast\": 32.0, "
                       "\"beta_slow\": 1.0, \"mscale_all_dim\": 1.0, \"mscale\": 1.0, "
                       "\"llama_4_scaling_beta\": 0.1}",
    .parse = parse_mistral4};
