/* config.json: published models parse to their published sizes, in both spellings, and what is
 * wrong or not implemented is refused with its key. Configs are cut to the keys that matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "model/arch/arch.h"
#include "model/layer.h"
#include "tests/golden_files.h"

static enum ax_status parse(struct ax_arch *a, const char *text) {
    struct ax_json_doc doc;
    if (ax_json_parse(&doc, "config.json", text, strlen(text)) != AX_OK)
        fail_msg("%s", ax_error_text());
    const enum ax_status st = ax_arch_parse(a, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

static void parse_ok(struct ax_arch *a, const char *text) {
    if (parse(a, text) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* What each published config.json says, and what the model is known to have. */
static const struct {
    const char *name, *config;
    int64_t parameters, n_kv_heads, head_dim, max_positions, window;
    double theta, eps;
    bool tied, qkv_bias;
    enum ax_qk_norm qk_norm;
    enum ax_rope_kind rope;
    enum ax_dtype dtype;
} published[] = {
    {"SmolLM2-135M",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, "
     "\"attention_dropout\": 0.0, \"bos_token_id\": 0, \"eos_token_id\": 0, "
     "\"hidden_act\": \"silu\", \"hidden_size\": 576, \"initializer_range\": "
     "0.041666666666666664, \"intermediate_size\": 1536, \"is_llama_config\": true, "
     "\"max_position_embeddings\": 8192, \"mlp_bias\": false, \"model_type\": \"llama\", "
     "\"num_attention_heads\": 9, \"num_hidden_layers\": 30, \"num_key_value_heads\": 3, "
     "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_interleaved\": false, "
     "\"rope_scaling\": null, \"rope_theta\": 100000, \"tie_word_embeddings\": true, "
     "\"torch_dtype\": \"bfloat16\", \"use_cache\": true, \"vocab_size\": 49152}",
     134515008, 3, 64, 8192, 0, 100000, 1e-5, true, false, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_BF16},
    {"TinyLlama-1.1B",
     "{\"hidden_act\": \"silu\", \"hidden_size\": 2048, \"initializer_range\": 0.02, "
     "\"intermediate_size\": 5632, \"max_position_embeddings\": 2048, \"model_type\": \"llama\", "
     "\"num_attention_heads\": 32, \"num_hidden_layers\": 22, \"num_key_value_heads\": 4, "
     "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
     "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\", \"vocab_size\": 32000}",
     1100048384, 4, 64, 2048, 0, 10000, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_F32},
    {"OLMo-2-1B",
     "{\"attention_bias\": false, \"hidden_act\": \"silu\", \"hidden_size\": 2048, "
     "\"intermediate_size\": 8192, \"max_position_embeddings\": 4096, \"model_type\": \"olmo2\", "
     "\"num_attention_heads\": 16, \"num_hidden_layers\": 16, \"num_key_value_heads\": 16, "
     "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 500000, "
     "\"tie_word_embeddings\": false, \"vocab_size\": 100352}",
     1484916736, 16, 128, 4096, 0, 500000, 1e-6, false, false, AX_QK_NORM_FULL, AX_ROPE_DEFAULT,
     AX_F32},
    {"Llama-2-7b",
     "{\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": 11008, "
     "\"max_position_embeddings\": 4096, \"model_type\": \"llama\", \"num_attention_heads\": 32, "
     "\"num_hidden_layers\": 32, \"num_key_value_heads\": 32, \"pretraining_tp\": 1, "
     "\"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"tie_word_embeddings\": false, "
     "\"torch_dtype\": \"float16\", \"vocab_size\": 32000}",
     6738415616, 32, 128, 4096, 0, 10000, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_F16},
    {"Llama-3.1-8B",
     "{\"attention_bias\": false, \"hidden_act\": \"silu\", \"hidden_size\": 4096, "
     "\"eos_token_id\": [128001, 128008, 128009], \"intermediate_size\": 14336, "
     "\"max_position_embeddings\": 131072, \"mlp_bias\": false, \"model_type\": \"llama\", "
     "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, "
     "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, "
     "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192, \"rope_type\": "
     "\"llama3\"}, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"torch_dtype\": "
     "\"bfloat16\", \"vocab_size\": 128256}",
     8030261248, 8, 128, 131072, 0, 500000, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_LLAMA3,
     AX_BF16},
    {"Llama-3.1-405B",
     "{\"hidden_act\": \"silu\", \"hidden_size\": 16384, \"intermediate_size\": 53248, "
     "\"max_position_embeddings\": 131072, \"model_type\": \"llama\", \"num_attention_heads\": "
     "128, \"num_hidden_layers\": 126, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, "
     "\"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
     "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, \"rope_theta\": "
     "500000.0, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"vocab_size\": "
     "128256}",
     405853388800, 8, 128, 131072, 0, 500000, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_LLAMA3,
     AX_BF16},
    {"Llama-3.2-1B",
     "{\"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": "
     "8192, \"max_position_embeddings\": 131072, \"model_type\": \"llama\", "
     "\"num_attention_heads\": 32, \"num_hidden_layers\": 16, \"num_key_value_heads\": 8, "
     "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 32.0, \"high_freq_factor\": 4.0, "
     "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": "
     "\"llama3\"}, \"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"torch_dtype\": "
     "\"bfloat16\", \"vocab_size\": 128256}",
     1235814400, 8, 64, 131072, 0, 500000, 1e-5, true, false, AX_QK_NORM_NONE, AX_ROPE_LLAMA3,
     AX_BF16},
    {"Mistral-7B-v0.1",
     "{\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
     "\"max_position_embeddings\": 32768, \"model_type\": \"mistral\", \"num_attention_heads\": "
     "32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, "
     "\"rope_theta\": 10000.0, \"sliding_window\": 4096, \"tie_word_embeddings\": false, "
     "\"torch_dtype\": \"bfloat16\", \"vocab_size\": 32000}",
     7241732096, 8, 128, 32768, 4096, 10000, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_BF16},
    {"Mistral-7B-v0.3",
     "{\"attention_dropout\": 0.0, \"hidden_act\": \"silu\", \"hidden_size\": 4096, "
     "\"intermediate_size\": 14336, \"max_position_embeddings\": 32768, \"model_type\": "
     "\"mistral\", \"num_attention_heads\": 32, \"num_hidden_layers\": 32, "
     "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, "
     "\"sliding_window\": null, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
     "\"vocab_size\": 32768}",
     7248023552, 8, 128, 32768, 0, 1e6, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_BF16},
    {"Qwen2-7B",
     "{\"attention_dropout\": 0.0, \"hidden_act\": \"silu\", \"hidden_size\": 3584, "
     "\"intermediate_size\": 18944, \"max_position_embeddings\": 131072, \"max_window_layers\": "
     "28, \"model_type\": \"qwen2\", \"num_attention_heads\": 28, \"num_hidden_layers\": 28, "
     "\"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "
     "\"sliding_window\": 131072, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
     "\"use_sliding_window\": false, \"vocab_size\": 152064}",
     7615616512, 4, 128, 131072, 0, 1e6, 1e-6, false, true, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_BF16},
    {"Qwen2.5-0.5B",
     "{\"hidden_act\": \"silu\", \"hidden_size\": 896, \"intermediate_size\": 4864, "
     "\"max_position_embeddings\": 32768, \"max_window_layers\": 24, \"model_type\": \"qwen2\", "
     "\"num_attention_heads\": 14, \"num_hidden_layers\": 24, \"num_key_value_heads\": 2, "
     "\"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, \"sliding_window\": 32768, "
     "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", \"use_mrope\": false, "
     "\"use_sliding_window\": false, \"vocab_size\": 151936}",
     494032768, 2, 64, 32768, 0, 1e6, 1e-6, true, true, AX_QK_NORM_NONE, AX_ROPE_DEFAULT, AX_BF16},
    {"Qwen3-0.6B",
     "{\"attention_bias\": false, \"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": "
     "1024, \"intermediate_size\": 3072, \"max_position_embeddings\": 40960, "
     "\"max_window_layers\": 28, \"model_type\": \"qwen3\", \"num_attention_heads\": 16, "
     "\"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
     "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, "
     "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", \"use_sliding_window\": "
     "false, \"vocab_size\": 151936}",
     596049920, 8, 128, 40960, 0, 1e6, 1e-6, true, false, AX_QK_NORM_HEAD, AX_ROPE_DEFAULT,
     AX_BF16},
    {"Qwen3-8B",
     "{\"attention_bias\": false, \"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": "
     "4096, \"intermediate_size\": 12288, \"max_position_embeddings\": 40960, "
     "\"max_window_layers\": 36, \"model_type\": \"qwen3\", \"num_attention_heads\": 32, "
     "\"num_hidden_layers\": 36, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
     "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, "
     "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"use_sliding_window\": "
     "false, \"vocab_size\": 151936}",
     8190735360, 8, 128, 40960, 0, 1e6, 1e-6, false, false, AX_QK_NORM_HEAD, AX_ROPE_DEFAULT,
     AX_BF16},
    {"Mixtral-8x7B-v0.1",
     "{\"architectures\": [\"MixtralForCausalLM\"], \"attention_dropout\": 0.0, \"hidden_act\": "
     "\"silu\", \"hidden_size\": 4096, \"initializer_range\": 0.02, \"intermediate_size\": 14336, "
     "\"max_position_embeddings\": 32768, \"model_type\": \"mixtral\", \"num_attention_heads\": "
     "32, "
     "\"num_experts_per_tok\": 2, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, "
     "\"num_local_experts\": 8, \"output_router_logits\": false, \"rms_norm_eps\": 1e-05, "
     "\"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.02, \"sliding_window\": null, "
     "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"vocab_size\": 32000}",
     46702792704, 8, 128, 32768, 0, 1e6, 1e-5, false, false, AX_QK_NORM_NONE, AX_ROPE_DEFAULT,
     AX_BF16},
    {"Qwen3-30B-A3B",
     "{\"attention_bias\": false, \"decoder_sparse_step\": 1, \"head_dim\": 128, \"hidden_act\": "
     "\"silu\", \"hidden_size\": 2048, \"intermediate_size\": 6144, \"max_position_embeddings\": "
     "40960, \"max_window_layers\": 48, \"mlp_only_layers\": [], \"model_type\": \"qwen3_moe\", "
     "\"moe_intermediate_size\": 768, \"norm_topk_prob\": true, \"num_attention_heads\": 32, "
     "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 48, "
     "\"num_key_value_heads\": 4, \"output_router_logits\": false, \"rms_norm_eps\": 1e-06, "
     "\"rope_scaling\": null, \"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.001, "
     "\"sliding_window\": null, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
     "\"use_sliding_window\": false, \"vocab_size\": 151936}",
     30532122624, 4, 128, 40960, 0, 1e6, 1e-6, false, false, AX_QK_NORM_HEAD, AX_ROPE_DEFAULT,
     AX_BF16},
};

