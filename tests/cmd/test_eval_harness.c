/* `axtrain eval --task` with a program in place of lm-evaluation-harness (tests/cmd/harness): its prompts
 * get the answers that the harness has recorded with transformers; its results are printed; its mistakes
 * are errors, and nothing of it stays behind. tests/peers/check_harness.py has the harness itself. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"

static char out[1 << 20];

/* Runs `axtrain eval` on the tiny model, with the numbers that were recorded for it. */
static int eval(const char *fmt, ...) {
    char words[1600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    return run(out, sizeof out, "eval %s --dtype float32 --threads 1 %s",
               golden_path("models/llama"), words);
}

static void must_eval(const char *words) {
    if (eval("%s", words) != 0)
        fail_msg("%s: %s", words, out);
}

static json_t *parsed(const char *text, size_t n) {
    json_t *v = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    if (!v)
        fail_msg("not JSON: %s", text);
    return v;
}

/* The lines of --log-samples. */
static json_t *samples(void) {
    char *text;
    size_t len;
    json_t *list = json_array();
    assert_int_equal(ax_read_file(in_scratch("s.jsonl"), 1 << 24, &text, &len), AX_OK);
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
        json_array_append_new(list, parsed(at, strcspn(at, "\n")));
    ax_free(text);
    return list;
}

static json_t *recording(const char *name) {
    char path[600], *text;
    size_t len;
    snprintf(path, sizeof path, "%s", golden_path(name));
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &len), AX_OK);
    json_t *v = parsed(text, len);
    ax_free(text);
    return v;
}

static double number_at(const json_t *list, size_t i) {
    return json_number_value(json_array_get(list, i));
}

/* ---- what the model says ---- */

static void near(double want, double got) {
    const double tolerance = fmax(1e-4, 1e-6 * fabs(want));
    if (!(fabs(want - got) <= tolerance))
        fail_msg("log-likelihood %.9g, recorded as %.9g", got, want);
}

static json_t *run_recorded(const char *name, const char *more) {
    char words[1500];
    snprintf(words, sizeof words, "--task recorded:%s --max-length 256 --json --log-samples %s %s",
             golden_path(name), in_scratch("s.jsonl"), more);
    must_eval(words);
    return parsed(out, strlen(out));
}

static const json_t *result(const json_t *v, const char *task, const char *key) {
    return json_object_get(json_object_get(json_object_get(v, "results"), task), key);
}

static void choices_are_the_recorded_ones(void **state) {
    (void)state;
    static const char *const runs[] = {
        "runs/lm_eval/llama/mc_2shot.json", "runs/lm_eval/llama/mc_chat.json",
        "runs/lm_eval/llama/mc.json", "runs/lm_eval/llama/mc_chat_single.json"};
    for (int k = 0; k < 4; k++) {
        json_t *v = run_recorded(runs[k], ""), *want = recording(runs[k]), *lines = samples();
        const json_t *rows = json_object_get(want, "rows");
        double total = 0;
        assert_int_equal(json_array_size(lines), json_array_size(rows));
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *line = json_array_get(lines, i); /* in order */
            const json_t *row = json_array_get(rows, i), *list = json_object_get(row, "choices");
            assert_int_equal(json_integer_value(json_object_get(line, "doc_id")), i);
            for (size_t c = 0; c < json_array_size(list); c++) {
                const json_t *got = json_array_get(json_object_get(line, "resps"), c);
                const json_t *choice = json_array_get(list, c);
                near(json_number_value(json_object_get(choice, "loglikelihood")),
                     number_at(got, 0));
                assert_true(json_array_get(got, 1) == json_object_get(choice, "is_greedy"));
                total += number_at(got, 0);
            }
        }
        assert_true(fabs(total - json_number_value(result(v, "recorded", "total,none"))) < 1e-6);
        assert_int_equal(json_integer_value(json_object_get(v, "requests")), 120);
        assert_string_equal(json_string_value(json_object_get(v, "lm_eval")), "0.4.13");
        assert_true(json_integer_value(json_object_get(v, "shared_tokens")) > 500);
        json_decref(v);
        json_decref(want);
        json_decref(lines);
    }
}

