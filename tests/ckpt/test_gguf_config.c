/* The configuration of a GGUF model as a Hugging Face folder has it: whole texts, from values that
 * are all different. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/rope.h"
#include "tests/ckpt/gguf_out.h"

static struct gguf_out built;
static struct ax_gguf file;

static int open_file(void **state) {
    (void)state;
    gguf_out_finish(&built);
    return ax_gguf_parse(&file, "x.gguf", built.file.data, built.file.len) == AX_OK ? 0 : -1;
}

static int close_file(void **state) {
    (void)state;
    ax_gguf_close(&file);
    gguf_out_free(&built);
    return 0;
}

static struct ax_gguf_model model_of(const char *type) {
    return (struct ax_gguf_model){.file = &file,
                                  .kind = ax_gguf_kind_of(type),
                                  .layers = 11,
                                  .hidden = 12,
                                  .ffn = 13,
                                  .heads = 14,
                                  .kv_heads = 7,
                                  .head_dim = 16,
                                  .context = 17,
                                  .vocab = 18,
                                  .experts = 19,
                                  .active = 2,
                                  .expert_ffn = 20,
                                  .bos = 21,
                                  .eos = 22,
                                  .eot = 23,
                                  .eom = -1,
                                  .pad = 24,
                                  .eps = 0.5,
                                  .rope_theta = 25};
}

static void is(enum ax_status st, json_t *got, const char *expected) {
    assert_int_equal(st, AX_OK);
    char *text = json_dumps(got, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, expected);
    ax_free(text);
    json_decref(got);
}

static void ids_that_stop(void **state) {
    (void)state;
    static const struct {
        int64_t bos, eos, eot, pad, eom;
        const char *json;
    } cases[] = {
        {1, 2, 3, 4, -1, "{\"bos_token_id\":1,\"eos_token_id\":[2,3],\"pad_token_id\":4}"},
        {1, 2, 2, 4, -1, "{\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":4}"},
        {1, 2, -1, 4, -1, "{\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":4}"},
        {1, -1, 3, 4, -1, "{\"bos_token_id\":1,\"eos_token_id\":3,\"pad_token_id\":4}"},
        {0, 0, 5, 0, -1, "{\"bos_token_id\":0,\"eos_token_id\":[0,5],\"pad_token_id\":0}"},
        {0, 5, 0, 0, -1, "{\"bos_token_id\":0,\"eos_token_id\":[5,0],\"pad_token_id\":0}"},
        {-1, -1, -1, -1, -1, "{\"bos_token_id\":null,\"eos_token_id\":null,\"pad_token_id\":null}"},
        {1, 2, 3, 4, 5, "{\"bos_token_id\":1,\"eos_token_id\":[2,3,5],\"pad_token_id\":4}"},
        {1, 2, 3, 4, 3, "{\"bos_token_id\":1,\"eos_token_id\":[2,3],\"pad_token_id\":4}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_gguf_model m = model_of("llama");
        json_t *got;
        m.bos = cases[i].bos;
        m.eos = cases[i].eos;
        m.eot = cases[i].eot;
        m.eom = cases[i].eom;
        m.pad = cases[i].pad;
        const enum ax_status st = ax_gguf_model_generation_config(&m, &got);
        is(st, got, cases[i].json);
    }
}

static const char common[] =
    "{\"attention_dropout\":0.0,\"bos_token_id\":21,\"eos_token_id\":22,\"head_dim\":16,"
    "\"hidden_act\":\"silu\",\"hidden_size\":12,\"initializer_range\":0.02,"
    "\"intermediate_size\":13,\"max_position_embeddings\":17,\"num_attention_heads\":14,"
    "\"num_hidden_layers\":11,\"num_key_value_heads\":7,\"pad_token_id\":24,\"rms_norm_eps\":0.5,"
    "\"rope_scaling\":null,\"rope_theta\":25.0,\"tie_word_embeddings\":false,\"use_cache\":true,"
    "\"vocab_size\":18}";

#define WINDOW "\"max_window_layers\":11,\"sliding_window\":null,\"use_sliding_window\":false}"

static void configs_have_every_value(void **state) {
    (void)state;
    static const struct {
        const char *type, *own; /* members besides the common ones, without biases */
        bool qkv, mlp;          /* which of these are stated */
    } cases[] = {
        {"llama", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"}", true,
         true},
        {"mixtral",
         "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\","
         "\"num_experts_per_tok\":2,\"num_local_experts\":19,\"sliding_window\":null}",
         true, false},
        {"qwen2", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"," WINDOW,
         false, false},
        {"qwen3", "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\"," WINDOW,
         true, false},
        {"qwen3_moe",
         "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\","
         "\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"moe_intermediate_size\":20,"
         "\"norm_topk_prob\":true,\"num_experts\":19,\"num_experts_per_tok\":2," WINDOW,
         true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int on = -1; on < 3; on++) { /* none of three booleans, or one */
            struct ax_gguf_model m = model_of(cases[i].type);
            json_t *got, *expected = json_loads(common, 0, NULL),
                         *own = json_loads(cases[i].own, 0, NULL);
            assert_non_null(m.kind);
            m.qkv_bias = on == 0;
            m.mlp_bias = on == 1;
            m.tied = on == 2;
            json_object_update(expected, own);
            if (cases[i].qkv)
                json_object_set_new(expected, "attention_bias", json_boolean(m.qkv_bias));
            if (cases[i].mlp)
                json_object_set_new(expected, "mlp_bias", json_boolean(m.mlp_bias));
            json_object_set_new(expected, "tie_word_embeddings", json_boolean(m.tied));
            char *text = json_dumps(expected, JSON_COMPACT | JSON_SORT_KEYS);
            const enum ax_status st = ax_gguf_model_config(&m, &got);
            is(st, got, text);
            ax_free(text);
            json_decref(expected);
            json_decref(own);
        }
    }
}