static void published_models_have_their_sizes(void **state) {
    (void)state;
    const uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct ax_arch a;
        parse_ok(&a, published[i].config);
        if (ax_arch_parameters(&a) != published[i].parameters) {
            fail_msg("%s: %lld parameters, expected %lld", published[i].name,
                     (long long)ax_arch_parameters(&a), (long long)published[i].parameters);
        }
        assert_int_equal(a.n_kv_heads, published[i].n_kv_heads);
        assert_int_equal(a.head_dim, published[i].head_dim);
        assert_int_equal(a.rope.dim, a.head_dim);
        assert_int_equal(a.max_positions, published[i].max_positions);
        assert_int_equal(a.rope.kind, published[i].rope);
        assert_true(a.rope.theta == published[i].theta && a.norm_eps == published[i].eps);
        assert_true(a.softmax_scale == 1 / sqrt((double)a.head_dim));
        assert_int_equal(a.tied, published[i].tied);
        assert_int_equal(a.qkv_bias, published[i].qkv_bias);
        assert_int_equal(a.qk_norm, published[i].qk_norm);
        assert_false(a.o_bias || a.mlp_bias);
        assert_int_equal(a.dtype, published[i].dtype);
        for (int64_t k = 0; k < a.n_layers; k++)
            assert_int_equal(a.layers[k].window, published[i].window);
        ax_arch_free(&a);
        ax_arch_free(&a);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    print_message("%zu published models\n", sizeof published / sizeof *published);
}

