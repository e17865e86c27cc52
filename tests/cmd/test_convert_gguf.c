/* `axtrain convert --to gguf`: a folder that becomes a file and a folder again is the same to the
 * bit, for every kind of model; what cannot be stated is refused and leaves nothing behind. */
#include "tests/cmd/gguf_folders.h"

static void folders_come_back_as_they_were(void **state) {
    (void)state;
    static const struct tiny models[] = {
        {.arch = "llama", .permuted = true, .untied = true, .matrix_type = TYPE_F32},
        {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16, .pre = "llama-bpe"},
        {.arch = "llama", .permuted = true, .matrix_type = TYPE_F16, .kind = "llama"},
        {.arch = "qwen2", .qkv_bias = true, .matrix_type = TYPE_BF16, .pre = "qwen2"},
        {.arch = "qwen3", .qk_norm = true, .matrix_type = TYPE_F32, .pre = "deepseek-coder"},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char names[3][32];
        snprintf(names[0], sizeof names[0], "a%zu", i);
        snprintf(names[1], sizeof names[1], "b%zu.gguf", i);
        snprintf(names[2], sizeof names[2], "c%zu", i);
        put_folder(&models[i], names[0]);
        ok(to_gguf(in_dir(names[0]), names[1], NULL));
        to_hf(names[1], names[2]);
        same_files(names[0], names[2], "config.json");
        same_files(names[0], names[2], "generation_config.json");
        same_files(names[0], names[2], "tokenizer.json");
        same_files(names[0], names[2], "tokenizer_config.json");
        same_weights(in_dir(names[0]), in_dir(names[2]));
    }
}

/* --- what the file says --- */

static bool key_is(const struct ax_gguf *g, const char *key, const char *want) {
    struct ax_gguf_text t;
    ok(ax_gguf_string_or_null(g, key, &t));
    return t.s && t.len == strlen(want) && memcmp(t.s, want, t.len) == 0;
}

static const struct tiny llama = {
    .arch = "llama", .permuted = true, .untied = true, .matrix_type = TYPE_BF16};

/* ROPE is the config's object; the one that comes back describes the same rotation. */
static void scalings_are_stated(void **state) {
    (void)state;
    static const char *const scalings[] = {
        "{\"v\": {\"rope_type\": \"linear\", \"factor\": 4.0}}",
        "{\"v\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 512, \"beta_slow\": 2.0}}",
        "{\"v\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 512, \"beta_fast\": 16.0}}",
        "{\"v\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 512}}"};
    put_folder(&llama, "scaled");
    for (int i = 0; i < 4; i++) {
        struct ax_arch arch[2];
        float freqs[2][HEAD / 2];
        double scale[2];
        char again[16];
        snprintf(again, sizeof again, "scaled%d", i);
        set_member("scaled", "config.json", "rope_scaling", scalings[i]);
        ok(to_gguf(in_dir("scaled"), "scaled.gguf", NULL));
        to_hf("scaled.gguf", again);
        ok(ax_arch_load(&arch[0], in_dir("scaled")));
        ok(ax_arch_load(&arch[1], in_dir(again)));
        assert_true(arch[0].rope.kind != AX_ROPE_DEFAULT && arch[0].rope.kind == arch[1].rope.kind);
        for (int k = 0; k < 2; k++)
            ax_rope_frequencies(&arch[k].rope, 0, freqs[k], &scale[k]);
        for (int k = 0; k < HEAD / 2; k++)
            assert_true(fabsf(freqs[0][k] - freqs[1][k]) <= 1e-6f * freqs[0][k]);
        assert_true(fabs(scale[0] - scale[1]) < 1e-6);
        struct ax_gguf g;
        ok(ax_gguf_open(&g, in_dir("scaled.gguf"))); /* only what differs from the defaults */
        assert_true(!ax_gguf_key(&g, "llama.rope.scaling.yarn_beta_slow") == (i != 1));
        assert_true(!ax_gguf_key(&g, "llama.rope.scaling.yarn_beta_fast") == (i != 2));
        ax_gguf_close(&g);
        ax_arch_free(&arch[0]);
        ax_arch_free(&arch[1]);
    }
}

