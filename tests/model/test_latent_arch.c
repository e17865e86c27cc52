/* config.json of the families with latent attention, shared experts, layers with states, or few layers with rope: sizes of
 * published models, and values that would change the result and are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/kv_row.h"
#include "model/layer.h"

static enum ax_status parse(struct ax_arch *a, const char *text) {
    struct ax_json_doc doc;
    assert_int_equal(ax_json_parse_file(&doc, "config.json", text, strlen(text)), AX_OK);
    const enum ax_status st = ax_arch_parse(a, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

static void parse_ok(struct ax_arch *a, const char *text) {
    if (parse(a, text) != AX_OK)
        fail_msg("%s", ax_error_text());
}

#define DEEPSEEK_V3                                                                                \
    "{\"model_type\": \"deepseek_v3\", \"attention_bias\": false, \"ep_size\": 1, "                \
    "\"first_k_dense_replace\": 3, \"hidden_act\": \"silu\", \"hidden_size\": 7168, "              \
    "\"intermediate_size\": 18432, \"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, "   \
    "\"moe_intermediate_size\": 2048, \"moe_layer_freq\": 1, \"n_group\": 8, "                     \
    "\"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true, "               \
    "\"num_attention_heads\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, "        \
    "\"num_key_value_heads\": 128, \"num_nextn_predict_layers\": 1, \"q_lora_rank\": 1536, "       \
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-06, "               \
    "\"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, "    \
    "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, "   \
    "\"rope_theta\": 10000, \"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", "       \
    "\"tie_word_embeddings\": false, \"topk_group\": 4, \"topk_method\": \"noaux_tc\", "           \
    "\"torch_dtype\": \"bfloat16\", \"v_head_dim\": 128, \"vocab_size\": 129280"

static void deepseek_v3(void **state) {
    (void)state;
    struct ax_arch a;
    parse_ok(&a, DEEPSEEK_V3 "}");
    assert_int_equal(ax_arch_parameters(&a), 671026404352);
    assert_int_equal(a.head_dim, 192);
    assert_int_equal(a.rope.dim, 64);
    assert_true(a.rope.interleaved && a.moe.routing.sigmoid && a.moe.routing.renormalize);
    assert_int_equal(a.n_unused, 1);
    const double mscale = 0.1 * log(40) + 1;
    assert_true(fabs(a.softmax_scale - mscale * mscale / sqrt(192)) < 1e-15);
    assert_ptr_equal(a.layers[2].ffn, &ax_ffn_swiglu);
    assert_ptr_equal(a.layers[3].ffn, &ax_ffn_moe_shared);
    /* a token passes through 37 B parameters, as published: here without look-ups */
    const double active = ax_arch_flops_per_token(&a, 0) / 6;
    assert_true(active > 36.5e9 && active < 37.6e9);
    assert_true(ax_arch_keeps_dtype(&a, "model.layers.3.mlp.gate.e_score_correction_bias"));
    assert_false(ax_arch_keeps_dtype(&a, "model.layers.60.mlp.gate.weight"));
    assert_true(ax_arch_keeps_dtype(&a, "model.layers.61.mlp.gate.weight"));
    assert_false(ax_arch_keeps_dtype(&a, "lm_head.weight"));
    ax_arch_free(&a);
}

/* Kimi-Linear-48B-A3B as published, but for tokens and what is usual. */
#define KIMI                                                                                       \
    "{\"model_type\": \"kimi_linear\", \"first_k_dense_replace\": 1, \"head_dim\": 72, "           \
    "\"hidden_size\": 2304, \"intermediate_size\": 9216, \"kv_lora_rank\": 512, "                  \
    "\"linear_attn_config\": {\"full_attn_layers\": [4, 8, 12, 16, 20, 24, 27], \"head_dim\": "    \
    "128, "                                                                                        \
    "\"kda_layers\": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26], "  \
    "\"num_heads\": 32, \"short_conv_kernel_size\": 4}, \"mla_use_nope\": true, "                  \
    "\"model_max_length\": 1048576, \"moe_intermediate_size\": 1024, \"moe_layer_freq\": 1, "      \
    "\"moe_renormalize\": true, \"moe_router_activation_func\": \"sigmoid\", "                     \
    "\"num_attention_heads\": 32, \"num_expert_group\": 1, \"num_experts\": 256, "                 \
    "\"num_experts_per_token\": 8, \"num_hidden_layers\": 27, \"num_key_value_heads\": 32, "       \
    "\"num_nextn_predict_layers\": 0, \"num_shared_experts\": 1, \"q_lora_rank\": null, "          \
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-05, "               \
    "\"routed_scaling_factor\": 2.446, \"tie_word_embeddings\": false, \"topk_group\": 1, "        \
    "\"use_grouped_topk\": true, \"v_head_dim\": 128, \"vocab_size\": 163840}"

