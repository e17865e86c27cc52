/* Commands that ask a model, with tools: what it says is what a rollout would say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/tools_case.h"

#define TOOLS "--tools python --tools '%s/my_tools.py:multiply' --max-tool-calling-iterations 3 "

/* Lines of standard output, whose logs are apart. */
static char out[1 << 20];

static void ask(const char *before, const char *rest) {
    char command[1200];
    snprintf(command, sizeof command,
             "%sgenerate '%s' --dtype float32 --max-new-tokens 160 -o '%s/out' " TOOLS "%s", before,
             base, scratch, scratch, rest);
    if (run(said, sizeof said, "%s", command) != 0)
        fail_msg("%s", said);
    char *text = read_text(".", "out");
    snprintf(out, sizeof out, "%s", text);
    ax_free(text);
}

/* Answer i of the output; free with json_decref. */
static json_t *answer(int i) {
    const char *at = out;
    while (i-- > 0 && at)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    json_t *v = json_loadb(at, strcspn(at, "\n"), JSON_ALLOW_NUL, NULL);
    if (!v)
        fail_msg("no answer: %s", out);
    return v;
}

static const char *input(void) {
    static char text[300];
    snprintf(text, sizeof text, "--input '%s/questions.jsonl' --json ", scratch);
    return text;
}

static void ask_all(const char *before, const char *rest) {
    char text[600];
    snprintf(text, sizeof text, "%s%s", input(), rest);
    ask(before, text);
}

/* ---- the same answers as a rollout's ---- */

static void check_alike(const json_t *asked, const json_t *sampled) {
    static const char *const keys[] = {"prompt_ids", "completion_ids", "model_tokens", "tokens"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (!json_equal(json_object_get(asked, keys[k]), json_object_get(sampled, keys[k])))
            fail_msg("%s differ", keys[k]);
    /* all messages, those of the prompt first */
    json_t *all = json_object_get(asked, "messages"), *own = json_object_get(sampled, "messages");
    const size_t n = json_array_size(own), first = json_array_size(all) - n;
    assert_int_equal(first, 1);
    for (size_t i = 0; i < n; i++)
        assert_true(json_equal(json_array_get(all, first + i), json_array_get(own, i)));
    assert_int_equal(json_array_size(json_object_get(asked, "calls")),
                     json_array_size(json_object_get(sampled, "calls")));
    assert_true(json_is_true(json_object_get(sampled, "truncated")) ==
                (strcmp(json_string_value(json_object_get(asked, "finish")), "length") == 0));
}

static void greedy_answers_are_those_of_a_rollout(void **state) {
    size_t calls = 0;
    json_t *v;
    (void)state;
    train("greedy", configure_tools(base, ""), "max_steps=1 trl.top_k=1");
    ask_all("", "--temperature 0");
    for (int i = 0; (v = line_of("greedy", i)) != NULL; i++) {
        json_t *a = answer((int)json_integer_value(json_object_get(v, "line")) - 1);
        check_alike(a, v);
        calls += json_array_size(json_object_get(a, "calls"));
        json_decref(a);
        json_decref(v);
    }
    assert_true(calls > 0);
}

/* An evaluation's rollouts have the numbers, and so the random numbers, of answers to a file. It reports means. */
static void sampled_answers_are_those_of_an_evaluation(void **state) {
    char more[400];
    double length, frequency, sampled = 0, calls = 0;
    (void)state;
    snprintf(more, sizeof more,
             "max_steps=1 seed=7 trl.num_generations_eval=2 test_datasets='[{path: "
             "%s/questions.jsonl}]'",
             scratch);
    train("evaluated", configure_tools(base, ""), more);
    assert_true(numbers("evaluated", "eval_completions/mean_length", &length, 1) == 1);
    assert_true(numbers("evaluated", "eval_tools/call_frequency", &frequency, 1) == 1);
    ask_all("", "--n 2 --temperature 1 --seed 7");
    for (int i = 0; i < 32; i++) {
        json_t *a = answer(i);
        sampled += (double)json_integer_value(json_object_get(a, "tokens"));
        calls += (double)json_array_size(json_object_get(a, "calls"));
        json_decref(a);
    }
    assert_true(sampled / 32 == length);
    assert_true(calls > 0 && calls / 32 == frequency);
}

/* But for the seconds of calls. */
static json_t *without_seconds(int i) {
    json_t *a = answer(i), *calls = json_object_get(a, "calls");
    for (size_t k = 0; k < json_array_size(calls); k++)
        json_object_del(json_array_get(calls, k), "seconds");
    return a;
}

static void lanes_and_ranks_change_nothing(void **state) {
    static const struct {
        const char *before, *rest;
    } ways[] = {
        {"", "--batch 1 --threads 1"},
        {"", "--batch 5"},
        {"launch -n 2 -- ", "--mesh dp_replicate=2 --batch 3"},
        {"launch -n 2 -- ", "--mesh tp=2"},
    };
    json_t *want[16];
    (void)state;
    ask_all("", "--temperature 1 --seed 3");
    for (int i = 0; i < 16; i++)
        want[i] = without_seconds(i);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char rest[100];
        snprintf(rest, sizeof rest, "--temperature 1 --seed 3 %s", ways[w].rest);
        ask_all(ways[w].before, rest);
        for (int i = 0; i < 16; i++) {
            json_t *a = without_seconds(i);
            /* sums of tp's ranks are rounded otherwise */
            if (w == 3)
                json_object_set(a, "logprob", json_object_get(want[i], "logprob"));
            if (!json_equal(a, want[i]))
                fail_msg("%s: answer %d differs", ways[w].rest, i);
            json_decref(a);
        }
    }
    for (int i = 0; i < 16; i++)
        json_decref(want[i]);
}

