/* Training reward models and process reward models: what is in their folders, that they are resumed,
 * packed and adapted as language models are, and which keys contradict each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/hash/hash.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/program_case.h"
#include "tests/golden_files.h"

static char base[512], pairs[512], stepwise[512];

static void find_goldens(void) {
    snprintf(base, sizeof base, "%s", golden_path("models/llama"));
    snprintf(pairs, sizeof pairs, "%s", golden_path("runs/data/preference_margin.jsonl"));
    snprintf(stepwise, sizeof stepwise, "%s", golden_path("runs/data/stepwise.jsonl"));
}

#define COMMON                                                                                     \
    "sequence_len: 128\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\nlearning_rate: "      \
    "1e-3\n"                                                                                       \
    "max_steps: 4\nsave_steps: 2\nval_set_size: 4\neval_steps: 2\nbf16: false\nlogging_steps: 1\n"

static const char *config(bool prm) {
    static char path[256];
    char text[2048];
    snprintf(text, sizeof text, COMMON "base_model: %s\n%s: true\ndatasets:\n  - path: %s\n%s",
             base, prm ? "process_reward_model" : "reward_model", prm ? stepwise : pairs,
             prm ? "    type: stepwise_supervised\n    step_separator: \"\\n\\n\"\n" : "");
    put_text("run.yaml", text);
    snprintf(path, sizeof path, "%s", in_dir("run.yaml"));
    return path;
}

static void must_run(char *out, size_t size, int code) {
    if (code != 0)
        fail_msg("exit code %d: %.*s", code, (int)size, out);
}

static json_t *read_json(const char *name) {
    json_t *v = json_load_file(in_dir(name), 0, NULL);
    assert_non_null(v);
    return v;
}

static uint64_t hash_of(const char *name) {
    char *data;
    size_t n;
    assert_int_equal(ax_read_file(in_dir(name), 1 << 24, &data, &n), AX_OK);
    const uint64_t hash = ax_hash64(data, n, 0);
    ax_free(data);
    return hash;
}

static const char *text_of(const json_t *v, const char *key, size_t i) {
    return json_string_value(json_array_get(json_object_get(v, key), i));
}

/* The value of a metric in the last line of a kind that has it. */
static double metric(const char *name, const char *key) {
    char *text = get_text(name), *rest = text, quoted[64];
    double value = NAN;
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (strstr(line, quoted))
            value = strtod(strstr(line, quoted) + strlen(quoted), NULL);
    ax_free(text);
    return value;
}

static void a_reward_model_is_trained_and_scores(void **state) {
    (void)state;
    char out[16384], again[300], summary[64];
    find_goldens();
    must_run(out, sizeof out,
             run(out, sizeof out, "train %s center_rewards_coefficient=0.01 output_dir=%s",
                 config(false), in_dir("rm")));
    json_t *v = read_json("rm/config.json");
    assert_string_equal(text_of(v, "architectures", 0), "LlamaForSequenceClassification");
    assert_int_equal(json_object_size(json_object_get(v, "id2label")), 1);
    json_decref(v);
    /* the loss before the first step is about log 2: margins only move it */
    assert_true(metric("rm/metrics.jsonl", "eval_loss") > 0.1);
    assert_true(isfinite(metric("rm/metrics.jsonl", "eval_margin")));
    assert_true(isfinite(metric("rm/metrics.jsonl", "min_reward")));
    const double accuracy = metric("rm/metrics.jsonl", "eval_accuracy");
    assert_true(fmod(accuracy * 4, 1) == 0); /* a share of four pairs */

    char *card = get_text("rm/README.md");
    assert_non_null(strstr(card, "pipeline_tag: text-classification\n"));
    assert_non_null(strstr(card, "- \"reward-model\"\n"));
    assert_non_null(strstr(card, "axtrain eval --model rm --task reward --data FILE\n"));
    assert_non_null(strstr(card, "Losses are nats per pair."));
    ax_free(card);

    /* resumed from its first checkpoint, it ends alike */
    snprintf(again, sizeof again, "%s", in_dir("rm/checkpoint-2"));
    must_run(out, sizeof out,
             run(out, sizeof out,
                 "train %s center_rewards_coefficient=0.01 output_dir=%s resume_from_checkpoint=%s",
                 config(false), in_dir("resumed"), again));
    assert_true(hash_of("rm/model.safetensors") == hash_of("resumed/model.safetensors"));

    must_run(out, sizeof out,
             run(out, sizeof out, "eval --model %s --task reward --data %s --json -o %s",
                 in_dir("rm"), pairs, in_dir("scores.jsonl")));
    snprintf(summary, sizeof summary, "\"pairs\":24,");
    assert_non_null(strstr(out, summary));
}

