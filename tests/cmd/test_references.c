/* `axtrain dpo` with a folder for prepared data: what identifies a model, on ranks too; and which evaluation is the best. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char out[1 << 16];

/* A copy of the tiny llama, and pairs. */
static const char *configure(void) {
    static char path[128];
    struct ax_buf b = {0};
    char text[8192] = "", command[1200];
    for (int i = 0; i < 24; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"prompt\": \"say %d\", \"chosen\": \" %.*s\", \"rejected\": \" %d\"}\n", i,
                 1 + i % 17, "abcdefghijklmnopq", i * 31);
    put_text("pairs.jsonl", text);
    snprintf(command, sizeof command, "rm -rf %s/model %s/cache && cp -r '%s' %s/model", scratch,
             scratch, golden_path("models/llama"), scratch);
    assert_int_equal(system(command), 0);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s/model\nrl: dpo\noutput_dir: %s/out\n"
                      "dataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/pairs.jsonl\n"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 1\n"
                      "gradient_accumulation_steps: 2\nfloat32: true\nlogging_steps: 1\n"
                      "max_steps: 4\nval_set_size: 4\neval_steps: 2\nsave_strategy: no\n"
                      "ddp_timeout: 60\n",
                      scratch, scratch, scratch, scratch),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

/* The numbers of metrics.jsonl: a line per step or evaluation, without what is timed. */
static void numbers(struct ax_buf *all) {
    static const char *const keep[] = {
        "step", "loss", "grad_norm", "rewards/margins", "eval_loss", "eval_rewards/margins"};
    char *text, *rest, path[160];
    size_t len;
    all->len = 0;
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", scratch);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        for (size_t i = 0; i < sizeof keep / sizeof *keep && !json_object_get(v, "event"); i++)
            assert_int_equal(ax_buf_printf(all, "%s %.17g\n", keep[i],
                                           json_number_value(json_object_get(v, keep[i]))),
                             AX_OK);
        json_decref(v);
    }
    ax_free(text);
}

/* Runs; how many lists of log-probs it read. */
static int train(const char *words) {
    int n = 0;
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    if (run(out, sizeof out, "%s", words) != 0)
        fail_msg("%s", out);
    for (const char *at = out; (at = strstr(at, "read the reference's log-probs of ")) != NULL; n++)
        at++;
    return n;
}

static const char *words(const char *before, const char *config, const char *more) {
    static char text[512];
    snprintf(text, sizeof text, "%sdpo '%s' %s", before, config, more);
    return text;
}

static void what_changes_the_model(void **state) {
    (void)state;
    const char *config = configure();
    struct ax_buf first = {0}, now = {0};
    assert_int_equal(train(words("", config, "")), 0);
    numbers(&first);
    assert_int_equal(train(words("", config, "")), 2);
    numbers(&now);
    assert_int_equal(now.len, first.len);
    assert_memory_equal(now.data, first.data, first.len);
    /* what does not change it */
    assert_int_equal(train(words("", config, "learning_rate=1e-4 rl_beta=0.5")), 2);
    /* what does */
    assert_int_equal(train(words("", config, "float32=false bf16=true")), 0);
    assert_int_equal(train(words("", config, "model_config.rope_theta=500")), 0);
    assert_int_equal(
        train(words("", config, "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true")), 0);
    assert_int_equal(train(words("", config, "sequence_len=80 seed=7")), 0);
    assert_int_equal(
        train(words("", config, "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true")), 2);
    /* the same adapter, trained for a while */
    assert_int_equal(rename(in_scratch("out"), in_scratch("adapter")) == 0 ||
                         ax_path_exists(in_scratch("adapter")),
                     1);
    char from[256];
    snprintf(from, sizeof from,
             "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true lora_model_dir=%s/adapter",
             scratch);
    assert_int_equal(train(words("", config, from)), 0);
    assert_int_equal(train(words("", config, from)), 2);
    /* other weights of the same name */
    char weights[160];
    snprintf(weights, sizeof weights, "%s/model/model.safetensors", scratch);
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, weights, times, 0), 0);
    assert_int_equal(train(words("", config, "")), 0);
    assert_int_equal(train(words("", config, "")), 2);
    const struct timespec later[] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, weights, later, 0), 0);
    assert_int_equal(train(words("", config, "")), 0);
    assert_int_equal(train(words("", config, from)), 0);
    snprintf(weights, sizeof weights, "%s/adapter/adapter_model.safetensors", scratch);
    assert_int_equal(utimensat(AT_FDCWD, weights, times, 0), 0);
    assert_int_equal(train(words("", config, from)), 0);
    /* a configuration that is longer, although as old */
    char path[160];
    struct stat was;
    snprintf(path, sizeof path, "%s/model/config.json", scratch);
    assert_int_equal(stat(path, &was), 0);
    const struct timespec before[] = {was.st_atim, was.st_mtim};
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputc('\n', f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, before, 0), 0);
    assert_int_equal(train(words("", config, "")), 0);
    /* computed with rounded weights */
    assert_int_equal(train(words("", config, "qat.scheme=int8")), 0);
    assert_int_equal(train(words("", config, "qat.scheme=fp8")), 0);
    static const char lora[] = "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true "
                               "load_in_8bit=%s";
    for (int eight = 0; eight < 2; eight++) {
        char more[128];
        snprintf(more, sizeof more, lora, eight ? "true" : "false");
        assert_int_equal(train(words("", config, more)), 0);
    }
    ax_buf_free(&first);
    ax_buf_free(&now);
}

