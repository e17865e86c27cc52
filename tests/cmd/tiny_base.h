/* Tiny stand-ins for the models and data sets that published configurations name, so that such a
 * file runs in a moment with key=value overrides. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_TINY_BASE_H
#define AX_TESTS_CMD_TINY_BASE_H

#include <ctype.h>

#include "cmd/config/config.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

#define TINY_ROWS 96

/* Families of small models with the tokenizer of a golden model of the same kind. */
struct tiny_family {
    const char *prefix;    /* of the part of base_model behind the owner, in small letters */
    const char *tokenizer; /* models/… */
    const char *config;    /* what a config.json of it has besides the sizes */
};
#define TINY_MOONLIGHT                                                                             \
    "\"model_type\": \"deepseek_v3\", \"architectures\": [\"DeepseekV3ForCausalLM\"], "            \
    "\"first_k_dense_replace\": 1, \"kv_lora_rank\": 32, \"moe_intermediate_size\": 48, "          \
    "\"n_group\": 1, \"n_routed_experts\": 8, \"n_shared_experts\": 1, "                           \
    "\"num_experts_per_tok\": 2, \"q_lora_rank\": null, \"qk_nope_head_dim\": 16, "                \
    "\"qk_rope_head_dim\": 8, \"routed_scaling_factor\": 2.446, \"topk_group\": 1, "               \
    "\"v_head_dim\": 16, \"rope_theta\": 50000.0, \"tie_word_embeddings\": false"
