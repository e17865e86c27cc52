/* Gemma 3n as a GGUF file and back. Readers have the published sizes as constants, so a small model has more than 20
 * layers, and what else they fix; tests/peers/check_gguf_streams.py has llama.cpp read one. */
#include "tests/cmd/gguf_folders.h"

#include "model/model.h"
#include "model/save.h"

enum {
    DEPTH = 22,
    OWN_KEYS = 20,
    VOCABULARY = 128,
    TABLE = 100,
    COLUMNS = DEPTH * 256,
    WIDTH = 64
};

struct making {
    const json_t *config;
    const struct ax_arch *arch;
    const char *path;
};

static enum ax_status make_body(struct ax_runtime *rt, void *ctx) {
    const struct making *j = ctx;
    struct ax_model m;
    const struct ax_model_options o = {.dtype = AX_F32, .max_positions = 8};
    const struct ax_model_save save = {.dir = j->path, .config = j->config, .dtype = AX_F32};
    AX_TRY(ax_model_create(&m, j->arch, rt, &o));
    enum ax_status st = ax_model_init_random(&m, 6);
    if (st == AX_OK && !ax_runtime_planning(rt))
        st = ax_model_save(&m, &save);
    ax_model_free(&m);
    return st;
}

/* The folder NAME of a random model with a tokenizer; `rows` is the number of its per-layer embeddings. */
static void make(const char *name, int rows) {
    char text[1024], path[256];
    snprintf(text, sizeof text,
             "{\"model_type\": \"gemma3n_text\", \"architectures\": [\"Gemma3nForCausalLM\"], "
             "\"vocab_size\": %d, \"vocab_size_per_layer_input\": %d, \"hidden_size\": 64, "
             "\"hidden_size_per_layer_input\": 256, \"intermediate_size\": 40, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
             "\"head_dim\": 8, \"sliding_window\": 10, \"num_kv_shared_layers\": 2, "
             "\"laurel_rank\": 64, \"max_position_embeddings\": 64, \"initializer_range\": 0.2, "
             "\"rms_norm_eps\": 0.000001}",
             VOCABULARY, rows, DEPTH);
    struct ax_json_doc doc;
    struct ax_arch arch;
    snprintf(path, sizeof path, "%s", in_dir(name));
    ok(ax_json_parse(&doc, "config.json", text, strlen(text)));
    ok(ax_arch_parse(&arch, ax_json_root(&doc)));
    struct making j = {.config = doc.root, .arch = &arch, .path = path};
    ok(ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, make_body, &j,
                      NULL));
    ax_arch_free(&arch);
    ax_json_free(&doc);
    static const struct tiny small = {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16};
    char tokens[64];
    snprintf(tokens, sizeof tokens, "%s-tokens", name);
    put_folder(&small, tokens);
    copy_file(in_dir(tokens), name, "tokenizer.json");
    cut_tokens(name, VOCABULARY);
}

static void streams_come_back(void **state) {
    (void)state;
    struct ax_arch arch[2];
    make("gemma3n", VOCABULARY);
    ok(to_gguf(in_dir("gemma3n"), "gemma3n.gguf", NULL));
    to_hf("gemma3n.gguf", "again");
    same_weights(in_dir("gemma3n"), in_dir("again"));
    ok(ax_arch_load(&arch[0], in_dir("gemma3n")));
    ok(ax_arch_load(&arch[1], in_dir("again")));
    same_models(&arch[0], &arch[1], false);
    assert_int_equal(arch[1].streams.n, 4);
    assert_int_equal(arch[1].laurel_rank, 64);
    assert_int_equal(arch[1].per_layer.rows, VOCABULARY);
    for (int i = 0; i < DEPTH; i++) {
        const struct ax_layer_spec *a = &arch[0].layers[i], *b = &arch[1].layers[i];
        assert_true(b->sparse == (i < 10) && b->borrows == (i >= OWN_KEYS));
        assert_true(a->source == b->source && fabs(a->cut - b->cut) < 1e-9);
    }
    ax_arch_free(&arch[0]);
    ax_arch_free(&arch[1]);
}

