#include "model/arch/shapes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text/words.h"

#define GPT_OSS                                                                                    \
    "{\"attention_bias\": true, \"sliding_window\": 128, \"rope_scaling\": {\"rope_type\": "       \
    "\"yarn\", "                                                                                   \
    "\"factor\": 32.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, \"truncate\": false, "             \
    "\"original_max_position_embeddings\": 4096}}"
#define DEEPSEEK_V3                                                                                \
    "{\"n_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4, \"topk_method\": \"noaux_tc\", " \
    "\"scoring_func\": \"sigmoid\", \"routed_scaling_factor\": 2.5, \"first_k_dense_replace\": "   \
    "3, "                                                                                          \
    "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, "                    \
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"rope_scaling\": {\"type\": \"yarn\", "       \
    "\"factor\": 40.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, \"mscale\": 1.0, "                 \
    "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096}}"

#define MIMO_V2_FLASH                                                                              \
    "{\"v_head_dim\": 128, \"attention_value_scale\": 0.707, \"sliding_window_size\": 128, "       \
    "\"swa_num_key_value_heads\": 8, \"swa_rope_theta\": 10000, \"partial_rotary_factor\": 0.334}"
#define LLAMA_4                                                                                    \
    "\"intermediate_size_mlp\": 16384, \"attention_chunk_size\": 8192, \"floor_scale\": 8192, "    \
    "\"attn_scale\": 0.1, \"attn_temperature_tuning\": true"
#define LLAMA_4_SCOUT                                                                              \
    "{" LLAMA_4 ", \"interleave_moe_layer_step\": 1, \"use_qk_norm\": true, \"rope_scaling\": "    \
    "{\"rope_type\": \"llama3\", \"factor\": 16.0, \"low_freq_factor\": 1.0, "                     \
    "\"high_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192}}"
#define LLAMA_4_MAVERICK "{" LLAMA_4 ", \"interleave_moe_layer_step\": 2, \"use_qk_norm\": false}"

/* From the models' config.json; tests/model/test_shapes.c compares the parameters they add up to with
 * the published numbers. */