static void keys_and_types_of_a_quantized_file(void **state) {
    (void)state;
    struct ax_gguf g;
    int64_t v;
    put_folder(&llama, "quant");
    ok(to_gguf(in_dir("quant"), "my.model.gguf", "Q4_K_M"));
    ok(ax_gguf_open(&g, in_dir("my.model.gguf")));
    assert_true(key_is(&g, "general.architecture", "llama"));
    assert_true(key_is(&g, "general.name", "my.model"));
    assert_true(key_is(&g, "tokenizer.ggml.pre", "smollm"));
    assert_true(key_is(&g, "tokenizer.chat_template", "{{ messages }}\xc3\xa4"));
    assert_true(key_is(&g, "tokenizer.chat_template.tool_use", "{{ tools }}"));
    ok(ax_gguf_i64(&g, "general.file_type", 0, 99, &v));
    assert_int_equal(v, 15);
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"llama.vocab_size", VOCAB},           {"llama.embedding_length", HIDDEN},
                 {"llama.block_count", LAYERS},         {"llama.feed_forward_length", FFN},
                 {"llama.attention.head_count", HEADS}, {"llama.attention.head_count_kv", KV_HEADS},
                 {"llama.attention.key_length", HEAD},  {"llama.attention.value_length", HEAD}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ok(ax_gguf_i64(&g, sizes[i].key, 0, INT32_MAX, &v));
        assert_int_equal(v, sizes[i].value);
    }
    /* rows of 64 and 96 are no whole blocks of 256 */
    static const char *const types[][2] = {{"token_embd.weight", "Q5_0"},
                                           {"output.weight", "Q8_0"},
                                           {"blk.0.attn_q.weight", "Q5_0"},
                                           {"blk.1.ffn_down.weight", "Q8_0"},
                                           {"blk.0.attn_norm.weight", "F32"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_string_equal(ax_gguf_tensor(&g, types[i][0])->type->name, types[i][1]);
    ax_gguf_close(&g);
}

static void merged_straight_to_a_file(void **state) {
    (void)state;
    struct ax_merge folder = {.base = golden_path("models/llama"),
                              .adapter = golden_path("lora/llama_r4"),
                              .dst = in_dir("merged"),
                              .threads = 1};
    struct ax_merge file = folder;
    file.to_gguf = true;
    file.dst = in_dir("merged.gguf");
    ok(ax_merge_run(&folder));
    ok(ax_merge_run(&file));
    assert_true(file.changed == folder.changed && file.error == folder.error);
    to_hf("merged.gguf", "merged-again");
    same_weights(in_dir("merged"), in_dir("merged-again"));
    assert_false(ax_path_exists(in_dir("merged.gguf.merged")));
}

/* What `to_gguf` says on stderr about a folder. */
static char *warnings(const char *folder) {
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    const int file = open(in_dir("warnings"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ax_log_set_level(AX_LOG_WARN);
    const enum ax_status st = to_gguf(in_dir(folder), "windows.gguf", NULL);
    ax_log_set_level(AX_LOG_ERROR);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    close(file);
    ok(st);
    ok(ax_remove_tree(in_dir("windows.gguf")));
    return get_text("warnings");
}

static void a_window_that_would_be_lost_is_named(void **state) {
    (void)state;
    static const struct {
        const char *window;
        bool lost;
    } cases[] = {{"{\"v\": null}", false}, {"{\"v\": 4096}", false}, {"{\"v\": 8}", true}};
    put_folder(&llama, "windows");
    set_member("windows", "config.json", "model_type", "{\"v\": \"mistral\"}");
    set_member("windows", "config.json", "architectures", "{\"v\": [\"MistralForCausalLM\"]}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_member("windows", "config.json", "sliding_window", cases[i].window);
        char *said = warnings("windows");
        assert_int_equal(strstr(said, "sliding_window: 8 tokens") != NULL, cases[i].lost);
        assert_int_equal(strstr(said, "sliding_window") != NULL, cases[i].lost);
        ax_free(said);
    }
}

/* --- what is refused --- */

static void refused(const char *folder, enum ax_status want, const char *mention) {
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(to_gguf(in_dir(folder), "no.gguf", NULL), want);
    assert_mentions(mention);
    assert_false(ax_path_exists(in_dir("no.gguf")));
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void what_a_file_cannot_state_is_refused(void **state) {
    (void)state;
    static const struct tiny scored = {
        .arch = "llama", .permuted = true, .matrix_type = TYPE_BF16, .kind = "llama"};
    put_folder(&llama, "bad");
    set_member("bad", "config.json", "rope_scaling",
               "{\"v\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}}");
    refused("bad", AX_ERR_UNSUPPORTED, "config.json: rope type dynamic");
    set_member("bad", "config.json", "rope_scaling", "{\"v\": null}");
    set_member("bad", "config.json", "intermediate_size", "{\"v\": 97}");
    refused("bad", AX_ERR_DATA, "mlp.gate_proj.weight is bfloat16 [96, 64]");
    set_member("bad", "config.json", "intermediate_size", "{\"v\": 96}");
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 1}");
    refused("bad", AX_ERR_DATA, "unexpected tensor model.layers.1.input_layernorm.weight");
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 2}");
    set_member("bad", "config.json", "tie_word_embeddings", "{\"v\": true}");
    ok(to_gguf(in_dir("bad"), "tied.gguf", NULL)); /* the head is a copy */
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 1}");
    refused("bad", AX_ERR_DATA, "unexpected tensor model.layers.1.input_layernorm.weight");
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 2}");
    set_member("bad", "config.json", "tie_word_embeddings", "{\"v\": false}");
    set_member("bad", "config.json", "vocab_size", "{\"v\": 300}");
    refused("bad", AX_ERR_DATA, "ids up to 319, but the model has 300 embeddings");
    set_member("bad", "config.json", "vocab_size", "{\"v\": 320}");
    set_member("bad", "tokenizer.json", "pre_tokenizer",
               "{\"v\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
               "\"pattern\": {\"Regex\": \"\\\\d{7}\"}, \"behavior\": \"Isolated\", \"invert\": "
               "false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
               "false}]}}");
    refused("bad", AX_ERR_UNSUPPORTED, "splits text by \\d{7}");
    put_folder(&scored, "order");
    set_member("order", "tokenizer.json", "model/merges", "{\"v\": [[\"t\", \"h\"]]}");
    refused("order", AX_ERR_UNSUPPORTED, "the order of model.merges cannot be expressed");
}