static enum ax_status load_golden(struct ax_arch *a, const char *model, const char *file) {
    char path[64];
    snprintf(path, sizeof path, "models/%s/%s", model, file);
    return ax_arch_load(a, golden_path(path));
}

static void both_spellings_of_the_goldens_agree(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int64_t parameters, head_dim, window; /* −1: some layers have one */
        bool tied;
    } goldens[] = {
        {"llama", 195008, 16, 0, false},         {"qwen3", 180864, 32, 0, true},
        {"mistral", 139584, 16, 16, false},      {"mixtral", 214336, 16, 0, false},
        {"qwen3_moe", 189888, 32, 0, false},     {"qwen3_moe_nonorm", 196128, 16, 0, false},
        {"llama_bias", 103616, 16, 0, false},    {"granite", 113088, 16, 0, true},
        {"smollm3", 113088, 16, 0, true},        {"phi3", 102720, 16, 0, false},
        {"glm4", 103232, 16, 0, false},          {"gemma2", 85104, 16, -1, true},
        {"gemma3_text", 102320, 16, -1, true},   {"gpt_oss", 142292, 16, -1, false},
        {"deepseek_v2", 116064, 24, 0, false},   {"deepseek_v2_group", 108432, 16, 0, false},
        {"deepseek_v3", 223800, 32, 0, false},   {"deepseek_v3_mtp", 108432, 24, 0, false},
        {"glm4_moe", 125216, 24, 0, false},      {"qwen2_moe", 134848, 16, 0, false},
        {"seed_oss", 72624, 12, 0, false},       {"ernie4_5", 62512, 16, 0, true},
        {"ernie4_5_moe", 57360, 12, 0, true},    {"exaone4", 114192, 12, -1, false},
        {"minimax_m2", 77808, 16, 0, false},     {"hunyuan_v1_dense", 61744, 16, 0, true},
        {"ministral3", 72432, 12, 0, false},     {"cohere", 56976, 12, 0, true},
        {"cohere2", 107760, 16, -1, true},       {"lfm2", 78456, 12, 0, true},
        {"lfm2_moe", 69672, 12, 0, true},        {"qwen3_next", 55760, 16, 0, false},
        {"qwen3_5", 58528, 16, 0, true},         {"qwen3_5_moe", 36422, 16, 0, false},
        {"olmo_hybrid", 42672, 10, 0, false},    {"granite4_dense", 52820, 10, 0, true},
        {"granite4", 34838, 18, 0, false},       {"llama4", 72360, 16, 0, false},
        {"mimo_v2_flash", 69604, 18, -1, false}, {"kimi_linear", 45268, 16, 0, false},
        {"falcon_h1", 49596, 12, 0, false},      {"gemma4", 55202, 12, -1, true},
        {"gemma4_moe", 37544, 8, -1, true},      {"nemotron_h", 48100, 16, 0, false},
        {"nemotron_h_moe", 30120, 12, 0, false}, {"deepseek_v32", 63572, 20, 0, false},
        {"glm_moe_dsa", 77424, 20, 0, false},    {"gemma3n", 57862, 12, -1, true}};
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        struct ax_arch a, b, folder;
        assert_int_equal(load_golden(&a, goldens[i].model, "config.json"), AX_OK);
        assert_int_equal(load_golden(&b, goldens[i].model, "config.legacy.json"), AX_OK);
        assert_int_equal(load_golden(&folder, goldens[i].model, ""), AX_OK);
        assert_int_equal(ax_arch_parameters(&a), goldens[i].parameters);
        assert_int_equal(ax_arch_parameters(&b), goldens[i].parameters);
        assert_int_equal(ax_arch_parameters(&folder), goldens[i].parameters);
        assert_int_equal(a.head_dim, goldens[i].head_dim);
        assert_int_equal(a.tied, goldens[i].tied);
        assert_memory_equal(&a.moe, &b.moe, sizeof a.moe);
        assert_ptr_equal(a.family, b.family);
        assert_int_equal(a.dtype, b.dtype);
        assert_true(a.rope.theta == b.rope.theta && a.rope.kind == b.rope.kind);
        for (int64_t k = 0; k < a.n_layers; k++) {
            if (goldens[i].window >= 0)
                assert_int_equal(a.layers[k].window, goldens[i].window);
            assert_int_equal(a.layers[k].window, b.layers[k].window);
            assert_int_equal(a.layers[k].rope, b.layers[k].rope);
            assert_ptr_equal(a.layers[k].mixer, b.layers[k].mixer);
            assert_ptr_equal(a.layers[k].ffn, b.layers[k].ffn);
            assert_int_equal(a.layers[k].head_dim, b.layers[k].head_dim);
            assert_int_equal(a.layers[k].kv_heads, b.layers[k].kv_heads);
        }
        ax_arch_free(&a);
        ax_arch_free(&b);
        ax_arch_free(&folder);
    }
}

