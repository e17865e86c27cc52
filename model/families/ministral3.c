/* Ministral 3 (Mistral AI 2025): Llama with yarn, and queries that grow with their position. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    int64_t window;
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    a->rope_queries = a->rope;
    AX_TRY(ax_query_growth_parse(c, 16384, &a->rope_queries));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 0, &window));
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].window = window;
        a->layers[i].own_queries = a->rope_queries.period > 0;
    }
    return AX_OK;
}

const struct ax_family ax_family_ministral3 = {
    .model_type = "ministral3",
    .models = "Ministral 3",
    .architecture = "Ministral3ForCausalLM",
    .head_dim = 128,
    .rope.parameters = "{\"rope_type\": \"yarn\", \"rope_theta\": 1000000.0, "
                       "\"factor\": 16.0, \"beta_fast\": 32.0, "
                       "\"beta_slow\": 1.0, \"mscale_all_dim\": 1.0, "
                       "\"mscale\": 1.0, \"llama_4_scaling_beta\": 0.1, "
                       "\"original_max_position_embeddings\": 16384}",
    .parse = parse};
