/* Environments: TRL's of a recorded run, those that answer turns, in Python and as programs, and all that can go
 * wrong with one episode while others go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "data/tools/tools.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static const char program[] =
    "#!/usr/bin/env python3\n"
    "import json, os, sys, time\n"
    "secrets = {}\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    a = {}\n"
    "    if 'environment' in q:\n"
    "        p = {'type': 'object', 'properties': {}}\n"
    "        a = {'steps': True, 'tools': [{'type': 'function', 'function': {'name': 'hint', "
    "'description': 'Tells it.', 'parameters': p}}]}\n"
    "    elif 'reset' in q:\n"
    "        secrets[q['rollout']] = q['reset']['secret']\n"
    "        a = {'observation': 'Guess.'}\n"
    "    elif 'call' in q: a = {'result': f\"{secrets[q['rollout']]} {q['turn']}\"}\n"
    "    elif 'close' in q: a = {'reward': 5}\n"
    "    elif q['step'] == 'die': os._exit(1)\n"
    "    elif q['step'] == 'rubbish': print('rubbish', flush=True); continue\n"
    "    elif q['step'] == 'number': a = {'observation': 1}\n"
    "    elif q['step'] == 'done': a = {'observation': 'x', 'done': 1}\n"
    "    elif q['step'] == 'error': a = {'error': 'not now'}\n"
    "    elif q['step'] == 'flood': a = {'observation': 'x' * 10_000_000}\n"
    "    elif q['step'] == str(secrets[q['rollout']]): a = {'observation': 'right', 'reward': 1, "
    "'done': True}\n"
    "    else: a = {'observation': 'no', 'reward': None}\n"
    "    print(json.dumps(a), flush=True)\n";

static struct ax_tools *tools;

static enum ax_status open_named(const char *name, double timeout) {
    const struct ax_tools_options o = {.environments = &name,
                                       .n_environments = 1,
                                       .timeout = timeout,
                                       .program = getenv("AX_TEST_BIN")};
    return ax_tools_open(&tools, &o);
}

static const char *class_of(const char *name) {
    static char path[600];
    snprintf(path, sizeof path, "%s:%s", golden_path("tools/environments.py"), name);
    return path;
}

static int begin(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    put_text("guess", program);
    assert_int_equal(chmod(in_scratch("guess"), 0700), 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_tools_close(tools);
    tools = NULL;
    return 0;
}

/* ---- questions ---- */

/* Free its text. `v` is taken. */
static enum ax_status ask(enum ax_ask what, json_t *v, int64_t rollout,
                          struct ax_tool_result *out) {
    const struct ax_tool_request r = {
        .ask = what, .call = v, .rollout = rollout, .seed = 40 + rollout, .turn = 2};
    *out = (struct ax_tool_result){0};
    const enum ax_status st = ax_tools_run(tools, 1, &r, NULL, out);
    json_decref(v);
    return st;
}

static void reset(int64_t rollout, const char *record, const char *want) {
    struct ax_tool_result r;
    assert_ok(ask(AX_ASK_RESET, json_loads(record, 0, NULL), rollout, &r));
    assert_false(r.lost);
    assert_string_equal(r.text, want);
    ax_free(r.text);
}

/* reward NaN: none. */
static void step(int64_t rollout, const char *answer, const char *want, double reward, bool done) {
    struct ax_tool_result r;
    assert_ok(ask(AX_ASK_STEP, json_string(answer), rollout, &r));
    if (r.lost || strcmp(r.text, want) != 0 || r.done != done || r.rewarded == isnan(reward) ||
        (r.rewarded && r.reward != reward))
        fail_msg("%s: \"%s\", reward %g (%d), done %d, lost %d", answer, r.text, r.reward,
                 r.rewarded, r.done, r.lost);
    ax_free(r.text);
}

static enum ax_status lose(enum ax_ask what, json_t *v, int64_t rollout) {
    struct ax_tool_result r;
    const enum ax_status st = ask(what, v, rollout, &r);
    assert_true(r.lost && !r.rewarded);
    ax_free(r.text);
    return st;
}