/* Older files of Phi-3 call it so. */
static void su_is_longrope(void **state) {
    (void)state;
    struct ax_arch a, b;
    assert_int_equal(load_golden(&a, "phi3", "config.json"), AX_OK);
    assert_int_equal(load_golden(&b, "phi3", "config.su.json"), AX_OK);
    assert_int_equal(a.rope.kind, AX_ROPE_LONGROPE);
    assert_memory_equal(&a.rope, &b.rope, sizeof a.rope);
    ax_arch_free(&a);
    ax_arch_free(&b);
}

#define SMALL                                                                                      \
    "\"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 128, "                       \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4"

static void silence_means_the_family_s_default(void **state) {
    (void)state;
    struct ax_arch a;
    parse_ok(&a, "{\"model_type\": \"llama\", " SMALL "}");
    assert_int_equal(a.n_kv_heads, 4);
    assert_int_equal(a.head_dim, 16);
    assert_int_equal(a.max_positions, 2048);
    assert_true(a.norm_eps == 1e-6 && a.init_range == 0.02 && a.rope.theta == 10000);
    assert_false(a.tied || a.qkv_bias || a.qk_norm);
    assert_int_equal(a.dtype, AX_F32);
    assert_int_equal(a.layers[0].window, 0);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"mistral\", " SMALL "}");
    assert_int_equal(a.layers[3].window, 4096);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"qwen3\", " SMALL "}");
    assert_int_equal(a.head_dim, 128);
    assert_true(a.qk_norm && !a.qkv_bias);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"qwen2\", " SMALL "}");
    assert_true(a.qkv_bias && !a.o_bias);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true, " SMALL
                 ", \"dtype\": \"bfloat16\", \"torch_dtype\": \"float16\"}");
    assert_true(a.qkv_bias && a.o_bias && a.mlp_bias);
    assert_int_equal(a.dtype, AX_BF16); /* the newer key wins */
    assert_int_equal(ax_arch_parameters(&a),
                     4 * (64 * 64 * 4 + 3 * 64 * 128 + 2 * 64 + 4 * 64 + 2 * 128 + 64) + 64 +
                         2 * 512 * 64);
    ax_arch_free(&a);
}

static void windows_are_per_layer(void **state) {
    (void)state;
    static const struct {
        const char *config;
        int64_t window[4];
        const char *model_type;
    } cases[] = {
        {"\"use_sliding_window\": true, \"sliding_window\": 16, \"max_window_layers\": 2",
         {0, 0, 16, 16},
         "qwen2"},
        {"\"use_sliding_window\": false, \"sliding_window\": 16, \"max_window_layers\": 2",
         {0, 0, 0, 0},
         "qwen2"},
        {"\"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0",
         {0, 0, 0, 0},
         "qwen2"},
        {"\"use_sliding_window\": true, \"max_window_layers\": 3", {0, 0, 0, 4096}, "qwen2"},
        {"\"use_sliding_window\": true, \"sliding_window\": 16, \"layer_types\": "
         "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]",
         {16, 0, 16, 0},
         "qwen2"},
        {"\"use_sliding_window\": true, \"sliding_window\": 16", {16, 0, 16, 0}, "qwen2_moe"},
        {"\"use_sliding_window\": true, \"sliding_window\": 16, \"max_window_layers\": 2",
         {16, 0, 0, 0},
         "qwen2_moe"},
        {"\"use_sliding_window\": true, \"sliding_window\": 16, \"layer_types\": "
         "[\"full_attention\", \"full_attention\", \"sliding_attention\", \"sliding_attention\"]",
         {0, 0, 16, 16},
         "qwen2_moe"},
        {"\"sliding_window\": 16", {0, 0, 0, 0}, "qwen2_moe"},
        {"\"use_sliding_window\": true, \"max_window_layers\": 2",
         {4096, 4096, 4096, 4096},
         "qwen3_moe"},
        {"\"use_sliding_window\": false", {0, 0, 0, 0}, "qwen3_moe"},
        {"\"sliding_window\": 8", {8, 8, 8, 0}, "olmo3"},
        {"\"sliding_window\": null", {0, 0, 0, 0}, "olmo3"},
        {"\"sliding_window\": 8", {8, 8, 8, 8}, "gemma3_text"},
        {"\"sliding_window\": 8, \"sliding_window_pattern\": 3", {8, 8, 0, 8}, "gemma3_text"},
        {"\"sliding_window\": 8, \"_sliding_window_pattern\": 2", {8, 0, 8, 0}, "gemma3_text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct ax_arch a;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", " SMALL ", %s}", cases[i].model_type,
                 cases[i].config);
        parse_ok(&a, text);
        for (int k = 0; k < 4; k++)
            assert_int_equal(a.layers[k].window, cases[i].window[k]);
        ax_arch_free(&a);
    }
}

