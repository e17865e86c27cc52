/* Llama 4 (Meta 2025): in most layers rope on neighbors, norms of q and k without weights after it, and attention
 * within chunks; in every fourth all tokens attended without rope, by queries that grow with their position. Layers
 * have a mixture of experts, of which one takes each token times its weight, or a dense MLP. */
#include <math.h>

#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_WIDTH (1LL << 24)
#define FFN       "model.layers.%d.feed_forward."

static const struct ax_rename renames[] = {{".mlp.", ".feed_forward."}, {0}};
static const struct ax_moe_names names = {.router = FFN "router.weight",
                                          .experts = FFN "experts",
                                          .gate = "gate_proj",
                                          .up = "up_proj",
                                          .down = "down_proj",
                                          .shared = FFN "shared_expert",
                                          .module = "feed_forward.experts"};
static const struct ax_moe_stacked stacked = {.gate_up = FFN "experts.gate_up_proj",
                                              .down = FFN "experts.down_proj"};

/* no_rope_layers: a number per layer, 0 for one without rope; without the list, or in an empty one, every
 * no_rope_layer_interval-th layer is. Layers with rope attend within chunks unless layer_types says otherwise. */
static enum ax_status layers(struct ax_arch *a, struct ax_json c) {
    static const char *const kinds[] = {"full_attention", "chunked_attention", NULL};
    const struct ax_json list = ax_json_get(c, "no_rope_layers");
    const size_t n = ax_json_size(list);
    int64_t interval, rope, chunk;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "no_rope_layer_interval"), 1, INT32_MAX, 4, &interval));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "attention_chunk_size"), 1, INT32_MAX, 8192, &chunk));
    if (n > 0)
        AX_TRY(ax_check_per_layer(a, list, n));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *spec = &a->layers[i];
        rope = (i + 1) % interval != 0;
        if (n > 0)
            AX_TRY(ax_json_i64(ax_json_at(list, (size_t)i), 0, 1, &rope));
        int kind = (int)rope;
        AX_TRY(ax_layer_kind(a, c, i, kinds, &kind));
        spec->rope = rope ? AX_ROPE_MAIN : AX_ROPE_NONE;
        spec->chunked = kind;
        a->chunk = kind ? chunk : a->chunk;
    }
    return AX_OK;
}

/* Queries without rope grow. The flag is a number in published configs. */
static enum ax_status temperature(struct ax_arch *a, struct ax_json c) {
    struct ax_rope_config *r = &a->rope_queries;
    const struct ax_json tunes = ax_json_get(c, "attn_temperature_tuning"),
                         scale = ax_json_get(c, "attn_scale"),
                         period = ax_json_get(c, "floor_scale");
    bool on = json_integer_value(tunes.v) != 0;
    double growth, places;
    if (!json_is_integer(tunes.v))
        AX_TRY(ax_json_bool_or(tunes, true, &on));
    AX_TRY(ax_json_f64_or(scale, 0.1, &growth));
    AX_TRY(ax_json_f64_or(period, 8192, &places));
    if (!(growth >= 0 && growth <= 100))
        return ax_json_error(scale, "expected a number from 0 to 100, got %g", growth);
    if (!(places >= 1 && places <= INT32_MAX && places == floor(places)))
        return ax_json_error(period, "expected an integer from 1 to %d, got %g", INT32_MAX, places);
    if (!on)
        return AX_OK;
    *r = (struct ax_rope_config){.kind = AX_ROPE_STILL,
                                 .dim = a->head_dim,
                                 .max_positions = a->max_positions,
                                 .growth = growth,
                                 .period = (int64_t)places,
                                 .ahead = 1};
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].own_queries = a->layers[i].rope == AX_ROPE_NONE;
    return AX_OK;
}

/* moe_layers, or every interleave_moe_layer_step-th layer. */
static enum ax_status sparse_layers(struct ax_arch *a, struct ax_json c) {
    const struct ax_json list = ax_json_get(c, "moe_layers");
    int64_t step, layer;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "interleave_moe_layer_step"), 1, INT32_MAX, 1, &step));
    for (int64_t i = step - 1; i < a->n_layers && !list.v; i += step)
        a->layers[i].ffn = &ax_ffn_moe_shared;
    for (size_t i = 0; i < ax_json_size(list); i++) {
        AX_TRY(ax_json_i64(ax_json_at(list, i), 0, a->n_layers - 1, &layer));
        a->layers[layer].ffn = &ax_ffn_moe_shared;
    }
    return AX_OK;
}

static enum ax_status experts(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_moe_parse(a, c, 16, 1));
    if (a->moe.n_active != 1) {
        ax_json_error(ax_json_get(c, "num_experts_per_tok"),
                      "%lld experts per token are not implemented in this family, only 1",
                      (long long)a->moe.n_active);
        return AX_ERR_UNSUPPORTED;
    }
    a->moe.balance_coef = 0; /* transformers has no such loss for this family */
    a->moe.width = a->moe.shared_width = a->intermediate_size;
    a->moe.routing.sigmoid = a->moe.weighs_input = true;
    a->moe.names = &names;
    a->moe.stacked = &stacked;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "intermediate_size_mlp"), 1, MAX_WIDTH, 16384,
                          &a->intermediate_size));
    return sparse_layers(a, c);
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool norms;
    a->rope.interleaved = true;
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_attention_bias_parse(a, c));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_qk_norm"), true, &norms));
    a->qk_norm = norms ? AX_QK_NORM_UNIT : AX_QK_NORM_NONE;
    a->qk_norm_after = true;
    a->renames = renames;
    AX_TRY(layers(a, c));
    AX_TRY(temperature(a, c));
    return experts(a, c);
}

const struct ax_family ax_family_llama4_text = {.model_type = "llama4_text",
                                                .models = "Llama 4",
                                                .architecture = "Llama4ForCausalLM",
                                                .head_dim = 128,
                                                .rope.theta = 5e5,
                                                .parse = parse};
