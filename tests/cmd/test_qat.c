/* Quantization-aware training as a command: resume across the step where it starts, recomputation,
 * adapters whose merged weights are what was trained, and which settings it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/chats_case.h"
#include "tests/cmd/sequence_case.h"
#include "tests/golden_files.h"

#define LORA "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n"

static const char *config(const char *more) {
    char all[1024];
    sft_command = "qat";
    snprintf(all, sizeof all, "max_steps: 6\nsave_steps: 2\nfloat32: true\n%s", more);
    return chats_config(all);
}

/* It starts at the third of six updates; before, the run is one without. */
static void test_resumes_where_it_starts(void **state) {
    (void)state;
    const char *path = config("qat:\n  scheme: int4-int8\n  fake_quant_after_n_steps: 3\n");
    EXPECT(0, "\nmodel: ", path);
    EXPECT(0, "\nmodel: ", path, out("first"), "max_steps=2");
    EXPECT(0, "\nmodel: ", path, out("first"), "auto_resume_from_checkpoints=true");
    assert_true(same_weights("out", "first"));
    EXPECT(0, "\nmodel: ", path, out("again"), "gradient_checkpointing=true");
    assert_true(same_weights("out", "again"));
    EXPECT(0, "the run ends after step 6, but quantization starts after step 100: nothing", path,
           out("later"), "qat.fake_quant_after_n_steps=100");
    assert_false(same_weights("out", "later"));
    assert_true(same_weights("out/checkpoint-2", "later/checkpoint-2"));
    sft_command = "sft";
    EXPECT(0, "\nmodel: ", path, out("never"), "qat=null");
    assert_true(same_weights("later", "never"));
}

/* The merged model, quantized, is what the adapter's last evaluation saw. */
static void merged_is_trained(const char *scheme, const char *dora) {
    char scheme_key[64], base[256];
    snprintf(scheme_key, sizeof scheme_key, "qat.scheme=%s", scheme);
    const char *path = config("qat:\n  scheme: int4\nmerge_lora: true\n" LORA);
    assert_int_equal(ax_remove_tree(in_scratch("lora")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("full")), AX_OK);
    EXPECT(0, "\nadapter: ", path, out("lora"), scheme_key, dora);
    snprintf(base, sizeof base, "base_model=%s/lora/merged", scratch);
    EXPECT(0, "\nmodel: ", path, out("full"), scheme_key, base, "adapter=null", "merge_lora=false",
           "max_steps=1", "eval_steps=1");
    const double trained = metric_of("lora", "eval_loss", 6);
    assert_true(fabs(metric_of("full", "eval_loss", 0) - trained) < 1e-6);
    assert_true(metric_of("lora", "eval_loss", 0) > trained + 0.05);
}

static void test_merged_adapters_are_what_was_trained(void **state) {
    (void)state;
    merged_is_trained("fp8", "peft_use_dora=true");
    merged_is_trained("nvfp4", "peft_use_dora=false");
    merged_is_trained("int8", "peft_use_dora=true");
    merged_is_trained("int4-int8", "peft_use_dora=false");
}

static void test_refusals(void **state) {
    (void)state;
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    const char *path = config("qat:\n  scheme: int4\n");
    EXPECT(2, "groups of 48 numbers do not divide the 64 inputs of model.layers.0", path,
           "qat.group_size=48");
    EXPECT(2, "Nearest: qat.group_size 32;", path, "qat.group_size=48");
    EXPECT(2, "did you mean int4-int8", path, "qat.scheme=int4int8");
    EXPECT(2, "`axtrain qat` needs a configuration with qat:", path, "qat=null");
    path = config("qat:\n  scheme: int4\n" LORA);
    EXPECT(2, "set lora_dropout: 0", path, "lora_dropout=0.1");
}