static void mistakes_are_named_with_their_key(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        enum ax_status st;
    } bad[] = {
        {"{}", "config.json: model_type: missing", AX_ERR_DATA},
        {"[]", "config.json: model_type: missing", AX_ERR_DATA},
        {"{\"model_type\": \"gpt2\"}",
         "model_type: \"gpt2\" is not supported; `axtrain config models` lists those that are",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gemma5n\", \"alibi\": true}",
         "\"gemma5n\" is not supported; the nearest is gemma; missing here: ALiBi (alibi); "
         "`axtrain config models`",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"qwen3_6\"}", "; the nearest is qwen3; `", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"jamba\", \"mamba_dt_rank\": 256, \"layer_types\": "
         "[\"mamba\", \"mamba\", \"lightning\"]}",
         "; missing here: layers of the first Mamba (mamba_dt_rank), a kind of layers (lightning); "
         "`axtrain config",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama5\", \"text_config\": {\"lightning_attn_decay\": 0.5, "
         "\"alibi\": false, \"state_size\": null}}",
         "; the nearest is llama; missing here: lightning attention (lightning_attn_decay); "
         "`axtrain",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama4_text\", " SMALL ", \"num_experts_per_tok\": 2}",
         "num_experts_per_tok: 2 experts per token are not implemented in this family, only 1",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama4_text\", " SMALL ", \"no_rope_layers\": [1, 1, 1]}",
         "no_rope_layers: expected one entry for each of 4 layers, got 3", AX_ERR_DATA},
        {"{\"model_type\": \"llama4_text\", " SMALL ", \"floor_scale\": 8.5}",
         "floor_scale: expected an integer from 1 to 2147483647, got 8.5", AX_ERR_DATA},
        {"{\"model_type\": \"llama4_text\", " SMALL ", \"moe_layers\": [4]}",
         "moe_layers[0]: expected an integer of at most 3, got 4", AX_ERR_DATA},
        {"{\"model_type\": \"ministra\"}", "; the nearest is ministral; ", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gpt_oss\", " SMALL ", \"rope_parameters\": {}, \"swiglu_limit\": 0}",
         "swiglu_limit: expected a positive number, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"glm4\", " SMALL ", \"head_dim\": 6}",
         "head_dim: 3 of 6 elements of a head would be rotated", AX_ERR_DATA},
        {"{\"model_type\": \"llama\"}", "config.json: vocab_size: missing; expected an integer",
         AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"head_dim\": \"x\"}",
         "head_dim: expected an integer, got \"x\"", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"head_dim\": 4096}", "head_dim: expected",
         AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"num_key_value_heads\": 3}",
         "num_key_value_heads: 3 KV heads do not divide 4 attention heads", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"num_key_value_heads\": 8}",
         "8 KV heads do not divide 4", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"rms_norm_eps\": 0}",
         "rms_norm_eps: expected a positive number", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"dtype\": \"int8\"}",
         "dtype: \"int8\" is not a floating-point type", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"torch_dtype\": \"float8\"}",
         "torch_dtype: \"float8\" is not a floating-point type", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"hidden_act\": \"gelu\"}",
         "hidden_act: \"gelu\" is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"qwen3\", " SMALL ", \"is_causal\": false}",
         "is_causal: attention to later tokens is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama\", " SMALL ", \"attention_dropout\": 0.1}",
         "attention_dropout: attention dropout 0.1 is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama\", " SMALL ", \"quantization_config\": {}}",
         "quantization_config: quantized checkpoints are not supported", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama\", " SMALL ", \"tie_word_embeddings\": 1}",
         "tie_word_embeddings: expected true or false, got 1", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", " SMALL ", \"rope_scaling\": {\"type\": \"linear\"}}",
         "rope_scaling.factor: missing", AX_ERR_DATA},
        {"{\"model_type\": \"granite\", " SMALL ", \"logits_scaling\": 0}",
         "logits_scaling: expected a positive number, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"smollm3\", " SMALL ", \"no_rope_layers\": [1, 1]}",
         "no_rope_layers: expected one entry for each of 4 layers, got 2", AX_ERR_DATA},
        {"{\"model_type\": \"gemma2\", " SMALL ", \"hidden_activation\": \"gelu\"}",
         "hidden_activation: \"gelu\" is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gemma2\", " SMALL ", \"attn_logit_softcapping\": 0}",
         "attn_logit_softcapping: expected a positive number or null, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"gemma2\", " SMALL ", \"query_pre_attn_scalar\": -1}",
         "query_pre_attn_scalar: expected a positive number", AX_ERR_DATA},
        {"{\"model_type\": \"gemma3_text\", " SMALL ", \"use_bidirectional_attention\": true}",
         "use_bidirectional_attention: attention to later tokens", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"gemma3_text\", " SMALL ", \"rope_local_base_freq\": 1}",
         "rope_local_base_freq: expected a number above 1", AX_ERR_DATA},
        {"{\"model_type\": \"phi3\", " SMALL ", \"resid_pdrop\": 0.1}",
         "resid_pdrop: dropout 0.1 is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"phi3\", " SMALL
         ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}}",
         "rope_scaling.short_factor: expected 8 numbers (at most 128), got 1", AX_ERR_DATA},
        {"{\"model_type\": \"mistral\", " SMALL ", \"sliding_window\": 0}",
         "sliding_window: expected an integer of at least 1", AX_ERR_DATA},
        {"{\"model_type\": \"qwen3\", " SMALL ", \"layer_types\": [\"full_attention\"]}",
         "layer_types: expected one entry for each of 4 layers, got 1", AX_ERR_DATA},
        {"{\"model_type\": \"qwen3\", " SMALL ", \"layer_types\": [\"a\", \"b\", \"c\", \"d\"]}",
         "layer_types[0]: layer type \"a\" is not one of", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 10, "
         "\"intermediate_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 4}",
         "num_attention_heads: 4 heads do not divide hidden_size 10", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 8192, "
         "\"intermediate_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 1}",
         "num_attention_heads: 1 heads of hidden_size 8192 have 8192 elements", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 16777216, "
         "\"intermediate_size\": 16777216, \"num_hidden_layers\": 4096, \"head_dim\": 2048, "
         "\"num_attention_heads\": 65536}",
         "num_hidden_layers: these sizes result in more than", AX_ERR_DATA},
        {"{\"model_type\": \"mixtral\", " SMALL ", \"num_local_experts\": 0}",
         "num_local_experts: expected an integer", AX_ERR_DATA},
        {"{\"model_type\": \"mixtral\", " SMALL ", \"num_experts_per_tok\": 9}",
         "num_experts_per_tok: cannot route a token to 9 of 8 experts", AX_ERR_DATA},
        {"{\"model_type\": \"mixtral\", " SMALL ", \"router_aux_loss_coef\": -0.5}",
         "router_aux_loss_coef: expected 0 or more, got -0.5", AX_ERR_DATA},
        {"{\"model_type\": \"mixtral\", " SMALL ", \"router_jitter_noise\": 0.1}",
         "router_jitter_noise: router jitter 0.1 is not implemented", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"qwen3_moe\", " SMALL ", \"mlp_only_layers\": [4]}",
         "mlp_only_layers[0]: expected an integer", AX_ERR_DATA},
        {"{\"model_type\": \"mixtral\", \"vocab_size\": 8, \"hidden_size\": 16777216, "
         "\"intermediate_size\": 16777216, \"num_hidden_layers\": 4096, \"head_dim\": 2048, "
         "\"num_attention_heads\": 65536, \"num_local_experts\": 4096}",
         "these sizes result in more than", AX_ERR_DATA},
        {"{\"model_type\": \"minimax_m2\", " SMALL ", \"use_qk_norm\": false}",
         "use_qk_norm: false is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"minimax_m2\", " SMALL ", \"scoring_func\": \"softmax\"}",
         "scoring_func: \"softmax\" is not implemented in this family (only sigmoid)",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"ernie4_5_moe\", " SMALL ", \"output_router_logits\": true}",
         "output_router_logits: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"exaone4\", " SMALL ", \"sliding_window_pattern\": \"LGL\"}",
         "sliding_window_pattern: expected L for layers with a window", AX_ERR_DATA},
        {"{\"model_type\": \"lfm2\", " SMALL ", \"layer_types\": [\"conv\", \"mamba\", "
         "\"conv\", \"conv\"]}",
         "layer_types[1]: layer type \"mamba\" is not one of full_attention, conv",
         AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"lfm2\", " SMALL ", \"conv_L_cache\": 9}",
         "conv_L_cache: expected an integer of at most 8, got 9", AX_ERR_DATA},
        {"{\"model_type\": \"cohere\", " SMALL ", \"use_qk_norm\": true}",
         "use_qk_norm: true is not implemented in this family", AX_ERR_UNSUPPORTED},
        {"{\"model_type\": \"cohere2\", " SMALL ", \"logit_scale\": 0}",
         "logit_scale: expected a positive number, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"cohere2\", " SMALL ", \"layer_norm_eps\": 0}",
         "layer_norm_eps: expected a positive number, got 0", AX_ERR_DATA},
        {"{\"model_type\": \"seed_oss\", " SMALL ", \"residual_dropout\": 1}",
         "residual_dropout: expected a number from 0 to below 1", AX_ERR_DATA},
        {"{\"model_type\": \"llama\", \"vocab_size\": -1}", "vocab_size: expected an integer of",
         AX_ERR_DATA},
    };
    const uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_arch a;
        const enum ax_status st = parse(&a, bad[i].text);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says)) {
            fail_msg("%s\nexpected \"%s\", got (%d) \"%s\"", bad[i].text, bad[i].says, st,
                     ax_error_text());
        }
        assert_int_equal(strncmp(ax_error_text(), "config.json: ", 13), 0);
        assert_null(a.layers);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    print_message("%zu mistakes\n", sizeof bad / sizeof *bad);
}

