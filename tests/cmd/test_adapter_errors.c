/* What a person gets wrong with adapters: one line with the place and what to do, and the exit code
 * that the manual gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/cmd/sft_case.h"
#include "tests/golden_files.h"

static char llama[512], mistral[512], lora[512];

static int start(void **state) {
    snprintf(llama, sizeof llama, "%s", golden_path("models/llama"));
    snprintf(mistral, sizeof mistral, "%s", golden_path("models/mistral"));
    snprintf(lora, sizeof lora, "%s", golden_path("lora/llama_r4"));
    return scratch_make(state);
}

static char said[8192];

/* Runs a command: its exit code, and its error must be the only line about it. */
static void fails(const char *command, int code, const char *part, int n, const char *const *args) {
    sft_command = command;
    const int got = sft(said, sizeof said, n, args);
    const char *error = strncmp(said, "error ", 6) == 0 ? said : strstr(said, "\nerror ");
    if (got != code || !error || !strstr(error, part))
        fail_msg("%s: exit %d, wanted %d and \"%s\" in: %s", command, got, code, part, said);
    error += *error == '\n';
    assert_int_equal(strchr(error, '\n') - error + 1, strlen(error));
}
#define FAILS(command, code, part, ...)                                                            \
    do {                                                                                           \
        const char *const args_[] = {__VA_ARGS__};                                                 \
        fails(command, code, part, (int)(sizeof args_ / sizeof *args_), args_);                    \
    } while (0)

static void runs(const char *command, int n, const char *const *args) {
    sft_command = command;
    if (sft(said, sizeof said, n, args) != 0)
        fail_msg("%s: %s", command, said);
}
#define RUNS(command, ...)                                                                         \
    do {                                                                                           \
        const char *const args_[] = {__VA_ARGS__};                                                 \
        runs(command, (int)(sizeof args_ / sizeof *args_), args_);                                 \
    } while (0)

/* Another model's chat has other lengths: completion rows fit every one. */
static const char *config(void) {
    struct ax_buf b = {0};
    put_text("rows.jsonl", "{\"text\": \"one and one\"}\n{\"text\": \"two\"}\n");
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/rows.jsonl\n    type: completion\n"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 2\nmax_steps: 1\n"
                      "save_steps: 1\nadapter: lora\nlora_r: 4\nlora_alpha: 8\n"
                      "lora_target_modules: [q_proj, v_proj]\n",
                      llama, scratch, scratch, scratch),
        AX_OK);
    const char *path = put_bytes("c.yaml", b.data, b.len);
    ax_buf_free(&b);
    return path;
}

static void of_another_model(void **state) {
    (void)state;
    char model_dir[600], base[600];
    const char *another = "the adapter is for another model (its config says";
    FAILS("merge", 3, another, mistral, lora, in_scratch("none"));
    FAILS("generate", 3, another, "--model", mistral, "--adapter", lora, "--prompt", "a");
    snprintf(model_dir, sizeof model_dir, "lora_model_dir=%s", lora);
    snprintf(base, sizeof base, "base_model=%s", mistral);
    FAILS("sft", 3, another, config(), model_dir, base);
    assert_non_null(strstr(said, "Use the base model that it was trained on."));
    /* not a model, and no adapter */
    FAILS("merge", 2, "Give its base model here", lora, lora, in_scratch("none"));
    snprintf(base, sizeof base, "base_model=%s", lora);
    FAILS("sft", 2, "base_model (command line): ", config(), base);
    FAILS("generate", 3, "adapter_config.json is missing. Give a folder", "--model", llama,
          "--adapter", llama, "--prompt", "a");
    assert_false(ax_path_exists(in_scratch("none")));
}