/* With a layer for multi-token prediction. */
#define TINY_PREDICTS TINY_MOONLIGHT ", \"num_nextn_predict_layers\": 1"
static const struct tiny_family tiny_families[] = {
    {"llama", "llama",
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "500000.0, \"tie_word_embeddings\": true"},
    {"meta-llama", "llama",
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "500000.0, \"tie_word_embeddings\": false"},
    {"tinyllama", "llama",
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "10000.0, \"tie_word_embeddings\": false"},
    {"codellama", "llama",
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "1000000.0, \"tie_word_embeddings\": false"},
    {"smollm2", "llama",
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "100000.0, \"tie_word_embeddings\": true"},
    {"merged", "llama", /* sft-problems.yml's result: of smollm2 */
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "100000.0, \"tie_word_embeddings\": true"},
    {"sft-sums", "llama", /* those of sft-sums.yml and sft-sums-problems.yml: likewise */
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "100000.0, \"tie_word_embeddings\": true"},
    {"sft-tool", "llama", /* that of sft-tool-problems.yml: likewise */
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "100000.0, \"tie_word_embeddings\": true"},
    {"model", "llama", /* that of `make demo`: likewise */
     "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": "
     "100000.0, \"tie_word_embeddings\": true"},
    {"moonlight", "llama", TINY_MOONLIGHT},
    {"gemma-2", "llama",
     "\"model_type\": \"gemma2\", \"architectures\": [\"Gemma2ForCausalLM\"], \"head_dim\": 16, "
     "\"query_pre_attn_scalar\": 16, \"hidden_activation\": \"gelu_pytorch_tanh\", "
     "\"sliding_window\": 32"},
    {"gemma-3n", "llama",
     "\"model_type\": \"gemma3n_text\", \"architectures\": [\"Gemma3nForCausalLM\"], "
     "\"head_dim\": 16, \"sliding_window\": 32, \"num_kv_shared_layers\": 1, \"layer_types\": "
     "[\"sliding_attention\", \"full_attention\", \"full_attention\"], \"altup_num_inputs\": 3, "
     "\"laurel_rank\": 8, \"activation_sparsity_pattern\": [0.95, 0.95, 0.0], "
     "\"hidden_size_per_layer_input\": 8, \"vocab_size_per_layer_input\": 4000"},
    {"gemma-3", "llama",
     "\"model_type\": \"gemma3_text\", \"architectures\": [\"Gemma3ForCausalLM\"], \"head_dim\": "
     "16, \"query_pre_attn_scalar\": 16, \"hidden_activation\": \"gelu_pytorch_tanh\", "
     "\"sliding_window\": 32, \"sliding_window_pattern\": 2"},
    {"gemma-4-26b", "llama",
     "\"model_type\": \"gemma4_text\", \"architectures\": [\"Gemma4ForCausalLM\"], \"head_dim\": "
     "16, \"global_head_dim\": 32, \"num_global_key_value_heads\": 1, \"attention_k_eq_v\": true, "
     "\"sliding_window\": 32, \"hidden_size_per_layer_input\": 0, \"enable_moe_block\": true, "
     "\"num_experts\": 4, \"top_k_experts\": 2, \"moe_intermediate_size\": 48"},
    {"gemma-4", "llama",
     "\"model_type\": \"gemma4_text\", \"architectures\": [\"Gemma4ForCausalLM\"], \"head_dim\": "
     "16, \"global_head_dim\": 32, \"sliding_window\": 32, \"num_kv_shared_layers\": 1, "
     "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "
     "\"use_double_wide_mlp\": true, \"hidden_size_per_layer_input\": 8, "
     "\"vocab_size_per_layer_input\": 4096"},
    {"phi-3", "llama",
     "\"model_type\": \"phi3\", \"architectures\": [\"Phi3ForCausalLM\"], \"rope_theta\": 10000.0, "
     "\"sliding_window\": null, \"pad_token_id\": 0, \"tie_word_embeddings\": false"},
    {"olmo-2", "llama",
     "\"model_type\": \"olmo2\", \"architectures\": [\"Olmo2ForCausalLM\"], \"rope_theta\": "
     "500000.0, \"tie_word_embeddings\": false"},
    {"smollm3", "llama",
     "\"model_type\": \"smollm3\", \"architectures\": [\"SmolLM3ForCausalLM\"], "
     "\"no_rope_layer_interval\": 2, \"rope_theta\": 5000000.0, \"tie_word_embeddings\": true"},
    {"granite-4.0-h", "llama",
     "\"model_type\": \"granitemoehybrid\", \"architectures\": "
     "[\"GraniteMoeHybridForCausalLM\"], \"layer_types\": [\"mamba\", \"attention\", \"mamba\"], "
     "\"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\", \"mamba_d_state\": 16, "
     "\"num_local_experts\": 0, \"shared_intermediate_size\": 96, \"attention_multiplier\": 0.25, "
     "\"position_embedding_type\": \"nope\", \"embedding_multiplier\": 12.0, \"logits_scaling\": "
     "8.0, \"residual_multiplier\": 0.22, \"tie_word_embeddings\": true"},
    {"falcon-h1", "llama",
     "\"model_type\": \"falcon_h1\", \"architectures\": [\"FalconH1ForCausalLM\"], "
     "\"mamba_d_ssm\": 96, \"mamba_n_heads\": 6, \"mamba_d_head\": 16, \"mamba_d_state\": 16, "
     "\"mamba_norm_before_gate\": false, \"rope_theta\": 100000000000.0, "
     "\"ssm_multipliers\": [0.9, 1.1, 0.8, 1.2, 0.7], \"mlp_multipliers\": [0.9, 0.7], "
     "\"embedding_multiplier\": 5.6, \"lm_head_multiplier\": 0.02, \"key_multiplier\": 0.4, "
     "\"attention_out_multiplier\": 0.9, \"ssm_in_multiplier\": 1.25, \"ssm_out_multiplier\": "
     "0.2, \"tie_word_embeddings\": false"},
    {"nvidia-nemotron-nano", "llama",
     "\"model_type\": \"nemotron_h\", \"architectures\": [\"NemotronHForCausalLM\"], "
     "\"layers_block_type\": [\"linear_attention\", \"full_attention\", \"mlp\"], "
     "\"mamba_num_heads\": 6, \"mamba_head_dim\": 16, \"n_groups\": 2, \"ssm_state_size\": 16, "
     "\"head_dim\": 16, \"layer_norm_epsilon\": 0.00001, \"tie_word_embeddings\": false"},
    {"granite", "llama",
     "\"model_type\": \"granite\", \"architectures\": [\"GraniteForCausalLM\"], "
     "\"attention_multiplier\": 0.25, \"embedding_multiplier\": 12.0, \"logits_scaling\": 8.0, "
     "\"residual_multiplier\": 0.22, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true"},
    {"gpt-oss", "llama",
     "\"model_type\": \"gpt_oss\", \"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": "
     "true, \"head_dim\": 16, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
     "\"rope_parameters\": {\"rope_theta\": 150000.0}, \"sliding_window\": 32, "
     "\"tie_word_embeddings\": false"},
    {"qwen1.5-moe", "qwen3",
     "\"model_type\": \"qwen2_moe\", \"architectures\": [\"Qwen2MoeForCausalLM\"], "
     "\"moe_intermediate_size\": 48, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
     "\"shared_expert_intermediate_size\": 96, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": "
     "false"},
    {"glm-4-", "llama",
     "\"model_type\": \"glm4\", \"architectures\": [\"Glm4ForCausalLM\"], \"attention_bias\": "
     "true, \"head_dim\": 16, \"partial_rotary_factor\": 0.5, \"rope_theta\": 10000.0, "
     "\"tie_word_embeddings\": false"},
    {"glm-4.5", "llama",
     "\"model_type\": \"glm4_moe\", \"architectures\": [\"Glm4MoeForCausalLM\"], "
     "\"attention_bias\": true, \"first_k_dense_replace\": 1, \"head_dim\": 16, "
     "\"moe_intermediate_size\": 48, \"n_group\": 1, \"n_routed_experts\": 4, "
     "\"n_shared_experts\": 1, \"norm_topk_prob\": true, \"num_experts_per_tok\": 2, "
     "\"partial_rotary_factor\": 0.5, \"rope_theta\": 1000000.0, \"routed_scaling_factor\": 1.0, "
     "\"topk_group\": 1, \"tie_word_embeddings\": false"},
    {"glm-5", "llama",
     "\"model_type\": \"glm_moe_dsa\", \"architectures\": [\"GlmMoeDsaForCausalLM\"], "
     "\"q_lora_rank\": 24, \"kv_lora_rank\": 16, \"qk_nope_head_dim\": "
     "16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16, \"index_topk\": 24, \"index_n_heads\": 4, "
     "\"index_head_dim\": 16, \"index_topk_pattern\": \"FSF\", \"first_k_dense_replace\": 1, "
     "\"moe_intermediate_size\": 48, \"n_group\": 1, \"n_routed_experts\": 4, "
     "\"n_shared_experts\": 1, "
     "\"norm_topk_prob\": true, \"num_experts_per_tok\": 2, \"rope_theta\": 1000000.0, "
     "\"routed_scaling_factor\": 2.5, \"topk_group\": 1, \"tie_word_embeddings\": false"},
    {"seed-oss", "llama",
     "\"model_type\": \"seed_oss\", \"architectures\": [\"SeedOssForCausalLM\"], \"head_dim\": 16, "
     "\"attention_bias\": true, \"attention_out_bias\": false, \"mlp_bias\": false, "
     "\"attention_dropout\": 0.1, \"residual_dropout\": 0.1, \"rope_theta\": 10000000.0, "
     "\"tie_word_embeddings\": false"},
    {"ernie-4.5-0.3b", "llama",
     "\"model_type\": \"ernie4_5\", \"architectures\": [\"Ernie4_5ForCausalLM\"], \"head_dim\": "
     "16, "
     "\"use_bias\": false, \"rope_theta\": 500000.0, \"tie_word_embeddings\": true"},
    {"ernie-4.5-21b", "llama",
     "\"model_type\": \"ernie4_5_moe\", \"architectures\": [\"Ernie4_5_MoeForCausalLM\"], "
     "\"moe_num_experts\": 4, \"moe_k\": 2, \"moe_intermediate_size\": 48, "
     "\"moe_num_shared_experts\": 2, "
     "\"moe_layer_start_index\": 1, \"moe_layer_end_index\": 2, \"moe_layer_interval\": 1, "
     "\"use_bias\": false, \"rope_theta\": 500000.0, \"tie_word_embeddings\": true"},
    {"exaone-4", "llama",
     "\"model_type\": \"exaone4\", \"architectures\": [\"Exaone4ForCausalLM\"], \"head_dim\": 16, "
     "\"sliding_window\": 32, \"sliding_window_pattern\": \"LLG\", \"rope_theta\": 1000000.0, "
     "\"tie_word_embeddings\": true"},
    {"minimax-m2", "llama",
     "\"model_type\": \"minimax_m2\", \"architectures\": [\"MiniMaxM2ForCausalLM\"], \"head_dim\": "
     "16, "
     "\"rotary_dim\": 8, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"use_qk_norm\": "
     "true, "
     "\"use_routing_bias\": true, \"scoring_func\": \"sigmoid\", \"rope_theta\": 5000000.0, "
     "\"tie_word_embeddings\": false"},
    {"mimo-v2", "llama",
     "\"model_type\": \"mimo_v2_flash\", \"architectures\": [\"MiMoV2FlashForCausalLM\"], "
     "\"head_dim\": 24, \"v_head_dim\": 16, \"sliding_window_size\": 31, \"n_routed_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, \"hybrid_layer_pattern\": [0, 1, "
     "0], "
     "\"moe_layer_freq\": [0, 1, 1], \"rope_theta\": 5000000.0, \"layernorm_epsilon\": 1e-5, "
     "\"tie_word_embeddings\": false"},
    {"llama-4", "llama",
     "\"model_type\": \"llama4_text\", \"architectures\": [\"Llama4ForCausalLM\"], \"head_dim\": "
     "16, "
     "\"intermediate_size_mlp\": 48, \"num_local_experts\": 4, \"attention_chunk_size\": 32, "
     "\"no_rope_layer_interval\": 3, \"interleave_moe_layer_step\": 2, "
     "\"attn_temperature_tuning\": 4, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false"},
    {"hunyuan", "llama",
     "\"model_type\": \"hunyuan_v1_dense\", \"architectures\": [\"HunYuanDenseV1ForCausalLM\"], "
     "\"head_dim\": 16, \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 1000.0, \"factor\": "
     "1.0}, "
     "\"rope_theta\": 10000.0, \"tie_word_embeddings\": true"},
    {"ministral-3", "llama",
     "\"model_type\": \"ministral3\", \"architectures\": [\"Ministral3ForCausalLM\"], "
     "\"head_dim\": 16, "
     "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 16.0, \"beta_fast\": 32.0, "
     "\"beta_slow\": 1.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"llama_4_scaling_beta\": 0.1, "
     "\"original_max_position_embeddings\": 128, \"rope_theta\": 1000000.0}, "
     "\"tie_word_embeddings\": true"},
    {"c4ai-command-r7b", "llama",
     "\"model_type\": \"cohere2\", \"architectures\": [\"Cohere2ForCausalLM\"], \"head_dim\": 16, "
     "\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.25, \"sliding_window\": 32, "
     "\"sliding_window_pattern\": 3, \"rope_theta\": 50000.0"},
    {"aya-expanse", "llama",
     "\"model_type\": \"cohere\", \"architectures\": [\"CohereForCausalLM\"], \"layer_norm_eps\": "
     "1e-5, "
     "\"logit_scale\": 0.125, \"rope_theta\": 10000.0"},
    {"lfm2-8b", "llama",
     "\"model_type\": \"lfm2_moe\", \"architectures\": [\"Lfm2MoeForCausalLM\"], "
     "\"layer_types\": [\"conv\", \"full_attention\", \"conv\"], \"conv_L_cache\": 3, "
     "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"num_dense_layers\": 1, "
     "\"moe_intermediate_size\": 48, \"norm_eps\": 1e-5, \"rope_theta\": 1000000.0"},
    {"lfm2", "llama",
     "\"model_type\": \"lfm2\", \"architectures\": [\"Lfm2ForCausalLM\"], "
     "\"full_attn_idxs\": [1], \"conv_L_cache\": 3, \"block_ff_dim\": 96, "
     "\"block_multiple_of\": 16, \"norm_eps\": 1e-5, \"rope_theta\": 1000000.0"},
    {"qwen3.5", "qwen3",
     "\"model_type\": \"qwen3_5_text\", \"architectures\": [\"Qwen3_5ForCausalLM\"], "
     "\"full_attention_interval\": 2, \"head_dim\": 16, \"linear_num_key_heads\": 2, "
     "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 16, "
     "\"linear_value_head_dim\": 16, \"partial_rotary_factor\": 0.25, "
     "\"rope_theta\": 10000000.0, \"tie_word_embeddings\": true"},
    {"qwen3-next", "qwen3",
     "\"model_type\": \"qwen3_next\", \"architectures\": [\"Qwen3NextForCausalLM\"], "
     "\"full_attention_interval\": 2, \"head_dim\": 16, \"linear_num_key_heads\": 2, "
     "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 16, "
     "\"linear_value_head_dim\": 16, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
     "\"moe_intermediate_size\": 48, \"shared_expert_intermediate_size\": 48, "
     "\"partial_rotary_factor\": 0.25, \"rope_theta\": 10000000.0, "
     "\"tie_word_embeddings\": false"},
    {"kimi-linear", "llama",
     "\"model_type\": \"kimi_linear\", \"architectures\": [\"KimiLinearForCausalLM\"], "
     "\"linear_attn_config\": {\"full_attn_layers\": [2], \"kda_layers\": [1, 3], \"num_heads\": "
     "2, "
     "\"head_dim\": 16, \"short_conv_kernel_size\": 4}, \"kv_lora_rank\": 16, "
     "\"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16, "
     "\"num_experts\": 4, \"num_experts_per_token\": 2, \"moe_intermediate_size\": 32, "
     "\"tie_word_embeddings\": false"},
    {"olmo-hybrid", "llama",
     "\"model_type\": \"olmo_hybrid\", \"architectures\": [\"OlmoHybridForCausalLM\"], "
     "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"], "
     "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 2, \"linear_key_head_dim\": 12, "
     "\"linear_value_head_dim\": 16, \"rope_parameters\": {\"rope_type\": \"default\", "
     "\"rope_theta\": null}, \"tie_word_embeddings\": false"},
    {"magistral", "mistral",
     "\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], "
     "\"sliding_window\": null, \"rope_theta\": 1000000000.0, \"tie_word_embeddings\": false"},
    {"mixtral", "mistral",
     "\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"], "
     "\"rope_theta\": 1000000.0, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
     "\"tie_word_embeddings\": false"},
    {"mistral", "mistral",
     "\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], "
     "\"sliding_window\": 32, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false"},
    {"qwen2", "qwen3",
     "\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForCausalLM\"], \"rope_theta\": "
     "1000000.0, \"use_sliding_window\": false, \"tie_word_embeddings\": false"},
    {"qwen3-30b-a3b", "qwen3",
     "\"model_type\": \"qwen3_moe\", \"architectures\": [\"Qwen3MoeForCausalLM\"], "
     "\"rope_theta\": 1000000.0, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
     "\"moe_intermediate_size\": 48, \"norm_topk_prob\": true, \"tie_word_embeddings\": false"},
    {"qwen3", "qwen3",
     "\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForCausalLM\"], \"rope_theta\": "
     "1000000.0, \"attention_bias\": false, \"tie_word_embeddings\": true"},
};

