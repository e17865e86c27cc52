/* The architectures, as data. */
#include <stdio.h>
#include <string.h>

#include "ckpt/gguf/model.h"

#define AT(member)          offsetof(struct ax_gguf_model, member)
#define KEY(g, h, t, m)     .gguf = g, .hf = h, .type = AX_GGUF_##t, .at = AT(m)
#define COUNT(g, h, m)      KEY(g, h, COUNT, m)
#define REAL(g, h, m)       KEY(g, h, REAL, m)
#define FLAG(g, h, m)       KEY(g, h, FLAG, m)
#define KIND(a, type, name) .arch = a, .model_type = type, .architecture = name
/* clang-format off */
#define EXPERTS(number)                                                                            \
    {COUNT(NULL, number, experts)},                                                                \
    {COUNT(NULL, "num_experts_per_tok", active)}
#define WIDTH {COUNT(NULL, "moe_intermediate_size", expert_ffn)}

static const struct ax_gguf_field mixtral[] = {EXPERTS("num_local_experts"), {0}};
static const struct ax_gguf_field qwen[] = {{COUNT(NULL, "max_window_layers", layers)}, {0}};
static const struct ax_gguf_field qwen3_moe[] = {
    EXPERTS("num_experts"), WIDTH, {COUNT(NULL, "max_window_layers", layers)}, {0}};
static const struct ax_gguf_field qwen2_moe[] = {
    EXPERTS("num_experts"), WIDTH,
    {COUNT("expert_shared_feed_forward_length", "shared_expert_intermediate_size", shared_ffn), .required = true},
    {0}};
static const struct ax_gguf_field gemma2[] = {
    {COUNT("attention.sliding_window", "sliding_window", window), .required = true},
    {REAL("attn_logit_softcapping", "attn_logit_softcapping", score_cap), .absent = 50},
    {REAL("final_logit_softcapping", "final_logit_softcapping", logit_cap), .absent = 30},
    {COUNT(NULL, "query_pre_attn_scalar", query_scalar)},
    {0}};
static const struct ax_gguf_field gemma3[] = {
    {COUNT("attention.sliding_window", "sliding_window", window), .required = true},
    {COUNT("attention.sliding_window_pattern", "sliding_window_pattern", period), .absent = 6},
    {REAL("rope.freq_base_swa", "rope_local_base_freq", rope_theta_local), .absent = 10000},
    {REAL("final_logit_softcapping", "final_logit_softcapping", logit_cap), .optional = true, .nullable = true},
    {COUNT(NULL, "query_pre_attn_scalar", query_scalar)},
    {0}};
#define GRANITE                                                                                    \
    {REAL("attention.scale", "attention_multiplier", attention_scale), .required = true},         \
    {REAL("embedding_scale", "embedding_multiplier", embedding_scale), .required = true},         \
    {REAL("residual_scale", "residual_multiplier", residual_scale), .required = true},            \
    {REAL("logit_scale", "logits_scaling", logit_divisor), .required = true}
static const struct ax_gguf_field granite[] = {GRANITE, {0}};
#define MAMBA(taps_key, state_key, heads_key, head_key, groups_key)                                \
    {COUNT("ssm.conv_kernel", taps_key, taps), .required = true},                                  \
    {COUNT("ssm.inner_size", NULL, ssd.width), .required = true},                                  \
    {COUNT("ssm.state_size", state_key, ssd.state), .required = true},                             \
    {COUNT("ssm.time_step_rank", heads_key, ssd.heads), .required = true},                         \
    {COUNT("ssm.group_count", groups_key, ssd.groups), .required = true},                          \
    {COUNT(NULL, head_key, ssd.head_dim)}
static const struct ax_gguf_field granite_hybrid[] = {
    GRANITE, EXPERTS("num_local_experts"),
    {COUNT("expert_shared_feed_forward_length", "shared_intermediate_size", shared_ffn)},
    MAMBA("mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_d_head", "mamba_n_groups"),
    {COUNT(NULL, "mamba_expand", ssd.expand)},
    {FLAG("rope.scaling.finetuned", NULL, rotates), .absent = 1},
    {0}};
static const struct ax_gguf_field falcon_h1[] = {
    MAMBA("mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_d_head", "mamba_n_groups"),
    {COUNT(NULL, "mamba_d_ssm", ssd.width)},
    {FLAG(NULL, "mamba_rms_norm", ssd.norm)},
    {0}};