/* Data ranks and shards change no bit, so they read what one rank computed, and the other way round;
 * ranks that split a document do not. */
static void ranks_read_each_others(void **state) {
    (void)state;
    const char *config = configure();
    struct ax_buf plain = {0}, now = {0};
    const char *two = "gradient_accumulation_steps=1 dp_shard_size=2";
    const char *split = "tensor_parallel_size=2";
    assert_int_equal(train(words("launch -n 2 -- ", config,
                                 "gradient_accumulation_steps=1 dp_shard_size=2 "
                                 "dataset_prepared_path=null")),
                     0);
    numbers(&plain);
    assert_int_equal(train(words("", config, "")), 0);
    assert_int_equal(train(words("launch -n 2 -- ", config, two)), 2);
    numbers(&now);
    assert_int_equal(now.len, plain.len);
    assert_memory_equal(now.data, plain.data, plain.len);
    assert_int_equal(train(words("launch -n 2 -- ", config, split)), 0);
    assert_int_equal(train(words("launch -n 2 -- ", config, split)), 2);
    /* computed by two */
    assert_int_equal(ax_remove_tree(in_scratch("cache")), AX_OK);
    assert_int_equal(train(words("launch -n 2 -- ", config, two)), 0);
    numbers(&now);
    assert_memory_equal(now.data, plain.data, plain.len);
    assert_int_equal(train(words("", config, "")), 2);
    ax_buf_free(&plain);
    ax_buf_free(&now);
}

/* Of the first line that has it. */
static double first_number(const char *key) {
    char *text, path[160];
    size_t len;
    double value = NAN;
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", scratch);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    char *rest = text;
    for (char *line; isnan(value) && (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        if (json_is_number(json_object_get(v, key)))
            value = json_number_value(json_object_get(v, key));
        json_decref(v);
    }
    ax_free(text);
    return value;
}

/* Before the first step, on the pairs that it trains on: its loss, whatever terms it has. */
static void an_evaluation_is_a_step(void **state) {
    (void)state;
    static const char *const losses[] = {"rl=orpo", "dpo_loss_type=[sft]",
                                         "dpo_loss_type=[hinge,sft] dpo_loss_weights=[0.5,2]",
                                         "rl=simpo", "ld_alpha=0.5"};
    const char *config = configure();
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        char line[600];
        snprintf(
            line, sizeof line,
            "dpo '%s' %s val_set_size=0 test_datasets='[{path: %s/pairs.jsonl, split: train}]' "
            "micro_batch_size=24 gradient_accumulation_steps=1 max_steps=1",
            config, losses[i], scratch);
        (void)train(line);
        const double loss = first_number("loss"), eval = first_number("eval_loss");
        if (!(fabs(loss - eval) < 1e-5 * (1 + fabs(loss))))
            fail_msg("%s: step %.9g, evaluation %.9g", losses[i], loss, eval);
    }
}

/* It computes them from the base again, which may be another by now. */
static void a_resumed_run_has_the_same(void **state) {
    (void)state;
    char path[160];
    const char *config = configure();
    const char *saves = "dataset_prepared_path=null save_strategy=steps save_steps=2";
    char more[200];
    snprintf(more, sizeof more, "%s max_steps=2", saves);
    assert_int_equal(train(words("", config, more)), 0);
    snprintf(more, sizeof more, "%s resume_from_checkpoint=auto", saves);
    snprintf(path, sizeof path, "%s/model/model.safetensors", scratch);
    golden_flip(path);
    assert_int_equal(run(out, sizeof out, "%s", words("", config, more)), 2);
    assert_non_null(strstr(out, "/model are others than in the run that wrote"));
    golden_flip(path);
    assert_int_equal(run(out, sizeof out, "%s", words("", config, more)), 0);
}

/* Pairs have no perplexity and no accuracy of tokens: rewards say which evaluation is the best. Margins grow here. */
static void the_best_evaluation(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int code;
        const char *said;
    } cases[] = {
        {"metric_for_best_model=eval_rewards/margins", 0, "has the weights of checkpoint-4"},
        {"metric_for_best_model=rewards/margins greater_is_better=false", 0,
         "has the weights of checkpoint-2"},
        {"metric_for_best_model=eval_perplexity", 2, "is not one of eval_loss, eval_rewards/…"},
        {"metric_for_best_model=accuracy", 2, "is not one of eval_loss, eval_rewards/…"},
        {"metric_for_best_model=eval_perplexity rl=null reward_model=true", 2,
         "is not one of eval_loss, eval_accuracy"},
    };
    const char *config = configure();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[256];
        snprintf(more, sizeof more,
                 "load_best_model_at_end=true save_strategy=steps save_steps=2 %s", cases[i].words);
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
        const int code = run(out, sizeof out, "%s '%s' %s", i < 4 ? "dpo" : "reward", config, more);
        if (code != cases[i].code || !strstr(out, cases[i].said))
            fail_msg("%s: exit %d: %s", cases[i].words, code, out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_the_model), cmocka_unit_test(ranks_read_each_others),
        cmocka_unit_test(a_resumed_run_has_the_same), cmocka_unit_test(an_evaluation_is_a_step),
        cmocka_unit_test(the_best_evaluation)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
