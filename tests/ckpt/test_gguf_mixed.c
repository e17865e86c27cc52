/* GGUF files of models whose layers differ (Gemma 4): the config of one by llama.cpp's names, and mistakes in its lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/gguf/model.h"
#include "tests/ckpt/gguf_out.h"

enum { LAYERS = 5, VOCAB = 9, HIDDEN = 24, WIDTH = 2 };

/* What a file has; the defaults are a good one's. */
struct file {
    int32_t kv[LAYERS], ffn[LAYERS];
    uint32_t shared, key_length, value_length, swa, windows; /* windows: entries of the pattern */
    float divisors[8];
    bool divided, table;
};
static const struct file good = {.kv = {2, 1, 2, 2, 1},
                                 .ffn = {10, 10, 10, 20, 20},
                                 .shared = 2,
                                 .key_length = 16,
                                 .value_length = 16,
                                 .swa = 12,
                                 .windows = LAYERS,
                                 .divisors = {1, 1, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F},
                                 .divided = true,
                                 .table = true};

static void put_list(struct gguf_out *o, const char *name, const int32_t *list) {
    key_array(o, name, AX_GGUF_I32, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        put_int(&o->keys, (uint32_t)list[i], 4);
}

static void put_tensor(struct gguf_out *o, const char *name, int64_t rows, int64_t cols) {
    static const float zeros[VOCAB * HIDDEN];
    tensor(o, name, 0, 2, (const int64_t[]){rows, cols}, zeros,
           (size_t)(rows * cols) * sizeof *zeros);
}

static void build(struct gguf_out *o, const struct file *f) {
    *o = (struct gguf_out){0};
    key_text(o, "general.architecture", "gemma4");
    key_u32(o, "gemma4.block_count", LAYERS);
    key_u32(o, "gemma4.context_length", 64);
    key_u32(o, "gemma4.embedding_length", HIDDEN);
    key_u32(o, "gemma4.attention.head_count", 4);
    put_list(o, "gemma4.attention.head_count_kv", f->kv);
    put_list(o, "gemma4.feed_forward_length", f->ffn);
    key_u32(o, "gemma4.attention.key_length", f->key_length);
    key_u32(o, "gemma4.attention.value_length", f->value_length);
    key_u32(o, "gemma4.attention.key_length_swa", f->swa);
    key_u32(o, "gemma4.attention.value_length_swa", 12);
    key_u32(o, "gemma4.rope.dimension_count", 16);
    key_u32(o, "gemma4.rope.dimension_count_swa", 12);
    key_f32(o, "gemma4.rope.freq_base", 5000);
    key_f32(o, "gemma4.rope.freq_base_swa", 300);
    key_f32(o, "gemma4.attention.layer_norm_rms_epsilon", 0.5F);
    key_u32(o, "gemma4.attention.sliding_window", 7);
    key_u32(o, "gemma4.attention.shared_kv_layers", f->shared);
    key_u32(o, "gemma4.embedding_length_per_layer_input", WIDTH);
    key_array(o, "gemma4.attention.sliding_window_pattern", AX_GGUF_BOOL, f->windows);
    for (uint32_t i = 0; i < f->windows; i++)
        put_int(&o->keys, i != 1 && i != 4, 1);
    put_tensor(o, "token_embd.weight", VOCAB, HIDDEN);
    put_tensor(o, "blk.0.attn_v.weight", 24, 4); /* layer 1, full, has none */
    if (f->table)
        put_tensor(o, "per_layer_token_embd.weight", VOCAB, WIDTH * LAYERS);
    if (f->divided)
        tensor(o, "rope_freqs.weight", 0, 1, (const int64_t[]){8}, f->divisors, sizeof f->divisors);
    gguf_out_finish(o);
}

static const char types[] =
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"sliding_attention\",\"full_attention\"]";
static const char ropes[] =
    "\"rope_parameters\":{\"full_attention\":{\"partial_rotary_factor\":0.25,"
    "\"rope_theta\":5000.0,\"rope_type\":\"proportional\"},\"sliding_attention\":{"
    "\"rope_theta\":300.0,\"rope_type\":\"default\"}}";

static void a_file_has_a_config(void **state) {
    (void)state;
    static const char *const expected[] = {"\"attention_k_eq_v\":true",
                                           "\"enable_moe_block\":false",
                                           "\"global_head_dim\":16",
                                           "\"head_dim\":12",
                                           "\"hidden_activation\":\"gelu_pytorch_tanh\"",
                                           "\"hidden_size_per_layer_input\":2",
                                           "\"intermediate_size\":10",
                                           types,
                                           "\"num_global_key_value_heads\":1",
                                           "\"num_key_value_heads\":2",
                                           "\"num_kv_shared_layers\":2",
                                           ropes,
                                           "\"sliding_window\":7",
                                           "\"use_double_wide_mlp\":true",
                                           "\"vocab_size_per_layer_input\":9"};
    struct gguf_out o;
    struct ax_gguf g;
    struct ax_gguf_model m;
    json_t *config;
    build(&o, &good);
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    if (ax_gguf_model_read(&m, &g) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(ax_gguf_model_config(&m, &config), AX_OK);
    char *text = json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strstr(text, expected[i]))
            fail_msg("no %s in %s", expected[i], text);
    assert_null(strstr(text, "rope_scaling"));
    ax_free(text);
    json_decref(config);
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

static void refused(const struct file *f, const char *says) {
    struct gguf_out o;
    struct ax_gguf g;
    struct ax_gguf_model m;
    build(&o, f);
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    assert_int_not_equal(ax_gguf_model_read(&m, &g), AX_OK);
    if (!strstr(ax_error_text(), says))
        fail_msg("expected \"%s\" in: %s", says, ax_error_text());
    ax_error_clear();
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

static void mistakes_are_named(void **state) {
    (void)state;
    struct file f = good;
    const uint64_t live = ax_mem_live_blocks();
    f.kv[3] = 1;
    refused(&f, "head_count_kv: 1 in layer 3, 2 in others like it");
    f = good;
    f.kv[0] = f.kv[2] = f.kv[3] = 3;
    refused(&f, "3 and 1 KV heads do not both divide the 4 heads");
    f = good;
    f.ffn[4] = 10;
    refused(&f, "feed_forward_length: 10 in layer 4, 20 in others like it");
    f = good;
    f.ffn[3] = f.ffn[4] = 30;
    refused(&f, "feed_forward_length: 30 in layer 4, 10 in others like it");
    f = good;
    f.shared = LAYERS;
    refused(&f, "attention.shared_kv_layers: 5 of 5 layers");
    f = good;
    f.windows = LAYERS - 1;
    refused(&f, "sliding_window_pattern: 4 entries for 5 layers");
    f = good;
    f.value_length = 12;
    refused(&f, "attention.value_length: 12, of keys of 16 elements");
    f = good;
    f.swa = 11;
    refused(&f, "attention.value_length_swa: 12, of keys of 11 elements");
    f = good;
    f.divisors[3] = 8;
    refused(&f, "rope_freqs.weight: a divisor of 8 is not supported");
    f = good;
    f.divided = false;
    refused(&f, "rope_freqs.weight: expected 8 floats");
    f = good;
    f.table = false;
    refused(&f, "per_layer_token_embd.weight is missing");
    assert_int_equal(ax_mem_live_blocks(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_a_config),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