static void call(int64_t rollout, const char *name, json_t *arguments, const char *want) {
    struct ax_tool_result r;
    assert_ok(ask(AX_ASK_CALLS,
                  json_pack("{s:{s:s, s:o}}", "function", "name", name, "arguments", arguments),
                  rollout, &r));
    assert_string_equal(r.text, want);
    ax_free(r.text);
}

static double close_it(int64_t rollout) {
    struct ax_tool_result r;
    assert_ok(ask(AX_ASK_CLOSE, json_null(), rollout, &r));
    ax_free(r.text);
    return r.rewarded ? r.reward : NAN;
}

/* ---- TRL's ---- */

/* The results in a conversation are what the tools give for the calls before them. */
static void play(int64_t rollout, const json_t *messages) {
    size_t next = 0;
    const json_t *calls = NULL;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        if (strcmp(json_string_value(json_object_get(m, "role")), "assistant") == 0) {
            calls = json_object_get(m, "tool_calls");
            next = 0;
            continue;
        }
        struct ax_tool_result r;
        assert_ok(ask(AX_ASK_CALLS, json_incref(json_array_get(calls, next++)), rollout, &r));
        assert_string_equal(r.text, json_string_value(json_object_get(m, "content")));
        ax_free(r.text);
    }
}

static void a_recorded_one_is_repeated(void **state) {
    struct ax_json_doc run;
    char line[1 << 16];
    int64_t rollout = 0;
    (void)state;
    assert_ok(open_named(class_of("Till"), 0));
    assert_string_equal(ax_tools_environment(tools, 0), "Till");
    assert_false(ax_tools_answer_turns(tools, 0));
    assert_ok(ax_json_load(&run, golden_path("runs/grpo_tools/till.json"), 1 << 20));
    assert_true(json_equal(ax_tools_definitions(tools), json_object_get(run.root, "tools")));
    ax_json_free(&run);
    FILE *f = fopen(golden_path("runs/data/tools_till.jsonl"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *record = json_loads(line, 0, NULL);
        const json_t *rewards = json_object_get(record, "Till");
        for (size_t i = 0; i < json_array_size(rewards); i++, rollout++) {
            reset(rollout, line, json_string_value(json_object_get(record, "reset")));
            play(rollout, json_array_get(json_object_get(record, "messages"), i));
            assert_float_equal(close_it(rollout), json_number_value(json_array_get(rewards, i)), 0);
        }
        json_decref(record);
    }
    (void)fclose(f);
    assert_int_equal(rollout, 32);
}

/* ---- those that answer turns ---- */

static void turns_are_answered(void **state) {
    (void)state;
    assert_ok(open_named(class_of("Guess"), 0));
    assert_true(ax_tools_answer_turns(tools, 0));
    assert_int_equal(json_array_size(ax_tools_definitions(tools)), 0);
    reset(1, "{\"secret\": 7, \"prompt\": [], \"other\": 1}", " Guess.");
    reset(2, "{}", " Guess."); /* with the default, and a state of its own */
    reset(3, "{\"secret\": 0}", "");
    step(1, "It is 3?", "not 3, number 1", -0.25, false);
    step(2, "It is 3?", "right after 1", 1, true);
    step(1, "seed", "41", NAN, false);
    step(1, "five", "five", 0.5, true);
    step(1, "dict", "a dict", 2, false);
    step(1, "7", "right after 5", 1, true);
    step(3, "none", "", NAN, true);
    for (int i = 1; i <= 3; i++)
        assert_true(isnan(close_it(i)));
    end(state);
    assert_ok(open_named(class_of("Open"), 0));
    reset(1, "{}", "");
    step(1, "echo", "echo", NAN, false);
    end(state);
    assert_ok(open_named(class_of("make"), 0));
    assert_string_equal(ax_tools_environment(tools, 0), "Guess");
}

static void one_may_have_tools_too(void **state) {
    (void)state;
    assert_ok(open_named(class_of("Both"), 0));
    assert_int_equal(json_array_size(ax_tools_definitions(tools)), 1);
    reset(1, "{\"secret\": 5}", " Guess.");
    reset(2, "{\"secret\": 6}", " Guess.");
    call(1, "hint", json_object(), "5");
    call(2, "hint", json_object(), "6");
    call(2, "hint", json_pack("{s:i}", "x", 1),
         "{'error': \"Both.hint() got an unexpected keyword argument 'x'\"}");
    step(1, "4", "not 4, number 1", -0.25, false);
    assert_float_equal(close_it(1), 10, 0);
    assert_float_equal(close_it(2), 0, 0);
}

/* ---- several ---- */

static void ask_of(size_t environment, enum ax_ask what, json_t *v, const char *want) {
    const struct ax_tool_request r = {
        .ask = what, .call = v, .rollout = 1, .environment = environment, .turn = 2};
    struct ax_tool_result out = {0};
    assert_ok(ax_tools_run(tools, 1, &r, NULL, &out));
    json_decref(v);
    assert_false(out.lost);
    assert_string_equal(out.text, want);
    ax_free(out.text);
}

static json_t *call_of(const char *name) {
    return json_pack("{s:{s:s, s:{}}}", "function", "name", name, "arguments");
}

/* Records choose one by its name. Both have a tool of the same name, and answers of one have none of another. */
static void records_choose_one(void **state) {
    static const char *const keys[] = {"both", "guess", "said"};
    char both[600], said[600];
    (void)state;
    put_text("said.py", "class Said:\n"
                        "    def reset(self, **columns):\n"
                        "        return ' '.join(sorted(columns))\n"
                        "    def hint(self) -> str:\n"
                        "        '''Tells nothing.'''\n"
                        "        return 'nothing'\n");
    snprintf(both, sizeof both, "%s", class_of("Both"));
    snprintf(said, sizeof said, "%s:Said", in_scratch("said.py"));
    const char *const names[] = {both, class_of("Guess"), said};
    const struct ax_tools_options o = {
        .environments = names, .keys = keys, .n_environments = 3, .program = getenv("AX_TEST_BIN")};
    assert_ok(ax_tools_open(&tools, &o));
    assert_int_equal(ax_tools_environments(tools), 3);
    for (size_t k = 0; k < 3; k++) {
        json_t *record = json_pack("{s:s, s:i}", "environment", keys[k], "secret", 4);
        assert_int_equal(ax_tools_choose(tools, record), k);
        assert_ptr_equal(json_object_get(ax_tools_definitions(tools), keys[k]),
                         ax_tools_definitions_of(tools, k));
        assert_int_equal(json_array_size(ax_tools_definitions_of(tools, k)), k != 1);
        assert_true(ax_tools_answer_turns(tools, k) == (k < 2));
        /* which column has chosen it is not what it is told */
        ask_of(k, AX_ASK_RESET, record, k < 2 ? " Guess." : "secret seed");
    }
    ask_of(0, AX_ASK_CALLS, call_of("hint"), "4");
    ask_of(1, AX_ASK_CALLS, call_of("hint"), "{'error': 'Tool hint not found.'}");
    ask_of(2, AX_ASK_CALLS, call_of("hint"), "nothing");
    ask_of(0, AX_ASK_STEP, json_string("4"), "right after 1");
    ask_of(1, AX_ASK_STEP, json_string("4"), "right after 1");
}

static void programs_answer_turns(void **state) {
    (void)state;
    assert_ok(open_named(in_scratch("guess"), 0));
    assert_string_equal(ax_tools_environment(tools, 0), "guess");
    assert_true(ax_tools_answer_turns(tools, 0));
    reset(1, "{\"secret\": 5}", "Guess.");
    reset(2, "{\"secret\": 6}", "Guess.");
    call(1, "hint", json_object(), "5 2");
    step(1, "6", "no", NAN, false);
    step(2, "6", "right", 1, true);
    assert_float_equal(close_it(1), 5, 0);
    /* each of these ends one episode */
    static const char *const bad[] = {"die", "rubbish", "number", "done", "error", "flood"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        reset(1, "{\"secret\": 5}", "Guess.");
        assert_ok(lose(AX_ASK_STEP, json_string(bad[i]), 1));
        step(2, "7", "no", NAN, false); /* played again where its process is gone */
    }
    assert_float_equal(close_it(2), 5, 0);
}

/* ---- what goes wrong ---- */

static void an_episode_fails_alone(void **state) {
    static const char *const bad[] = {"die", "hang", "raise", "nan", "pair"};
    (void)state;
    assert_ok(open_named(class_of("Guess"), 1));
    reset(100, "{\"secret\": 9}", " Guess.");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char number[32];
        const double start = ax_clock_now();
        reset((int64_t)i, "{\"secret\": 1}", " Guess.");
        assert_ok(lose(AX_ASK_STEP, json_string(bad[i]), (int64_t)i));
        assert_true(ax_clock_now() - start < 20);
        /* it is asked no more, and is not told so again */
        assert_ok(lose(AX_ASK_STEP, json_string("1"), (int64_t)i));
        assert_ok(lose(AX_ASK_CLOSE, json_null(), (int64_t)i));
        snprintf(number, sizeof number, "not 2, number %zu", i + 1);
        step(100, "2", number, -0.25, false);
    }
    assert_ok(lose(AX_ASK_RESET, json_pack("{s:s}", "secret", "raise"), 7));
    step(100, "9", "right after 6", 1, true);
}