/* The family of a hub id; fails the test where there is none. */
static inline const struct tiny_family *tiny_family(const char *base_model) {
    const char *slash = strrchr(base_model, '/');
    char name[96] = "";
    for (size_t i = 0; i + 1 < sizeof name && slash && slash[1 + i]; i++)
        name[i] = (char)tolower((unsigned char)slash[1 + i]);
    for (size_t i = 0; i < sizeof tiny_families / sizeof *tiny_families; i++)
        if (strncmp(name, tiny_families[i].prefix, strlen(tiny_families[i].prefix)) == 0)
            return &tiny_families[i];
    fail_msg("no tiny model for %s", base_model);
    return NULL;
}

static inline void tiny_copy(const char *from_dir, const char *to_dir, const char *name) {
    char from[600], to[300], *text;
    size_t len;
    snprintf(from, sizeof from, "%s/%s", from_dir, name);
    snprintf(to, sizeof to, "%s/%s", to_dir, name);
    if (!ax_path_exists(from))
        return;
    assert_ok(ax_read_file(from, 1 << 24, &text, &len));
    assert_ok(ax_write_file_atomic(to, text, len));
    ax_free(text);
}

/* SCRATCH/PREFIX with config.json and tokenizer, without weights: for reinit_weights. Room for ids
 * of added tokens. */
