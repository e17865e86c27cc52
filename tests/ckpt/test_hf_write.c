/* What a saved folder holds besides weights: the base's config.json edited and never respelled, and
 * its side files byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "tests/ckpt/folder.h"
#include "tests/golden_files.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

static enum ax_status save_as(const char *name, const char *base, const char *set,
                              enum ax_dtype dtype) {
    const struct ax_st_output t = output("x", AX_F32, 1, SHAPE(3));
    json_t *config = set ? json_loads(set, 0, NULL) : NULL;
    assert_true(!set || config);
    const struct ax_hf_save save = {.dir = in_dir(name),
                                    .base_dir = base ? in_dir(base) : NULL,
                                    .config = config,
                                    .dtype = dtype,
                                    .n = 1,
                                    .tensors = &t};
    const uint64_t live = ax_mem_live_blocks();
    const enum ax_status st = ax_hf_write(&save);
    assert_int_equal(ax_mem_live_blocks(), live);
    json_decref(config);
    return st;
}

static void assert_config(const char *base_text, const char *set, enum ax_dtype dtype,
                          const char *expected) {
    assert_int_equal(ax_mkdir(in_dir("base")), AX_OK);
    put_text("base/config.json", base_text);
    if (save_as("out", "base", set, dtype) != AX_OK)
        fail_msg("%s", ax_error_text());
    char *text = get_text("out/config.json");
    assert_string_equal(text, expected);
    ax_free(text);
}

/* Of the base's layers those named are in the save, too, in their own dtype and with their bytes. */
static void kept_layers_are_copied(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool kept;
    } has[] = {{"model.layers.1.y.weight", false},
               {"model.layers.2.y.weight", true},
               {"model.layers.3.bias", true},
               {"model.layers.4.y.weight", false},
               {"model.layers.20.y.weight", false},
               {"model.norm.weight", false},
               {"mtp.fc.weight", true},
               {"mtpx.fc.weight", false},
               {"model.layers.0.self_attn.k_proj.weight", false},
               {"model.layers.1.self_attn.k_proj.weight", true},
               {"model.layers.1.self_attn.q_proj.weight", false},
               {"model.layers.1.self_attn.k_norm.weight", true},
               {"model.layers.1.self_attn.v_proj.bias", true}};
    enum { N = sizeof has / sizeof *has };
    struct ax_st_output tensors[N];
    const struct ax_st_output own = output("x", AX_F32, 1, SHAPE(3));
    for (int i = 0; i < N; i++)
        tensors[i] = output(has[i].name, i % 2 ? AX_BF16 : AX_F32, 2, SHAPE(5, 7));
    assert_int_equal(ax_mkdir(in_dir("mtp")), AX_OK);
    put_text("mtp/config.json", "{}");
    assert_int_equal(ax_safetensors_write(in_dir("mtp/model.safetensors"), N, tensors), AX_OK);
    for (int64_t shard = 0; shard < 100; shard += 60) { /* in one file, and in several */
        const struct ax_hf_save save = {.dir = in_dir("kept"),
                                        .base_dir = in_dir("mtp"),
                                        .dtype = AX_F32,
                                        .max_shard_bytes = shard,
                                        .kept = {2, 4, "mtp.", 1},
                                        .n = 1,
                                        .tensors = &own};
        struct ax_hf hf;
        assert_int_equal(ax_remove_tree(in_dir("kept")), AX_OK);
        if (ax_hf_write(&save) != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_int_equal(ax_hf_open(&hf, in_dir("kept")), AX_OK);
        assert_int_equal(ax_hf_count(&hf), 7);
        for (int i = 0; i < N; i++) {
            const struct ax_st_entry *e = ax_hf_find(&hf, has[i].name);
            assert_int_equal(e != NULL, has[i].kept);
            if (e)
                assert_tensor(e, &tensors[i]);
        }
        ax_hf_close(&hf);
    }
}