/* Scores of the adapter on its base and of the merged model agree. */
static void an_adapter_with_packing_is_merged(void **state) {
    (void)state;
    char out[16384], means[2][64];
    find_goldens();
    must_run(out, sizeof out,
             run(out, sizeof out,
                 "train %s adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true "
                 "sample_packing=true merge_lora=true output_dir=%s",
                 config(false), in_dir("lora")));
    json_t *v = read_json("lora/adapter_config.json");
    assert_string_equal(json_string_value(json_object_get(v, "task_type")), "SEQ_CLS");
    assert_string_equal(text_of(v, "modules_to_save", 0), "score");
    json_decref(v);
    for (int merged = 0; merged < 2; merged++) {
        char model[600];
        if (merged)
            snprintf(model, sizeof model, "--model %s", in_dir("lora/merged"));
        else
            snprintf(model, sizeof model, "--model %s --adapter %s", base, in_dir("lora"));
        must_run(out, sizeof out,
                 run(out, sizeof out, "eval %s --task reward --data %s -o %s", model, pairs,
                     in_dir("scores.jsonl")));
        const char *at = strstr(out, "mean margin");
        assert_non_null(at);
        snprintf(means[merged], sizeof means[merged], "%.28s", at);
    }
    assert_string_equal(means[0], means[1]);
}

static int64_t pad_of(const char *name) {
    json_t *v = read_json(name);
    const json_t *pad = json_object_get(v, "pad_token_id");
    const int64_t id = json_is_integer(pad) ? json_integer_value(pad) : -1;
    json_decref(v);
    return id;
}

#define EOS 504

/* Where EOS pads, too, it is what readers of the saved folder have to skip; the base says another token. */
static void readers_find_where_scores_were_trained(void **state) {
    (void)state;
    char out[16384], means[2][64];
    static const char pads[] = "special_tokens.pad_token='<|eot_id|>'";
    find_goldens();
    must_run(out, sizeof out,
             run(out, sizeof out, "train %s %s max_steps=2 output_dir=%s", config(false), pads,
                 in_dir("padded")));
    assert_int_equal(pad_of("padded/config.json"), EOS);
    assert_int_equal(pad_of("padded/checkpoint-2/config.json"), EOS);
    assert_null(strstr(out, "warn adapter"));

    /* without the key it is the tokenizer's, whatever the base's config.json says */
    must_run(out, sizeof out,
             run(out, sizeof out, "train %s max_steps=1 model_config.pad_token_id=3 output_dir=%s",
                 config(false), in_dir("other")));
    assert_int_equal(pad_of("other/config.json"), 507);

    must_run(out, sizeof out,
             run(out, sizeof out,
                 "train %s %s max_steps=2 adapter=lora lora_r=4 lora_alpha=8 "
                 "lora_target_linear=true merge_lora=true output_dir=%s",
                 config(false), pads, in_dir("padl")));
    assert_non_null(strstr(out, "go by the base's pad_token_id, which is 507: set "
                                "config.pad_token_id = 504 there, or merge the adapter"));
    assert_int_equal(pad_of("padl/axtrain_base.json"), EOS);
    assert_int_equal(pad_of("padl/merged/config.json"), EOS);
    for (int merged = 0; merged < 2; merged++) {
        must_run(out, sizeof out,
                 run(out, sizeof out, "eval --model %s --task reward --data %s -o %s",
                     in_dir(merged ? "padl/merged" : "padl"), pairs, in_dir("scores.jsonl")));
        const char *at = strstr(out, "mean margin");
        assert_non_null(at);
        snprintf(means[merged], sizeof means[merged], "%.26s", at);
    }
    assert_string_equal(means[0], means[1]);
}

