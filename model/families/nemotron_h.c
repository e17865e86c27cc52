/* Nemotron-H (NVIDIA 2025): layers of one part each, which is Mamba-2, attention without rope, an MLP without a gate, or
 * (Nemotron 3) a mixture of such MLPs, perhaps in a latent. */
#include <math.h>
#include <string.h>

#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_DIM (1LL << 24)
#define LAYER   "backbone.layers.%d."

static const struct ax_rename renames[] = {{"model.embed_tokens.", "backbone.embeddings."},
                                           {"model.norm.", "backbone.norm_f."},
                                           {"model.layers.%d.norm.", LAYER "norm."},
                                           {"model.layers.%d.mamba.", LAYER "mixer."},
                                           {"model.layers.%d.self_attn.", LAYER "mixer."},
                                           {"model.layers.%d.mlp.", LAYER "mixer."},
                                           {0}};

enum kind { MAMBA, ATTENTION, MLP, MIXTURE };

/* Older files have a letter for each layer in a text, newer ones a list of words, of two spellings. */
static const char letters[] = "M*-E";
static const char *const words[][4] = {{"mamba", "attention", "mlp", "moe"},
                                       {"linear_attention", "full_attention", "mlp", "moe"}};

static enum ax_status kind_of_word(struct ax_json v, int *kind) {
    const char *word;
    AX_TRY(ax_json_str(v, &word));
    for (int i = 0; i < 8; i++) {
        *kind = i % 4;
        if (strcmp(word, words[i / 4][i % 4]) == 0)
            return AX_OK;
    }
    ax_json_error(v,
                  "layer type \"%.40s\" is not one of linear_attention (or mamba), full_attention "
                  "(or attention), mlp, moe",
                  word);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status kind_of_letter(struct ax_json v, char letter, int *kind) {
    const char *at = letter ? strchr(letters, letter) : NULL;
    if (at) {
        *kind = (int)(at - letters);
        return AX_OK;
    }
    ax_json_error(v, "layer type \"%c\" is not one of M, *, -, E", letter);
    return AX_ERR_UNSUPPORTED;
}

static void set_layer(struct ax_layer_spec *l, enum kind kind) {
    static const struct ax_part_type *const parts[] = {[MAMBA] = &ax_mixer_mamba,
                                                       [ATTENTION] = &ax_mixer_attention,
                                                       [MLP] = &ax_ffn_swiglu,
                                                       [MIXTURE] = &ax_ffn_moe_shared};
    const struct ax_norm_names norm = {.in = "model.layers.%d.norm.weight"}, none = {0};
    const bool mixes = kind == MAMBA || kind == ATTENTION;
    l->mixer = mixes ? parts[kind] : &ax_part_none;
    l->ffn = mixes ? &ax_part_none : parts[kind];
    l->mixer_norms = mixes ? norm : none;
    l->ffn_norms = mixes ? none : norm;
    l->rope = AX_ROPE_NONE;
}

/* has[kind]: some layer is of the kind. */
static enum ax_status layers(struct ax_arch *a, struct ax_json c, bool has[4]) {
    const struct ax_json own = ax_json_get(c, "layers_block_type"),
                         list = own.v ? own : ax_json_get(c, "layer_types"),
                         pattern = ax_json_get(c, "hybrid_override_pattern");
    const char *text = NULL;
    if (!list.v) {
        AX_TRY(ax_json_str(pattern, &text));
        AX_TRY(ax_check_per_layer(a, pattern, strlen(text)));
    } else {
        AX_TRY(ax_check_per_layer(a, list, ax_json_size(list)));
    }
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind;
        AX_TRY(text ? kind_of_letter(pattern, text[i], &kind)
                    : kind_of_word(ax_json_at(list, (size_t)i), &kind));
        set_layer(&a->layers[i], (enum kind)kind);
        has[kind] = true;
    }
    return AX_OK;
}

static const struct ax_moe_names names = {
    .router = LAYER "mixer.gate.weight",
    .module = "mixer.experts",
    .experts = LAYER "mixer.experts",
    .up = "up_proj",
    .down = "down_proj",
    .bias = LAYER "mixer.gate.e_score_correction_bias",
    .shared = LAYER "mixer.shared_experts",
    .latent_in = LAYER "mixer.fc1_latent_proj",
    .latent_out = LAYER "mixer.fc2_latent_proj",
};

/* DeepSeek-V3's router; the shared expert reads the layer's input. */
static enum ax_status mixture(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 8,
                                                 .n_active = 2,
                                                 .width = 7688,
                                                 .n_shared = 1,
                                                 .first_dense = -1,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 1,
                                                 .renormalize = true,
                                                 .group_best = 2,
                                                 .names = &names};
    AX_TRY(ax_deepseek_moe_parse(a, c, &usual));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_shared_expert_intermediate_size"), 1, MAX_DIM, 7688,
                          &a->moe.shared_width));
    return ax_json_i64_or(ax_json_get(c, "moe_latent_size"), 1, MAX_DIM, 0, &a->moe.latent);
}

/* transformers reads time_step_limit in no layer of this family. */
static const struct ax_ssd_keys mamba = {
    .heads = "mamba_num_heads",
    .head_dim = "mamba_head_dim",
    .groups = "n_groups",
    .state = "ssm_state_size",
    .taps = "conv_kernel",
    .conv_bias = "use_conv_bias",
    .bias = "use_bias",
    .lowest = "time_step_min",
    .usual = {.heads = 128, .head_dim = 64, .groups = 8, .state = 128, .lowest = 0.001}};

/* Keys of what no layer here does; transformers ignores the bias of attention, and a window. */
static enum ax_status refuse_others(struct ax_json c) {
    const struct ax_json window = ax_json_get(c, "sliding_window");
    AX_TRY(ax_field_only(c, "mlp_hidden_act", "relu2"));
    AX_TRY(ax_field_only(c, "mamba_hidden_act", "silu"));
    AX_TRY(ax_field_only_bool(c, "mlp_bias", false));
    AX_TRY(ax_field_only_bool(c, "attention_bias", false));
    if (!window.v)
        return AX_OK;
    ax_json_error(window, "a window is not implemented in this family");
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    const struct ax_json head = ax_json_get(c, "attention_head_dim");
    bool has[4] = {false};
    AX_TRY(refuse_others(c));
    AX_TRY(ax_norm_eps_parse(a, c, "layer_norm_epsilon", 1e-5));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "intermediate_size"), 1, MAX_DIM, 21504,
                          &a->intermediate_size));
    if (head.v && !ax_json_get(c, "head_dim").v) {
        AX_TRY(ax_json_i64(head, 1, 2048, &a->head_dim));
        a->v_head_dim = a->head_dim;
    }
    a->softmax_scale = 1 / sqrt((double)a->head_dim);
    a->norm.once = true;
    a->ungated = true;
    a->renames = renames;
    a->unused_prefix = "mtp.";
    AX_TRY(layers(a, c, has));
    if (has[MAMBA])
        AX_TRY(ax_ssd_parse(a, c, &mamba));
    if (!has[MIXTURE])
        return AX_OK;
    AX_TRY(mixture(a, c));
    a->n_unused = 0;
    return AX_OK;
}

const struct ax_family ax_family_nemotron_h = {.model_type = "nemotron_h",
                                               .models = "Nemotron-H, Nemotron 3",
                                               .architecture = "NemotronHForCausalLM",
                                               .head_dim = 128,
                                               .own_width = true,
                                               .layer_list = "layers_block_type",
                                               .parse = parse};
