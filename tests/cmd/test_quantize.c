/* `axtrain quantize`: which models and folders it refuses. test_quantized_values.c compares values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/hf/hf.h"
#include "tests/cmd/chats_case.h"
#include "tests/cmd/program_case.h"
#include "tests/golden_files.h"

static void test_refusals(void **state) {
    (void)state;
    char dst[160], src[600];
    need_binary();
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(dst, sizeof dst, "%s", in_scratch("out"));
    sft_command = "quantize";
    EXPECT(2, "say which --scheme", src, dst);
    EXPECT(2, "no scheme is called \"int3\". Nearest: int4.", src, dst, "--scheme", "int3");
    EXPECT(2, "scheme fp8 has none", src, dst, "--scheme", "fp8", "--group", "32");
    EXPECT(2, "groups of 48 numbers do not divide the 64 inputs", src, dst, "--scheme", "int4",
           "--group", "48");
    EXPECT(2, "Nearest: --group 32; or use", src, dst, "--scheme", "int4", "--group", "48");
    EXPECT(2, "Nearest: nvfp4.", src, dst, "--scheme", "mxfp4");
    EXPECT(0, "21 matrices as int4", src, dst, "--scheme", "int4", "--group", "16");
    EXPECT(2, "is quantized already", dst, in_scratch("twice"), "--scheme", "fp8");
    snprintf(src, sizeof src, "%s", golden_path("models/mimo_v2_flash"));
    EXPECT(2, "scheme int4 has 8 codes in a word, which do not divide the 36 inputs", src,
           in_scratch("twice"), "--scheme", "int4", "--group", "4");
    EXPECT(2, "scheme int8 has 4 codes in a word, which do not divide the 10 inputs",
           golden_path("models/gemma4_moe"), in_scratch("twice"), "--scheme", "int8");
    EXPECT(2, "blocks of 16 numbers of scheme nvfp4 do not divide the 36 inputs", src,
           in_scratch("twice"), "--scheme", "nvfp4");
    snprintf(src, sizeof src, "%s",
             put_text("q.yaml", "base_model: m\noutput_dir: o\nlearning_rate: 1e-4\n"
                                "datasets: [{path: x, type: completion}]\n"
                                "quantization: {weight_dtype: int4, gptq: true, "
                                "calibration_rows: 9223372036854775807}\n"));
    EXPECT(2, "quantization.calibration_rows: expected at most 1048576", src);
}

/* A folder that lacks a scale, or whose config says another format. */
static void test_damaged_folders(void **state) {
    (void)state;
    char *text;
    size_t n;
    struct ax_hf hf;
    assert_int_equal(ax_read_file(in_scratch("out/model.safetensors"), 1 << 24, &text, &n), AX_OK);
    char *scale = memmem(text, n, "gate_proj.weight_scale", 22);
    assert_non_null(scale);
    memcpy(scale, "gate_proj.weight_scald", 22);
    put_bytes("out/model.safetensors", text, n);
    assert_int_equal(ax_hf_open(&hf, in_scratch("out")), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "gate_proj.weight_packed has no weight_scale"));
    memcpy(scale, "gate_proj.weight_scale", 22);
    put_bytes("out/model.safetensors", text, n);
    ax_free(text);
    assert_int_equal(ax_read_file(in_scratch("out/config.json"), 1 << 20, &text, &n), AX_OK);
    char *group = memmem(text, n, "\"group_size\": 16", 16);
    assert_non_null(group);
    memcpy(group, "\"group_size\": 32", 16);
    put_bytes("out/config.json", text, n);
    assert_int_equal(ax_hf_open(&hf, in_scratch("out")), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "another number of scales"));
    memcpy(group, "\"group_sizf\": 32", 16);
    put_bytes("out/config.json", text, n);
    assert_int_equal(ax_hf_open(&hf, in_scratch("out")), AX_ERR_UNSUPPORTED);
    ax_free(text);
}

/* The last `from` of the folder's config.json becomes `to`, of the same length. */
static void edit_config(const char *from, const char *to) {
    char *text, *last = NULL;
    size_t n;
    assert_int_equal(ax_read_file(in_scratch("ends/config.json"), 1 << 20, &text, &n), AX_OK);
    for (char *at = text; (at = strstr(at, from)) != NULL; at++)
        last = at;
    assert_non_null(last);
    memcpy(last, to, strlen(to));
    put_bytes("ends/config.json", text, n);
    ax_free(text);
}