/* ---- a conversation ---- */

static json_t *saved_chat(const char *name, const char *lines) {
    put_text("lines", lines);
    if (run(said, sizeof said,
            "chat '%s' --dtype float32 --temperature 0 --context 1024 --max-new-tokens 160 " TOOLS
            "< '%s/lines'",
            base, scratch, scratch) != 0)
        fail_msg("%s", said);
    json_t *v = json_load_file(in_scratch(name), 0, NULL);
    if (!v)
        fail_msg("%s", said);
    return v;
}

/* A greedy reply is that of `generate`; it is replaced and taken back with its calls. */
static void a_chat_calls_tools(void **state) {
    char lines[900], question[64];
    int calls = 0;
    (void)state;
    assert_int_equal(
        run(said, sizeof said, "chat --url http://127.0.0.1:1/v1 --tools python < /dev/null"), 2);
    assert_non_null(strstr(said, "--tools are for a model that is here"));
    ask_all("", "--temperature 0");
    for (int i = 0; i < 4; i++) {
        snprintf(question, sizeof question, "What is %d * 7?", i);
        snprintf(lines, sizeof lines,
                 "%s\n/retry\nWhat is 9 * 7?\n/undo\n/save %s/chat-%d\n/undo\n/save %s/none-%d\n",
                 question, scratch, i, scratch, i);
        char name[32];
        snprintf(name, sizeof name, "chat-%d", i);
        json_t *chat = saved_chat(name, lines), *want = answer(i);
        const json_t *messages = json_object_get(chat, "messages");
        if (!json_equal(messages, json_object_get(want, "messages")))
            fail_msg("%s", said);
        assert_true(json_equal(json_object_get(chat, "tools"), json_object_get(want, "tools")));
        calls += json_object_get(json_array_get(messages, 1), "tool_calls") != NULL;
        assert_true(!json_object_get(json_array_get(messages, 1), "tool_calls") ||
                    strstr(said, "\n← ") != NULL);
        json_decref(chat);
        json_decref(want);
        snprintf(name, sizeof name, "none-%d", i);
        chat = json_load_file(in_scratch(name), 0, NULL);
        assert_int_equal(json_array_size(json_object_get(chat, "messages")), 0);
        json_decref(chat);
    }
    assert_true(calls > 0);
}

/* ---- what people see ---- */

static void turns_are_shown(void **state) {
    char want[2000], *at = want;
    (void)state;
    ask("", "--prompt 'What is 3 * 7?' --json");
    json_t *v = answer(0);
    const json_t *messages = json_object_get(v, "messages");
    assert_true(json_array_size(json_object_get(v, "tools")) == 2);
    assert_string_equal(json_string_value(json_object_get(v, "prompt")), "What is 3 * 7?");
    for (size_t i = 1; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *content = json_string_value(json_object_get(m, "content"));
        const json_t *f =
            json_object_get(json_array_get(json_object_get(m, "tool_calls"), 0), "function");
        if (strcmp(json_string_value(json_object_get(m, "role")), "tool") == 0)
            at += sprintf(at, "← ");
        if (*content)
            at += sprintf(at, "%s\n", content);
        if (!f)
            continue;
        char *arguments = json_dumps(json_object_get(f, "arguments"), 0);
        at += sprintf(at, "→ %s %s\n", json_string_value(json_object_get(f, "name")), arguments);
        ax_free_hook(arguments);
    }
    json_decref(v);
    assert_non_null(strstr(want, "→ "));
    ask("", "--prompt 'What is 3 * 7?'");
    assert_string_equal(out, want);
}