/* A null would be YaRN to transformers. */
static void no_scaling_is_said(void **state) {
    (void)state;
    static const char *const types[] = {"gpt_oss", "ministral3"};
    for (size_t i = 0; i < 2; i++) {
        struct ax_gguf_model m = model_of(types[i]);
        json_t *got;
        assert_int_equal(ax_gguf_model_config(&m, &got), AX_OK);
        const json_t *type = json_object_get(json_object_get(got, "rope_scaling"), "rope_type");
        assert_true(json_is_string(type));
        assert_string_equal(json_string_value(type), "default");
        json_decref(got);
    }
}

/* A factor without a type, and llama.cpp's key of 2023, are linear; 0 and 1 are none, and so is what the type
 * calls none. */
static void factors_without_a_type(void **state) {
    (void)state;
    static const struct {
        const char *factor, *type;
        float value;
        const char *json;
    } cases[] = {
        {"llama.rope.scaling.factor", NULL, 4, "{\"factor\":4.0,\"rope_type\":\"linear\"}"},
        {"llama.rope.scale_linear", NULL, 4, "{\"factor\":4.0,\"rope_type\":\"linear\"}"},
        {"llama.rope.scale_linear", "linear", 2, "{\"factor\":2.0,\"rope_type\":\"linear\"}"},
        {"llama.rope.scaling.factor", "linear", 2, "{\"factor\":2.0,\"rope_type\":\"linear\"}"},
        {"llama.rope.scale_linear", NULL, 1, "null"},
        {"llama.rope.scaling.factor", NULL, 0, "null"},
        {"llama.rope.scaling.factor", "none", 4, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_out o = {0};
        struct ax_gguf g;
        struct ax_gguf_model m = model_of("llama");
        json_t *got;
        key_f32(&o, cases[i].factor, cases[i].value);
        if (cases[i].type)
            key_text(&o, "llama.rope.scaling.type", cases[i].type);
        gguf_out_finish(&o);
        assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
        m.file = &g;
        const enum ax_status st = ax_gguf_rope_scaling(&m, &got);
        assert_int_equal(st, AX_OK);
        char *text = json_dumps(got, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        assert_string_equal(text, cases[i].json);
        ax_free(text);
        json_decref(got);
        ax_gguf_close(&g);
        gguf_out_free(&o);
    }
}

/* Files of Phi-3 from before llama.cpp's converter wrote a type. */
static void factors_of_long_texts_without_a_type(void **state) {
    (void)state;
    static const float longer[] = {2, 4}, shorter[] = {1, 1.5F};
    static const int64_t n[] = {2};
    struct gguf_out o = {0};
    struct ax_gguf g;
    struct ax_gguf_model m = model_of("phi3");
    json_t *got;
    m.rotated = 4;
    m.context = 64;
    key_u32(&o, "phi3.rope.scaling.original_context_length", 16);
    key_f32(&o, "phi3.rope.scaling.attn_factor", 1.2247449F);
    tensor(&o, "rope_factors_long.weight", 0, 1, n, longer, sizeof longer);
    tensor(&o, "rope_factors_short.weight", 0, 1, n, shorter, sizeof shorter);
    gguf_out_finish(&o);
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    m.file = &g;
    const enum ax_status st = ax_gguf_rope_scaling(&m, &got);
    is(st, got,
       "{\"long_factor\":[2.0,4.0],\"original_max_position_embeddings\":16,"
       "\"rope_type\":\"longrope\",\"short_factor\":[1.0,1.5]}");
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

/* Published dense models of Granite 4 have the keys of the hybrids, which nothing of theirs uses, and no experts. */
static void keys_of_parts_that_are_not_there(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t value;
    } counts[] = {
        {"block_count", 2},          {"context_length", 64},      {"embedding_length", 8},
        {"feed_forward_length", 12}, {"attention.head_count", 2}, {"attention.head_count_kv", 1},
        {"expert_count", 0},         {"expert_used_count", 0},    {"ssm.conv_kernel", 4},
        {"ssm.state_size", 256},     {"ssm.group_count", 1},      {"ssm.inner_size", 16},
        {"ssm.time_step_rank", 4}};
    static const char *const factors[] = {"attention.scale", "embedding_scale", "residual_scale",
                                          "logit_scale"};
    struct gguf_out o = {0};
    struct ax_gguf g;
    struct ax_gguf_model m;
    char key[96];
    key_text(&o, "general.architecture", "granite");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(key, sizeof key, "granite.%s", counts[i].name);
        key_u32(&o, key, counts[i].value);
    }
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        snprintf(key, sizeof key, "granite.%s", factors[i]);
        key_f32(&o, key, 2);
    }
    key_f32(&o, "granite.attention.layer_norm_rms_epsilon", 0.5F);
    static const float rows[5 * 8];
    tensor(&o, "token_embd.weight", 0, 2, (const int64_t[]){5, 8}, rows, sizeof rows);
    gguf_out_finish(&o);
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    if (ax_gguf_model_read(&m, &g) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_string_equal(m.kind->model_type, "granite");
    assert_true(m.experts == 0 && m.layers == 2 && m.vocab == 5 && m.ssd.heads == 0);
    json_t *config;
    assert_int_equal(ax_gguf_model_config(&m, &config), AX_OK);
    assert_null(json_object_get(config, "layer_types"));
    json_decref(config);
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

/* A model of which one key is another: what a reader must not believe. */
static enum ax_status read_with(const char *key, double value, int rows) {
    static const struct {
        const char *key;
        uint32_t value;
    } counts[] = {{"llama.block_count", 2},
                  {"llama.context_length", 64},
                  {"llama.embedding_length", 8},
                  {"llama.feed_forward_length", 12},
                  {"llama.attention.head_count", 2},
                  {"llama.attention.head_count_kv", 1},
                  {"llama.attention.key_length", 4},
                  {"tokenizer.ggml.bos_token_id", 0},
                  {"split.count", 1}};
    static const char *const factors[] = {"llama.attention.layer_norm_rms_epsilon",
                                          "llama.rope.freq_base"};
    static const char *const tokens[] = {"a", "b", "c", "d", "e"};
    static const float zeros[8 * 8];
    struct gguf_out o = {0};
    struct ax_gguf g;
    struct ax_gguf_model m;
    key_text(&o, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        key_u32(&o, counts[i].key,
                strcmp(counts[i].key, key) == 0 ? (uint32_t)value : counts[i].value);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        key_f32(&o, factors[i], strcmp(factors[i], key) == 0 ? (float)value : 2);
    key_texts(&o, "tokenizer.ggml.tokens", 5, tokens);
    tensor(&o, "token_embd.weight", 0, 2, (const int64_t[]){rows, 8}, zeros,
           (size_t)rows * 8 * sizeof *zeros);
    gguf_out_finish(&o);
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    const enum ax_status st = ax_gguf_model_read(&m, &g);
    ax_gguf_close(&g);
    gguf_out_free(&o);
    return st;
}

static void impossible_values(void **state) {
    (void)state;
    static const struct {
        const char *key;
        double value;
        int rows;
        const char *said; /* NULL: read */
    } cases[] = {
        {"", 0, 5, NULL},
        {"", 0, 4, "x.gguf: 5 tokens, but token_embd.weight has 4 rows"},
        {"", 0, 6, NULL},
        {"split.count", 2, 5, "x.gguf: one of 2 parts of a model. Merge them first"},
        {"llama.block_count", 0, 5, "block_count"},
        {"llama.context_length", 0, 5, "context_length"},
        {"llama.embedding_length", 0, 5, "embedding_length"},
        {"llama.feed_forward_length", 0, 5, "feed_forward_length"},
        {"llama.attention.head_count", 3, 5, NULL},
        {"llama.attention.head_count_kv", 2, 5, NULL},
        {"llama.attention.head_count_kv", 3, 5, "head_count_kv: 3 does not divide the 2 heads"},
        {"llama.attention.key_length", 2, 5, NULL},
        {"llama.attention.key_length", 5, 5, "give no even head size"},
        {"tokenizer.ggml.bos_token_id", 4, 5, NULL},
        {"tokenizer.ggml.bos_token_id", 5, 5, "tokenizer.ggml.bos_token_id"},
        {"llama.attention.layer_norm_rms_epsilon", 0, 5, "rms_epsilon: 0 is not positive"},
        {"llama.rope.freq_base", 1, 5, "rope.freq_base: 1 is not above 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum ax_status st = read_with(cases[i].key, cases[i].value, cases[i].rows);
        if (cases[i].said ? st == AX_OK || !strstr(ax_error_text(), cases[i].said) : st != AX_OK)
            fail_msg("%s %g: %s", cases[i].key, cases[i].value, ax_error_text());
    }
}

/* The part that a head has by a count of its elements gives that count again, as transformers computes it. */
static void parts_of_heads_keep_their_sizes(void **state) {
    (void)state;
    for (int64_t head = 2; head <= 512; head++)
        for (int64_t rotated = 2; rotated <= head; rotated++) {
            const double part = ax_gguf_rotary_part(rotated, head);
            if ((int64_t)((double)head * part) != rotated || part > 1)
                fail_msg("%d of %d is %.17g", (int)rotated, (int)head, part);
        }
}

/* The types that an error names: each once, in whatever kinds of files. */
static void types_are_listed_once(void **state) {
    (void)state;
    char list[4096], padded[4200], word[80];
    snprintf(padded, sizeof padded, ", %s, ", ax_gguf_kind_list(list, sizeof list));
    for (const struct ax_gguf_kind *k = ax_gguf_kinds; k->arch; k++) {
        snprintf(word, sizeof word, ", %s,", k->model_type);
        const char *at = strstr(padded, word);
        if (!at || strstr(at + 1, word))
            fail_msg("%s: %s", k->model_type, list);
    }
    /* cut, but within its room */
    assert_true(strlen(ax_gguf_kind_list(list, 10)) == 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_listed_once),
        cmocka_unit_test(ids_that_stop),
        cmocka_unit_test(parts_of_heads_keep_their_sizes),
        cmocka_unit_test(configs_have_every_value),
        cmocka_unit_test(no_scaling_is_said),
        cmocka_unit_test(factors_of_long_texts_without_a_type),
        cmocka_unit_test(factors_without_a_type),
        cmocka_unit_test(keys_of_parts_that_are_not_there),
        cmocka_unit_test(impossible_values),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
