/* `axtrain plan`: needs no weights, counts what a run then does, and says what it could not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/text/json.h"
#include "cmd/commands.h"
#include "tests/cmd/sft_case.h"

static char config[128], bare[128];

static void copy(const char *name) {
    char *from, *text, to[64];
    size_t len;
    assert_int_equal(ax_path_join(&from, golden_llama(), name), AX_OK);
    assert_int_equal(ax_read_file(from, 1 << 24, &text, &len), AX_OK);
    snprintf(to, sizeof to, "bare/%s", name);
    put_bytes(to, text, len);
    ax_free(from);
    ax_free(text);
}

/* A base of config.json and tokenizer alone, 25 records, and a configuration. */
static void open_case(void) {
    struct ax_buf rows = {0}, text = {0};
    need_binary();
    golden_llama();
    make_folder("bare");
    copy("config.json");
    copy("tokenizer.json");
    copy("tokenizer_config.json");
    for (int i = 0; i < 25; i++)
        assert_int_equal(ax_buf_printf(&rows, "{\"text\": \"%.*s\"}\n", 5 + i,
                                       "one two three four five six seven eight"),
                         AX_OK);
    put_bytes("rows.jsonl", rows.data, rows.len);
    snprintf(bare, sizeof bare, "%s", in_scratch("bare"));
    assert_int_equal(
        ax_buf_printf(&text,
                      "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/rows.jsonl\n"
                      "    type: completion\nsequence_len: 64\nlearning_rate: 1e-3\n"
                      "micro_batch_size: 2\ngradient_accumulation_steps: 2\nnum_epochs: 2\n"
                      "saves_per_epoch: 1\nfloat32: true\n",
                      bare, scratch, scratch),
        AX_OK);
    snprintf(config, sizeof config, "%s", put_bytes("c.yaml", text.data, text.len));
    ax_buf_free(&rows);
    ax_buf_free(&text);
    sft_command = "plan";
}

static void test_needs_no_weights(void **state) {
    (void)state;
    open_case();
    EXPECT(0, "steps    14, 2 epochs, ", config);
    EXPECT(0, "it fits", config);
    EXPECT(0, "recompute selective ", config, "--blocks");
    EXPECT(0, "at 5.00 k tokens/s\n", config, "--speed", "5000");
    EXPECT(0, ": 2 checkpoints of", config, "saves_per_epoch=null", "save_strategy=epoch");
    EXPECT(0, ": 1 checkpoint of", config, "saves_per_epoch=null", "save_strategy=steps");
    EXPECT(0, "micro-batch of 1 × 2048)", bare);
    EXPECT(0, "micro-batch of 1 × 2048)", "--model", bare);
    EXPECT(0, "of 3 × ", config, "micro_batch_size=3");
    EXPECT(0, "warn lr_scheduler: one_cycle moves the learning rate alone; ", config,
           "lr_scheduler=one_cycle");
    assert_false(ax_path_exists(in_scratch("out")));
    EXPECT(0, "adapter\n", config, "adapter=lora", "lora_r=4", "lora_alpha=8",
           "lora_target_linear=true", "peft_init_lora_weights=pissa");
    EXPECT(0, "adapter\n", config, "adapter=lora", "lora_r=4", "lora_alpha=8",
           "lora_target_linear=true", "merge_lora=true");
    /* and training, which does need them, says so */
    sft_command = "sft";
    EXPECT(3, "no weights", config);
}