#define NEMOTRON_H                                                                                 \
    MAMBA("conv_kernel", "ssm_state_size", "mamba_num_heads", "mamba_head_dim", "n_groups"),       \
    {REAL("attention.layer_norm_epsilon", "layer_norm_epsilon", eps)} /* beside the usual key */
static const struct ax_gguf_field nemotron_h[] = {NEMOTRON_H, {0}};
static const struct ax_gguf_field nemotron_h_moe[] = {
    NEMOTRON_H, EXPERTS("n_routed_experts"), WIDTH,
    {COUNT("expert_shared_count", "n_shared_experts", n_shared), .absent = 1},
    {COUNT("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size", shared_ffn), .required = true},
    {COUNT("moe_latent_size", "moe_latent_size", latent), .optional = true, .nullable = true},
    {REAL("expert_weights_scale", "routed_scaling_factor", routed_scale), .absent = 1},
    {FLAG("expert_weights_norm", "norm_topk_prob", renormalize), .absent = 1},
    {COUNT("expert_group_count", "n_group", groups), .absent = 1},
    {COUNT("expert_group_used_count", "topk_group", groups_kept), .absent = 1},
    {COUNT("nextn_predict_layers", NULL, unused_layers), .optional = true},
    {0}};
static const struct ax_gguf_field ministral3[] = {
    {REAL("attention.temperature_scale", NULL, growth), .optional = true}, {0}};
static const struct ax_gguf_field phi3[] = {
    {COUNT("attention.sliding_window", "sliding_window", window), .nullable = true},
    {REAL(NULL, "partial_rotary_factor", rotary_part)},
    {0}};
static const struct ax_gguf_field glm4[] = {{REAL(NULL, "partial_rotary_factor", rotary_part)}, {0}};
#define ROUTED                                                                                     \
    EXPERTS("n_routed_experts"), WIDTH,                                                            \
    {COUNT("leading_dense_block_count", "first_k_dense_replace", dense_layers)},                   \
    {COUNT("expert_shared_count", "n_shared_experts", n_shared)},                                  \
    {REAL("expert_weights_scale", "routed_scaling_factor", routed_scale), .absent = 1},            \
    {FLAG("expert_weights_norm", "norm_topk_prob", renormalize)},                                  \
    {COUNT("expert_group_count", "n_group", groups), .absent = 1},                                 \
    {COUNT("expert_group_used_count", "topk_group", groups_kept), .absent = 1},                    \
    {COUNT("expert_gating_func", NULL, gating), .absent = 1}
static const struct ax_gguf_field glm4_moe[] = {
    ROUTED,
    {COUNT("nextn_predict_layers", NULL, unused_layers), .optional = true},
    {FLAG(NULL, "use_qk_norm", qk_norm)},
    {REAL(NULL, "partial_rotary_factor", rotary_part)},
    {0}};
static const struct ax_gguf_field dots1[] = {ROUTED, {COUNT(NULL, "max_window_layers", layers)}, {0}};
static const struct ax_gguf_field olmoe[] = {EXPERTS("num_experts"), {0}};
#define DEEPSEEK                                                                                   \
    ROUTED,                                                                                        \
    {COUNT("attention.q_lora_rank", "q_lora_rank", q_rank), .optional = true, .nullable = true},   \
    {COUNT("attention.kv_lora_rank", "kv_lora_rank", kv_rank), .required = true},                  \
    {COUNT(NULL, "qk_nope_head_dim", nope)},                                                       \
    {COUNT(NULL, "qk_rope_head_dim", rotated)},                                                    \
    {COUNT(NULL, "head_dim", rotated)},                                                            \
    {COUNT(NULL, "v_head_dim", value_dim)}
static const struct ax_gguf_field deepseek[] = {DEEPSEEK, {0}};
static const struct ax_gguf_field deepseek32[] = {
    DEEPSEEK,
    {COUNT("attention.indexer.head_count", "index_n_heads", index.heads), .required = true},
    {COUNT("attention.indexer.key_length", "index_head_dim", index.head_dim), .required = true},
    {COUNT("attention.indexer.top_k", "index_topk", index.top), .required = true},
    {COUNT("nextn_predict_layers", NULL, unused_layers), .optional = true},
    {0}};

