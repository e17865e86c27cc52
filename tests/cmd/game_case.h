/* A tiny model that has been taught to guess numbers, and runs in which it plays with Guess of
 * tests/goldens/tools/environments.py. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_GAME_CASE_H
#define AX_TESTS_CMD_GAME_CASE_H

#include "tests/cmd/grpo_case.h"

enum { QUESTIONS = 16, ANSWERS = 8 }; /* answers of a step */

static char base[256]; /* the model that has been taught */

static inline const char *configure_game(const char *model, const char *more) {
    struct ax_buf b = {0};
    static char path[256];
    assert_ok(ax_buf_printf(
        &b,
        "base_model: %s\nrl: grpo\ntrl:\n  num_generations: 4\n  max_completion_length: 120\n"
        "  environment_factory: '%s:Guess'\n  max_turns: 3\ndataset_prepared_path: %s/cache\n"
        "datasets:\n  - path: %s/questions.jsonl\nsequence_len: 512\nmicro_batch_size: 4\n"
        "gradient_accumulation_steps: 2\nlearning_rate: 1e-4\nlr_scheduler: constant\n"
        "seed: 3\nfloat32: true\nval_set_size: 0\nmax_steps: 2\nlogging_steps: 1\nsave_steps: "
        "1\n%s",
        model, golden_path("tools/environments.py"), scratch, scratch, more));
    snprintf(path, sizeof path, "%s", put_bytes("guess.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static inline json_t *line_of(const char *folder, int i) {
    char *text = read_text(folder, "completions.jsonl"), *rest = text, *line = NULL;
    for (int k = 0; k <= i; k++)
        line = strsep(&rest, "\n");
    json_t *v = json_loads(line ? line : "", JSON_ALLOW_NUL, NULL);
    ax_free(text);
    return v;
}

static inline const char *text_of(const json_t *v, const char *key) {
    return json_string_value(json_object_get(v, key));
}

/* Games as texts, with the prompt that a run has written. */
static inline void write_lessons(const char *prompt) {
    struct ax_buf b = {0};
    for (int i = 0; i < 32; i++) {
        json_t *v = json_pack("{s:o}", "text",
                              json_sprintf("%s<think>\n\n</think>\n\nIt is %d.<|im_end|>\n"
                                           "<|im_start|>user\nnot %d, number 1<|im_end|>\n"
                                           "<|im_start|>assistant\n<think>\n\n</think>\n\nIt is "
                                           "%d.",
                                           prompt, i % 10, i % 10, i / 3 % 10));
        char *line = json_dumps(v, JSON_COMPACT);
        assert_ok(ax_buf_printf(&b, "%s\n", line));
        ax_free_hook(line);
        json_decref(v);
    }
    put_bytes("lessons.jsonl", b.data, b.len);
    ax_buf_free(&b);
}

static inline int begin(void **state) {
    struct ax_buf b = {0};
    if (scratch_make(state) != 0)
        return -1;
    for (int i = 0; i < QUESTIONS; i++)
        assert_ok(ax_buf_printf(&b,
                                "{\"prompt\": [{\"role\": \"user\", \"content\": \"A number of one "
                                "digit.\"}], \"secret\": %d}\n",
                                i % 10));
    put_bytes("questions.jsonl", b.data, b.len);
    ax_buf_free(&b);
    train("first", configure_game(golden_path("runs/models/tools_qwen3"), ""), "max_steps=1");
    json_t *v = line_of("first", 0);
    assert_non_null(strstr(text_of(v, "prompt"), "A number of one digit. Guess.<|im_end|>"));
    write_lessons(text_of(v, "prompt"));
    json_decref(v);
    if (run(said, sizeof said,
            "sft /dev/null --quiet base_model='%s' datasets='[{path: %s/lessons.jsonl, type: "
            "completion}]' sequence_len=512 micro_batch_size=8 learning_rate=1e-2 num_epochs=40 "
            "warmup_steps=5 float32=true save_strategy=no output_dir='%s/taught'",
            golden_path("runs/models/tools_qwen3"), scratch, scratch) != 0)
        fail_msg("%s", said);
    snprintf(base, sizeof base, "%s/taught", scratch);
    return 0;
}

/* The number to be guessed. */
static inline int secret_of(const json_t *v) {
    return (int)((json_integer_value(json_object_get(v, "line")) - 1) % 10);
}

#endif