static void kimi_linear(void **state) {
    (void)state;
    struct ax_arch a;
    parse_ok(&a, KIMI);
    assert_int_equal(a.max_positions, 1048576);
    assert_true(fabs(a.softmax_scale - 1 / sqrt(192)) < 1e-15);
    assert_true(a.moe.routing.sigmoid && a.moe.routing.renormalize && a.moe.routing.groups == 0);
    assert_int_equal(a.delta.layout, AX_DELTA_CHANNELS);
    for (int64_t i = 0; i < 27; i++) {
        const bool attends = i % 4 == 3 || i == 26;
        assert_ptr_equal(a.layers[i].mixer, attends ? &ax_mixer_mla : &ax_mixer_delta);
        assert_int_equal(a.layers[i].rope, AX_ROPE_NONE);
        assert_ptr_equal(a.layers[i].ffn, i == 0 ? &ax_ffn_swiglu : &ax_ffn_moe_shared);
    }
    /* a token passes through 3 B parameters, as published */
    const double active = ax_arch_flops_per_token(&a, 0) / 6;
    assert_true(active > 2.8e9 && active < 3.2e9);
    assert_true(
        ax_arch_keeps_dtype(&a, "model.layers.3.block_sparse_moe.gate.e_score_correction_bias"));
    ax_arch_free(&a);
}

/* Which of 40 layers attend. */
#define M5 "\"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\""
#define GRANITE_4                                                                                  \
    "\"mamba_d_state\": 128, \"num_hidden_layers\": 40, \"tie_word_embeddings\": true, "           \
    "\"vocab_size\": 100352, \"layer_types\": [" M5 ", \"attention\", " M5                         \
    ", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"attention\", " M5                             \
    ", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"attention\", " M5                             \
    ", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"attention\", \"mamba\", \"mamba\", "          \
    "\"mamba\", \"mamba\"]}"

#define GEMMA5                                                                                     \
    "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", \"sliding_attention\", " \
    "\"full_attention\""

#define SMALL                                                                                      \
    "\"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 128, "                       \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4"