static const struct ax_gguf_field gpt_oss[] = {
    EXPERTS("num_local_experts"),
    {COUNT("attention.sliding_window", "sliding_window", window), .required = true},
    {0}};

static const struct ax_gguf_field ernie4_5_moe[] = {
    EXPERTS("moe_num_experts"), WIDTH,
    {COUNT(NULL, "moe_k", active)},
    {COUNT("leading_dense_block_count", "moe_layer_start_index", dense_layers)},
    {COUNT("interleave_moe_layer_step", "moe_layer_interval", sparse_step), .absent = 1},
    {COUNT("expert_shared_count", "moe_num_shared_experts", n_shared)},
    {COUNT("expert_shared_feed_forward_length", NULL, shared_ffn), .optional = true},
    {0}};
static const struct ax_gguf_field llama4[] = {
    EXPERTS("num_local_experts"),
    {COUNT(NULL, "intermediate_size", expert_ffn)},
    {COUNT(NULL, "intermediate_size_mlp", ffn)},
    {COUNT("interleave_moe_layer_step", "interleave_moe_layer_step", sparse_step), .required = true},
    {FLAG(NULL, "use_qk_norm", qk_norm)},
    {0}};
static const struct ax_gguf_field exaone4[] = {
    {COUNT("attention.sliding_window", "sliding_window", window), .optional = true, .nullable = true}, {0}};
#define COHERE                                                                                     \
    {REAL("logit_scale", "logit_scale", logit_scale), .required = true},                          \
    {REAL(NULL, "layer_norm_eps", eps)}
static const struct ax_gguf_field cohere[] = {COHERE, {0}};
static const struct ax_gguf_field cohere2[] = {
    COHERE, {COUNT("attention.sliding_window", "sliding_window", window), .required = true}, {0}};
static const struct ax_gguf_field minimax_m2[] = {
    EXPERTS("num_local_experts"),
    {COUNT("expert_gating_func", NULL, gating), .absent = 1},
    {COUNT(NULL, "rotary_dim", rotated)},
    {REAL(NULL, "partial_rotary_factor", rotary_part)},
    {0}};

static const struct ax_gguf_field mimo2[] = {
    EXPERTS("n_routed_experts"), WIDTH,
    {COUNT(NULL, "first_k_dense_replace", dense_layers)},
    {COUNT(NULL, "v_head_dim", value_dim)},
    {COUNT(NULL, "swa_num_key_value_heads", kv_sliding)},
    {COUNT("attention.sliding_window", "sliding_window", window), .required = true},
    {REAL("attention.value_scale", "attention_value_scale", value_scale), .absent = 1},
    {REAL("rope.freq_base_swa", "swa_rope_theta", rope_theta_local), .absent = 10000},
    {REAL(NULL, "partial_rotary_factor", rotary_part)},
    {COUNT("nextn_predict_layers", NULL, unused_layers), .optional = true},
    {0}};

#define LFM2                                                                                       \
    {COUNT("shortconv.l_cache", "conv_L_cache", taps), .required = true},                         \
    {REAL(NULL, "norm_eps", eps)}
static const struct ax_gguf_field lfm2[] = {LFM2, {0}};
static const struct ax_gguf_field lfm2_moe[] = {
    LFM2, EXPERTS("num_experts"), WIDTH,
    {COUNT("leading_dense_block_count", "num_dense_layers", dense_layers)},
    {COUNT("expert_gating_func", NULL, gating), .absent = 1},
    {0}};

#define DELTA                                                                                      \
    {COUNT("ssm.conv_kernel", "linear_conv_kernel_dim", taps), .required = true},                  \
    {COUNT("ssm.state_size", "linear_key_head_dim", delta.key_dim), .required = true},             \
    {COUNT("ssm.group_count", "linear_num_key_heads", delta.keys), .required = true},              \
    {COUNT("ssm.time_step_rank", "linear_num_value_heads", delta.values), .required = true},       \
    {COUNT("ssm.inner_size", NULL, delta.width), .required = true},                                \
    {COUNT(NULL, "linear_value_head_dim", delta.value_dim)},                                       \
    {COUNT("full_attention_interval", "full_attention_interval", interval), .absent = 4},          \
    {COUNT("nextn_predict_layers", NULL, unused_layers), .optional = true},                        \
    {REAL(NULL, "partial_rotary_factor", rotary_part)}