/* Order, unknown keys and values, escapes and numbers stay as the base has them. */
static void the_spelling_of_the_base_is_kept(void **state) {
    (void)state;
    assert_config("{\n"
                  "  \"zeta\": 1e-05,\n"
                  "  \"architectures\": [\n"
                  "    \"LlamaForCausalLM\"\n"
                  "  ],\n"
                  "  \"torch_dtype\": \"bfloat16\",\n"
                  "  \"rope_theta\": 10000.0,\n"
                  "  \"unknown\": {\n"
                  "    \"b\": null,\n"
                  "    \"a\": [],\n"
                  "    \"n\": {}\n"
                  "  },\n"
                  "  \"vocab_size\": 512,\n"
                  "  \"big\": 1e+30,\n"
                  "  \"text\": \"caf\\u00e9 \\ud83d\\ude00 /\"\n"
                  "}\n",
                  NULL, AX_F32,
                  "{\n"
                  "  \"zeta\": 1e-05,\n"
                  "  \"architectures\": [\n"
                  "    \"LlamaForCausalLM\"\n"
                  "  ],\n"
                  "  \"torch_dtype\": \"float32\",\n"
                  "  \"rope_theta\": 10000.0,\n"
                  "  \"unknown\": {\n"
                  "    \"b\": null,\n"
                  "    \"a\": [],\n"
                  "    \"n\": {}\n"
                  "  },\n"
                  "  \"vocab_size\": 512,\n"
                  "  \"big\": 1e+30,\n"
                  "  \"text\": \"caf\\u00e9 \\ud83d\\ude00 /\"\n"
                  "}\n");
}