/* DeepSeek-V2's experts are chosen in groups only where its config says so, whatever their number. */
static void groups_of_the_second_version(void **state) {
    (void)state;
    static const struct {
        const char *method;
        int groups;
    } cases[] = {{"", 0},
                 {", \"topk_method\": \"greedy\"", 0},
                 {", \"topk_method\": \"group_limited_greedy\"", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[600];
        struct ax_arch a;
        snprintf(config, sizeof config,
                 "{\"model_type\": \"deepseek_v2\", " SMALL
                 ", \"n_group\": 4, \"topk_group\": 2, \"n_routed_experts\": 16%s}",
                 cases[i].method);
        parse_ok(&a, config);
        assert_int_equal(a.moe.routing.groups, cases[i].groups);
        ax_arch_free(&a);
    }
}

static void published_models_have_their_sizes(void **state) {
    (void)state;
    static const struct {
        const char *config;
        int64_t parameters;
    } published[] = {
        {KIMI, 49122675072},
        {"{\"model_type\": \"deepseek_v2\", \"first_k_dense_replace\": 1, \"hidden_size\": 5120, "
         "\"intermediate_size\": 12288, \"kv_lora_rank\": 512, \"moe_intermediate_size\": 1536, "
         "\"n_group\": 8, \"n_routed_experts\": 160, \"n_shared_experts\": 2, "
         "\"num_attention_heads\": 128, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 60, "
         "\"num_key_value_heads\": 128, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, "
         "\"qk_rope_head_dim\": 64, \"routed_scaling_factor\": 16.0, \"topk_group\": 3, "
         "\"topk_method\": \"group_limited_greedy\", \"v_head_dim\": 128, \"vocab_size\": 102400}",
         235741434880},
        {"{\"model_type\": \"deepseek_v2\", \"first_k_dense_replace\": 1, \"hidden_size\": 2048, "
         "\"intermediate_size\": 10944, \"kv_lora_rank\": 512, \"moe_intermediate_size\": 1408, "
         "\"n_group\": 1, \"n_routed_experts\": 64, \"n_shared_experts\": 2, "
         "\"num_attention_heads\": 16, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 27, "
         "\"num_key_value_heads\": 16, \"q_lora_rank\": null, \"qk_nope_head_dim\": 128, "
         "\"qk_rope_head_dim\": 64, \"topk_group\": 1, \"topk_method\": \"greedy\", "
         "\"v_head_dim\": 128, \"vocab_size\": 102400}",
         15706484224},
        {"{\"model_type\": \"qwen2_moe\", \"decoder_sparse_step\": 1, \"hidden_size\": 2048, "
         "\"intermediate_size\": 5632, \"moe_intermediate_size\": 1408, \"num_attention_heads\": "
         "16, \"num_experts\": 60, \"num_experts_per_tok\": 4, \"num_hidden_layers\": 24, "
         "\"num_key_value_heads\": 16, \"shared_expert_intermediate_size\": 5632, "
         "\"vocab_size\": 151936}",
         14315784192},
        {"{\"model_type\": \"qwen3_next\", \"decoder_sparse_step\": 1, \"hidden_size\": 2048, "
         "\"intermediate_size\": 5120, \"num_attention_heads\": 16, \"num_hidden_layers\": 48, "
         "\"num_key_value_heads\": 2, \"vocab_size\": 151936}",
         79674391296},
        {"{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 4096, \"intermediate_size\": 12288, "
         "\"num_attention_heads\": 16, \"num_hidden_layers\": 32, \"num_key_value_heads\": 4, "
         "\"vocab_size\": 248320}",
         8953803264},
        {"{\"model_type\": \"qwen3_5_moe_text\", \"hidden_size\": 2048, \"num_attention_heads\": "
         "16, "
         "\"num_hidden_layers\": 40, \"num_key_value_heads\": 2, \"vocab_size\": 248320}",
         34660610688},
        {"{\"model_type\": \"olmo_hybrid\", \"hidden_size\": 3840, \"intermediate_size\": 11008, "
         "\"num_attention_heads\": 30, \"num_hidden_layers\": 32, \"vocab_size\": 100352, "
         "\"rope_parameters\": {\"rope_theta\": null}}",
         7430870688},
        {"{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 2048, "
         "\"shared_intermediate_size\": 8192, \"mamba_n_heads\": 64, \"mamba_d_head\": 64, "
         "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"num_local_experts\": "
         "0, " GRANITE_4,
         3191396096},
        {"{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 1536, "
         "\"shared_intermediate_size\": 1024, \"mamba_n_heads\": 48, \"mamba_d_head\": 64, "
         "\"num_attention_heads\": 12, \"num_key_value_heads\": 4, \"num_local_experts\": 64, "
         "\"num_experts_per_tok\": 6, \"intermediate_size\": 512, " GRANITE_4,
         6939037248},
        {"{\"model_type\": \"falcon_h1\", \"hidden_size\": 1024, \"intermediate_size\": 2048, "
         "\"num_hidden_layers\": 36, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, "
         "\"head_dim\": 64, \"vocab_size\": 32784, \"mamba_d_ssm\": 1536, \"mamba_n_heads\": 24, "
         "\"mamba_d_head\": 64, \"mamba_d_state\": 128, \"mamba_n_groups\": 1}",
         521411104},
        {"{\"model_type\": \"gemma4_text\", \"hidden_size\": 2560, "
         "\"intermediate_size\": 10240, \"num_hidden_layers\": 42, "
         "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, "
         "\"num_kv_shared_layers\": 18, \"vocab_size\": 262144}",
         7463013376},
        {"{\"model_type\": \"gemma4_text\", \"hidden_size\": 2816, "
         "\"intermediate_size\": 2112, \"num_hidden_layers\": 30, "
         "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, "
         "\"num_global_key_value_heads\": 2, \"attention_k_eq_v\": true, "
         "\"hidden_size_per_layer_input\": 0, \"enable_moe_block\": true, "
         "\"num_experts\": 128, \"top_k_experts\": 8, \"moe_intermediate_size\": 704, "
         "\"vocab_size\": 262144}",
         25233141760},
        {"{\"model_type\": \"gemma4_text\", \"hidden_size\": 5376, "
         "\"intermediate_size\": 21504, \"num_hidden_layers\": 60, "
         "\"num_attention_heads\": 32, \"num_key_value_heads\": 16, "
         "\"num_global_key_value_heads\": 4, \"attention_k_eq_v\": true, "
         "\"hidden_size_per_layer_input\": 0, \"vocab_size\": 262144}",
         30697345280},
        {"{\"model_type\": \"gemma4_text\", \"hidden_size\": 1536, \"intermediate_size\": 6144, "
         "\"num_hidden_layers\": 35, \"num_attention_heads\": 8, \"num_key_value_heads\": 1, "
         "\"num_kv_shared_layers\": 20, \"use_double_wide_mlp\": true, \"vocab_size\": 262144, "
         "\"layer_types\": [" GEMMA5 ", " GEMMA5 ", " GEMMA5 ", " GEMMA5 ", " GEMMA5 ", " GEMMA5
         ", " GEMMA5 "]}",
         4628569344},
        {"{\"model_type\": \"gemma3n_text\", \"hidden_size\": 2048, \"num_hidden_layers\": 35, "
         "\"num_attention_heads\": 8, \"vocab_size\": 262400}",
         6835235568},
        {"{\"model_type\": \"gemma3n_text\", \"hidden_size\": 2048, \"intermediate_size\": 8192, "
         "\"num_hidden_layers\": 30, \"num_kv_shared_layers\": 10, \"num_attention_heads\": 8, "
         "\"vocab_size\": 262400}",
         4435182688},
        {"{\"model_type\": \"nemotron_h\", \"hidden_size\": 4480, \"intermediate_size\": 15680, "
         "\"num_hidden_layers\": 56, \"num_attention_heads\": 40, \"num_key_value_heads\": 8, "
         "\"vocab_size\": 131072, \"mamba_head_dim\": 80, \"hybrid_override_pattern\": "
         "\"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\"}",
         8888227328},
        {"{\"model_type\": \"nemotron_h\", \"hidden_size\": 2688, \"num_hidden_layers\": 52, "
         "\"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"vocab_size\": 131072, "
         "\"mamba_num_heads\": 64, \"n_routed_experts\": 128, \"num_experts_per_tok\": 6, "
         "\"moe_intermediate_size\": 1856, \"moe_shared_expert_intermediate_size\": 3712, "
         "\"hybrid_override_pattern\": \"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME\"}",
         31577937344},
        /* as transformers 5.23 counts them, whose defaults these are */
        {"{\"model_type\": \"deepseek_v32\", \"hidden_size\": 7168, \"intermediate_size\": 18432, "
         "\"num_hidden_layers\": 61, \"num_attention_heads\": 128, \"vocab_size\": 129280}",
         671877929216},
        {"{\"model_type\": \"glm_moe_dsa\", \"hidden_size\": 6144, \"intermediate_size\": 12288, "
         "\"num_hidden_layers\": 78, \"num_attention_heads\": 64, \"qk_nope_head_dim\": 192, "
         "\"v_head_dim\": 256, \"vocab_size\": 154880}",
         743911199232},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct ax_arch a;
        parse_ok(&a, published[i].config);
        assert_int_equal(ax_arch_parameters(&a), published[i].parameters);
        ax_arch_free(&a);
    }
}

/* Which layers have an indexer, in each of the spellings; and MLPs by a list. */
static void layers_share_choices(void **state) {
    (void)state;
    static const struct {
        const char *says, *layers; /* one without an indexer is S */
    } ways[] = {
        {"", "FFFF"},
        {", \"indexer_types\": null, \"index_topk_pattern\": \"FSSF\"", "FSSF"},
        {", \"indexer_types\": [\"full\", \"full\", \"shared\", \"full\"]", "FFSF"},
        {", \"index_topk_pattern\": [\"full\", \"shared\", \"full\", \"shared\"]", "FSFS"},
        {", \"index_topk_freq\": 2", "FFSF"},
        {", \"index_topk_freq\": 3, \"index_skip_topk_offset\": 1", "FSSF"},
    };
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        char text[512];
        struct ax_arch a;
        snprintf(text, sizeof text, "{\"model_type\": \"glm_moe_dsa\", " SMALL "%s}", ways[k].says);
        parse_ok(&a, text);
        assert_int_equal(a.index.top, 2048);
        assert_true(a.index.interleaved && a.norm_eps == 1e-5);
        for (int i = 0; i < 4; i++)
            assert_ptr_equal(a.layers[i].mixer,
                             ways[k].layers[i] == 'S' ? &ax_mixer_dsa_shared : &ax_mixer_dsa);
        ax_arch_free(&a);
    }
    struct ax_arch a;
    parse_ok(&a, "{\"model_type\": \"deepseek_v32\", " SMALL ", \"mlp_layer_types\": [\"sparse\", "
                 "\"dense\", \"sparse\", \"dense\"]}");
    assert_false(a.index.interleaved);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(a.layers[i].ffn, i % 2 ? &ax_ffn_swiglu : &ax_ffn_moe_shared);
    ax_arch_free(&a);
}