static const struct ax_gguf_field qwen3_5[] = {DELTA, {0}};
static const struct ax_gguf_field qwen3_5_moe[] = {
    DELTA, EXPERTS("num_experts"), WIDTH,
    {COUNT("expert_shared_feed_forward_length", "shared_expert_intermediate_size", shared_ffn), .required = true},
    {0}};

static const struct ax_gguf_field kimi_linear[] = {
    {COUNT(NULL, "num_experts", experts)},
    {COUNT(NULL, "num_experts_per_token", active)}, WIDTH,
    {COUNT("leading_dense_block_count", "first_k_dense_replace", dense_layers)},
    {COUNT("expert_shared_count", "num_shared_experts", n_shared)},
    {REAL("expert_weights_scale", "routed_scaling_factor", routed_scale), .absent = 1},
    {FLAG("expert_weights_norm", "moe_renormalize", renormalize), .absent = 1},
    {COUNT("expert_group_count", "num_expert_group", groups), .absent = 1},
    {COUNT("expert_group_used_count", "topk_group", groups_kept), .absent = 1},
    {COUNT("expert_gating_func", NULL, gating), .absent = 2},
    {COUNT("attention.kv_lora_rank", "kv_lora_rank", kv_rank), .required = true},
    {COUNT(NULL, "q_lora_rank", q_rank), .nullable = true},
    {COUNT(NULL, "qk_nope_head_dim", nope)},
    {COUNT(NULL, "qk_rope_head_dim", rotated)},
    {COUNT(NULL, "head_dim", rotated)},
    {COUNT(NULL, "v_head_dim", value_dim)},
    {COUNT(NULL, "model_max_length", context)},
    {COUNT("ssm.conv_kernel", "linear_conv_kernel_dim", taps), .required = true},
    {COUNT("kda.head_dim", "linear_head_dim", delta.key_dim), .required = true},
    {COUNT(NULL, "linear_num_heads", heads)},
    {0}};

static const struct ax_gguf_field gemma4[] = {
    EXPERTS("num_experts"), WIDTH,
    {COUNT(NULL, "top_k_experts", active)},
    {FLAG(NULL, "enable_moe_block", mixed.sparse)},
    {COUNT("attention.sliding_window", "sliding_window", window), .required = true},
    {REAL("rope.freq_base_swa", NULL, rope_theta_local), .absent = 10000},
    {REAL("final_logit_softcapping", "final_logit_softcapping", logit_cap), .optional = true, .nullable = true},
    {COUNT("attention.shared_kv_layers", "num_kv_shared_layers", mixed.borrow)},
    {COUNT("embedding_length_per_layer_input", "hidden_size_per_layer_input", mixed.width)},
    {COUNT(NULL, "vocab_size_per_layer_input", mixed.table)},
    {COUNT(NULL, "global_head_dim", mixed.head_dim)},
    {COUNT(NULL, "num_global_key_value_heads", mixed.kv_heads)},
    {FLAG(NULL, "attention_k_eq_v", mixed.of_keys)},
    {FLAG(NULL, "use_double_wide_mlp", mixed.wide)},
    {0}};

/* how many layers borrow keys is in a file as a float, too: streams.c reads it */
static const struct ax_gguf_field gemma3n[] = {
    {COUNT("attention.sliding_window", "sliding_window", window), .required = true},
    {REAL("rope.freq_base_swa", "rope_local_base_freq", rope_theta_local), .absent = 10000},
    {REAL("final_logit_softcapping", "final_logit_softcapping", logit_cap), .absent = 30},
    {COUNT(NULL, "num_kv_shared_layers", mixed.borrow)},
    {COUNT("embedding_length_per_layer_input", "hidden_size_per_layer_input", mixed.width), .required = true},
    {COUNT(NULL, "vocab_size_per_layer_input", mixed.table)},
    {COUNT("altup.num_inputs", "altup_num_inputs", streams.n), .absent = 4},
    {COUNT("altup.active_idx", "altup_active_idx", streams.active)},
    {COUNT(NULL, "laurel_rank", streams.rank)},
    {0}};