/* vLLM reads codes of 8 bits that are not packed only where activations are quantized, too. */
static void has_form(const char *name, const char *format, enum ax_dtype codes) {
    char path[160];
    struct ax_safetensors file;
    snprintf(path, sizeof path, "%s/config.json", in_scratch(name));
    json_t *config = json_load_file(path, 0, NULL);
    const json_t *q = json_object_get(config, "quantization_config");
    assert_string_equal(json_string_value(json_object_get(q, "format")), format);
    json_decref(config);
    snprintf(path, sizeof path, "%s/model.safetensors", in_scratch(name));
    assert_int_equal(ax_safetensors_open(&file, path), AX_OK);
    const struct ax_st_entry *e =
        ax_safetensors_find(&file, codes == AX_I32 ? "model.layers.0.mlp.up_proj.weight_packed"
                                                   : "model.layers.0.mlp.up_proj.weight");
    assert_true(e && e->dtype == codes);
    ax_safetensors_close(&file);
}

/* A group for the embedding beside that of linears. */
static void test_groups(void **state) {
    (void)state;
    char src[600], dst[160];
    struct ax_hf hf;
    need_binary();
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(dst, sizeof dst, "%s", in_scratch("ends"));
    sft_command = "quantize";
    EXPECT(0, "head: relative error 0.", src, dst, "--scheme", "int4-int8", "--embedding",
           "--head");
    EXPECT(0, "0.4 MB of 0.8 MB", src, in_scratch("sizes"), "--scheme", "int8");
    has_form("sizes", "pack-quantized", AX_I32);
    EXPECT(0, "0.4 MB of 0.8 MB", src, in_scratch("sums"), "--scheme", "int8-int8");
    has_form("sums", "int-quantized", AX_I8);
    EXPECT(0, "layer 0: relative error 0.0039", src, in_scratch("layers"), "--scheme", "int8");
    EXPECT(0, "22 matrices as int8", src, in_scratch("embedding"), "--scheme", "int8",
           "--embedding");
    assert_int_equal(ax_hf_open(&hf, dst), AX_OK);
    ax_hf_close(&hf);
    edit_config("\"weights\": {", "\"weighed\": {");
    assert_int_equal(ax_hf_open(&hf, dst), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "expected weights in each group"));
}

/* Weights that were rotated need nothing more; activations would have to be rotated, too. */
static void test_rotations(void **state) {
    (void)state;
    static const char *const locations[] = {"weight_input", "weight_output", "input", "k_cache"};
    char dst[160], file[200];
    struct ax_hf hf;
    need_binary();
    snprintf(dst, sizeof dst, "%s", in_scratch("rotated"));
    snprintf(file, sizeof file, "%s/config.json", dst);
    sft_command = "quantize";
    EXPECT(0, "21 matrices as int8", golden_llama(), dst, "--scheme", "int8");
    for (size_t i = 0; i < sizeof locations / sizeof *locations; i++) {
        json_t *config = json_load_file(file, 0, NULL);
        json_t *rotation =
            json_pack("{s{s{sss[{s[s]ss}]}}}", "config_groups", "R4", "type", "hadamard", "apply",
                      "targets", "re:.*down_proj$", "location", locations[i]);
        assert_int_equal(json_object_set_new(json_object_get(config, "quantization_config"),
                                             "transform_config", rotation),
                         0);
        assert_int_equal(json_dump_file(config, file, 0), 0);
        json_decref(config);
        const enum ax_status st = ax_hf_open(&hf, dst);
        assert_int_equal(st, i < 2 ? AX_OK : AX_ERR_UNSUPPORTED);
        if (st == AX_OK)
            ax_hf_close(&hf);
        else
            assert_non_null(
                strstr(ax_error_text(), "apply[0].location: transforms of activations"));
    }
}