static void silence_means_the_family_s_default(void **state) {
    (void)state;
    struct ax_arch a;
    parse_ok(&a, "{\"model_type\": \"deepseek_v2\", " SMALL "}");
    assert_int_equal(a.mla.q_rank, 1536);
    assert_int_equal(a.moe.n_experts, 64);
    assert_int_equal(a.moe.shared_width, 2 * 1407);
    assert_ptr_equal(a.layers[0].ffn, &ax_ffn_moe_shared);
    assert_int_equal(a.moe.routing.groups, 0);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"deepseek_v3\", " SMALL
                 ", \"n_shared_experts\": null, \"rope_interleave\": false, \"moe_layer_freq\": 2, "
                 "\"first_k_dense_replace\": 1}");
    assert_false(a.rope.interleaved);
    assert_int_equal(a.moe.n_experts, 256);
    assert_ptr_equal(a.layers[1].ffn, &ax_ffn_swiglu);
    assert_ptr_equal(a.layers[2].ffn, &ax_ffn_moe);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"glm4_moe\", " SMALL "}");
    assert_int_equal(a.rope.dim, 8);
    assert_true(!a.rope.interleaved && a.norm_eps == 1e-5 && a.qk_norm == AX_QK_NORM_NONE);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"glm4_moe\", " SMALL ", \"partial_rotary_factor\": 1.0}");
    assert_int_equal(a.rope.dim, 16);
    ax_arch_free(&a);
    parse_ok(&a,
             "{\"model_type\": \"deepseek_v3\", " SMALL
             ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"mscale_all_dim\": 0.5}}");
    const double mscale = 0.05 * log(4) + 1; /* of every type but default */
    assert_true(fabs(a.softmax_scale - mscale * mscale / sqrt(192)) < 1e-15);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"kimi_linear\", " SMALL "}");
    assert_true(a.delta.key_heads == 32 && a.delta.key_dim == 128 && a.conv.taps == 4);
    assert_true(a.mla.q_rank == 0 && a.mla.kv_rank == 512 && a.norm_eps == 1e-5);
    assert_true(a.moe.n_experts == 256 && a.moe.n_active == 8 && a.moe.shared_width == 1024);
    assert_ptr_equal(a.layers[0].ffn, &ax_ffn_swiglu);
    assert_ptr_equal(a.layers[1].ffn, &ax_ffn_moe_shared);
    assert_ptr_equal(a.layers[3].mixer, &ax_mixer_delta);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"qwen2_moe\", " SMALL "}");
    assert_true(a.qkv_bias && !a.o_bias && !a.moe.routing.renormalize);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"mimo_v2_flash\", " SMALL ", \"num_key_value_heads\": 2}");
    assert_true(a.value_scale == 0.707 && a.norm_eps == 1e-5 && a.rope.dim == 64);
    assert_true(a.rope.theta == 5e6 && a.rope_local.theta == 1e4 && a.v_head_dim == 128);
    assert_true(a.layers[0].window == 0 && ax_layer_kv_heads(&a, &a.layers[0]) == 2);
    assert_true(a.layers[1].window == 129 && ax_layer_kv_heads(&a, &a.layers[1]) == 4);
    assert_true(!a.layers[0].sinks && a.layers[1].sinks && a.layers[1].rope == AX_ROPE_LOCAL);
    assert_true(a.layers[0].ffn == &ax_ffn_swiglu && a.layers[3].ffn == &ax_ffn_moe);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"mimo_v2_flash\", " SMALL
                 ", \"num_key_value_heads\": 2, \"swa_num_key_value_heads\": 1, "
                 "\"hybrid_layer_pattern\": [1, 0, 1, 0], \"moe_layer_freq\": [1, 1, 0, 1], "
                 "\"sliding_window\": 128, \"sliding_window_size\": 128, "
                 "\"attention_value_scale\": null, \"swa_rope_theta\": 500, \"rope_theta\": 700, "
                 "\"layernorm_epsilon\": 0.5, \"partial_rotary_factor\": 0.5}");
    assert_true(a.value_scale == 1 && a.norm_eps == 0.5 && a.rope.dim == 96);
    assert_true(a.rope.theta == 700 && a.rope_local.theta == 500 && a.rope_local.dim == 96);
    assert_true(a.layers[0].window == 129 && ax_layer_kv_heads(&a, &a.layers[0]) == 1);
    assert_true(a.layers[1].window == 0 && a.layers[2].ffn == &ax_ffn_swiglu);
    ax_arch_free(&a);
    /* without rope a head may have any size */
    parse_ok(&a, "{\"model_type\": \"granitemoehybrid\", " SMALL
                 ", \"position_embedding_type\": null, \"head_dim\": 9}");
    assert_true(a.ssd.heads == 128 && a.ssd.state == 256 && a.ssd.low == 0 && isinf(a.ssd.high));
    assert_true(a.moe.n_experts == 8 && a.layers[0].mixer == &ax_mixer_mamba);
    assert_int_equal(a.layers[3].rope, AX_ROPE_NONE);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"granitemoehybrid\", " SMALL
                 ", \"num_local_experts\": 0, \"position_embedding_type\": \"rope\", "
                 "\"mamba_n_heads\": 5, \"layer_types\": [\"attention\", \"attention\", "
                 "\"full_attention\", \"attention\"]}");
    assert_true(a.ssd.heads == 0 && a.moe.n_experts == 0 && ax_state_layers(&a) == 0);
    assert_int_equal(a.layers[3].rope, AX_ROPE_MAIN);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"falcon_h1\", " SMALL "}");
    assert_true(a.ssd.heads == 128 && a.ssd.head_dim == 8 && a.ssd.state == 256 && !a.ssd.norm);
    assert_true(a.norm_eps == 1e-5 && a.mlp_scale[1] == 1 && a.beside_mamba.out == 1);
    assert_true(a.ssd.scale[4] == 1 && a.layers[3].mixer == &ax_mixer_beside);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"falcon_h1\", " SMALL
                 ", \"mamba_d_ssm\": null, \"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\"}");
    assert_int_equal(a.ssd.head_dim, 2 * a.hidden_size / 8);
    ax_arch_free(&a);
    parse_ok(&a,
             "{\"model_type\": \"nemotron_h\", \"vocab_size\": 100, \"hidden_size\": 64, "
             "\"num_attention_heads\": 4, \"layers_block_type\": [\"linear_attention\", \"moe\", "
             "\"full_attention\", \"mlp\"]}");
    assert_true(a.n_layers == 4 && a.ssd.head_dim == 64 && a.ssd.groups == 8 && a.ssd.norm);
    assert_true(a.layers[0].ffn == &ax_part_none && a.layers[1].mixer == &ax_part_none);
    assert_true(a.layers[2].rope == AX_ROPE_NONE && a.head_dim == 128 && a.norm.once && a.ungated);
    assert_true(a.moe.n_experts == 8 && a.moe.shared_width == 7688 && a.moe.latent == 0);
    assert_true(a.ssd.low == 0.001 && isinf(a.ssd.high));
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"mixtral\", " SMALL "}");
    assert_true(a.norm_eps == 1e-5 && a.layers[0].window == 0);
    ax_arch_free(&a);
}