/* As nn.Embedding takes it: a negative number counts from the end of the vocabulary. */
static void the_padding_token_may_count_from_the_end(void **state) {
    (void)state;
    static const struct {
        const char *id;
        int32_t token; /* −2: refused */
    } cases[] = {{"0", 0},    {"7", 7},    {"511", 511}, {"512", -2}, {"-1", 511},
                 {"-2", 510}, {"-512", 0}, {"-513", -2}, {"null", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", " SMALL ", \"pad_token_id\": %s}",
                 cases[i].id);
        if (cases[i].token == -2) {
            assert_int_equal(parse(&a, text), AX_ERR_DATA);
            assert_non_null(strstr(ax_error_text(), "pad_token_id: "));
            continue;
        }
        parse_ok(&a, text);
        assert_int_equal(a.pad_token, cases[i].token);
        ax_arch_free(&a);
    }
}

/* Of 4 layers with 4 heads of 16, of which k and v have 2. */
static void biases_and_norms_are_parameters(void **state) {
    (void)state;
    static const int64_t q = 64, kv = 32, hidden = 64, ffn = 128;
    const struct {
        const char *keys;
        int64_t more; /* in a layer */
    } cases[] = {
        {"\"model_type\": \"llama\"", 0},
        {"\"model_type\": \"llama\", \"attention_bias\": true", q + 2 * kv + hidden},
        {"\"model_type\": \"llama\", \"mlp_bias\": true", 2 * ffn + hidden},
        {"\"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true",
         q + 2 * kv + hidden + 2 * ffn + hidden},
        {"\"model_type\": \"qwen2\"", q + 2 * kv},
        {"\"model_type\": \"qwen3\", \"head_dim\": 16", 2 * 16},
    };
    const int64_t plain = 2 * hidden + hidden * (2 * q + 2 * kv + 3 * ffn);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch a;
        char text[512];
        snprintf(text, sizeof text,
                 "{%s, " SMALL ", \"num_key_value_heads\": 2, \"tie_word_embeddings\": true}",
                 cases[i].keys);
        parse_ok(&a, text);
        assert_int_equal(ax_arch_parameters(&a),
                         512 * hidden + 4 * (plain + cases[i].more) + hidden);
        ax_arch_free(&a);
    }
}