/* What scores cannot express is written as merges, where no blank is put before the text. Splitting at blanks, as
 * published files of Gemma do, has no effect: there are none left. */
static void pieces_with_merges_come_back(void **state) {
    (void)state;
    struct tiny model = llama;
    struct ax_gguf g;
    char vocab[8192];
    model.kind = "gemma4";
    put_folder(&model, "pieces");
    ok(to_gguf(in_dir("pieces"), "pieces.gguf", NULL));
    ok(ax_gguf_open(&g, in_dir("pieces.gguf")));
    assert_true(key_is(&g, "tokenizer.ggml.model", "gemma4"));
    assert_null(ax_gguf_key(&g, "tokenizer.ggml.scores"));
    ax_gguf_close(&g);
    to_hf("pieces.gguf", "pieces-again");
    same_files("pieces", "pieces-again", "tokenizer.json");
    set_member("pieces", "tokenizer.json", "pre_tokenizer",
               "{\"v\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": "
               "\"MergedWithPrevious\", \"invert\": false}}");
    ok(to_gguf(in_dir("pieces"), "again.gguf", NULL));
    to_hf("again.gguf", "split-again");
    same_files("pieces-again", "split-again", "tokenizer.json");
    size_t n = (size_t)snprintf(vocab, sizeof vocab,
                                "{\"v\": {\"<|end|>\": 0, \"<s>\": 1, \"<pad>\": 2, \"<tool>\": 3, "
                                "\"[unused300]\": 300, ");
    for (int i = 0; i < 256; i++)
        n +=
            (size_t)snprintf(vocab + n, sizeof vocab - n, "\"<0x%02X>\": %d, ", (unsigned)i, 4 + i);
    snprintf(vocab + n, sizeof vocab - n,
             "\"t\": 260, \"\\n\": 261, \"t\\n\": 262, \"\\nt\": 263}}");
    set_member("pieces", "tokenizer.json", "model/vocab", vocab);
    set_member("pieces", "tokenizer.json", "model/merges", "{\"v\": [[\"t\", \"\\n\"]]}");
    refused("pieces", AX_ERR_UNSUPPORTED, "cross the end of a line");
}

/* Leaves only tokens that merges lead to. */
static void drop_unused_tokens(const char *folder) {
    struct ax_json_doc doc;
    char path[128], *text;
    size_t len;
    const char *token;
    json_t *id;
    void *next;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    ok(ax_json_load(&doc, in_dir(path), 1 << 22));
    json_t *vocab = json_object_get(json_object_get(doc.root, "model"), "vocab");
    json_object_foreach_safe(vocab, next, token, id) if (strncmp(token, "[unused", 7) == 0)
        json_object_del(vocab, token);
    ok(ax_json_dump(doc.root, &text, &len));
    put_file(path, text, len);
    ax_free(text);
    ax_json_free(&doc);
}