/* As transformers 5 writes it, and as Python does. */
static void time_steps_without_bound(void **state) {
    (void)state;
    static const char *const limits[] = {"[0.1, {\"__float__\": \"Infinity\"}]", "[0.1, Infinity]"};
    for (int i = 0; i < 2; i++) {
        char text[400];
        struct ax_arch a;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"granitemoehybrid\", " SMALL ", \"time_step_limit\": %s}",
                 limits[i]);
        parse_ok(&a, text);
        assert_true(a.ssd.low == 0.1 && isinf(a.ssd.high));
        ax_arch_free(&a);
    }
    struct ax_arch a;
    parse_ok(&a, "{\"model_type\": \"nemotron_h\", " SMALL ", \"layers_block_type\": "
                 "[\"mamba\", \"mamba\", \"mamba\", \"mamba\"], \"time_step_min\": 0.25, "
                 "\"time_step_limit\": [0.5, 0.75]}");
    assert_true(a.ssd.low == 0.25 && isinf(a.ssd.high));
    ax_arch_free(&a);
}

#define MIMO "{\"model_type\": \"mimo_v2_flash\", " SMALL ", "
#define KDA_LAYERS(lists)                                                                          \
    "{\"model_type\": \"kimi_linear\", " SMALL ", \"linear_attn_config\": {" lists "}}"