/* "6N+6LHS causal": N counts matrices, the head once, the embedding look-up not. */
static void flops_follow_the_formula(void **state) {
    (void)state;
    struct ax_arch a;
    parse_ok(&a, "{\"model_type\": \"llama\", " SMALL ", \"tie_word_embeddings\": true}");
    const double n = 4 * (64 * 64 * 4 + 3 * 64 * 128) + 512 * 64;
    assert_true(ax_arch_flops_per_token(&a, 100) == 6 * n + 6 * 4 * 4 * 16 * 100.0);
    ax_arch_free(&a);
    parse_ok(&a, "{\"model_type\": \"llama\", " SMALL "}");
    assert_true(ax_arch_flops_per_token(&a, 0) == 6 * n);
    ax_arch_free(&a);
    /* of 8 experts a token goes to 3, in layers 1 and 3; the router counts */
    parse_ok(&a, "{\"model_type\": \"qwen3_moe\", " SMALL
                 ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 40, "
                 "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [2]}");
    const double sparse = 64 * 8 + 3 * 3 * 64 * 40 - 3 * 64 * 128;
    assert_ptr_equal(a.layers[1].ffn, &ax_ffn_moe);
    assert_ptr_equal(a.layers[2].ffn, &ax_ffn_swiglu);
    assert_true(ax_arch_flops_per_token(&a, 0) == 6 * (n + 2 * sparse));
    assert_int_equal(a.moe.routing.renormalize, false);
    ax_arch_free(&a);
}

static void files_are_named(void **state) {
    (void)state;
    struct ax_arch a;
    assert_int_equal(ax_arch_load(&a, "/nonexistent/model"), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "/nonexistent/model/config.json: cannot open"));
    assert_int_equal(ax_arch_load(&a, "/nonexistent/x.json"), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "/nonexistent/x.json: cannot open"));
}

/* A crash between the two renames of a save left the model under another name. */
static void a_folder_that_was_moved_aside_is_found(void **state) {
    (void)state;
    static const char config[] = "{\"model_type\": \"llama\", " SMALL "}";
    char dir[] = "/tmp/axtrain-arch-XXXXXX", model[64], aside[64], file[80];
    struct ax_arch a;
    assert_non_null(mkdtemp(dir));
    snprintf(model, sizeof model, "%s/m", dir);
    snprintf(aside, sizeof aside, "%s/m.old-999999999", dir);
    snprintf(file, sizeof file, "%s/config.json", aside);
    assert_int_equal(ax_mkdir(aside), AX_OK);
    assert_int_equal(ax_write_file_atomic(file, config, strlen(config)), AX_OK);
    assert_int_equal(ax_arch_load(&a, model), AX_OK);
    assert_int_equal(a.vocab_size, 512);
    ax_arch_free(&a);
    assert_int_equal(ax_remove_tree(dir), AX_OK);
}

/* What a config overrides counts as if the file said it. */
static void fields_over_the_file_s(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        double coef;
    } cases[] = {
        {"{}", 0},
        {"{\"output_router_logits\": true}", 0.02},
        {"{\"output_router_logits\": true, \"router_aux_loss_coef\": 0.5}", 0.5},
        {"{\"router_aux_loss_coef\": 0.5}", 0},
        {"{\"output_router_logits\": true, \"router_aux_loss_coef\": 0}", 0},
    };
    static const char config[] =
        "{\"model_type\": \"mixtral\", \"router_aux_loss_coef\": 0.02, " SMALL "}";
    struct ax_arch a;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_json_doc doc;
        json_t *fields = json_loads(cases[i].fields, 0, NULL);
        assert_int_equal(ax_json_parse(&doc, "config.json", config, strlen(config)), AX_OK);
        assert_int_equal(ax_arch_override(doc.root, fields, "config.json"), AX_OK);
        assert_int_equal(ax_arch_parse(&a, ax_json_root(&doc)), AX_OK);
        assert_true(fabs(a.moe.balance_coef - cases[i].coef) < 1e-12);
        ax_arch_free(&a);
        ax_json_free(&doc);
        json_decref(fields);
    }
    parse_ok(&a, "{\"model_type\": \"mixtral\", \"output_router_logits\": true, " SMALL "}");
    assert_true(fabs(a.moe.balance_coef - 0.001) < 1e-12);
    ax_arch_free(&a);
    json_t *config_json = json_loads(config, 0, NULL);
    json_t *unknown = json_pack("{s:i}", "hiden_size", 5);
    assert_int_equal(ax_arch_override(config_json, unknown, "m/config.json"), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(),
                        "hiden_size: no such field in m/config.json; see model_config");
    json_decref(unknown);
    json_decref(config_json);
}

/* Fields have an effect, or are refused, in whatever spelling the file has its own; and are then in the
 * file's. */