static void a_slow_tool_ends_its_answer(void **state) {
    int ended = 0;
    (void)state;
    setenv("AXTRAIN_TOOL_MOOD", "slow", 1);
    ask_all("", "--temperature 1 --seed 3 --rollout-timeout 0.2");
    unsetenv("AXTRAIN_TOOL_MOOD");
    for (int i = 0; i < 16; i++) {
        json_t *a = answer(i);
        double seconds = 0;
        const json_t *calls = json_object_get(a, "calls");
        for (size_t k = 0; k < json_array_size(calls); k++)
            seconds += json_number_value(json_object_get(json_array_get(calls, k), "seconds"));
        const bool late = strcmp(json_string_value(json_object_get(a, "finish")), "timeout") == 0;
        assert_true(late == (seconds > 0.2));
        ended += late;
        json_decref(a);
    }
    assert_true(ended > 0);
}

/* A scorer reads the last message of each answer; the turns of the best one are printed. */
static void the_best_answer_is_chosen(void **state) {
    char rest[700];
    (void)state;
    snprintf(rest, sizeof rest,
             "--prompt 'What is 3 * 7?' --seed 2 --best-of 3 --scorer '%s' --json",
             golden_path("runs/reward/margin_trained"));
    ask("", rest);
    json_t *best = answer(0);
    const json_t *scores = json_object_get(best, "scores");
    const double score = json_number_value(json_object_get(best, "score"));
    for (size_t i = 0; i < 3; i++)
        assert_true(json_number_value(json_array_get(scores, i)) <= score);
    const long long chosen = json_integer_value(json_object_get(best, "sample"));
    ask("", "--prompt 'What is 3 * 7?' --seed 2 --n 3 --temperature 1 --json");
    json_t *same = answer((int)chosen);
    assert_true(json_equal(json_object_get(best, "completion_ids"),
                           json_object_get(same, "completion_ids")));
    assert_true(json_equal(json_object_get(best, "messages"), json_object_get(same, "messages")));
    assert_true(json_array_size(json_object_get(best, "messages")) > 1);
    json_decref(best);
    json_decref(same);
}

/* ---- eval ---- */

static void eval_with(const char *tools, const char *rest) {
    if (run(said, sizeof said,
            "eval '%s' --data '%s/asked.jsonl' --task final-answer --max-new-tokens 160 -o "
            "'%s/out' %s--tools '%s/my_tools.py:multiply' --max-tool-calling-iterations 3 %s",
            base, scratch, scratch, tools, scratch, rest) != 0)
        fail_msg("%s", said);
    char *text = read_text(".", "out");
    snprintf(out, sizeof out, "%s", text);
    ax_free(text);
}

static void eval(const char *rest) {
    eval_with("--tools python ", rest);
}

static void put_questions(void) {
    struct ax_buf b = {0};
    for (int i = 0; i < 16; i++)
        assert_ok(ax_buf_printf(&b,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"What is %d * "
                                "7?\"}, {\"role\": \"assistant\", \"content\": \"#### %d\"}]}\n",
                                i, 7 * i));
    put_bytes("asked.jsonl", b.data, b.len);
    ax_buf_free(&b);
}

static void answers_are_evaluated_with_tools(void **state) {
    char want[16][600];
    size_t calls = 0;
    (void)state;
    put_questions();
    ask_all("", "--temperature 0");
    for (int i = 0; i < 16; i++) {
        json_t *a = answer(i);
        snprintf(want[i], sizeof want[i], "%s", json_string_value(json_object_get(a, "text")));
        json_decref(a);
    }
    eval("--per-row --dtype float32");
    for (int i = 0; i < 16; i++) {
        json_t *a = answer(i);
        assert_string_equal(json_string_value(json_object_get(a, "answer")), want[i]);
        calls += json_array_size(json_object_get(a, "calls"));
        json_decref(a);
    }
    json_t *total = answer(16), *tools = json_object_get(total, "tools");
    assert_int_equal(json_integer_value(json_object_get(tools, "calls")), calls);
    assert_true(calls > 8);
    json_decref(total);
    eval("--samples 2 --dtype float32 --seed 1");
    assert_non_null(strstr(out, "pass@2"));
    assert_non_null(strstr(out, "calls of tools"));
}