static void the_dtype_goes_under_the_key_that_is_there(void **state) {
    (void)state;
    static const struct {
        const char *base, *saved;
    } cases[] = {
        {"{\"torch_dtype\": \"float16\", \"a\": 1}",
         "{\n  \"torch_dtype\": \"bfloat16\",\n  \"a\": 1\n}\n"},
        {"{\"dtype\": \"float16\", \"a\": 1}", "{\n  \"dtype\": \"bfloat16\",\n  \"a\": 1\n}\n"},
        {"{\"dtype\": \"float16\", \"torch_dtype\": \"float16\"}",
         "{\n  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\"\n}\n"},
        {"{\"torch_dtype\": null}", "{\n  \"torch_dtype\": \"bfloat16\"\n}\n"},
        {"{\"rope_parameters\": {}}",
         "{\n  \"rope_parameters\": {},\n  \"dtype\": \"bfloat16\"\n}\n"},
        {"{\"rope_theta\": 1}", "{\n  \"rope_theta\": 1,\n  \"torch_dtype\": \"bfloat16\"\n}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_config(cases[i].base, NULL, AX_BF16, cases[i].saved);
}

/* A base that is dequantized while it is read does not make its saves quantized; what is set does. */
static void quantization_is_of_what_is_written(void **state) {
    (void)state;
    static const char base[] =
        "{\"quantization_config\": {\"quant_method\": \"mxfp4\"}, \"dtype\": \"float32\"}";
    assert_config(base, NULL, AX_F32, "{\n  \"dtype\": \"float32\"\n}\n");
    assert_config(base, "{\"quantization_config\": 7}", AX_F32,
                  "{\n  \"dtype\": \"float32\",\n  \"quantization_config\": 7\n}\n");
}

static void keys_that_are_set_take_their_old_places(void **state) {
    (void)state;
    assert_config("{\"vocab_size\": 512, \"x\": 1, \"dtype\": \"float32\"}",
                  "{\"new\": [1, 2], \"vocab_size\": 520, \"x\": null}", AX_F32,
                  "{\n"
                  "  \"vocab_size\": 520,\n"
                  "  \"x\": null,\n"
                  "  \"dtype\": \"float32\",\n"
                  "  \"new\": [\n"
                  "    1,\n"
                  "    2\n"
                  "  ]\n"
                  "}\n");
}

/* Does a value, or a list of some, have the id? */
static bool has_id(const json_t *v, int id) {
    bool yes = json_is_integer(v) && json_integer_value(v) == id;
    for (size_t i = 0; i < json_array_size(v); i++)
        yes = yes || json_integer_value(json_array_get(v, i)) == id;
    return yes;
}

/* A root that contains a text model's part repeats some of its tokens' ids, or none: only those change there. */
static void ids_of_the_root_are_those_it_has(void **state) {
    (void)state;
    static const char *const keys[] = {"eos_token_id", "bos_token_id", "pad_token_id"};
    static const int32_t ids[] = {11, 12, 13};
    const struct ax_st_output t = output("model.embed_tokens.weight", AX_F32, 1, SHAPE(3));
    const struct ax_hf_save base = {
        .dir = in_dir("base"), .config = json_pack("{}"), .dtype = AX_F32, .n = 1, .tensors = &t};
    assert_int_equal(ax_hf_write(&base), AX_OK);
    json_decref((json_t *)(uintptr_t)base.config);
    for (unsigned has = 0; has < 8; has++) {
        char text[512], own[128] = "";
        for (int k = 0; k < 3; k++)
            if (has >> k & 1U)
                snprintf(own + strlen(own), sizeof own - strlen(own), "\"%s\": %d, ", keys[k], k);
        snprintf(text, sizeof text,
                 "{%s\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": "
                 "\"gemma3_text\", \"eos_token_id\": 0, \"bos_token_id\": 1, \"pad_token_id\": "
                 "2}}",
                 own);
        put_text("base/config.json", text);
        const struct ax_hf_save save = {.dir = in_dir("out"),
                                        .base_dir = in_dir("base"),
                                        .eos = &ids[0],
                                        .bos = &ids[1],
                                        .pad = &ids[2],
                                        .dtype = AX_F32,
                                        .n = 1,
                                        .tensors = &t};
        if (ax_hf_write(&save) != AX_OK)
            fail_msg("%s", ax_error_text());
        char *written = get_text("out/config.json");
        json_t *root = json_loads(written, 0, NULL);
        for (int k = 0; k < 3; k++) {
            const json_t *v = json_object_get(root, keys[k]);
            assert_int_equal(v != NULL, has >> k & 1U);
            assert_true(!v || has_id(v, ids[k]));
            assert_true(
                has_id(json_object_get(json_object_get(root, "text_config"), keys[k]), ids[k]));
        }
        json_decref(root);
        ax_free(written);
    }
}

static void the_caller_s_config_is_not_changed(void **state) {
    (void)state;
    json_t *config = json_loads("{\"a\": 1}", 0, NULL);
    const struct ax_hf_save save = {.dir = in_dir("own"), .config = config, .dtype = AX_F32};
    assert_int_equal(ax_hf_write(&save), AX_OK);
    assert_int_equal(json_object_size(config), 1);
    json_decref(config);
    char *text = get_text("own/config.json");
    assert_string_equal(text, "{\n  \"a\": 1,\n  \"torch_dtype\": \"float32\"\n}\n");
    ax_free(text);
}

static void goldens_differ_only_in_dtype(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "config.legacy.json"};
    static const char *const models[] = {"llama", "qwen3", "mistral", "deepseek_v3", "qwen3_moe"};
    int compared = 0;
    for (int m = 0; m < 5; m++) {
        for (int f = 0; f < 2; f++) {
            char name[64], *text, *edited;
            size_t len;
            snprintf(name, sizeof name, "models/%s/%s", models[m], files[f]);
            assert_int_equal(ax_read_file(golden_path(name), 1 << 20, &text, &len), AX_OK);
            const char *value = strstr(text, "dtype\": \"float32\"");
            assert_non_null(value);
            value += strlen("dtype\": \"");
            assert_int_equal(ax_sprintf(&edited, "%.*sbfloat16%s%s", (int)(value - text), text,
                                        value + strlen("float32"),
                                        text[len - 1] == '\n' ? "" : "\n"),
                             AX_OK);
            assert_config(text, NULL, AX_BF16, edited);
            ax_free(edited);
            ax_free(text);
            compared++;
        }
    }
    print_message("%d config files\n", compared);
}

static void side_files_are_copied_as_they_are(void **state) {
    (void)state;
    static const char *const copied[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "tokenizer.model",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "LICENSE",
                                         AX_TEMPLATES_DIR "/tool_use.jinja",
                                         AX_TEMPLATES_DIR "/rag.jinja"};
    static const char *const left[] = {"model.safetensors.index.json",
                                       "pytorch_model.bin",
                                       "modeling_custom.py",
                                       "README.md",
                                       "optimizer.pt",
                                       AX_TEMPLATES_DIR "/notes.txt",
                                       AX_TEMPLATES_DIR "/.x.jinja"};
    assert_int_equal(ax_mkdir_parents(in_dir("side/" AX_TEMPLATES_DIR)), AX_OK);
    put_text("side/config.json", "{\"dtype\": \"float32\"}");
    char name[64];
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        char data[64] = "not JSON \0 \xFF ";
        data[20] = (char)i;
        snprintf(name, sizeof name, "side/%s", copied[i]);
        put_file(name, data, i == 3 ? 0 : sizeof data); /* one is empty */
    }
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        snprintf(name, sizeof name, "side/%s", left[i]);
        put_text(name, "x");
    }
    assert_int_equal(save_as("with_side", "side", NULL, AX_F32), AX_OK);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        char *data;
        size_t len;
        snprintf(name, sizeof name, "with_side/%s", copied[i]);
        assert_int_equal(ax_read_file(in_dir(name), 100, &data, &len), AX_OK);
        assert_int_equal(len, i == 3 ? 0 : 64);
        assert_true(i == 3 || (data[20] == (char)i && memcmp(data, "not JSON \0 \xFF ", 14) == 0));
        ax_free(data);
    }
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        snprintf(name, sizeof name, "with_side/%s", left[i]);
        assert_false(ax_path_exists(in_dir(name)));
    }
}

