/* GGUF files of models with several streams (Gemma 3n): the config of one by the published files' keys, and mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "ckpt/gguf/model.h"
#include "tests/ckpt/gguf_out.h"

enum { LAYERS = 5, VOCAB = 9, HIDDEN = 24, WIDTH = 2, RANK = 3 };
#define CUT 1.6448533535003662F /* of ggml-org/gemma-3n-E2B-it-GGUF */

/* What a file has; the defaults are a good one's. */
struct file {
    int32_t ffn[LAYERS];
    float shared, cuts[LAYERS];
    uint32_t windows, n_cuts, streams,
        active; /* windows, n_cuts: entries of lists; windows 0: none */
    bool table, low_rank;
};
static const struct file good = {.ffn = {10, 10, 10, 10, 10},
                                 .shared = 2,
                                 .cuts = {CUT, CUT, -INFINITY, -INFINITY, -INFINITY},
                                 .windows = LAYERS,
                                 .n_cuts = LAYERS,
                                 .streams = 4,
                                 .table = true,
                                 .low_rank = true};

static void put_tensor(struct gguf_out *o, const char *name, int64_t rows, int64_t cols) {
    static const float zeros[VOCAB * HIDDEN];
    tensor(o, name, 0, 2, (const int64_t[]){rows, cols}, zeros,
           (size_t)(rows * cols) * sizeof *zeros);
}

static void build(struct gguf_out *o, const struct file *f) {
    *o = (struct gguf_out){0};
    key_text(o, "general.architecture", "gemma3n");
    key_u32(o, "gemma3n.block_count", LAYERS);
    key_u32(o, "gemma3n.context_length", 64);
    key_u32(o, "gemma3n.embedding_length", HIDDEN);
    key_u32(o, "gemma3n.attention.head_count", 4);
    key_u32(o, "gemma3n.attention.head_count_kv", 2);
    key_array(o, "gemma3n.feed_forward_length", AX_GGUF_I32, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        put_int(&o->keys, (uint32_t)f->ffn[i], 4);
    key_u32(o, "gemma3n.attention.key_length", 16);
    key_u32(o, "gemma3n.attention.value_length", 16);
    key_f32(o, "gemma3n.rope.freq_base", 5000);
    key_f32(o, "gemma3n.attention.layer_norm_rms_epsilon", 0.5F);
    key_u32(o, "gemma3n.attention.sliding_window", 7);
    key_f32(o, "gemma3n.attention.shared_kv_layers", f->shared);
    key_u32(o, "gemma3n.embedding_length_per_layer_input", WIDTH);
    key_u32(o, "gemma3n.altup.num_inputs", f->streams);
    key_u32(o, "gemma3n.altup.active_idx", f->active);
    key_array(o, "gemma3n.activation_sparsity_scale", AX_GGUF_F32, f->n_cuts);
    for (uint32_t i = 0; i < f->n_cuts; i++)
        put_f32(&o->keys, f->cuts[i]);
    if (f->windows > 0)
        key_array(o, "gemma3n.attention.sliding_window_pattern", AX_GGUF_BOOL, f->windows);
    for (uint32_t i = 0; i < f->windows; i++)
        put_int(&o->keys, i != 1, 1);
    put_tensor(o, "token_embd.weight", VOCAB, HIDDEN);
    if (f->low_rank)
        put_tensor(o, "blk.0.laurel_l.weight", RANK, HIDDEN);
    if (f->table)
        put_tensor(o, "per_layer_token_embd.weight", VOCAB, WIDTH * LAYERS);
    gguf_out_finish(o);
}

static void has(const struct file *f, const char *const *expected) {
    struct gguf_out o;
    struct ax_gguf g;
    struct ax_gguf_model m;
    json_t *config;
    build(&o, f);
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    if (ax_gguf_model_read(&m, &g) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(ax_gguf_model_config(&m, &config), AX_OK);
    char *text = json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
    for (; *expected; expected++)
        if (!strstr(text, *expected))
            fail_msg("no %s in %s", *expected, text);
    ax_free(text);
    json_decref(config);
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

static void a_file_has_a_config(void **state) {
    (void)state;
    static const char *const expected[] = {
        "\"activation_sparsity_pattern\":[0.94999999999999996,0.94999999999999996,0.0,0.0,0.0]",
        "\"altup_active_idx\":0",
        "\"altup_num_inputs\":4",
        "\"final_logit_softcapping\":30.0",
        "\"head_dim\":16",
        "\"hidden_size_per_layer_input\":2",
        "\"intermediate_size\":10",
        "\"laurel_rank\":3",
        "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
        "\"sliding_attention\",\"sliding_attention\"]",
        "\"num_kv_shared_layers\":2",
        "\"rope_local_base_freq\":10000.0",
        "\"rope_theta\":5000.0",
        "\"sliding_window\":7",
        "\"vocab_size_per_layer_input\":9",
        NULL};
    has(&good, expected);
    struct file f = good; /* every fifth layer is full where no list says otherwise */
    f.windows = 0;
    has(&f, (const char *const[]){"\"sliding_attention\",\"full_attention\"]", NULL});
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const char *const mentions[] = {
        "key gemma3n.feed_forward_length: 11 in layer 3, 10 in the first, is not supported",
        "key gemma3n.attention.shared_kv_layers: 5 of 5 layers",
        "key gemma3n.attention.shared_kv_layers: 0.5 of 5 layers",
        "key gemma3n.attention.sliding_window_pattern: 4 entries for 5 layers",
        "key gemma3n.activation_sparsity_scale: 4 entries for 5 layers",
        "key gemma3n.activation_sparsity_scale: 0.5 in layer 1 is not supported",
        "key gemma3n.altup.num_inputs: 4 streams, of which the layers compute 4",
        "tensor per_layer_token_embd.weight is missing",
        "tensor blk.0.laurel_l.weight is missing",
    };
    struct file bad[sizeof mentions / sizeof *mentions];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        bad[i] = good;
    bad[0].ffn[3] = 11;
    bad[1].shared = 5;
    bad[2].shared = 0.5F;
    bad[3].windows = 4;
    bad[4].n_cuts = 4;
    bad[5].cuts[1] = 0.5F;
    bad[6].active = 4;
    bad[7].table = false;
    bad[8].low_rank = false;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gguf_out o;
        struct ax_gguf g;
        struct ax_gguf_model m;
        build(&o, &bad[i]);
        assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
        assert_int_not_equal(ax_gguf_model_read(&m, &g), AX_OK);
        if (!strstr(ax_error_text(), mentions[i]))
            fail_msg("%s", ax_error_text());
        ax_error_clear();
        ax_gguf_close(&g);
        gguf_out_free(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_a_config),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