static const struct shape {
    const char *name, *model_type;
    int hidden, ffn, layers, heads, kv_heads, head_dim, vocab; /* head_dim 0: hidden / heads */
    int positions;
    double theta, eps;
    bool tied;
    int rope_factor;                       /* Llama 3.1's scaling; 0: none */
    int experts, experts_used, expert_ffn; /* expert_ffn 0: ffn */
    double init;                           /* 0: 0.02 */
    const char *dtype;                     /* NULL: bfloat16 */
    const char *more;                      /* members that only its family has; NULL: none */
} shapes[] = {
    {"llama-tiny", "llama", 64, 160, 2, 4, 2, 0, 512, 2048, 1e4, .eps = 1e-5, .dtype = "float32"},
    {"smollm2-135m", "llama", 576, 1536, 30, 9, 3, 0, 49152, 8192, 1e5, .eps = 1e-5, .tied = true,
     .init = 0.041666666666666664},
    {"llama-2-7b", "llama", 4096, 11008, 32, 32, 32, 0, 32000, 4096, 1e4, .eps = 1e-5},
    {"llama-2-13b", "llama", 5120, 13824, 40, 40, 40, 0, 32000, 4096, 1e4, .eps = 1e-5},
    {"llama-2-70b", "llama", 8192, 28672, 80, 64, 8, 0, 32000, 4096, 1e4, .eps = 1e-5},
    {"codellama-34b", "llama", 8192, 22016, 48, 64, 8, 0, 32000, 16384, 1e6, .eps = 1e-5},
    {"llama-3-8b", "llama", 4096, 14336, 32, 32, 8, 0, 128256, 8192, 5e5, .eps = 1e-5},
    {"llama-3-70b", "llama", 8192, 28672, 80, 64, 8, 0, 128256, 8192, 5e5, .eps = 1e-5},
    {"llama-3.1-8b", "llama", 4096, 14336, 32, 32, 8, 0, 128256, 131072, 5e5, .eps = 1e-5,
     .rope_factor = 8},
    {"llama-3.1-70b", "llama", 8192, 28672, 80, 64, 8, 0, 128256, 131072, 5e5, .eps = 1e-5,
     .rope_factor = 8},
    {"llama-3.1-405b", "llama", 16384, 53248, 126, 128, 8, 0, 128256, 131072, 5e5, .eps = 1e-5,
     .rope_factor = 8},
    {"llama-3.2-1b", "llama", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 5e5, .eps = 1e-5,
     .tied = true, .rope_factor = 32},
    {"llama-3.2-3b", "llama", 3072, 8192, 28, 24, 8, 128, 128256, 131072, 5e5, .eps = 1e-5,
     .tied = true, .rope_factor = 32},
    {"llama-3.3-70b", "llama", 8192, 28672, 80, 64, 8, 0, 128256, 131072, 5e5, .eps = 1e-5,
     .rope_factor = 8},
    {"llama-4-scout", "llama4_text", 5120, 8192, 48, 40, 8, 128, 202048, 10485760, 5e5, .eps = 1e-5,
     .experts = 16, .experts_used = 1, .more = LLAMA_4_SCOUT},
    {"llama-4-maverick", "llama4_text", 5120, 8192, 48, 40, 8, 128, 202048, 1048576, 5e5,
     .eps = 1e-5, .experts = 128, .experts_used = 1, .more = LLAMA_4_MAVERICK},
    {"mimo-v2-flash", "mimo_v2_flash", 4096, 16384, 48, 64, 4, 192, 152576, 262144, 5e6,
     .eps = 1e-5, .experts = 256, .experts_used = 8, .expert_ffn = 2048, .more = MIMO_V2_FLASH},
    {"mistral-7b-v0.3", "mistral", 4096, 14336, 32, 32, 8, 0, 32768, 32768, 1e6, .eps = 1e-5},
    {"mixtral-8x7b", "mixtral", 4096, 14336, 32, 32, 8, 0, 32000, 32768, 1e6, .eps = 1e-5,
     .experts = 8, .experts_used = 2},
    {"mixtral-8x22b", "mixtral", 6144, 16384, 56, 48, 8, 0, 32000, 65536, 1e6, .eps = 1e-5,
     .experts = 8, .experts_used = 2},
    {"qwen2.5-0.5b", "qwen2", 896, 4864, 24, 14, 2, 0, 151936, 32768, 1e6, .eps = 1e-6,
     .tied = true},
    {"qwen2.5-1.5b", "qwen2", 1536, 8960, 28, 12, 2, 0, 151936, 131072, 1e6, .eps = 1e-6,
     .tied = true},
    {"qwen2.5-3b", "qwen2", 2048, 11008, 36, 16, 2, 0, 151936, 32768, 1e6, .eps = 1e-6,
     .tied = true},
    {"qwen2.5-7b", "qwen2", 3584, 18944, 28, 28, 4, 0, 152064, 131072, 1e6, .eps = 1e-6},
    {"qwen2.5-14b", "qwen2", 5120, 13824, 48, 40, 8, 0, 152064, 131072, 1e6, .eps = 1e-5},
    {"qwen2.5-32b", "qwen2", 5120, 27648, 64, 40, 8, 0, 152064, 131072, 1e6, .eps = 1e-5},
    {"qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, .eps = 1e-6,
     .tied = true},
    {"qwen3-1.7b", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, 40960, 1e6, .eps = 1e-6,
     .tied = true},
    {"qwen3-4b", "qwen3", 2560, 9728, 36, 32, 8, 128, 151936, 40960, 1e6, .eps = 1e-6,
     .tied = true},
    {"qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 40960, 1e6, .eps = 1e-6},
    {"qwen3-14b", "qwen3", 5120, 17408, 40, 40, 8, 128, 151936, 40960, 1e6, .eps = 1e-6},
    {"qwen3-32b", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, 40960, 1e6, .eps = 1e-6},
    {"qwen3-30b-a3b", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, 40960, 1e6, .eps = 1e-6,
     .experts = 128, .experts_used = 8, .expert_ffn = 768},
    {"qwen3-235b-a22b", "qwen3_moe", 4096, 12288, 94, 64, 4, 128, 151936, 40960, 1e6, .eps = 1e-6,
     .experts = 128, .experts_used = 8, .expert_ffn = 1536},
    {"gpt-oss-20b", "gpt_oss", 2880, 2880, 24, 64, 8, 64, 201088, 131072, 150000, .eps = 1e-5,
     .experts = 32, .experts_used = 4, .more = GPT_OSS},
    {"gpt-oss-120b", "gpt_oss", 2880, 2880, 36, 64, 8, 64, 201088, 131072, 150000, .eps = 1e-5,
     .experts = 128, .experts_used = 4, .more = GPT_OSS},
    {"deepseek-v3", "deepseek_v3", 7168, 18432, 61, 128, 128, 0, 129280, 163840, 1e4, .eps = 1e-6,
     .experts = 256, .experts_used = 8, .expert_ffn = 2048, .more = DEEPSEEK_V3},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

const char *ax_shape_name(size_t i) {
    return i < N_SHAPES ? shapes[i].name : NULL;
}

static const char *list_names(char *buf, size_t size) {
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < N_SHAPES && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i > 0 ? ", " : "", shapes[i].name);
    return buf;
}

static const struct {
    const char *model_type, *architecture, *experts; /* key of their number */
} families[] = {
    {"llama", "LlamaForCausalLM", NULL},
    {"llama4_text", "Llama4ForCausalLM", "num_local_experts"},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM", "n_routed_experts"},
    {"mistral", "MistralForCausalLM", NULL},
    {"mixtral", "MixtralForCausalLM", "num_local_experts"},
    {"qwen2", "Qwen2ForCausalLM", NULL},
    {"qwen3", "Qwen3ForCausalLM", NULL},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "num_experts"},
    {"gpt_oss", "GptOssForCausalLM", "num_local_experts"},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "n_routed_experts"},
};