/* What llama.cpp asks for beside what the model has: keys in all layers, and a row for each token. */
static void readers_get_what_they_ask_for(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_hf hf, back;
    float *cuts;
    size_t n;
    int64_t borrow;
    make("short", TABLE);
    ok(to_gguf(in_dir("short"), "short.gguf", NULL));
    ok(ax_gguf_open(&g, in_dir("short.gguf")));
    ok(ax_hf_open(&hf, in_dir("short")));
    ok(ax_gguf_i64(&g, "gemma3n.attention.shared_kv_layers", 0, 99, &borrow));
    assert_int_equal(borrow, DEPTH - OWN_KEYS);
    ok(ax_gguf_f32s(&g, "gemma3n.activation_sparsity_scale", &cuts, &n));
    assert_int_equal(n, DEPTH);
    for (int i = 0; i < DEPTH; i++) /* as the published files */
        assert_true(i < 10 ? fabsf(cuts[i] - 1.6448536F) < 1e-6F : isinf(cuts[i]) && cuts[i] < 0);
    ax_free(cuts);
    assert_int_equal(ax_gguf_tensor(&g, "altup_proj.weight")->numel, 3 * WIDTH * WIDTH);
    for (int64_t k = 0; k < WIDTH; k++) {
        const char *last = "model.altup_unembed_projections.2.weight";
        expect(&g, "altup_unembd_proj.weight", 2 * WIDTH * WIDTH + k, value(&hf, last, k));
        /* layer 20 slides, as 18 does; 21, too */
        expect(&g, "blk.20.attn_v.weight", k,
               value(&hf, "model.layers.18.self_attn.v_proj.weight", k));
        expect(&g, "blk.21.attn_k.weight", k,
               value(&hf, "model.layers.18.self_attn.k_proj.weight", k));
    }
    const char *table = "model.embed_tokens_per_layer.weight";
    assert_int_equal(ax_gguf_tensor(&g, "per_layer_token_embd.weight")->numel,
                     (int64_t)VOCABULARY * COLUMNS);
    for (int64_t k = 0; k < COLUMNS; k += 7)
        for (int64_t row = TABLE - 1; row < VOCABULARY; row += 4)
            expect(&g, "per_layer_token_embd.weight", row * COLUMNS + k,
                   value(&hf, table, (row < TABLE ? row : 0) * COLUMNS + k));
    to_hf("short.gguf", "longer");
    ok(ax_hf_open(&back, in_dir("longer")));
    assert_int_equal(ax_hf_find(&back, table)->shape[0], VOCABULARY);
    assert_int_equal(ax_hf_count(&back), ax_hf_count(&hf));
    ax_hf_close(&back);
    ax_hf_close(&hf);
    ax_gguf_close(&g);
}

static void what_readers_fix_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *key, *json, *mention;
    } cases[] = {
        {"altup_num_inputs", "{\"v\": 3}", "altup_num_inputs is not 4"},
        {"altup_active_idx", "{\"v\": 1}", "altup_active_idx is not 0"},
        {"laurel_rank", "{\"v\": 8}", "laurel_rank is not 64"},
        {"hidden_size_per_layer_input", "{\"v\": 8}", "hidden_size_per_layer_input is not 256"},
        {"vocab_size_per_layer_input", "{\"v\": 129}", "vocab_size_per_layer_input is more than"},
        {"final_logit_softcapping", "{\"v\": 20}", "final_logit_softcapping is not 30"},
        {"num_kv_shared_layers", "{\"v\": 3}", "num_kv_shared_layers are not all layers after"},
        {"activation_sparsity_pattern",
         "{\"v\": [0.95, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}",
         "activation_sparsity_pattern is not 0.95"},
    };
    make("refused", VOCABULARY);
    char *config;
    size_t len;
    ok(ax_read_file(in_dir("refused/config.json"), 1 << 20, &config, &len));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_member("refused", "config.json", cases[i].key, cases[i].json);
        assert_int_equal(to_gguf(in_dir("refused"), "refused.gguf", NULL), AX_ERR_UNSUPPORTED);
        if (!strstr(ax_error_text(), cases[i].mention))
            fail_msg("%s", ax_error_text());
        ax_error_clear();
        put_file("refused/config.json", config, len);
    }
    assert_false(ax_path_exists(in_dir("refused.gguf")));
    ax_free(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_come_back),
        cmocka_unit_test(readers_get_what_they_ask_for),
        cmocka_unit_test(what_readers_fix_is_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