#define BESIDE "{\"model_type\": \"falcon_h1\", " SMALL ", "
#define ALONE  "{\"model_type\": \"nemotron_h\", " SMALL ", "
#define HYBRID "{\"model_type\": \"granitemoehybrid\", " SMALL ", \"num_local_experts\": 0, "
static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        enum ax_status st;
    } bad[] = {
        {DEEPSEEK_V3 ", \"quantization_config\": {\"quant_method\": \"fp8\", "
                     "\"weight_block_size\": [128]}}",
         "quantization_config.weight_block_size: expected [rows, columns]", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"quantization_config\": {}}",
         "quantization_config: quantized checkpoints are not supported", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"scoring_func\": \"softmax\"}",
         "scoring_func: \"softmax\" is not implemented in this family (only sigmoid)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"topk_method\": \"greedy\"}",
         "topk_method: \"greedy\" is not implemented in this family (only noaux_tc)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v2\", " SMALL ", \"topk_method\": \"noaux_tc\"}",
         "topk_method: \"noaux_tc\" is not implemented in this family (only greedy or "
         "group_limited_greedy)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v2\", " SMALL ", \"norm_topk_prob\": true}",
         "norm_topk_prob: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"qwen3_next\", " SMALL ", \"hidden_act\": \"gelu_pytorch_tanh\"}",
         "hidden_act: \"gelu_pytorch_tanh\" is not implemented in this family (only silu)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"kimi_linear\", " SMALL ", \"hidden_act\": \"gelu_pytorch_tanh\"}",
         "hidden_act: \"gelu_pytorch_tanh\" is not implemented in this family (only silu)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"olmo_hybrid\", " SMALL ", \"hidden_act\": \"gelu_pytorch_tanh\"}",
         "hidden_act: \"gelu_pytorch_tanh\" is not implemented in this family (only silu)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"falcon_h1\", " SMALL ", \"hidden_act\": \"gelu_pytorch_tanh\"}",
         "hidden_act: \"gelu_pytorch_tanh\" is not implemented in this family (only silu)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v2\", " SMALL ", \"mlp_bias\": true}",
         "mlp_bias: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"num_key_value_heads\": 2}",
         "num_key_value_heads: latent attention has as many as attention heads, 4", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"qk_rope_head_dim\": 7}",
         "7 of 7 elements of a head would be rotated", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"n_routed_experts\": 12}",
         "n_group: 8 groups do not divide 12 experts", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"topk_group\": 9}",
         "topk_group: cannot choose 8 experts from 9 of 8 groups of 32", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"n_group\": 256, \"topk_group\": 4}",
         "n_group: expected an integer", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"n_group\": 64, \"topk_group\": 1}",
         "topk_group: cannot choose 8 experts from 1 of 64 groups of 4", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"n_routed_experts\": 64, \"n_group\": 64, "
         "\"topk_group\": 8}",
         "n_group: 64 groups of 1: a group's score is the sum of its best 2", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"routed_scaling_factor\": 0}",
         "routed_scaling_factor: expected a positive number, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"num_experts_per_tok\": 300}",
         "num_experts_per_tok: cannot route a token to 300 of 256 experts", AX_ERR_DATA},
        {"{\"model_type\": \"glm4_moe\", " SMALL ", \"head_dim\": 6}",
         "head_dim: 3 of 6 elements of a head would be rotated", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v3\", " SMALL ", \"moe_layer_freq\": [1, 0, 1]}",
         "moe_layer_freq: expected one entry for each of 4 layers, got 3", AX_ERR_DATA},
        {MIMO "\"num_key_value_heads\": 4}",
         "num_key_value_heads: 8 KV heads do not divide 4 attention heads", AX_ERR_DATA},
        {MIMO "\"swa_num_key_value_heads\": 3}",
         "swa_num_key_value_heads: 3 KV heads do not divide 4", AX_ERR_DATA},
        {MIMO "\"num_key_value_heads\": 2, \"swa_head_dim\": 128}",
         "swa_head_dim: 128 in sliding layers, and 192 in others, is not implemented",
         AX_ERR_UNSUPPORTED},
        {MIMO "\"num_key_value_heads\": 2, \"hybrid_layer_pattern\": [0, 1]}",
         "hybrid_layer_pattern: expected one entry for each of 4 layers, got 2", AX_ERR_DATA},
        {MIMO "\"num_key_value_heads\": 2, \"add_full_attention_sink_bias\": true}",
         "add_full_attention_sink_bias: true is not implemented in this family",
         AX_ERR_UNSUPPORTED},
        {MIMO "\"num_key_value_heads\": 2, \"attention_projection_layout\": \"fused_qkv\"}",
         "\"fused_qkv\" is not implemented in this family (only split)", AX_ERR_UNSUPPORTED},
        {MIMO "\"num_key_value_heads\": 2, \"head_dim\": 10}",
         "head_dim: 3 of 10 elements of a head would be rotated; rope needs an even number",
         AX_ERR_DATA},
        {MIMO "\"num_key_value_heads\": 2, \"mlp_layer_types\": [\"dense\", \"moe\", \"dense\", "
              "\"dense\"]}",
         "mlp_layer_types[1]: layer type \"moe\" is not one of dense, sparse", AX_ERR_UNSUPPORTED},
        {KDA_LAYERS("\"full_attn_layers\": [4], \"kda_layers\": [1, 2, 3, 4]"),
         "linear_attn_config.kda_layers[3]: layer 4, counted from 1, is listed twice in kda_layers "
         "and "
         "full_attn_layers; list each layer once",
         AX_ERR_DATA},
        {KDA_LAYERS("\"full_attn_layers\": [4], \"kda_layers\": [1, 3]"),
         "linear_attn_config: layer 2, counted from 1, is neither in kda_layers nor in "
         "full_attn_layers; list each of the 4 layers once",
         AX_ERR_DATA},
        {KDA_LAYERS("\"full_attn_layers\": [0, 4], \"kda_layers\": [1, 2, 3]"),
         "linear_attn_config.full_attn_layers[0]: expected an integer", AX_ERR_DATA},
        {KDA_LAYERS("\"kda_layers\": [1, 2, 3, 4, 5]"),
         "linear_attn_config.kda_layers[4]: expected an integer", AX_ERR_DATA},
        {KDA_LAYERS("\"kda_layers\": 4"),
         "linear_attn_config.kda_layers: expected a list of layers", AX_ERR_DATA},
        {KDA_LAYERS("\"short_conv_kernel_size\": 1"),
         "linear_attn_config.short_conv_kernel_size: expected an integer", AX_ERR_DATA},
        {KDA_LAYERS("\"head_dim\": 5000"), "linear_attn_config.head_dim: expected an integer",
         AX_ERR_DATA},
        {"{\"model_type\": \"kimi_linear\", " SMALL ", \"mla_use_nope\": false}",
         "mla_use_nope: false is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"kimi_linear\", " SMALL ", \"num_experts_per_token\": 300}",
         "cannot route a token to 300 of 256 experts", AX_ERR_DATA},
        {"{\"model_type\": \"kimi_linear\", " SMALL ", \"num_expert_group\": 3, \"topk_group\": 2}",
         "num_expert_group: 3 groups do not divide 256 experts", AX_ERR_DATA},
        {"{\"model_type\": \"kimi_linear\", " SMALL
         ", \"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", \"linear\"]}",
         "mlp_layer_types[3]: layer type \"linear\" is not one of dense, sparse",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"deepseek_v32\", " SMALL ", \"q_lora_rank\": null}",
         "q_lora_rank: the indexer reads the latent of queries", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v32\", " SMALL ", \"index_topk\": 0}",
         "index_topk: expected an integer", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v32\", " SMALL ", \"index_head_dim\": 32}",
         "index_head_dim: rope needs the 64 elements of qk_rope_head_dim, got 32", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v32\", " SMALL ", \"mlp_layer_types\": [\"dense\"]}",
         "mlp_layer_types: expected one entry for each of 4 layers, got 1", AX_ERR_DATA},
        {"{\"model_type\": \"deepseek_v32\", " SMALL
         ", \"mlp_layer_types\": [\"dense\", \"dense\", "
         "\"moe\", \"sparse\"]}",
         "mlp_layer_types[2]: layer type \"moe\" is not one of dense, sparse", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"indexer_types\": [\"shared\", \"full\", "
         "\"full\", \"full\"]}",
         "indexer_types: the first layer has no indexer before it to share", AX_ERR_DATA},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"indexer_types\": [\"full\", \"none\", "
         "\"full\", \"full\"]}",
         "indexer_types[1]: layer type \"none\" is not one of full, shared", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"indexer_types\": [\"full\"]}",
         "indexer_types: expected one entry for each of 4 layers, got 1", AX_ERR_DATA},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"indexer_types\": 3}",
         "indexer_types: expected one entry for each of 4 layers, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"index_topk_pattern\": \"FFF\"}",
         "index_topk_pattern: expected one entry for each of 4 layers, got 3", AX_ERR_DATA},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"index_topk_pattern\": \"FFXF\"}",
         "index_topk_pattern: expected letters F (full) and S (shared)", AX_ERR_DATA},
        {"{\"model_type\": \"glm_moe_dsa\", " SMALL ", \"index_topk_freq\": 3, "
         "\"index_skip_topk_offset\": 0}",
         "index_topk_freq: the first layer has no indexer before it to share", AX_ERR_DATA},
        {HYBRID "\"mamba_n_heads\": 12}",
         "mamba_n_heads: 12 heads of 10 (mamba_d_head) are 120 wide; expected 128", AX_ERR_DATA},
        {HYBRID "\"mamba_n_groups\": 3}",
         "mamba_n_heads: 3 groups (mamba_n_groups) do not divide 128 heads", AX_ERR_DATA},
        {HYBRID "\"time_step_limit\": [0.1]}",
         "time_step_limit: expected the lowest and the highest time step", AX_ERR_DATA},
        {HYBRID "\"time_step_limit\": [2, {\"__float__\": \"-Infinity\"}]}",
         "expected \"Infinity\", got \"-Infinity\"", AX_ERR_DATA},
        {HYBRID "\"time_step_limit\": [2, 1]}",
         "time_step_limit: time steps from 2 to 1: expected at least 0, and less", AX_ERR_DATA},
        {ALONE "\"hybrid_override_pattern\": \"M*-\"}",
         "hybrid_override_pattern: expected one entry for each of 4 layers, got 3", AX_ERR_DATA},
        {ALONE "\"hybrid_override_pattern\": \"M*-|\"}",
         "hybrid_override_pattern: layer type \"|\" is not one of M, *, -, E", AX_ERR_UNSUPPORTED},
        {ALONE "\"layers_block_type\": [\"mamba\", \"mlp\", \"moe\", \"conv\"]}",
         "layers_block_type[3]: layer type \"conv\" is not one of linear_attention (or mamba), ",
         AX_ERR_UNSUPPORTED},
        {ALONE "\"use_conv_bias\": true}", "hybrid_override_pattern", AX_ERR_DATA},
        {ALONE "\"hybrid_override_pattern\": \"M*-M\", \"n_groups\": 3}",
         "mamba_num_heads: 3 groups (n_groups) do not divide 128 heads", AX_ERR_DATA},
        {ALONE "\"hybrid_override_pattern\": \"M*EM\", \"num_experts_per_tok\": 9}",
         "num_experts_per_tok: cannot route a token to 9 of 8 experts", AX_ERR_DATA},
        {ALONE "\"mlp_hidden_act\": \"silu\"}",
         "mlp_hidden_act: \"silu\" is not implemented in this family (only relu2)",
         AX_ERR_UNSUPPORTED},
        {ALONE "\"mamba_hidden_act\": \"relu2\"}",
         "mamba_hidden_act: \"relu2\" is not implemented in this family (only silu)",
         AX_ERR_UNSUPPORTED},
        {ALONE "\"mlp_bias\": true}", "mlp_bias: true is not implemented in this family",
         AX_ERR_UNSUPPORTED},
        {ALONE "\"attention_bias\": true}",
         "attention_bias: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {ALONE "\"sliding_window\": 4096}", "sliding_window: a window is not implemented",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"nemotron_h\", \"vocab_size\": 100, \"hidden_size\": 64, "
         "\"num_attention_heads\": 4, \"layers_block_type\": []}",
         "layers_block_type: 0 layers; expected 1 to 4096", AX_ERR_DATA},
        {BESIDE "\"mamba_d_ssm\": 100, \"mamba_n_heads\": 8}",
         "mamba_n_heads: 8 heads of 12 (mamba_d_head) are 96 wide; expected 100", AX_ERR_DATA},
        {BESIDE "\"ssm_multipliers\": [1, 1, 1, 1]}",
         "ssm_multipliers: expected a list of 5 numbers", AX_ERR_DATA},
        {BESIDE "\"mlp_multipliers\": [1, 0]}",
         "mlp_multipliers[1]: expected a positive number, got 0", AX_ERR_DATA},
        {BESIDE "\"key_multiplier\": -1}", "key_multiplier: expected a positive number, got -1",
         AX_ERR_DATA},
        {BESIDE "\"mamba_rms_norm\": true}",
         "mamba_rms_norm: a norm before the gate (mamba_norm_before_gate) is not implemented",
         AX_ERR_UNSUPPORTED},
        {BESIDE "\"mlp_bias\": true}", "mlp_bias: true is not implemented in this family",
         AX_ERR_UNSUPPORTED},
        {BESIDE "\"projectors_bias\": true}",
         "projectors_bias: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"ernie4_5_moe\", " SMALL ", \"moe_norm_min\": 0.5}",
         "moe_norm_min: 0.5 is not implemented; expected at most 1e-6", AX_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_arch a;
        const enum ax_status st = parse(&a, bad[i].text);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says))
            fail_msg("%s\nexpected \"%s\", got (%d) \"%s\"", bad[i].text, bad[i].says, st,
                     ax_error_text());
        assert_null(a.layers);
    }
}