static void a_process_reward_model_knows_its_separator(void **state) {
    (void)state;
    char out[16384];
    find_goldens();
    must_run(out, sizeof out,
             run(out, sizeof out, "prm %s output_dir=%s", config(true), in_dir("prm")));
    json_t *v = read_json("prm/config.json"), *s = read_json("prm/step_separator.json");
    assert_string_equal(text_of(v, "architectures", 0), "LlamaForTokenClassification");
    assert_string_equal(json_string_value(json_object_get(s, "step_separator")), "\n\n");
    json_decref(v);
    json_decref(s);
    double accuracy = metric("prm/metrics.jsonl", "eval_accuracy");
    assert_true(accuracy >= 0 && accuracy <= 1);
    /* the share of a step's labels, too, in what a program reads and a person sees */
    accuracy = metric("prm/metrics.jsonl", "accuracy");
    assert_true(accuracy >= 0 && accuracy <= 1);
    assert_non_null(strstr(out, " accuracy="));
    must_run(out, sizeof out,
             run(out, sizeof out, "eval --model %s --task prm --data %s -o %s", in_dir("prm"),
                 stepwise, in_dir("scores.jsonl")));
    assert_non_null(strstr(out, "first error (F1)"));

    /* as part of an adapter's folder, and of what is merged from it */
    must_run(out, sizeof out,
             run(out, sizeof out,
                 "prm %s adapter=lora lora_r=2 lora_alpha=4 lora_target_modules=[q_proj] "
                 "merge_lora=true output_dir=%s",
                 config(true), in_dir("prml")));
    assert_true(hash_of("prml/step_separator.json") == hash_of("prm/step_separator.json"));
    assert_true(hash_of("prml/merged/step_separator.json") == hash_of("prm/step_separator.json"));
}

static void contradictions_are_one_line(void **state) {
    (void)state;
    static const struct {
        bool prm;
        const char *command, *words, *said;
        int code;
    } cases[] = {
        {false, "sft", "", "`axtrain sft` needs a configuration with no rl and no reward model", 2},
        {false, "prm", "", "`axtrain prm` needs a configuration with process_reward_model: true",
         2},
        {false, "train", "num_labels=2", "num_labels: a reward model has 1", 2},
        {true, "prm", "num_labels=1", "num_labels: a process reward model has 2", 2},
        {false, "train", "label_smoothing=0.1", "label_smoothing and z_loss_coef are not terms of",
         2},
        {true, "prm", "use_dynamic_finetuning=true", "a reward model predicts none", 2},
        {true, "prm", "reward_model=true", "use reward_model or process_reward_model", 2},
        {true, "prm", "rl=dpo", "use rl or a reward model, not both", 2},
        {true, "prm", "model_type=LlamaForCausalLM",
         "LlamaForCausalLM, but config.json of the base says LlamaForTokenClassification", 2},
    };
    find_goldens();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[8192];
        const int code = run(out, sizeof out, "%s %s %s output_dir=%s", cases[i].command,
                             config(cases[i].prm), cases[i].words, in_dir("none"));
        if (code != cases[i].code || !strstr(out, cases[i].said))
            fail_msg("case %zu: exit code %d: %s", i, code, out);
        assert_false(ax_path_exists(in_dir("none")));
    }
}

/* A folder with one head does not train another. */
static void another_head_is_refused(void **state) {
    (void)state;
    char out[8192], trained[512];
    find_goldens();
    snprintf(trained, sizeof trained, "%s", golden_path("runs/prm/prm_trained"));
    assert_int_equal(run(out, sizeof out, "train %s base_model=%s output_dir=%s", config(false),
                         trained, in_dir("none")),
                     2);
    assert_non_null(strstr(out, "the base is a process reward model with 2 labels, but the run "
                                "trains a reward model with 1. Start from the language model"));
    put_text("sft.yaml", "datasets:\n  - path: x.jsonl\n    type: completion\n" COMMON);
    assert_int_equal(run(out, sizeof out, "sft %s base_model=%s val_set_size=0 output_dir=%s",
                         in_dir("sft.yaml"), trained, in_dir("none")),
                     2);
    assert_non_null(strstr(out,
                           "a process reward model, which cannot learn to predict tokens. It is "
                           "for scoring"));
}

/* Scores are compared, so that a record alone has no loss by which it could be blamed. */
static void a_loss_that_rises_blames_no_record(void **state) {
    (void)state;
    char out[8192];
    find_goldens();
    const int code = run(out, sizeof out,
                         "train %s optimizer=sgd learning_rate=300 max_grad_norm=0 warmup_steps=0 "
                         "max_steps=9 save_strategy=no save_steps=null output_dir=%s",
                         config(false), in_dir("rising"));
    if (code != 6 || !strstr(out, "; records: none has a loss of its own. ") ||
        strstr(out, "(loss 0)"))
        fail_msg("exit code %d: %s", code, out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reward_model_is_trained_and_scores),
        cmocka_unit_test(an_adapter_with_packing_is_merged),
        cmocka_unit_test(readers_find_where_scores_were_trained),
        cmocka_unit_test(a_process_reward_model_knows_its_separator),
        cmocka_unit_test(contradictions_are_one_line),
        cmocka_unit_test(another_head_is_refused),
        cmocka_unit_test(a_loss_that_rises_blames_no_record),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