/* The hub's cache holds links; a save holds files. */
static void linked_side_files_become_files(void **state) {
    (void)state;
    struct stat info;
    assert_int_equal(ax_mkdir(in_dir("linked")), AX_OK);
    put_text("blob1", "{\"dtype\": \"float32\"}");
    put_text("blob2", "merges");
    assert_int_equal(symlink("../blob1", in_dir("linked/config.json")), 0);
    assert_int_equal(symlink("../blob2", in_dir("linked/merges.txt")), 0);
    assert_int_equal(save_as("unlinked", "linked", NULL, AX_F32), AX_OK);
    assert_int_equal(lstat(in_dir("unlinked/merges.txt"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
    char *text = get_text("unlinked/merges.txt");
    assert_string_equal(text, "merges");
    ax_free(text);
    assert_int_equal(mkfifo(in_dir("linked/LICENSE"), 0600), 0);
    assert_int_equal(save_as("unlinked", "linked", NULL, AX_F32), AX_ERR_DATA);
    assert_mentions("linked/LICENSE: not a regular file");
    assert_true(ax_path_exists(in_dir("unlinked/merges.txt"))); /* the old save is whole */
}

/* The base may be the very folder that is replaced. */
static void a_folder_can_be_its_own_base(void **state) {
    (void)state;
    assert_int_equal(ax_mkdir(in_dir("self")), AX_OK);
    put_text("self/config.json", "{\"k\": 7, \"dtype\": \"float32\"}");
    put_text("self/tokenizer.json", "{}");
    put_text("self/stale.bin", "x");
    for (int i = 0; i < 3; i++)
        assert_int_equal(save_as("self", "self", NULL, AX_BF16), AX_OK);
    char *text = get_text("self/config.json");
    assert_string_equal(text, "{\n  \"k\": 7,\n  \"dtype\": \"bfloat16\"\n}\n");
    ax_free(text);
    assert_true(ax_path_exists(in_dir("self/tokenizer.json")));
    assert_false(ax_path_exists(in_dir("self/stale.bin")));
}

static void a_base_that_is_wrong_is_named(void **state) {
    (void)state;
    assert_int_equal(ax_mkdir(in_dir("bad")), AX_OK);
    assert_int_equal(save_as("never", "bad", NULL, AX_F32), AX_ERR_IO);
    assert_mentions("bad/config.json: cannot open");
    put_text("bad/config.json", "[1]");
    assert_int_equal(save_as("never", "bad", NULL, AX_F32), AX_ERR_DATA);
    assert_mentions("bad/config.json: expected an object");
    put_text("bad/config.json", "{\"a\": }");
    assert_int_equal(save_as("never", "bad", NULL, AX_F32), AX_ERR_DATA);
    assert_mentions("bad/config.json:1:7");
    assert_false(ax_path_exists(in_dir("never")));
    assert_int_equal(save_as("no/parent", NULL, NULL, AX_F32), AX_ERR_IO);
    assert_mentions("no/parent");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_spelling_of_the_base_is_kept),
        cmocka_unit_test(the_dtype_goes_under_the_key_that_is_there),
        cmocka_unit_test(quantization_is_of_what_is_written),
        cmocka_unit_test(keys_that_are_set_take_their_old_places),
        cmocka_unit_test(ids_of_the_root_are_those_it_has),
        cmocka_unit_test(the_caller_s_config_is_not_changed),
        cmocka_unit_test(goldens_differ_only_in_dtype),
        cmocka_unit_test(kept_layers_are_copied),
        cmocka_unit_test(side_files_are_copied_as_they_are),
        cmocka_unit_test(linked_side_files_become_files),
        cmocka_unit_test(a_folder_can_be_its_own_base),
        cmocka_unit_test(a_base_that_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