/* In GGUF, the kind of splitting also decides whether pieces that are tokens are merged. Another
 * choice makes no difference only if merges lead to every token. */
static void whole_pieces_follow_the_splitting(void **state) {
    (void)state;
    static const struct {
        const char *pre, *choice, *error;
    } kinds[] = {{"smollm", "{\"v\": true}", "by \"smollm\", but ignore_merges is true"},
                 {"llama-bpe", "{\"v\": false}", "by \"llama-bpe\", but ignore_merges is false"}};
    for (int i = 0; i < 2; i++) {
        struct tiny model = llama;
        struct ax_gguf g;
        model.pre = kinds[i].pre;
        put_folder(&model, model.pre);
        set_member(model.pre, "tokenizer.json", "model/ignore_merges", kinds[i].choice);
        refused(model.pre, AX_ERR_UNSUPPORTED, kinds[i].error);
        drop_unused_tokens(model.pre);
        ok(to_gguf(in_dir(model.pre), "whole.gguf", NULL));
        ok(ax_gguf_open(&g, in_dir("whole.gguf")));
        assert_true(key_is(&g, "tokenizer.ggml.pre", model.pre));
        ax_gguf_close(&g);
        set_member(model.pre, "tokenizer.json", "model/merges", "{\"v\": [[\"t\", \"h\"]]}");
        refused(model.pre, AX_ERR_UNSUPPORTED, kinds[i].error);
    }
}

static enum ax_status command(const char *const *words) {
    char *argv[12];
    int n = 0;
    while (words[n]) {
        argv[n] = (char *)(uintptr_t)words[n];
        n++;
    }
    return ax_cmd_convert(n, argv);
}
#define RUN(...) command((const char *const[]){"convert", __VA_ARGS__, NULL})

static void families_without_a_gguf(void **state) {
    (void)state;
    static const struct {
        const char *model, *says;
    } cases[] = {{"models/deepseek_v2_group", "rope type yarn has its own attention factor"},
                 {"models/smollm3", "no_rope_layers, or layer_types, is another list"},
                 {"models/qwen3_moe_nonorm", "norm_topk_prob is false"},
                 {"models/granite4_dense", "no_rope_layers, or layer_types, is another list"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = golden_path(cases[i].model);
        assert_int_equal(RUN(path, in_dir("no.gguf"), "--to", "gguf"), AX_ERR_UNSUPPORTED);
        assert_mentions(cases[i].says);
    }
}

static void the_command_line(void **state) {
    (void)state;
    put_folder(&llama, "line");
    const char *src = in_dir("line"), *dst = in_dir("line.gguf");
    assert_int_equal(RUN(src, dst, "--to", "gguf", "--quant", "q4_km"), AX_ERR_CONFIG);
    assert_mentions("did you mean q4_k_m?");
    assert_int_equal(RUN(src, dst, "--to", "gguf", "--dtype", "float32"), AX_ERR_CONFIG);
    assert_mentions("--dtype needs --to hf");
    assert_int_equal(RUN(src, dst, "--to", "hf", "--quant", "f16"), AX_ERR_CONFIG);
    assert_mentions("--quant needs --to gguf");
    assert_int_equal(RUN(src, dst, "--to", "onnx"), AX_ERR_CONFIG);
    assert_mentions("expected hf or gguf, got \"onnx\"");
    assert_int_equal(RUN(src, src, "--to", "gguf"), AX_ERR_CONFIG);
    assert_mentions("a folder. --to gguf writes one file");
    ok(RUN(src, dst, "--to", "gguf", "--quant", "f16"));
    assert_int_equal(RUN(src, dst, "--to", "gguf"), AX_ERR_CONFIG);
    assert_mentions("replace it with --overwrite");
    ok(RUN(src, dst, "--to", "gguf", "--overwrite"));
    assert_int_equal(RUN(dst, in_dir("x.gguf"), "--to", "gguf"), AX_ERR_CONFIG);
    assert_mentions("already a GGUF file. Give the type");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_come_back_as_they_were),
        cmocka_unit_test(scalings_are_stated),
        cmocka_unit_test(keys_and_types_of_a_quantized_file),
        cmocka_unit_test(merged_straight_to_a_file),
        cmocka_unit_test(a_window_that_would_be_lost_is_named),
        cmocka_unit_test(what_a_file_cannot_state_is_refused),
        cmocka_unit_test(pieces_with_merges_come_back),
        cmocka_unit_test(whole_pieces_follow_the_splitting),
        cmocka_unit_test(families_without_a_gguf),
        cmocka_unit_test(the_command_line),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