static void test_what_is_missing_is_said(void **state) {
    (void)state;
    open_case();
    EXPECT(0, "data     not counted: datasets.0: nope.jsonl: no such file", config,
           "datasets.0.path=nope.jsonl");
    EXPECT(0, "steps    7\n", config, "datasets.0.path=nope.jsonl", "max_steps=7");
    EXPECT(0, "4 × 64)", config, "datasets.0.path=nope.jsonl", "micro_batch_size=4");
    EXPECT(0, "data     streamed, so ", config, "streaming=true", "max_steps=7");
    put_text("rows.jsonl", "{\"text\": \"whole\"}\n{\"text\": 7}\n");
    EXPECT(0, "not counted: datasets.0: ", config);
    assert_int_equal(ax_unlink(in_scratch("bare/tokenizer.json")), AX_OK);
    EXPECT(0, "tokenizer.json is missing", config);
    assert_int_equal(ax_unlink(in_scratch("bare/config.json")), AX_OK);
    EXPECT(1, "config.json", config);
    setenv("HF_HUB_OFFLINE", "1", 1);
    EXPECT(2, "no snapshot of it", "nobody/nothing"); /* the hub's cache is asked */
    unsetenv("HF_HUB_OFFLINE");
    /* a family that is not supported is told by its name, before the hub is asked */
    EXPECT(2,
           "google/recurrentgemma-2b: RecurrentGemma models are not supported; `axtrain config "
           "models`",
           "google/recurrentgemma-2b");
    EXPECT(2, "Phi-2 models are not supported; `axtrain config models`", config,
           "base_model=microsoft/phi-2");
    sft_command = "config";
    EXPECT(0, "warn base_model: microsoft/phi-2: Phi-2 models are not supported", "show", config,
           "base_model=microsoft/phi-2");
    sft_command = "plan";
    /* a name that does not resolve stays so: one attempt */
    char said[4096];
    setenv("HF_ENDPOINT", "https://no.such.host.invalid", 1);
    setenv("HF_HOME", scratch, 1);
    assert_int_equal(sft(said, sizeof said, 1, (const char *const[]){"nobody/nothing"}), 1);
    if (!strstr(said, "cannot reach the hub") || strstr(said, "try 2"))
        fail_msg("%s", said);
    unsetenv("HF_ENDPOINT");
    unsetenv("HF_HOME");
    EXPECT(2, "plan: expected a configuration, a model or --arch", "--json");
    EXPECT(2, "learning_rte", config, "learning_rte=1"); /* a typo is not forgiven */
}

static void test_a_gguf_is_not_converted(void **state) {
    (void)state;
    char path[128];
    open_case();
    snprintf(path, sizeof path, "%s", in_scratch("m.gguf"));
    sft_command = "convert";
    EXPECT(0, "m.gguf", golden_llama(), path, "--to", "gguf");
    sft_command = "plan";
    EXPECT(0, "llama, ", path);
    assert_false(ax_path_exists("last_run_prepared"));
}

/* The forecast is what the run then does: steps, bytes of a checkpoint, recompute. */
/* The plan of a mesh is that of its largest rank; data ranks share the steps. */
static void test_meshes(void **state) {
    (void)state;
    open_case();
    EXPECT(0, "mesh     pp2-dp_shard2: memory and compute are those of rank 1 of 4,", config,
           "--world", "4", "pipeline_parallel_size=2");
    EXPECT(
        0,
        "\npipeline 1f1b, 1 range of layers per rank: stages wait for each other 31 % of a step\n",
        config, "--world", "4", "pipeline_parallel_size=2");
    EXPECT(0, "  embedding, 2 layers ", config, "--world", "4", "pipeline_parallel_size=2");
    EXPECT(0, "  1 layer, head ", config, "--world", "4", "pipeline_parallel_size=2");
    EXPECT(0, "steps    8, 2 epochs, ", config, "--world", "2"); /* 7 rows each an epoch */
    EXPECT(0, "mesh     tp2: ", config, "tensor_parallel_size=2");
    EXPECT(0, "steps    14, 2 epochs, ", config, "tensor_parallel_size=2");
    EXPECT(2, "Nearest: dp_shard 1 with 2 ranks", config, "--world", "3", "tensor_parallel_size=2");
    EXPECT(2, "--world: expected an integer from 1 to 65536", config, "--world", "0");
    EXPECT(0, "\"ranks\": 4", config, "--world", "4", "--json");
    EXPECT(0, "\"pipeline_idle\": 0.3", config, "--json", "pipeline_parallel_size=2");
    EXPECT(0, "\"pipeline_idle\": 0.0", config, "--json");
}