static inline const char *tiny_base(const struct tiny_family *f) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    char name[64];
    struct ax_buf b = {0};
    snprintf(name, sizeof name, "models/%s", f->tokenizer);
    const char *from = golden_path(name);
    const char *dir = in_scratch(f->prefix);
    assert_ok(ax_mkdir_parents(dir));
    assert_ok(ax_buf_printf(&b,
                            "{%s, \"vocab_size\": 576, \"hidden_size\": 64, "
                            "\"intermediate_size\": 96, \"num_hidden_layers\": 3, "
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": %d, "
                            "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-6, "
                            "\"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}",
                            f->config, strstr(f->config, "kv_lora_rank") ? 4 : 2));
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(ax_write_file_atomic(path, b.data, b.len));
    ax_buf_free(&b);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        tiny_copy(from, dir, files[i]);
    return dir;
}

/* A row's column as `cfg` names it, or its usual name. */
static inline const char *tiny_name(const char *set, const char *usual) {
    return set ? set : usual;
}

/* One conversation of two turns; properties that only some configurations read are there too. */
static inline void tiny_chat_row(struct ax_buf *b, const struct ax_config *cfg, const char *entry,
                                 int i) {
    const char *role =
        tiny_name(ax_config_str(cfg, "%s.message_property_mappings.role", entry), "role");
    const char *content =
        tiny_name(ax_config_str(cfg, "%s.message_property_mappings.content", entry), "content");
    const char *mark = ax_config_str(cfg, "%s.message_field_training", entry);
    const bool sharegpt = strcmp(role, "from") == 0;
    char training[64] = "";
    if (mark)
        snprintf(training, sizeof training, ", \"%s\": true", mark);
    assert_ok(ax_buf_printf(
        b,
        "{\"%s\": [{\"%s\": \"%s\", \"%s\": \"say %d\"}, {\"%s\": \"%s\", \"%s\": \"%sit is "
        "%d\"%s}]%s}\n",
        tiny_name(ax_config_str(cfg, "%s.field_messages", entry), "messages"), role,
        sharegpt ? "human" : "user", content, i, role, sharegpt ? "gpt" : "assistant", content,
        ax_config_bool(cfg, "%s.split_thinking", entry) ? "<think>I count.</think>" : "", i,
        training,
        ax_config_is_set(cfg, "%s.field_tools", entry)
            ? ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"count\", "
              "\"description\": \"counts\", \"parameters\": {\"type\": \"object\", "
              "\"properties\": {}}}}]"
            : ""));
}