static void floods_are_cut(void **state) {
    struct ax_tool_result r;
    (void)state;
    assert_ok(open_named(class_of("Guess"), 10));
    reset(1, "{}", " Guess.");
    assert_ok(ask(AX_ASK_STEP, json_string("flood"), 1, &r));
    assert_true(!r.lost && r.n <= AX_TOOLS_RESULT + 100);
    assert_non_null(strstr(r.text, "are left out ...]"));
    ax_free(r.text);
    step(1, "print", "not 0, number 2", -0.25, false);
}

static void three_failures_in_a_row_end_the_run(void **state) {
    (void)state;
    assert_ok(open_named(class_of("Guess"), 5));
    for (int i = 0; i < AX_TOOLS_STRIKES; i++)
        assert_int_equal(lose(AX_ASK_RESET, json_pack("{s:s}", "secret", "raise"), i),
                         i + 1 < AX_TOOLS_STRIKES ? AX_OK : AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "environments.py:Guess\" failed 3 times in a row; the "
                                            "last: ValueError: no number ("));
    ax_error_clear();
}

/* What an episode cannot repeat ends it, and is no failure of its own. */
static void one_that_differs_when_repeated_is_lost(void **state) {
    struct ax_tool_result r;
    (void)state;
    assert_ok(open_named(class_of("Guess"), 5));
    for (int64_t i = 0; i < 4; i++) {
        reset(i, "{}", " Guess.");
        assert_ok(ask(AX_ASK_STEP, json_string("random"), i, &r));
        ax_free(r.text);
    }
    reset(8, "{}", " Guess.");
    reset(9, "{}", " Guess.");
    assert_ok(lose(AX_ASK_STEP, json_string("die"), 9));
    for (int64_t i = 0; i < 4; i++)
        assert_ok(lose(AX_ASK_STEP, json_string("3"), i));
    step(8, "3", "right after 1", 1, true);
}