static void texts_are_the_recorded_ones(void **state) {
    (void)state;
    static const char *const name = "runs/lm_eval/llama/rolling.json";
    json_t *v = run_recorded(name, ""), *want = recording(name), *lines = samples();
    const json_t *rows = json_object_get(want, "rows");
    assert_true(json_array_size(rows) == 10 && json_array_size(lines) == 10);
    for (size_t i = 0; i < 10; i++)
        near(json_number_value(json_object_get(json_array_get(rows, i), "loglikelihood")),
             number_at(json_object_get(json_array_get(lines, i), "words"), 0));
    assert_int_equal(json_integer_value(json_object_get(v, "requests")), 13); /* windows */
    json_decref(v);
    json_decref(want);
    json_decref(lines);
}

static void answers_are_the_recorded_ones(void **state) {
    (void)state;
    static const char *const runs[] = {
        "runs/lm_eval/llama/arith_2shot.json", "runs/lm_eval/llama/gsm8k_chat.json",
        "runs/lm_eval/llama/gsm8k_0shot.json", "runs/lm_eval/llama/gsm8k_2shot.json"};
    static const double equal[] = {12, 20, 20, 20};
    for (int k = 0; k < 4; k++) {
        json_t *v = run_recorded(runs[k], "");
        assert_true(json_number_value(result(v, "recorded", "total,none")) == equal[k]);
        json_decref(v);
    }
}

static void limits_reach_the_harness(void **state) {
    (void)state;
    json_t *v = run_recorded("runs/lm_eval/llama/mc.json", "--rows 2 --num-fewshot 3");
    const json_t *n = json_object_get(json_object_get(v, "n-samples"), "recorded");
    const json_t *shots = json_object_get(json_object_get(v, "n-shot"), "recorded");
    assert_int_equal(json_integer_value(n), 2);
    assert_int_equal(json_integer_value(shots), 3);
    json_decref(v);
}

static void messages_are_rendered(void **state) {
    (void)state;
#define TURN(role, text) "<|start_header_id|>" role "<|end_header_id|>\n\n" text
#define ASKED                                                                                      \
    "<|begin_of_text|>" TURN("system", "Count.<|eot_id|>") TURN("user", "One?<|eot_id|>")          \
        TURN("assistant", "1<|eot_id|>") TURN("user", "Two?<|eot_id|>") TURN("assistant", "")
    char words[600];
    snprintf(words, sizeof words,
             "--task rendered --apply-chat-template --system Count. --json "
             "--log-samples %s",
             in_scratch("s.jsonl"));
    must_eval(words);
    json_t *v = parsed(out, strlen(out)), *lines = samples();
    const json_t *texts = json_array_get(json_object_get(json_array_get(lines, 0), "arguments"), 0);
    assert_string_equal(json_string_value(json_array_get(texts, 0)), ASKED);
    assert_string_equal(json_string_value(json_array_get(texts, 1)), ASKED "It is");
    json_t *array = json_object_get(json_array_get(lines, 0), "array");
    json_t *want = json_pack("[fss]", 1.5, "N/A", "a");
    assert_true(json_equal(array, want));
    json_decref(want);
    assert_true(json_number_value(result(v, "rendered", "turns,none")) == 1);
    json_decref(v);
    json_decref(lines);
    must_eval("--task rendered --apply-chat-template --system Count. --json "
              "--fewshot-single-turn");
    v = parsed(out, strlen(out));
    assert_true(json_number_value(result(v, "rendered", "turns,none")) == 0);
    json_decref(v);
}

#define NO_SYSTEM                                                                                  \
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"           \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"                          \
    "{% if add_generation_prompt %}<assistant>{% endif %}"