static void another_rank_on_resume(void **state) {
    (void)state;
    char from[300], out[300];
    char path[256];
    snprintf(path, sizeof path, "%s", config());
    RUNS("sft", path);
    const char *text = "lora_r was 4 in the run that wrote";
    FAILS("sft", 2, text, path, "lora_r=16", "max_steps=2", "resume_from_checkpoint=auto");
    assert_non_null(strstr(
        said, "out/checkpoint-1 and is 16 now: a different run. Change it back, or start over"));
    snprintf(from, sizeof from, "resume_from_checkpoint=%s/out/checkpoint-1", scratch);
    snprintf(out, sizeof out, "output_dir=%s/other", scratch);
    FAILS("sft", 2, text, path, "lora_r=16", "max_steps=2", from, out);
    FAILS("sft", 2, "lora_target_modules was", path, "max_steps=2", from, out,
          "lora_target_modules=[q_proj]");
    /* a folder whose two files are not of one run */
    struct ax_buf b = {0};
    assert_int_equal(ax_buf_puts(&b, "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 8, "
                                     "\"target_modules\": [\"q_proj\", \"v_proj\"]}"),
                     AX_OK);
    put_bytes("out/adapter_config.json", b.data, b.len);
    ax_buf_free(&b);
    snprintf(from, sizeof from, "lora_model_dir=%s/out", scratch);
    FAILS("sft", 3, "has rank 4, but adapter_config.json says 8", path, from, out);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

/* Its folder of the same name has other weights: the adapter would go on from another model. */
static void another_base_on_resume(void **state) {
    (void)state;
    char path[256], base[300], from[300], weights[300], copy[900];
    snprintf(path, sizeof path, "%s", config());
    snprintf(base, sizeof base, "base_model=%s/base", scratch);
    snprintf(copy, sizeof copy, "cp -r '%s' '%s/base'", llama, scratch);
    assert_int_equal(system(copy), 0);
    RUNS("sft", path, base);
    RUNS("sft", path, base, "max_steps=2", "resume_from_checkpoint=auto");
    snprintf(weights, sizeof weights, "%s/base/model.safetensors", scratch);
    golden_flip(weights);
    FAILS("sft", 2, "/base are others than in the run that wrote", path, base, "max_steps=3",
          "resume_from_checkpoint=auto");
    /* the folder of the run instead of a checkpoint */
    snprintf(from, sizeof from, "resume_from_checkpoint=%s/out", scratch);
    FAILS("sft", 2, "is not a checkpoint, as it has no state/manifest.json; give a folder", path,
          base, from);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

static void missing_targets(void **state) {
    (void)state;
    const char *path = config();
    FAILS("sft", 2, "c.yaml:", path, "lora_target_modules=[q_proj, wq]");
    assert_non_null(strstr(said, "\"wq\" matches no module of this llama model that can have an "
                                 "adapter (the projections"));
    FAILS("sft", 2, "matches no stacked expert weight of this llama model, which has no experts",
          path, "lora_target_parameters=[mlp.experts.down_proj]");
    FAILS("sft", 2, "modules_to_save: \"wte\" matches no module", path,
          "lora_modules_to_save=[wte]");
    assert_false(ax_path_exists(in_scratch("out")));
}

static void merged_already(void **state) {
    (void)state;
    char merged[256], base[300], model_dir[600];
    snprintf(merged, sizeof merged, "%s/merged", scratch);
    RUNS("merge", llama, lora, merged);
    const char *text = "already merged into it (according to axtrain_merge.json). Give the base "
                       "model that it was trained on, or omit the adapter.";
    FAILS("merge", 2, text, merged, lora, in_scratch("twice"));
    assert_false(ax_path_exists(in_scratch("twice")));
    FAILS("merge", 2, "not empty", llama, lora, merged);
    FAILS("generate", 2, text, "--model", merged, "--adapter", lora, "--prompt", "a");
    FAILS("eval", 2, text, "--model", merged, "--adapter", lora, "--data", in_scratch("none"));
    snprintf(base, sizeof base, "base_model=%s", merged);
    snprintf(model_dir, sizeof model_dir, "lora_model_dir=%s", lora);
    FAILS("sft", 2, text, config(), base, model_dir);
    assert_non_null(strstr(said, "lora_model_dir (command line): "));
}

/* Steps too small to move a weight. */
static void merging_nothing(void **state) {
    (void)state;
    RUNS("sft", config(), "learning_rate=1e-30");
    FAILS("merge", 2, "the adapter was never trained. Nothing was written.", llama,
          in_scratch("out"), in_scratch("nothing"));
    assert_false(ax_path_exists(in_scratch("nothing")));
}

/* What the YAML asks for and the folder of lora_model_dir has not. */
static void keys_that_a_folder_overrides(void **state) {
    (void)state;
    static const char *const parts[] = {
        "lora_r: 8 is not used: the adapter in lora_model_dir has 4",
        "peft_use_dora: true is not used: the adapter in lora_model_dir has false",
        "lora_target_modules: wq is not used: the adapter in lora_model_dir has no such module",
        "lora_modules_to_save: embed_tokens is not used"};
    char model_dir[600];
    snprintf(model_dir, sizeof model_dir, "lora_model_dir=%s", lora);
    RUNS("plan", config(), model_dir);
    assert_null(strstr(said, "is not used"));
    RUNS("plan", config(), model_dir, "lora_r=8", "peft_use_dora=true",
         "lora_target_modules=[q_proj, wq]", "lora_modules_to_save=[embed_tokens]");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(said, parts[i]))
            fail_msg("\"%s\" is not in: %s", parts[i], said);
    assert_null(strstr(said, "q_proj is not used"));
}

/* Answers are compared without the dropout of an earlier fine-tuning: the first loss is ln 2. */
static void preferences_have_no_dropout(void **state) {
    (void)state;
    char model_dir[300], data[300], out[300];
    (void)put_text("pairs.jsonl", "{\"prompt\": \"one\", \"chosen\": \" and one\", "
                                  "\"rejected\": \" or two\"}\n");
    snprintf(model_dir, sizeof model_dir, "lora_model_dir=%s/first", scratch);
    snprintf(data, sizeof data, "datasets=[{path: %s/pairs.jsonl}]", scratch);
    snprintf(out, sizeof out, "output_dir=%s/second", scratch);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    RUNS("sft", config(), "lora_dropout=0.5", "float32=true");
    assert_int_equal(ax_rename(in_scratch("out"), in_scratch("first")), AX_OK);
    RUNS("dpo", config(), model_dir, data, out, "rl=dpo", "float32=true", "lora_dropout=0.5");
    assert_non_null(strstr(said, "its dropout of 0.5 acts in fine-tuning only"));
    assert_float_equal(metric_of("second", "loss", 1), log(2), 1e-9);
    assert_int_equal(ax_remove_tree(in_scratch("second")), AX_OK);
}

/* PEFT's word as the only one of a list, as ms-swift has it, beside other names and beside our own key. */
static void a_word_for_every_linear(void **state) {
    (void)state;
    static const struct {
        const char *keys[2];
        size_t n; /* modules; 0: the word itself */
    } all[] = {{{"lora_target_modules=[]", "lora_target_linear=true"}, 7},
               {{"lora_target_modules=[all-linear]", "seed=1"}, 7},
               {{"lora_target_modules=[embed_tokens, all-linear]", "seed=1"}, 8},
               {{"lora_target_modules=all-linear", "lora_target_linear=true"}, 7},
               {{"lora_target_modules=all-linear", "seed=1"}, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        RUNS("sft", config(), all[i].keys[0], all[i].keys[1]);
        json_t *v = json_load_file(in_scratch("out/adapter_config.json"), 0, NULL);
        const json_t *targets = json_object_get(v, "target_modules");
        assert_int_equal(json_array_size(targets), all[i].n);
        assert_true(all[i].n > 0 || strcmp(json_string_value(targets), "all-linear") == 0);
        json_decref(v);
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_for_every_linear),
        cmocka_unit_test(of_another_model),
        cmocka_unit_test(another_rank_on_resume),
        cmocka_unit_test(another_base_on_resume),
        cmocka_unit_test(missing_targets),
        cmocka_unit_test(merged_already),
        cmocka_unit_test(merging_nothing),
        cmocka_unit_test(keys_that_a_folder_overrides),
        cmocka_unit_test(preferences_have_no_dropout),
    };
    return cmocka_run_group_tests(tests, start, scratch_remove);
}