static void bad_ones_are_refused(void **state) {
    static const struct {
        const char *name, *why;
    } cases[] = {
        {"Nothing", "Nothing has no method step, and no other that is a tool"},
        {"Unset", "Unset has no method reset"},
        {"Broken", "RuntimeError: cannot be made"},
        {"Gues", "did you mean Guess?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_error(open_named(class_of(cases[i].name), 0), AX_ERR_CONFIG, cases[i].why);
    assert_error(open_named("guess", 0), AX_ERR_CONFIG, "expected module.Class or file.py:Class");
    assert_error(open_named("./no_such", 0), AX_ERR_CONFIG, "there is no such program");
    assert_error(open_named("/bin/cat", 0), AX_ERR_CONFIG, "expected {\"steps\": true}");
    ax_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_recorded_one_is_repeated, end),
        cmocka_unit_test_teardown(turns_are_answered, end),
        cmocka_unit_test_teardown(one_may_have_tools_too, end),
        cmocka_unit_test_teardown(records_choose_one, end),
        cmocka_unit_test_teardown(programs_answer_turns, end),
        cmocka_unit_test_teardown(an_episode_fails_alone, end),
        cmocka_unit_test_teardown(floods_are_cut, end),
        cmocka_unit_test_teardown(three_failures_in_a_row_end_the_run, end),
        cmocka_unit_test_teardown(one_that_differs_when_repeated_is_lost, end),
        cmocka_unit_test_teardown(bad_ones_are_refused, end),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