/* As the harness does with a model of transformers. */
static void a_refused_system_message_is_left_out(void **state) {
    (void)state;
    char folder[300], command[1200];
    snprintf(folder, sizeof folder, "%s", in_scratch("plain"));
    snprintf(command, sizeof command, "cp -rL %s %s && chmod -R u+w %s",
             golden_path("models/llama"), folder, folder);
    assert_int_equal(system(command), 0);
    put_text("plain/chat_template.jinja", NO_SYSTEM);
    if (run(out, sizeof out,
            "eval %s --threads 1 --task rendered --apply-chat-template --system Count. "
            "--log-samples %s",
            folder, in_scratch("s.jsonl")) != 0)
        fail_msg("%s", out);
    json_t *lines = samples();
    const json_t *texts = json_array_get(json_object_get(json_array_get(lines, 0), "arguments"), 0);
    assert_string_equal(json_string_value(json_array_get(texts, 0)),
                        "<user>One?</><assistant>1</><user>Two?</><assistant>");
    assert_string_equal(json_string_value(json_array_get(texts, 1)),
                        "<user>One?</><assistant>1</><user>Two?</><assistant>It is");
    json_decref(lines);
}

static json_t *sampled(const char *more) {
    char words[400];
    snprintf(words, sizeof words, "--task sampled --json --log-samples %s %s",
             in_scratch("s.jsonl"), more);
    must_eval(words);
    return parsed(out, strlen(out));
}

/* Another seed draws other samples, and the same greedy answer. */
static void samples_differ(void **state) {
    (void)state;
    json_t *v = sampled(""), *lines = samples();
    assert_true(json_number_value(result(v, "sampled", "different,none")) == 1);
    assert_true(json_number_value(result(v, "sampled", "equal,none")) == 1);
    assert_true(json_number_value(result(v, "sampled", "narrow,none")) == 1);
    assert_int_equal(json_integer_value(json_object_get(v, "requests")), 1514);
    json_decref(v);
    v = sampled("--seed 7");
    json_t *others = samples();
    assert_true(json_array_size(others) == 10 && !json_equal(lines, others));
    assert_true(json_equal(json_array_get(lines, 9), json_array_get(others, 9)));
    json_decref(v);
    json_decref(lines);
    json_decref(others);
}

static void batches_change_nothing(void **state) {
    (void)state;
    static const char *const runs[] = {"runs/lm_eval/llama/mc_2shot.json",
                                       "runs/lm_eval/llama/rolling.json",
                                       "runs/lm_eval/llama/arith_2shot.json"};
    for (int k = 0; k < 3; k++) {
        json_t *v[2], *lines[2];
        for (int i = 0; i < 2; i++) {
            v[i] = run_recorded(runs[k], i == 0 ? "" : "--batch 1");
            lines[i] = samples();
        }
        assert_true(json_array_size(lines[0]) > 0 && json_equal(lines[0], lines[1]));
        for (int i = 0; i < 2; i++) {
            json_decref(v[i]);
            json_decref(lines[i]);
        }
    }
}

/* Rank 0 has the harness; all have the model. */
static void ranks_say_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"", "--mesh tp=2"};
    char path[600];
    snprintf(path, sizeof path, "%s", golden_path("runs/lm_eval/llama/mc.json"));
    must_eval("--task nested");
    json_t *one = run_recorded("runs/lm_eval/llama/mc.json", "");
    for (int k = 0; k < 2; k++) {
        const int code = run(out, sizeof out,
                             "launch -n 2 -- eval %s --dtype float32 --threads 1 --task "
                             "recorded:%s --max-length 256 --json %s",
                             golden_path("models/llama"), path, meshes[k]);
        if (code != 0)
            fail_msg("%s", out);
        json_t *v = parsed(out, strlen(out));
        near(json_number_value(result(one, "recorded", "total,none")),
             json_number_value(result(v, "recorded", "total,none")));
        json_decref(v);
    }
    json_decref(one);
    assert_int_equal(
        run(out, sizeof out, "launch -n 2 -- eval %s --task raises", golden_path("models/llama")),
        1);
    assert_non_null(strstr(out, "lm_eval: KeyError: 'no task of that\\nname'"));
}