/* Rows of preferences; @ stands for the row's number. */
static inline bool tiny_preference(struct ax_buf *b, const char *type, int i) {
#define TINY_TURNS(text)                                                                           \
    "[{\"role\": \"user\", \"content\": \"say @\"}, {\"role\": \"assistant\", \"content\": "       \
    "\"" text "\"}]"
    static const struct {
        const char *type, *row;
    } kinds[] = {
        {"chat_template.default",
         "{\"conversation\": [{\"role\": \"user\", \"content\": \"say @\"}], \"chosen\": "
         "{\"role\": "
         "\"assistant\", \"content\": \"it is @\"}, \"rejected\": {\"role\": \"assistant\", "
         "\"content\": \"it is not @\"}}\n"},
        {"chat_template.argilla",
         "{\"chosen\": " TINY_TURNS("it is @") ", \"rejected\": " TINY_TURNS("it is not @") "}\n"},
        {"chat_template.argilla_chat",
         "{\"chosen\": " TINY_TURNS("it is @") ", \"rejected\": " TINY_TURNS("it is not @") "}\n"},
        {"llama3.intel",
         "{\"system\": \"count\", \"question\": \"say @\", \"chosen\": \"it is @\", "
         "\"rejected\": \"it is not @\"}\n"},
        {"llama3.ultra", "{\"prompt\": \"say @\", \"completion\": \"it is @\", \"label\": true}\n"},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(kinds[k].type, type) != 0)
            continue;
        for (const char *c = kinds[k].row; *c; c++)
            assert_ok(*c == '@' ? ax_buf_printf(b, "%d", i) : ax_buf_append(b, c, 1));
        return true;
    }
    return false;
}