/* Every scheme trains; axolotl's pairs of types are schemes. */
static void test_schemes_train(void **state) {
    (void)state;
    static const char *const keys[][3] = {
        {"qat.weight_dtype=int4", "qat.activation_dtype=int8", "qat.group_size=32"},
        {"qat.weight_dtype=int4", "qat.activation_dtype=fp8", "qat.group_size=32"},
        {"qat.weight_dtype=float8_e4m3fn", "qat.activation_dtype=fp8", "qat.group_size=32"},
        {"qat.weight_dtype=nvfp4", "qat.activation_dtype=nvfp4", "qat.group_size=16"},
        {"qat.weight_dtype=mxfp4", "qat.activation_dtype=mxfp4", "qat.group_size=32"},
        {"qat.scheme=int4-asym", "qat.weight_dtype=null", "qat.group_size=32"},
        {"qat.scheme=fp8-tensor", "qat.weight_dtype=null", "float32=true"},
        {"qat.scheme=fp8-e5m2", "qat.weight_dtype=null", "float32=true"},
        {"qat.scheme=int8-int8", "qat.weight_dtype=null", "float32=true"},
        {"qat.scheme=nvfp4-single", "qat.weight_dtype=null", "float32=true"},
        {"qat.scheme=mxfp8-floor", "qat.weight_dtype=null", "float32=true"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *path = config("qat:\n  weight_dtype: int4\n");
        assert_int_equal(ax_remove_tree(in_scratch("scheme")), AX_OK);
        EXPECT(0, "\nmodel: ", path, out("scheme"), keys[i][0], keys[i][1], keys[i][2]);
        assert_true(metric_of("scheme", "eval_loss", 6) <
                    metric_of("scheme", "eval_loss", 0) - 0.05);
    }
}

/* Losses and gradient norms of three steps with the embedding or the head, by tests/peers/qat_ends.py. */
static const struct {
    const char *scheme;
    bool embedding, head;
    const char *model;
    double want[6];
} runs[] = {
    {"int4", 1, 0, "llama", {7.911086, 8.652358, 7.247566, 8.190495, 6.628059, 8.183533}},
    {"int4", 0, 1, "llama", {7.937068, 8.297443, 7.286327, 7.778692, 6.730906, 7.878910}},
    {"int4", 1, 1, "llama", {7.908270, 8.562414, 7.239657, 8.175427, 6.662925, 8.171679}},
    {"int4", 1, 1, "qwen3", {6.625197, 4.153699, 6.465896, 3.981683, 6.314011, 3.623076}},
    {"int8-int8", 1, 0, "llama", {7.995131, 9.026209, 7.231736, 8.351811, 6.574658, 7.715378}},
    {"int8-int8", 0, 1, "llama", {7.989622, 8.990507, 7.237153, 8.334462, 6.572410, 7.765682}},
    {"int8-int8", 1, 1, "llama", {7.993586, 9.024559, 7.241254, 8.327181, 6.573730, 7.708803}},
    {"fp8-tensor", 1, 0, "llama", {8.066357, 9.243155, 7.275515, 8.257195, 6.634604, 7.973106}},
    {"fp8-tensor", 0, 1, "llama", {8.082889, 8.980462, 7.323133, 8.394800, 6.667532, 7.956755}},
    {"fp8-tensor", 1, 1, "llama", {8.068685, 9.283298, 7.268996, 8.386085, 6.611156, 7.813158}},
    {"fp8-tensor", 1, 1, "qwen3", {6.661520, 4.738802, 6.442780, 4.212693, 6.255509, 3.745767}}};

static void test_ends_are_those_of_pytorch(void **state) {
    (void)state;
    sft_command = "qat";
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char more[160], name[64], model[600];
        snprintf(more, sizeof more,
                 "qat:\n  scheme: %s\n  quantize_embedding: %s\n  quantize_head: %s\n",
                 runs[i].scheme, runs[i].embedding ? "true" : "false",
                 runs[i].head ? "true" : "false");
        snprintf(name, sizeof name, "models/%s", runs[i].model);
        snprintf(model, sizeof model, "base_model=%s", golden_path(name));
        const char *path = one_sequence((const int[]){7, 3, 11}, more);
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
        EXPECT(0, "\nmodel: ", path, model);
        for (int step = 0; step < 3; step++) {
            /* an activation between two codes may go either way; after a step weights differ by ulps, so
             * that whole groups do */
            const double *want = runs[i].want + 2 * step;
            const double loss = metric_of("out", "loss", step + 1),
                         norm = metric_of("out", "grad_norm", step + 1);
            if (fabs(loss / want[0] - 1) > (step == 0 ? 1e-5 : 1e-2) ||
                fabs(norm / want[1] - 1) > (step == 0 ? 2e-4 : 3e-2))
                fail_msg("%s, step %d: %.6f %.6f, PyTorch has %.6f %.6f", more, step + 1, loss,
                         norm, want[0], want[1]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumes_where_it_starts),
        cmocka_unit_test(test_merged_adapters_are_what_was_trained),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_schemes_train),
        cmocka_unit_test(test_ends_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