/* ---- results ---- */

static void a_table(void **state) {
    (void)state;
    must_eval("--task nested");
    assert_non_null(strstr(
        out,
        "task                  shots  filter             metric                value\n"
        "Outside                      none               acc                  0.2500\n"
        "  inner\n"
        "    leaf                  2  none               acc                  0.5000 ± 0.1250\n"
        "                          2  strict             f1                      inf\n"
        "\n0 requests in 0.0 s: 0 prompt tokens computed, 0 shared; float32\n"));
}

/* Bootstrapped errors come from a pool of processes. */
static void what_it_starts_can_be_ended(void **state) {
    (void)state;
    must_eval("--task terminates --json");
    json_t *v = parsed(out, strlen(out));
    assert_true(json_number_value(result(v, "terminates", "by,none")) == SIGTERM);
    json_decref(v);
}

/* ---- mistakes ---- */

static void fails(int code, const char *words, const char *why) {
    const int got = eval("%s", words);
    if (got != code || !strstr(out, why))
        fail_msg("%s: exit code %d\n  said %s\n  not  %s", words, got, out, why);
}

static void options(void **state) {
    (void)state;
    fails(2, "--harness --task nested",
          "--harness is gone: --task NAME|FILE always runs lm-evaluation-harness; remove it");
    fails(2, "--log-samples x", "need --task NAME or --task FILE");
    fails(2, "--task final-answer --system x", "need --task NAME or --task FILE");
    fails(2, "--task nested --max-length 300", "more than the model's 256 positions");
    fails(2, "--task nested --data rows.jsonl", "remove --data");
}

static void a_harness_that_is_not_there(void **state) {
    (void)state;
    const char *set = getenv("AXTRAIN_PYTHON");
    char *python = set ? strdup(set) : NULL;
    setenv("FAKE_MISSING", "1", 1);
    fails(2, "--task nested", "-m pip install lm_eval==0.4.13`, or name another Python");
    unsetenv("FAKE_MISSING");
    setenv("AXTRAIN_PYTHON", "/nowhere/python3", 1);
    fails(2, "--task nested",
          "--task: cannot start /nowhere/python3: No such file or directory. Install Python, or "
          "name one in AXTRAIN_PYTHON");
    unsetenv("AXTRAIN_PYTHON");
    if (python)
        setenv("AXTRAIN_PYTHON", python, 1);
    free(python);
}

static void a_harness_that_fails(void **state) {
    (void)state;
    fails(1, "--task raises", "error lm_eval: KeyError: 'no task of that\\nname'");
    assert_non_null(strstr(out, "harness: lm_eval: on its standard output"));
    assert_non_null(strstr(out, "harness: lm_eval: Traceback"));
    fails(1, "--task dies", "lm_eval has ended without results: exit code 3");
    fails(3, "--task babbles", "lm_eval:1:");
    fails(1, "--task wants_beams", "num_beams is not supported");
    fails(3, "--task rendered --log-samples x", "with --apply-chat-template");
}