/* Without a window all layers have rope; with one, those that do not slide have none. */
static void exaone_leaves_rope_out(void **state) {
    (void)state;
    static const struct {
        const char *keys;
        enum ax_rope_use first, last;
    } cases[] = {
        {"", AX_ROPE_MAIN, AX_ROPE_NONE},
        {", \"sliding_window\": null", AX_ROPE_MAIN, AX_ROPE_MAIN},
        {", \"sliding_window\": null, \"sliding_window_pattern\": 0", AX_ROPE_MAIN, AX_ROPE_MAIN},
        {", \"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
         "\"full_attention\"]",
         AX_ROPE_NONE, AX_ROPE_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct ax_arch a;
        snprintf(text, sizeof text, "{\"model_type\": \"exaone4\", " SMALL "%s}", cases[i].keys);
        assert_int_equal(parse(&a, text), AX_OK);
        assert_int_equal(a.layers[0].rope, cases[i].first);
        assert_int_equal(a.layers[a.n_layers - 1].rope, cases[i].last);
        ax_arch_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepseek_v3),
        cmocka_unit_test(kimi_linear),
        cmocka_unit_test(groups_of_the_second_version),
        cmocka_unit_test(published_models_have_their_sizes),
        cmocka_unit_test(layers_share_choices),
        cmocka_unit_test(silence_means_the_family_s_default),
        cmocka_unit_test(time_steps_without_bound),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(exaone_leaves_rope_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