static void fields_in_both_spellings(void **state) {
    (void)state;
#define OLD "{\"model_type\": \"llama\", \"rope_theta\": 500.0, \"rope_scaling\": null, " SMALL "}"
#define NEW                                                                                        \
    "{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"default\", "               \
    "\"rope_theta\": 500.0}, " SMALL "}"
#define BOTH                                                                                       \
    "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 3.0}, "      \
    "\"rope_parameters\": {\"rope_theta\": 500.0}, " SMALL "}"
#define LINEAR                                                                                     \
    "{\"model_type\": \"phi3\", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": "     \
    "2.0, \"rope_theta\": 500.0, \"partial_rotary_factor\": 0.5}, " SMALL "}"
    static const struct {
        const char *config, *fields;
        double theta;
        enum ax_rope_kind kind;
        double factor;
        const char *after; /* the fields */
    } cases[] = {
        {OLD, "{\"rope_theta\": 5.0}", 5, AX_ROPE_DEFAULT, 1, "{\"rope_theta\": 5.0}"},
        {NEW, "{\"rope_theta\": 5.0}", 5, AX_ROPE_DEFAULT, 1,
         "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5.0}}"},
        {OLD, "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", 500,
         AX_ROPE_LINEAR, 4, "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}"},
        {NEW, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}}", 500, AX_ROPE_LINEAR, 4,
         "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0, \"rope_theta\": "
         "500.0}}"},
        {NEW,
         "{\"rope_theta\": 5.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", 5,
         AX_ROPE_LINEAR, 4,
         "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0, \"rope_theta\": "
         "5.0}}"},
        {LINEAR, "{\"rope_scaling\": null}", 500, AX_ROPE_DEFAULT, 1,
         "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500.0, "
         "\"partial_rotary_factor\": 0.5}}"},
        {LINEAR, "{\"rope_theta\": 5.0}", 5, AX_ROPE_LINEAR, 2,
         "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": 5.0, "
         "\"partial_rotary_factor\": 0.5}}"},
        {OLD, "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", 500,
         AX_ROPE_LINEAR, 4, "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0}}"},
        {OLD, "{\"rope_theta\": 5.0, \"rope_parameters\": {\"rope_theta\": 7.0}}", 5,
         AX_ROPE_DEFAULT, 1, "{\"rope_parameters\": {\"rope_theta\": 5.0}}"},
        {BOTH, "{\"rope_theta\": 5.0}", 5, AX_ROPE_LINEAR, 3,
         "{\"rope_scaling\": null, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": "
         "3.0, "
         "\"rope_theta\": 5.0}}"},
        {BOTH, "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", 500,
         AX_ROPE_LINEAR, 4,
         "{\"rope_scaling\": null, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": "
         "4.0, "
         "\"rope_theta\": 500.0}}"},
        {BOTH, "{\"rope_parameters\": {\"rope_theta\": 7.0}}", 7, AX_ROPE_DEFAULT, 1,
         "{\"rope_scaling\": null, \"rope_parameters\": {\"rope_theta\": 7.0}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_json_doc doc;
        struct ax_arch a = {0};
        json_t *fields = json_loads(cases[i].fields, 0, NULL), *after;
        assert_int_equal(
            ax_json_parse(&doc, "config.json", cases[i].config, strlen(cases[i].config)), AX_OK);
        assert_int_equal(ax_arch_override(doc.root, fields, "config.json"), AX_OK);
        assert_int_equal(ax_arch_parse(&a, ax_json_root(&doc)), AX_OK);
        assert_true(a.rope.theta == cases[i].theta && a.rope.factor == cases[i].factor);
        assert_int_equal(a.rope.kind, cases[i].kind);
        after = json_loads(cases[i].after, 0, NULL);
        assert_true(after && json_equal(fields, after));
        ax_arch_free(&a);
        ax_json_free(&doc);
        json_decref(fields);
        json_decref(after);
    }
    static const char *const refused[][3] = {
        {"{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}}}",
         "{\"rope_theta\": 5}",
         "rope_theta: c has rope_parameters for each kind of layer (full_attention, …); set"},
        {"{\"hidden_act\": \"silu\", \"hidden_activation\": \"silu\"}",
         "{\"hidden_act\": \"gelu\"}",
         "hidden_act: has no effect, as c has hidden_activation; set that"},
        {"{\"dtype\": \"float32\", \"torch_dtype\": \"float32\"}",
         "{\"torch_dtype\": \"bfloat16\"}", "torch_dtype: has no effect, as c has dtype"},
        {"{\"layer_types\": [], \"max_window_layers\": 2}", "{\"max_window_layers\": 1}",
         "max_window_layers: has no effect, as c has layer_types"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *config = json_loads(refused[i][0], 0, NULL),
               *fields = json_loads(refused[i][1], 0, NULL);
        assert_int_equal(ax_arch_override(config, fields, "c"), AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), refused[i][2]))
            fail_msg("%s", ax_error_text());
        json_decref(config);
        json_decref(fields);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_models_have_their_sizes),
        cmocka_unit_test(both_spellings_of_the_goldens_agree),
        cmocka_unit_test(su_is_longrope),
        cmocka_unit_test(silence_means_the_family_s_default),
        cmocka_unit_test(windows_are_per_layer),
        cmocka_unit_test(mistakes_are_named_with_their_key),
        cmocka_unit_test(the_padding_token_may_count_from_the_end),
        cmocka_unit_test(biases_and_norms_are_parameters),
        cmocka_unit_test(flops_follow_the_formula),
        cmocka_unit_test(files_are_named),
        cmocka_unit_test(a_folder_that_was_moved_aside_is_found),
        cmocka_unit_test(fields_in_both_spellings),
        cmocka_unit_test(fields_over_the_file_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