static void lines_that_say_nothing(void **state) {
    (void)state;
    static const char *const lines[][2] = {
        {"{\"score\": [[\"a\"]], \"more\": false}", "score[0][1]: expected text"},
        {"{\"score\": [[\"a\", \"\"]], \"more\": false}", "the answer has no tokens"},
        {"{\"score\": [], \"more\": 1}", "more: expected"},
        {"{\"score\": 7, \"more\": true}", "score: expected a list"},
        {"{\"roll\": [7], \"more\": false}", "roll[0]: expected text"},
        {"{\"generate\": [\"a\"], \"more\": false}", "max_tokens: "},
        {"{\"generate\": [\"a\"], \"more\": false, \"max_tokens\": 256, \"temperature\": 0, "
         "\"top_p\": 1, \"top_k\": 0}",
         "leaves no tokens for a prompt"},
        {"{\"generate\": [\"a\"], \"more\": false, \"max_tokens\": 2, \"temperature\": -1, "
         "\"top_p\": 1, \"top_k\": 0}",
         "expected a temperature"},
        {"[]", "lm_eval"},
        {"7", "lm_eval"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        setenv("FAKE_LINE", lines[i][0], 1);
        const int code = eval("--task asks");
        if (code < 2 || code > 3 || !strstr(out, lines[i][1]))
            fail_msg("%s: %d\n  said %s", lines[i][0], code, out);
    }
    unsetenv("FAKE_LINE");
}

static void results_of_another_shape(void **state) {
    (void)state;
    static const char *const shapes[][2] = {
        {"{\"group_subtasks\": {\"a\": [\"b\"]}}", "expected names with results"},
        {"{\"group_subtasks\": {\"b\": [\"a\"]}}", "expected a list, and results"},
        {"{\"results\": {\"a\": {}, \"b\": {}}, \"group_subtasks\": {\"a\": [\"b\"], \"b\": "
         "[\"b\"]}}",
         "groups in groups"},
        {"{\"higher_is_better\": 7}", "higher_is_better: expected an object"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        setenv("FAKE_RESULTS", shapes[i][0], 1);
        const int code = eval("--task shapeless");
        if (code != 3 || !strstr(out, shapes[i][1]))
            fail_msg("%s: %d\n  said %s", shapes[i][0], code, out);
    }
    unsetenv("FAKE_RESULTS");
}

/* ---- its end ---- */

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* The harness and what it has started in a session of its own, when axtrain gets a signal. */
static void nothing_stays(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGKILL};
    for (int k = 0; k < 2; k++) {
        char task[300], *text = NULL;
        size_t len;
        snprintf(task, sizeof task, "sleeps:%s", in_scratch("pids"));
        (void)unlink(in_scratch("pids"));
        const pid_t pid = fork();
        if (pid == 0) {
            execl(test_program(), "axtrain", "eval", golden_path("models/llama"), "--task", task,
                  NULL);
            _exit(99);
        }
        for (int i = 0; i < 1500 && !ax_path_exists(in_scratch("pids")); i++)
            nap();
        assert_int_equal(ax_read_file(in_scratch("pids"), 100, &text, &len), AX_OK);
        char *second;
        const pid_t theirs[] = {(pid_t)strtol(text, &second, 10), (pid_t)strtol(second, NULL, 10)};
        assert_int_equal(kill(pid, signals[k]), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        for (int i = 0; i < 2; i++) {
            for (int wait = 0; wait < 500 && kill(theirs[i], 0) == 0; wait++)
                nap();
            assert_true(theirs[i] > 1 && kill(theirs[i], 0) != 0 && errno == ESRCH);
        }
        ax_free(text);
    }
}

static int setup(void **state) {
    setenv("PYTHONPATH", "tests/cmd/harness", 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    return scratch_make(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_the_recorded_ones),
        cmocka_unit_test(texts_are_the_recorded_ones),
        cmocka_unit_test(answers_are_the_recorded_ones),
        cmocka_unit_test(limits_reach_the_harness),
        cmocka_unit_test(messages_are_rendered),
        cmocka_unit_test(a_refused_system_message_is_left_out),
        cmocka_unit_test(samples_differ),
        cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(ranks_say_the_same),
        cmocka_unit_test(a_table),
        cmocka_unit_test(what_it_starts_can_be_ended),
        cmocka_unit_test(options),
        cmocka_unit_test(a_harness_that_is_not_there),
        cmocka_unit_test(a_harness_that_fails),
        cmocka_unit_test(lines_that_say_nothing),
        cmocka_unit_test(results_of_another_shape),
        cmocka_unit_test(nothing_stays),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