#define NO_WINDOW   "\"sliding_window\": null"
#define WINDOWLESS  NO_WINDOW ", \"use_sliding_window\": false"
#define ALL_SPARSE  "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []"
#define NEMOTRON_H_CONFIG                                                                          \
    "{\"use_conv_bias\": true, \"use_bias\": false, \"mamba_proj_bias\": false, \"mlp_bias\": false, " \
    "\"attention_bias\": false, \"mlp_hidden_act\": \"relu2\", \"mamba_hidden_act\": \"silu\", " NO_WINDOW "}"
#define GEMMA       "{\"hidden_act\": \"gelu_pytorch_tanh\", \"hidden_activation\": \"gelu_pytorch_tanh\"}"

const struct ax_gguf_kind ax_gguf_kinds[] = {
    {KIND("llama", "llama", "LlamaForCausalLM"), .permuted = true, .o_bias = true, .mlp_bias = true},
    {KIND("llama", "mixtral", "MixtralForCausalLM"), .permuted = true, .o_bias = true, .moe = true, .fields = mixtral,
     .config = "{" NO_WINDOW "}"},
    {KIND("qwen2", "qwen2", "Qwen2ForCausalLM"), .qkv_bias = true, .fields = qwen,
     .config = "{" WINDOWLESS "}"},
    {KIND("qwen3", "qwen3", "Qwen3ForCausalLM"), .o_bias = true, .qk_norm = true, .fields = qwen,
     .config = "{" WINDOWLESS "}"},
    {KIND("qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"), .o_bias = true, .qk_norm = true, .moe = true,
     .fields = qwen3_moe,
     .config = "{\"norm_topk_prob\": true, " ALL_SPARSE ", " WINDOWLESS "}"},
    {KIND("qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM"), .qkv_bias = true, .moe = true,
     .fields = qwen2_moe, .config = "{\"norm_topk_prob\": false, \"use_sliding_window\": false, " ALL_SPARSE "}"},
    {KIND("gemma2", "gemma2", "Gemma2ForCausalLM"), .shifted = true, .rescaled = true, .keeps_windows = true, .fields = gemma2, .config = GEMMA},
    {KIND("gemma3", "gemma3_text", "Gemma3ForCausalLM"), .shifted = true, .rescaled = true, .qk_norm = true,
     .keeps_windows = true, .fields = gemma3, .config = GEMMA},
    {KIND("gemma3n", "gemma3n_text", "Gemma3nForCausalLM"), .qk_norm = true, .keeps_windows = true, .streams = true,
     .fields = gemma3n, .config = GEMMA},
    {KIND("gemma4", "gemma4_text", "Gemma4ForCausalLM"), .qk_norm = true, .keeps_windows = true, .may_moe = true,
     .mixed = true, .fields = gemma4, .config = GEMMA},
    {KIND("mistral3", "ministral3", "Ministral3ForCausalLM"), .permuted = true, .grows = true, .fields = ministral3,
     .config = "{" NO_WINDOW "}"},
    {KIND("granite", "granite", "GraniteForCausalLM"), .permuted = true, .o_bias = true,
     .mlp_bias = true, .fields = granite},
    {KIND("smollm3", "smollm3", "SmolLM3ForCausalLM"), .permuted = true, .o_bias = true,
     .config = "{\"no_rope_layer_interval\": 4, \"use_sliding_window\": false}"},
    {KIND("olmo2", "olmo2", "Olmo2ForCausalLM"), .qk_norm = true, .copies_head = true},
    {KIND("phi3", "phi3", "Phi3ForCausalLM"), .partial_rope = true, .fields = phi3},
    {KIND("glm4", "glm4", "Glm4ForCausalLM"), .partial_rope = true, .fields = glm4},
    {KIND("glm4moe", "glm4_moe", "Glm4MoeForCausalLM"), .moe = true, .some_dense = true,
     .partial_rope = true, .may_qk_norm = true, .gating = 2, .fields = glm4_moe},
    {KIND("deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM"), .moe = true, .some_dense = true,
     .partial_rope = true, .gating = 1, .fields = deepseek,
     .config = "{\"topk_method\": \"group_limited_greedy\"}"},
    {KIND("deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM"), .moe = true, .some_dense = true,
     .partial_rope = true, .gating = 2, .fields = deepseek},
    {KIND("deepseek32", "deepseek_v32", "DeepseekV32ForCausalLM"), .moe = true, .some_dense = true,
     .partial_rope = true, .gating = 2, .fields = deepseek32},
    {KIND("glm-dsa", "glm_moe_dsa", "GlmMoeDsaForCausalLM"), .moe = true, .some_dense = true,
     .partial_rope = true, .shares = true, .gating = 2, .fields = deepseek32},
    {KIND("gpt-oss", "gpt_oss", "GptOssForCausalLM"), .moe = true, .o_bias = true, .keeps_windows = true,
     .exact_yarn = true, .fields = gpt_oss},
    {KIND("command-r", "cohere", "CohereForCausalLM"), .layer_norm = true, .is_tied = true, .o_bias = true,
     .fields = cohere},
    {KIND("cohere2", "cohere2", "Cohere2ForCausalLM"), .layer_norm = true, .is_tied = true, .o_bias = true,
     .keeps_windows = true, .fields = cohere2, .config = "{\"sliding_window_pattern\": 4}"},
    {KIND("seed_oss", "seed_oss", "SeedOssForCausalLM"), .config = "{\"attention_out_bias\": false, \"mlp_bias\": false}"},
    {KIND("ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM"), .config = "{\"use_bias\": false}"},
    {KIND("ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM"), .moe = true, .some_dense = true,
     .fields = ernie4_5_moe, .config = "{\"use_bias\": false, \"moe_layer_end_index\": -1}"},
    {KIND("llama4", "llama4_text", "Llama4ForCausalLM"), .o_bias = true, .moe = true, .chunked = true, .fields = llama4,
     .config = "{\"attention_chunk_size\": 8192, \"floor_scale\": 8192, \"attn_scale\": 0.1, \"no_rope_layer_interval\": 4}"},
    {KIND("exaone4", "exaone4", "Exaone4ForCausalLM"), .qk_norm = true, .keeps_windows = true, .fields = exaone4,
     .config = "{\"sliding_window_pattern\": 4}"},
    {KIND("hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"), .o_bias = true, .qk_norm = true},
    {KIND("minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM"), .moe = true, .partial_rope = true, .qk_norm = true,
     .gating = 2, .fields = minimax_m2,
     .config = "{\"scoring_func\": \"sigmoid\", \"use_routing_bias\": true, \"use_qk_norm\": true}"},
    {KIND("mimo2", "mimo_v2_flash", "MiMoV2FlashForCausalLM"), .moe = true, .some_dense = true, .partial_rope = true,
     .keeps_windows = true, .slides = true, .fields = mimo2,
     .config = "{\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", \"norm_topk_prob\": true, \"n_group\": 1, \"topk_group\": 1}"},
    {KIND("lfm2", "lfm2", "Lfm2ForCausalLM"), .qk_norm = true, .convolves = true, .fields = lfm2,
     .config = "{\"block_auto_adjust_ff_dim\": false, \"conv_bias\": false}"},
    {KIND("lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM"), .moe = true, .some_dense = true, .qk_norm = true,
     .convolves = true, .gating = 2, .fields = lfm2_moe,
     .config = "{\"conv_bias\": false, \"norm_topk_prob\": true, \"use_expert_bias\": true}"},
    {KIND("qwen3next", "qwen3_next", "Qwen3NextForCausalLM"), .shifted = true, .qk_norm = true, .moe = true,
     .partial_rope = true, .delta = true, .fields = qwen3_5_moe, .config = "{\"norm_topk_prob\": true, " ALL_SPARSE "}"},
    {KIND("qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM"), .shifted = true, .qk_norm = true, .partial_rope = true,
     .delta = true, .sections = true, .fields = qwen3_5},
    {KIND("qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"), .shifted = true, .qk_norm = true, .moe = true,
     .partial_rope = true, .delta = true, .sections = true, .fields = qwen3_5_moe},
    {KIND("granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM"), .permuted = true, .convolves = true,
     .mamba = true, .may_moe = true, .fields = granite_hybrid,
     .config = "{\"position_embedding_type\": \"nope\", \"mamba_conv_bias\": true, \"mamba_proj_bias\": false}"},
    {KIND("falcon-h1", "falcon_h1", "FalconH1ForCausalLM"), .mamba = true, .beside = true, .copies_head = true,
     .fields = falcon_h1,
     .config = "{\"mamba_conv_bias\": true, \"mamba_proj_bias\": false, \"mamba_norm_before_gate\": false, "
               "\"attention_bias\": false, \"mlp_bias\": false, \"projectors_bias\": false, "
               "\"embedding_multiplier\": 1.0, \"lm_head_multiplier\": 1.0, \"attention_in_multiplier\": 1.0, "
               "\"attention_out_multiplier\": 1.0, \"key_multiplier\": 1.0, \"ssm_in_multiplier\": 1.0, "
               "\"ssm_out_multiplier\": 1.0, \"ssm_multipliers\": [1.0, 1.0, 1.0, 1.0, 1.0], "
               "\"mlp_multipliers\": [1.0, 1.0]}"},
    {KIND("nemotron_h", "nemotron_h", "NemotronHForCausalLM"), .mamba = true, .parts = true, .fields = nemotron_h,
     .config = NEMOTRON_H_CONFIG},
    {KIND("nemotron_h_moe", "nemotron_h", "NemotronHForCausalLM"), .mamba = true, .parts = true, .moe = true,
     .fields = nemotron_h_moe, .config = NEMOTRON_H_CONFIG},
    {KIND("kimi-linear", "kimi_linear", "KimiLinearForCausalLM"), .convolves = true, .kda = true, .moe = true,
     .some_dense = true, .partial_rope = true, .gating = 2, .fields = kimi_linear,
     .config = "{\"mla_use_nope\": true, \"moe_router_activation_func\": \"sigmoid\"}"},
    {KIND("arcee", "arcee", "ArceeForCausalLM"), .permuted = true, .config = "{\"hidden_act\": \"relu2\"}"},
    {KIND("dots1", "dots1", "Dots1ForCausalLM"), .qk_norm = true, .moe = true, .some_dense = true, .gating = 2,
     .fields = dots1, .config = "{" NO_WINDOW "}"},
    {KIND("gemma", "gemma", "GemmaForCausalLM"), .shifted = true, .config = "{\"hidden_act\": \"gelu_pytorch_tanh\"}"},
    {KIND("olmoe", "olmoe", "OlmoeForCausalLM"), .qk_norm = true, .moe = true, .fields = olmoe,
     .config = "{\"norm_topk_prob\": false}"},
    {0}};