static inline void tiny_row(struct ax_buf *b, const struct ax_config *cfg, const char *entry,
                            int i) {
    const struct ax_yaml_node *node = ax_config_node(cfg, "%s.type", entry);
    const bool own = node && node->kind == AX_YAML_MAP; /* a prompt of the user's own */
    const char *type = own ? "" : ax_config_str(cfg, "%s.type", entry);
    if (tiny_preference(b, type ? type : "", i))
        return;
    if (!type) /* of a run on preferences: TRL's columns */
        assert_ok(
            ax_buf_printf(b,
                          "{\"prompt\": [{\"role\": \"user\", \"content\": \"say %d\"}], "
                          "\"chosen\": [{\"role\": \"assistant\", \"content\": \"it is %d\"}], "
                          "\"rejected\": [{\"role\": \"assistant\", \"content\": \"it is not "
                          "%d\"}]}\n",
                          i, i, i));
    else if (own)
        assert_ok(ax_buf_printf(
            b, "{\"%s\": \"say %d\", \"%s\": \"it is %d\"}\n",
            tiny_name(ax_config_str(cfg, "%s.type.field_instruction", entry), "instruction"), i,
            tiny_name(ax_config_str(cfg, "%s.type.field_output", entry), "output"), i));
    else if (strncmp(type, "alpaca", 6) == 0)
        assert_ok(ax_buf_printf(b,
                                "{\"instruction\": \"say %d\", \"input\": \"%s\", "
                                "\"output\": \"it is %d\"}\n",
                                i, i % 2 ? "twice" : "", i));
    else if (strcmp(type, "completion") == 0 || strcmp(type, "pretrain") == 0)
        assert_ok(ax_buf_printf(b, "{\"%s\": \"line %d of a text that goes on\"}\n",
                                tiny_name(ax_config_str(cfg, "%s.field", entry), "text"), i));
    else if (strncmp(type, "bradley_terry", 13) == 0)
        assert_ok(ax_buf_printf(b,
                                "{\"input\": \"say %d\", \"chosen\": \"it is %d\", "
                                "\"rejected\": \"it is not %d\"}\n",
                                i, i, i));
    else if (strcmp(type, "stepwise_supervised") == 0)
        assert_ok(
            ax_buf_printf(b,
                          "{\"prompt\": \"say %d\", \"completions\": [\"one\", \"it is %d\"], "
                          "\"labels\": [true, %s]}\n",
                          i, i, i % 2 ? "true" : "false"));
    else if (strcmp(type, "input_output") == 0)
        assert_ok(ax_buf_printf(b,
                                "{\"segments\": [{\"label\": false, \"text\": \"say %d\"}, "
                                "{\"label\": true, \"text\": \"it is %d\"}]}\n",
                                i, i));
    else
        tiny_chat_row(b, cfg, entry, i);
}

/* Rows in the shape that an entry of a list of data sets ("datasets.0") expects. */
static inline const char *tiny_rows(const struct ax_config *cfg, const char *entry) {
    struct ax_buf b = {0};
    char name[96];
    for (int i = 0; i < TINY_ROWS; i++)
        tiny_row(&b, cfg, entry, i);
    snprintf(name, sizeof name, "%s.jsonl", entry);
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

#endif