/* Of one likely token each, samples are the greedy answer: each calls as often. */
static void calls_of_samples_are_counted(void **state) {
    size_t calls = 0, failed = 0;
    char line[64];
    (void)state;
    put_questions();
    eval("--per-row --dtype float32");
    for (int i = 0; i < 16; i++) {
        json_t *a = answer(i);
        const json_t *list = json_object_get(a, "calls");
        for (size_t k = 0; k < json_array_size(list); k++)
            failed += json_is_true(json_object_get(json_array_get(list, k), "failed"));
        calls += json_array_size(list);
        json_decref(a);
    }
    assert_true(calls > 8);
    eval("--samples 2 --dtype float32 --top-p 1e-6");
    snprintf(line, sizeof line, "\n%zu calls of tools, %zu failed\n", 2 * calls, 2 * failed);
    if (!strstr(out, line))
        fail_msg("not %s: %s", line, out);
    eval("--samples 2 --dtype float32 --top-p 1e-6 --json");
    json_t *all = json_loads(out, JSON_ALLOW_NUL, NULL), *tools = json_object_get(all, "tools");
    assert_int_equal(json_integer_value(json_object_get(tools, "calls")), 2 * calls);
    assert_int_equal(json_integer_value(json_object_get(tools, "failed")), 2 * failed);
    json_decref(all);
}

/* Of a tool that is not there, and of one that raises an exception. */
static void calls_that_fail_are_counted(void **state) {
    size_t calls = 0, failed = 0;
    long long n[2];
    (void)state;
    put_questions();
    setenv("AXTRAIN_TOOL_MOOD", "raise", 1);
    eval_with("", "--per-row --dtype float32");
    for (int i = 0; i < 16; i++) {
        json_t *a = answer(i), *list = json_object_get(a, "calls");
        calls += json_array_size(list);
        for (size_t k = 0; k < json_array_size(list); k++)
            failed += json_is_true(json_object_get(json_array_get(list, k), "failed"));
        json_decref(a);
    }
    json_t *total = answer(16), *tools = json_object_get(total, "tools");
    assert_true(failed > 0);
    assert_int_equal(json_integer_value(json_object_get(tools, "calls")), calls);
    assert_int_equal(json_integer_value(json_object_get(tools, "failed")), failed);
    json_decref(total);
    eval("--samples 2 --dtype float32 --seed 1");
    unsetenv("AXTRAIN_TOOL_MOOD");
    const char *said_of = strstr(out, " calls of tools, ");
    assert_non_null(said_of);
    while (said_of > out && said_of[-1] >= '0' && said_of[-1] <= '9')
        said_of--;
    assert_int_equal(sscanf(said_of, "%lld calls of tools, %lld failed", &n[0], &n[1]), 2);
    assert_true(n[1] > 0 && n[1] < n[0]);
}

/* ---- refusals ---- */

static void what_cannot_be_is_refused(void **state) {
    static const struct {
        const char *command, *why;
    } cases[] = {
        {"generate '%s' --prompt x --tool-timeout 3", "need --tools"},
        {"generate '%s' --prompt x --tools nothing", "--tools: tool \"nothing\": expected python"},
        {"generate '%s' --prompt x --tools python --stop y", "--tools: texts that end an answer"},
        {"generate '%s' --prompt x --tools python --tool-call-format xml",
         "--tool-call-format: expected one of hermes"},
        {"generate '%s' --prompt x --tools python --tool-parse-error x",
         "--tool-parse-error: expected answer or end"},
        {"generate '%s' --prompt x --tools python --python-state x",
         "--python-state: expected fresh or kept"},
        {"generate '%s' --prompt x --tools python --rollout-timeout 0",
         "--rollout-timeout: expected seconds above 0"},
        {"eval '%s' --data /dev/null --tools python", "--tools needs --task final-answer"},
    };
    char command[600];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(command, sizeof command, cases[i].command, base);
        if (run(said, sizeof said, "%s", command) != 2 || !strstr(said, cases[i].why))
            fail_msg("%s: %s", cases[i].command, said);
    }
    snprintf(command, sizeof command, "cp -r '%s' '%s/plain' && rm '%s/plain/chat_template.jinja'",
             base, scratch, scratch);
    assert_int_equal(system(command), 0);
    assert_int_equal(
        run(said, sizeof said, "generate '%s/plain' --prompt x --tools python", scratch), 2);
    assert_non_null(strstr(said, "has no chat template, which writes calls"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_answers_are_those_of_a_rollout),
        cmocka_unit_test(sampled_answers_are_those_of_an_evaluation),
        cmocka_unit_test(lanes_and_ranks_change_nothing),
        cmocka_unit_test(a_chat_calls_tools),
        cmocka_unit_test(turns_are_shown),
        cmocka_unit_test(a_slow_tool_ends_its_answer),
        cmocka_unit_test(the_best_answer_is_chosen),
        cmocka_unit_test(answers_are_evaluated_with_tools),
        cmocka_unit_test(calls_of_samples_are_counted),
        cmocka_unit_test(calls_that_fail_are_counted),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, teach_tools, scratch_remove);
}