static double number(const json_t *event, const char *key) {
    const json_t *v = json_object_get(event, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

/* Each thread has a workspace of its own. */
static void test_threads_take_memory(void **state) {
    (void)state;
    double bytes[2];
    sft_command = "plan";
    for (int i = 0; i < 2; i++) {
        char said[8192];
        static const char *const threads[] = {"1", "9"};
        const char *const args[] = {"--arch",  "llama-tiny",  "--seq",     "64",
                                    "--speed", "1",           "--threads", threads[i],
                                    "--json",  "--recompute", "off"};
        assert_int_equal(sft(said, sizeof said, 11, args), 0);
        json_t *plan = json_loads(strchr(said, '{'), 0, NULL);
        assert_non_null(plan);
        bytes[i] = number(json_object_get(plan, "memory"), "arena_bytes");
        json_decref(plan);
    }
    assert_true(bytes[1] > bytes[0]);
}

/* Of a model the stages' memory is that of its micro-batches, too. */
static void test_stages_of_a_model(void **state) {
    (void)state;
    char said[8192];
    static const char *const args[] = {"--arch",      "llama-tiny", "--mesh",  "pp=2",
                                       "--seq",       "512",        "--speed", "1",
                                       "--recompute", "off",        "--json"};
    json_error_t error;
    assert_int_equal(sft(said, sizeof said, 11, args), 0);
    json_t *plan = json_loads(strchr(said, '{'), 0, &error);
    assert_non_null(plan);
    const json_t *stages = json_object_get(json_object_get(plan, "mesh"), "stages");
    double most = 0;
    for (size_t i = 0; i < json_array_size(stages); i++)
        most = fmax(most, number(json_array_get(stages, i), "arena_bytes"));
    assert_true(most == number(json_object_get(plan, "memory"), "arena_bytes"));
    json_decref(plan);
}

/* A planned step as trace events: a stage's stream does one thing at a time, and ends with the step. */
static void test_timelines(void **state) {
    (void)state;
    char said[8192], path[160], option[200];
    enum { STAGES = 2 };
    double step = 0, end[STAGES] = {0}, work[STAGES] = {0}, waits = 0;
    int transfers = 0;
    json_error_t error;
    open_case();
    snprintf(path, sizeof path, "%s", in_scratch("plan.json"));
    const char *const args[] = {config,
                                "--world",
                                "4",
                                "pipeline_parallel_size=2",
                                "pipeline_parallel_schedule=zero_bubble",
                                "--hardware",
                                "h100-sxm-80",
                                "--timeline",
                                path,
                                "--json"};
    assert_int_equal(sft(said, sizeof said, 10, args), 0);
    json_t *plan = json_loads(strchr(said, '{'), 0, &error),
           *trace = json_load_file(path, 0, &error);
    assert_true(plan && trace);
    step = number(json_object_get(plan, "time"), "step_seconds");
    const json_t *events = json_object_get(trace, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        const int stage = (int)number(e, "pid");
        const char *kind = json_string_value(json_object_get(e, "cat"));
        assert_in_range(stage, 0, STAGES - 1);
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0)
            continue;
        const double begin = number(e, "ts") / 1e6, takes = number(e, "dur") / 1e6;
        transfers += number(e, "tid") > 0;
        assert_int_equal(number(e, "tid") > 0, strcmp(kind, "transfer") == 0);
        assert_true(begin >= 0 && begin + takes <= step + 1e-8);
        if (number(e, "tid") > 0)
            continue;
        assert_true(begin >= end[stage] - 1e-8); /* times are rounded to a nanosecond */
        end[stage] = begin + takes;
        *(strcmp(kind, "wait") == 0 ? &waits : &work[stage]) += takes;
    }
    assert_true(transfers > 0 && waits > 0);
    for (int stage = 0; stage < STAGES; stage++)
        assert_true(work[stage] > 0.1 * step);
    assert_true(end[0] > step - 1e-7 || end[1] > step - 1e-7);
    json_decref(plan);
    json_decref(trace);
    EXPECT(2, "--timeline needs --hardware NAME or --measured", config, "--timeline", path);
    snprintf(option, sizeof option, "%s/none/plan.json", in_scratch(""));
    EXPECT(1, "plan.json", config, "--hardware", "h200", "--timeline", option);
}

/* The keys of an object are those in the first column of a page's table; `above` is one that the page has
 * before it. */
static void expect_documented(const char *file, const char *path, const char *head,
                              const char *above) {
    json_t *object = json_load_file(in_scratch(file), 0, NULL), *v;
    struct ax_buf cells = {0};
    char *page, cell[64];
    const char *key;
    size_t len, marks = 0, unnamed = 0;
    assert_non_null(object);
    assert_int_equal(ax_read_file(path, 1 << 20, &page, &len), AX_OK);
    const char *line = strstr(page, head);
    assert_non_null(line);
    for (; *line == '|'; line = strchr(line, '\n') + 1)
        assert_int_equal(ax_buf_append(&cells, line, strcspn(line + 1, "|") + 1), AX_OK);
    for (const char *at = cells.data; (at = strchr(at, '`')) != NULL; at++)
        marks++;
    if (above)
        assert_int_equal(json_object_del(object, above), 0);
    json_object_foreach(object, key, v) {
        snprintf(cell, sizeof cell, "`%s%s`", key, json_is_array(v) ? "[]" : "");
        const bool named = strstr(cells.data, cell) != NULL;
        if (!named)
            print_error("%s: %s does not name %s\n", file, path, cell);
        unnamed += !named;
    }
    assert_int_equal(unnamed, 0);
    assert_int_equal(marks / 2, json_object_size(object));
    json_decref(object);
    ax_buf_free(&cells);
    ax_free(page);
}

/* A model whose layers have delta rule, latents and experts, with ranks, an adapter and answers between
 * steps: no other family has as many kinds of memory. */
static void test_many_kinds_of_memory(void **state) {
    (void)state;
    char said[8192], more[600];
    open_case();
    snprintf(more, sizeof more, "base_model=%s", golden_path("models/kimi_linear"));
    const char *const args[] = {config,
                                more,
                                "adapter=lora",
                                "lora_r=4",
                                "lora_target_linear=true",
                                "tensor_parallel_size=4",
                                "lora_alpha=8",
                                "serve={port: 0}"};
    const int rc = sft(said, sizeof said, 8, args);
    if (rc != 0)
        fail_msg("%d: %s", rc, said);
}

static void test_a_run_is_what_was_planned(void **state) {
    (void)state;
    char said[8192], more[600];
    struct ax_json_doc plan, run;
    struct stat model, training;
    open_case();
    snprintf(more, sizeof more, "base_model=%s", golden_llama());
    const char *const args[] = {config, "--json", more};
    assert_int_equal(sft(said, sizeof said, 3, args), 0);
    assert_int_equal(ax_json_parse(&plan, "plan", strchr(said, '{'), strlen(strchr(said, '{'))),
                     AX_OK);
    sft_command = "sft";
    EXPECT(0, "trained 14 of 14 steps", config, more);
    assert_int_equal(ax_json_load(&run, in_scratch("out/run.json"), 1 << 20), AX_OK);
    const struct ax_json p = ax_json_get(ax_json_root(&plan), "run");
    const struct ax_json data = ax_json_get(ax_json_root(&run), "data");
    int64_t tokens, counted, steps;
    double checkpoint;
    assert_int_equal(ax_json_i64(ax_json_get(p, "tokens_per_epoch"), 0, 1 << 20, &tokens), AX_OK);
    assert_int_equal(ax_json_i64(ax_json_get(data, "tokens"), 0, 1 << 20, &counted), AX_OK);
    assert_int_equal(tokens, counted);
    assert_int_equal(ax_json_i64(ax_json_get(p, "steps"), 0, 1 << 20, &steps), AX_OK);
    assert_int_equal(steps, 14);
    assert_int_equal(ax_json_f64(ax_json_get(p, "checkpoint_bytes"), &checkpoint), AX_OK);
    assert_int_equal(stat(in_scratch("out/checkpoint-14/model.safetensors"), &model), 0);
    assert_int_equal(stat(in_scratch("out/checkpoint-14/state/rank-00000.safetensors"), &training),
                     0);
    const double real = (double)model.st_size + (double)training.st_size; /* headers as well */
    assert_true(checkpoint < real && checkpoint > 0.97 * real);
    expect_documented("out/run.json", "docs/run.md", "| key | meaning |", NULL);
    expect_documented("out/checkpoint-14/state/manifest.json", "docs/checkpoint.md",
                      "| key | what |", "crc32c");
    ax_json_free(&plan);
    ax_json_free(&run);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs_no_weights),
        cmocka_unit_test(test_what_is_missing_is_said),
        cmocka_unit_test(test_a_gguf_is_not_converted),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_stages_of_a_model),
        cmocka_unit_test(test_threads_take_memory),
        cmocka_unit_test(test_timelines),
        cmocka_unit_test(test_many_kinds_of_memory),
        cmocka_unit_test(test_a_run_is_what_was_planned),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