/* Keys that only some shapes have; `family` is the index in `families`. */
static int add_rest(json_t *c, const struct shape *s, size_t family) {
    int rc = 0;
    if (s->head_dim > 0)
        rc |= json_object_set_new(c, "head_dim", json_integer(s->head_dim));
    if (s->rope_factor > 0)
        rc |= json_object_set_new(c, "rope_scaling",
                                  json_pack("{ss sf sf sf si}", "rope_type", "llama3", "factor",
                                            (double)s->rope_factor, "low_freq_factor", 1.0,
                                            "high_freq_factor", 4.0,
                                            "original_max_position_embeddings", 8192));
    if (s->experts > 0) {
        rc |= json_object_set_new(c, families[family].experts, json_integer(s->experts));
        rc |= json_object_set_new(c, "num_experts_per_tok", json_integer(s->experts_used));
    }
    if (s->expert_ffn > 0) {
        rc |= json_object_set_new(c, "moe_intermediate_size", json_integer(s->expert_ffn));
        rc |= json_object_set_new(c, "norm_topk_prob", json_true());
    }
    if (s->more) {
        json_t *more = json_loads(s->more, 0, NULL);
        rc |= json_object_update(c, more);
        json_decref(more);
    }
    return rc;
}

static json_t *config_of(const struct shape *s) {
    size_t f = 0;
    while (strcmp(families[f].model_type, s->model_type) != 0)
        f++;
    json_t *c = json_pack(
        "{s[s] ss ss si si si si si si si sf sf sf sb ss}", "architectures",
        families[f].architecture, "model_type", s->model_type, "hidden_act", "silu", "hidden_size",
        s->hidden, "intermediate_size", s->ffn, "num_hidden_layers", s->layers,
        "num_attention_heads", s->heads, "num_key_value_heads", s->kv_heads, "vocab_size", s->vocab,
        "max_position_embeddings", s->positions, "rope_theta", s->theta, "rms_norm_eps", s->eps,
        "initializer_range", s->init > 0 ? s->init : 0.02, "tie_word_embeddings", s->tied,
        "torch_dtype", s->dtype ? s->dtype : "bfloat16");
    if (c && add_rest(c, s, f) == 0)
        return c;
    json_decref(c);
    return NULL;
}

/* Parsed from text, so that what is wrong with it has a place. */
static enum ax_status parse(const struct shape *s, struct ax_json_doc *out) {
    json_t *c = config_of(s);
    char *text;
    size_t len;
    if (!c)
        return ax_error(AX_ERR_NOMEM, "out of memory for %s", s->name);
    enum ax_status st = ax_json_dump(c, &text, &len);
    json_decref(c);
    if (st == AX_OK) {
        st = ax_json_parse(out, s->name, text, len);
        ax_free(text);
    }
    return st;
}

enum ax_status ax_shape_config(const char *name, struct ax_json_doc *out) {
    struct ax_nearest near = {.given = name, .within = 4};
    char all[1024];
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (strcasecmp(name, shapes[i].name) == 0)
            return parse(&shapes[i], out);
        ax_nearest_try(&near, shapes[i].name);
    }
    if (near.name)
        return ax_error(AX_ERR_CONFIG, "--arch: no shape is called \"%.64s\"; did you mean %s?",
                        name, near.name);
    return ax_error(AX_ERR_CONFIG, "--arch: no shape is called \"%.64s\"; there are %s", name,
                    list_names(all, sizeof all));
}