/* clang-format on */

const struct ax_gguf_kind *ax_gguf_kind_of(const char *model_type) {
    if (strcmp(model_type, "mistral") == 0) /* equal to Llama except for its window */
        return &ax_gguf_kinds[0];
    for (const struct ax_gguf_kind *k = ax_gguf_kinds; k->arch; k++)
        if (strcmp(k->model_type, model_type) == 0)
            return k;
    return NULL;
}

const struct ax_gguf_kind *ax_gguf_kind_for(const char *model_type, bool experts) {
    for (const struct ax_gguf_kind *k = ax_gguf_kinds; k->arch; k++)
        if (strcmp(k->model_type, model_type) == 0 && k->moe == experts)
            return k;
    return ax_gguf_kind_of(model_type);
}

const char *ax_gguf_kind_list(char *buf, size_t size) {
    size_t at = 0;
    buf[0] = '\0';
    for (const struct ax_gguf_kind *k = ax_gguf_kinds; k->arch && at < size; k++)
        if (k == ax_gguf_kinds || strcmp(k[-1].model_type, k->model_type) != 0)
            at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? ", " : "", k->model_type);
    return buf;
}

int64_t ax_gguf_query_scalar(const struct ax_gguf_model *m) {
    /* llama.cpp tells the largest model of either kind by its layers */
    const int64_t largest = strcmp(m->kind->arch, "gemma2") == 0 ? 46 : 62;
    return m->layers == largest ? m->hidden / m->heads : m->head_dim;
}

double ax_gguf_rotary_part(int64_t rotated, int64_t head_dim) {
    const double part = (double)rotated / (double)head_dim;
    return (int64_t)(part * (double)head_dim) == rotated
               ? part
               : ((double)rotated + 0.25) / (double)head_dim;
}

bool ax_gguf_norms_by_experts(const struct ax_gguf_model *m) {
    return m->experts != 128;
}