/* Routers and the gates of shared experts stay as they are, in every layer, and readers are told. */
static void test_ignored(void **state) {
    (void)state;
    char src[600], dst[160], file[200], module[64];
    need_binary();
    snprintf(src, sizeof src, "%s", golden_path("models/qwen2_moe"));
    snprintf(dst, sizeof dst, "%s", in_scratch("mixture"));
    sft_command = "quantize";
    EXPECT(0, "62 matrices as int8", src, dst, "--scheme", "int8");
    snprintf(file, sizeof file, "%s/config.json", dst);
    json_t *config = json_load_file(file, 0, NULL), *want = json_pack("[s]", "lm_head");
    for (int layer = 0; layer < 2; layer++)
        for (int gate = 0; gate < 2; gate++) {
            snprintf(module, sizeof module, "model.layers.%d.mlp.%s", layer,
                     gate ? "shared_expert_gate" : "gate");
            json_array_append_new(want, json_string(module));
        }
    json_t *got = json_object_get(json_object_get(config, "quantization_config"), "ignore");
    if (!json_equal(got, want))
        fail_msg("ignored: %s", json_dumps(got, 0));
    json_decref(want);
    json_decref(config);
}

/* A file in scratch that is another one with the first `from` replaced by `to` and blanks. */
static void put_edited(const char *name, const char *original, const char *from, const char *to) {
    char *text;
    size_t n;
    assert_int_equal(ax_read_file(original, 1 << 24, &text, &n), AX_OK);
    char *at = memmem(text, n, from, strlen(from));
    assert_non_null(at);
    assert_true(strlen(to) <= strlen(from));
    memset(at, ' ', strlen(from));
    memcpy(at, to, strlen(to));
    put_bytes(name, text, n);
    ax_free(text);
}

/* A classifier's scores are of a linear that stays as it is: Llama, whose logits are taken for scores. */
static void test_classifier(void **state) {
    (void)state;
    char file[200];
    need_binary();
    make_folder("classifier");
    put_edited("classifier/config.json", golden_path("models/llama/config.json"),
               "\"LlamaForCausalLM\"\n  ],\n  \"attention_bias\": false,",
               "\"LForSequenceClassification\"], \"num_labels\": 512,");
    put_edited("classifier/model.safetensors", golden_path("models/llama/model.safetensors"),
               "\"lm_head.weight\"", "\"score.weight\"");
    sft_command = "quantize";
    EXPECT(0, "21 matrices as int8", in_scratch("classifier"), in_scratch("scores"), "--scheme",
           "int8");
    snprintf(file, sizeof file, "%s", in_scratch("scores/config.json"));
    json_t *config = json_load_file(file, 0, NULL), *want = json_pack("[ss]", "lm_head", "score");
    json_t *got = json_object_get(json_object_get(config, "quantization_config"), "ignore");
    assert_true(json_equal(got, want));
    json_decref(want);
    json_decref(config);
}

/* llama.cpp's schemes: the file that convert writes, byte for byte. */
static void test_gguf(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"q8_0", "q8_0"}, {"q4_0", "q4_0"}, {"q4_k", "q4_k_m"}, {"q6_k", "q6_k"}};
    char src[600], one[160], two[160], *first, *second;
    size_t n, m;
    need_binary();
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(one, sizeof one, "%s", in_scratch("one/model.gguf"));
    snprintf(two, sizeof two, "%s", in_scratch("two/model.gguf"));
    assert_int_equal(ax_mkdir_parents(in_scratch("one")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_scratch("two")), AX_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(ax_remove_tree(one), AX_OK);
        assert_int_equal(ax_remove_tree(two), AX_OK);
        sft_command = "quantize";
        EXPECT(0, "", src, one, "--scheme", names[i][0]);
        sft_command = "convert";
        EXPECT(0, "", src, two, "--to", "gguf", "--quant", names[i][1]);
        assert_int_equal(ax_read_file(one, 1 << 24, &first, &n), AX_OK);
        assert_int_equal(ax_read_file(two, 1 << 24, &second, &m), AX_OK);
        assert_true(n == m && memcmp(first, second, n) == 0);
        ax_free(first);
        ax_free(second);
    }
    sft_command = "quantize";
    EXPECT(2, "scheme q4_k: is llama.cpp's", src, one, "--scheme", "q4_k", "--head");
    EXPECT(2, "is written as one file", src, one, "--scheme", "q4_k");
    EXPECT(2, "scheme int8 is written as a folder", src, in_scratch("new.gguf"), "--scheme",
           "int8");
    assert_false(ax_path_exists(in_scratch("new.gguf")));
    EXPECT(2, "scheme nf4 has no file form that other programs read. Nearest: int4.", src,
           in_scratch("nf4"), "--scheme", "nf4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_damaged_folders),
        cmocka_unit_test(test_groups),     cmocka_unit_test(test_rotations),
        cmocka_unit_test(test_ignored),    cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_classifier),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
