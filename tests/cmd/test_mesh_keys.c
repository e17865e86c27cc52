/* What the keys of a mesh mean: what its ranks keep between uses, by axtrain's own key, FSDP's or
 * DeepSpeed's. (Sizes: tests/cmd/test_mesh_launch.c and test_sft_ranks.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cmd/train/mesh.h"
#include "tests/cmd/config_case.h"

#define START "base_model: m\nlearning_rate: 1e-4\ndatasets: [{path: a, type: alpaca}]\n"

static char folder[] = "/tmp/axtrain-keys-XXXXXX";

static enum ax_status read_sharding(struct ax_sharding *out, const char *keys) {
    struct ax_config cfg;
    char text[512];
    snprintf(text, sizeof text, "%s%s", START, keys);
    enum ax_status st = load_with(&cfg, text, NULL);
    if (st != AX_OK)
        return st;
    st = ax_train_sharding_read(out, &cfg);
    ax_config_free(&cfg);
    return st;
}

static void expect_stage(const char *keys, int stage, bool bf16) {
    struct ax_sharding got = {0};
    if (read_sharding(&got, keys) != AX_OK)
        fail_msg("%s: %s", keys, ax_error_text());
    if (got.keep_weights != (stage < 3) || got.keep_gradients != (stage < 2) ||
        got.bf16_sums != bf16)
        fail_msg("%s: weights %d, gradients %d, bf16 %d", keys, got.keep_weights,
                 got.keep_gradients, got.bf16_sums);
}

static void write_file(const char *name, const char *text) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void stages_have_three_spellings(void **state) {
    (void)state;
    char keys[160];
    expect_stage("", 3, false);
    expect_stage("zero_stage: 1\n", 1, false);
    expect_stage("zero_stage: 2\nreduce_dtype: bfloat16\n", 2, true);
    expect_stage("zero_stage: 3\nreduce_dtype: float32\n", 3, false);
    expect_stage("fsdp_config: {reshard_after_forward: false}\n", 2, false);
    expect_stage("fsdp_config: {reshard_after_forward: true}\n", 3, false);
    expect_stage("fsdp_config: {reshard_after_forward: false}\nzero_stage: 1\n", 1, false);
    expect_stage("deepspeed: {zero_optimization: {stage: 2}}\n", 2, false);
    expect_stage("deepspeed: {zero_optimization: {stage: 0}}\n", 1, false);
    expect_stage("deepspeed: {train_batch_size: 8}\n", 1, false);
    expect_stage("deepspeed: /no/such/zero3_bf16.json\n", 3, false); /* by the name */
    expect_stage("deepspeed: zero1.json\n", 1, false);
    expect_stage("deepspeed: from_zero_zero2.json\n", 2, false);
    expect_stage("deepspeed: {zero_optimization: {stage: null}}\n", 1, false);
    write_file("zero3.json", "{\"zero_optimization\": {\"stage\": 2}}"); /* read, so not the name */
    snprintf(keys, sizeof keys, "deepspeed: %s/zero3.json\n", folder);
    expect_stage(keys, 2, false);
}

static void layers_may_travel_in_line(void **state) {
    (void)state;
    struct ax_sharding got;
    assert_int_equal(read_sharding(&got, ""), AX_OK);
    assert_int_equal(got.prefetch, 1);
    assert_int_equal(read_sharding(&got, "fsdp_prefetch: 0\n"), AX_OK);
    assert_int_equal(got.prefetch, 0);
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    struct ax_sharding got;
    char keys[160];
    static const struct {
        const char *keys, *where, *why;
    } cases[] = {
        {"zero_stage: 4\n", "c.yaml:4:13", "expected 1, 2 or 3"},
        {"zero_stage: 0\n", "zero_stage", "positive"},
        {"reduce_dtype: fp8\n", "reduce_dtype", "float32"},
        {"zero_stage: 2\ndeepspeed: zero3.json\n", "zero_stage", "not both"},
        {"zero_stage: 3\nfsdp_config: {reshard_after_forward: false}\n", "zero_stage",
         "contradicts fsdp_config.reshard_after_forward"},
        {"deepspeed: settings.json\n", "c.yaml:4:12", "set zero_stage instead"},
        {"deepspeed: {zero_optimization: {stage: 4}}\n", "deepspeed", "expected 0 to 3"},
        {"deepspeed: {zero_optimization: {stage: -1}}\n", "deepspeed", "expected 0 to 3"},
        {"deepspeed: {zero_optimization: {stage: '3'}}\n", "deepspeed", "expected 0 to 3"},
        {"deepspeed: {zero_optimization: {stage: 2.5}}\n", "deepspeed", "expected 0 to 3"},
        {"deepspeed: {zero_optimization: 3}\n", "deepspeed", "expected 0 to 3"},
        {"fsdp_prefetch: 2\n", "fsdp_prefetch", "expected 0 or 1"},
        {"zero_stage: 2\nlayer_offloading: true\n", "layer_offloading", "set zero_stage: 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_sharding(&got, cases[i].keys), AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), cases[i].where) || !strstr(ax_error_text(), cases[i].why))
            fail_msg("%s gave: %s", cases[i].keys, ax_error_text());
    }
    static const char *const files[] = {"{\"zero_optimization\": {\"stage\": \"auto\"}}",
                                        "{\"zero_optimization\": {\"stage\": 9}}", "{"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file("bad.json", files[i]);
        snprintf(keys, sizeof keys, "deepspeed: %s/bad.json\n", folder);
        assert_int_equal(read_sharding(&got, keys), AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), "bad.json"));
    }
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return ax_remove_tree(folder) == AX_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_three_spellings),
        cmocka_unit_test(layers_may_travel_in_line),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
