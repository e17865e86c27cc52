/* Several processes of a tool or an environment. That calls overlap is seen by the calls themselves: they wait for each
 * other, so that they end only if as many as they expect are under way at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "data/tools/beside.h"
#include "tests/data/scratch.h"

/* What a function, a program and an environment do: `meet` waits for n calls at a place. */
static const char acts[] =
    "import os, time\n"
    "def meet(place, n):\n"
    "    me = f'{place}-{os.getpid()}-{time.monotonic_ns()}'\n"
    "    open(me, 'w').close()\n"
    "    folder, name = os.path.split(place)\n"
    "    while sum(f.startswith(name + '-') for f in os.listdir(folder)) < n: time.sleep(0.01)\n"
    "    return os.getpid()\n"
    "def note(place, word):\n"
    "    with open(place, 'a') as f: f.write(word)\n";

static const char functions[] =
    "import os, time\n"
    "from acts import meet as wait_for_others, note\n"
    "def act(what: str, place: str, n: int):\n"
    "    '''\n    Does something.\n\n    Args:\n        what: What.\n        place: Where.\n"
    "        n: How many.\n    '''\n"
    "    if what == 'meet': return wait_for_others(place, n)\n"
    "    if what == 'die': os._exit(3)\n"
    "    if what == 'hang': time.sleep(100)\n"
    "    note(place, f'<{n}')\n"
    "    time.sleep(0.3)\n"
    "    note(place, f'{n}>')\n"
    "class Room:\n"
    "    def reset(self, place, n):\n"
    "        self.place, self.n, self.count = place, n, 0\n"
    "        process = wait_for_others(place, n)\n"
    "        return str(process) if n == 6 else None\n"
    "    def step(self, answer):\n"
    "        self.count += 1\n"
    "        if answer == 'die': os._exit(3)\n"
    "        if answer == 'who':\n"
    "            time.sleep(0.1)\n"
    "            return str(os.getpid())\n"
    "        return f'{answer} {self.count}'\n";

/* Counts the calls of each answer, and meets others in the first one. Where a file says so, it stays. */
static const char program[] =
    "#!/usr/bin/env python3\n"
    "import json, os, sys, time\n"
    "from acts import meet\n"
    "counts = {}\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    if 'tools' in q:\n"
    "        p = {'type': 'object', 'properties': {'place': {'type': 'string'}, 'n': {'type': "
    "'integer'}}}\n"
    "        a = {'tools': [{'type': 'function', 'function': {'name': 'count', 'description': "
    "'Counts.', 'parameters': p}}]}\n"
    "    else:\n"
    "        own = counts[q['rollout']] = counts.get(q['rollout'], 0) + 1\n"
    "        if own == 1: meet(q['arguments']['place'], q['arguments']['n'])\n"
    "        a = {'result': f\"{own} of {len(counts)}\"}\n"
    "    print(json.dumps(a), flush=True)\n"
    "if os.path.exists(sys.argv[0] + '-stays'): time.sleep(100)\n";

static struct ax_tools *tools;
static struct ax_tool_beside *beside;

#define MOST 16
static struct ax_tool_call calls[MOST];
static struct ax_tool_result results[MOST];
static char function[300], environment[300], counter[300];

static int begin(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    put_text("acts.py", acts);
    put_text("functions.py", functions);
    put_text("count", program);
    snprintf(function, sizeof function, "%s:act", in_scratch("functions.py"));
    snprintf(environment, sizeof environment, "%s:Room", in_scratch("functions.py"));
    snprintf(counter, sizeof counter, "%s", in_scratch("count"));
    setenv("PYTHONPATH", scratch, 1);
    return chmod(counter, 0700);
}

static void open_all(int64_t workers, double timeout) {
    const char *const names[] = {function, counter}, *const environments[] = {environment};
    const struct ax_tools_options o = {.names = names,
                                       .n = 2,
                                       .environments = environments,
                                       .n_environments = 1,
                                       .timeout = timeout,
                                       .program = getenv("AX_TEST_BIN"),
                                       .workers = workers};
    assert_ok(ax_tools_open(&tools, &o));
    assert_ok(ax_tool_beside_open(&beside, tools));
}

static int end(void **state) {
    (void)state;
    ax_tool_beside_close(beside);
    ax_tools_close(tools);
    beside = NULL;
    tools = NULL;
    return 0;
}

/* ---- calls ---- */

/* `v` is taken. */
static void hand_over(int i, int64_t rollout, enum ax_ask ask, json_t *v) {
    results[i] = (struct ax_tool_result){0};
    calls[i] = (struct ax_tool_call){
        .request = {.ask = ask, .call = v, .rollout = rollout, .turn = 1}, .result = &results[i]};
    assert_ok(ax_tool_beside_begin(beside, &calls[i]));
}

static void act(int i, int64_t rollout, const char *what, const char *place, int n) {
    hand_over(i, rollout, AX_ASK_CALLS,
              json_pack("{s:{s:s, s:{s:s, s:s, s:i}}}", "function", "name", "act", "arguments",
                        "what", what, "place", in_scratch(place), "n", n));
}

static void count(int i, int64_t rollout, const char *place, int n) {
    hand_over(i, rollout, AX_ASK_CALLS,
              json_pack("{s:{s:s, s:{s:s, s:i}}}", "function", "name", "count", "arguments",
                        "place", in_scratch(place), "n", n));
}

static void reset(int64_t rollout, const char *place, int n) {
    hand_over((int)rollout, rollout, AX_ASK_RESET,
              json_pack("{s:s, s:i}", "place", in_scratch(place), "n", n));
}

static void step(int64_t rollout, const char *answer) {
    hand_over((int)rollout, rollout, AX_ASK_STEP, json_string(answer));
}

static void take_all(int n) {
    for (int i = 0; i < n; i++) {
        struct ax_tool_call *c;
        assert_ok(ax_tool_beside_take(beside, 60, &c));
        assert_non_null(c);
    }
}

static void forget(int i) {
    json_decref((json_t *)(uintptr_t)calls[i].request.call);
    ax_free(results[i].text);
}

static void says(int i, const char *want) {
    if (strcmp(results[i].text, want) != 0)
        fail_msg("call %d: %s\n  not %s", i, results[i].text, want);
    forget(i);
}

/* How many processes have answered, by their numbers, and forgets the calls. */
static int count_processes(int from, int to) {
    int n = 0;
    for (int i = from; i < to; i++) {
        bool seen = false;
        for (int k = from; k < i; k++)
            seen = seen || strcmp(results[k].text, results[i].text) == 0;
        assert_true(!results[i].failed && atoi(results[i].text) > 1);
        n += !seen;
    }
    for (int i = from; i < to; i++)
        forget(i);
    return n;
}

/* ---- tools ---- */

static void slow_calls_overlap(void **state) {
    (void)state;
    open_all(8, 30);
    for (int i = 0; i < 6; i++)
        act(i, i, "meet", "six", 6);
    take_all(6);
    assert_int_equal(count_processes(0, 6), 6);
}

static void processes_are_bounded(void **state) {
    (void)state;
    open_all(3, 30);
    for (int i = 0; i < 9; i++)
        act(i, i, "meet", "three", 3);
    take_all(9);
    assert_int_equal(count_processes(0, 9), 3);
}

/* Nothing waits, so that one process has all of them. */
static void calls_one_by_one_need_one_process(void **state) {
    (void)state;
    open_all(8, 30);
    for (int i = 0; i < 6; i++) {
        act(i, i, "meet", "alone", 1);
        take_all(1);
    }
    assert_int_equal(count_processes(0, 6), 1);
}

/* A process that is free may not have the next one while another has one. */
static void calls_of_an_answer_keep_their_order(void **state) {
    char *text;
    size_t n;
    (void)state;
    open_all(8, 30);
    for (int i = 0; i < 2; i++)
        act(i, i, "meet", "two", 2);
    take_all(2);
    assert_int_equal(count_processes(0, 2), 2);
    for (int i = 0; i < 4; i++)
        act(i, 7, "note", "notes", i);
    take_all(4);
    for (int i = 0; i < 4; i++)
        forget(i);
    assert_ok(ax_read_file(in_scratch("notes"), 100, &text, &n));
    assert_string_equal(text, "<00><11><22><33>");
    ax_free(text);
}

/* A program that remembers by the number of the answer has all calls of it: its six are never those of one process. */
static void a_program_knows_its_answers(void **state) {
    (void)state;
    open_all(8, 30);
    for (int i = 0; i < 6; i++)
        count(i, i, "programs", 6);
    take_all(6);
    for (int i = 0; i < 6; i++)
        says(i, "1 of 1");
    for (int i = 0; i < 6; i++)
        count(i, 5 - i, "", 0);
    take_all(6);
    for (int i = 0; i < 6; i++)
        says(i, "2 of 1");
}

static void a_failure_is_of_one_call(void **state) {
    (void)state;
    open_all(8, 3);
    act(0, 0, "die", "-", 0);
    act(1, 1, "hang", "-", 0);
    for (int i = 2; i < 6; i++)
        act(i, i, "meet", "four", 4);
    take_all(6);
    says(0, "{'error': 'it died: exit code 3'}");
    says(1, "{'error': 'timeout: no answer within 3 s'}");
    assert_int_equal(count_processes(2, 6), 4);
}

/* None of them ends when its input does, and all have the same three seconds for it. */
static void what_stays_is_ended_together(void **state) {
    open_all(8, 30);
    put_text("count-stays", "");
    for (int i = 0; i < 6; i++)
        count(i, i, "stay", 6);
    take_all(6);
    for (int i = 0; i < 6; i++)
        says(i, "1 of 1");
    const double start = ax_clock_now();
    end(state);
    assert_true(ax_clock_now() - start < 9);
    assert_int_equal(unlink(in_scratch("count-stays")), 0);
}

static void too_many_are_refused(void **state) {
    const char *const names[] = {function};
    const struct ax_tools_options o = {
        .names = names, .n = 1, .workers = AX_TOOLS_MOST_WORKERS + 1};
    (void)state;
    assert_error(ax_tools_open(&tools, &o), AX_ERR_CONFIG,
                 "tool_workers: expected at most 64, got 65");
    ax_error_clear();
}

/* ---- environments ---- */

/* Each has a process of its own, as all have met; the death of one is the end of its episode alone. No other is played
 * again, which would then be in another process. */
static void episodes_overlap(void **state) {
    (void)state;
    open_all(8, 30);
    for (int i = 0; i < 6; i++)
        reset(i, "rooms", 6);
    take_all(6);
    assert_int_equal(count_processes(0, 6), 6);
    for (int i = 0; i < 6; i++)
        step(i, i == 3 ? "die" : "go");
    take_all(6);
    for (int i = 0; i < 6; i++) {
        assert_true(results[i].lost == (i == 3));
        says(i, i == 3 ? "" : "go 1");
    }
    for (int i = 0; i < 6; i++)
        step(i, "on");
    take_all(6);
    for (int i = 0; i < 6; i++)
        says(i, i == 3 ? "" : "on 2");
}

/* Those that share its process are played again. */
static void a_death_ends_one_of_a_process(void **state) {
    (void)state;
    open_all(2, 30);
    for (int i = 0; i < 6; i++)
        reset(i, "halls", 2);
    take_all(6);
    for (int i = 0; i < 6; i++) {
        says(i, "");
        step(i, i == 4 ? "die" : "go");
    }
    take_all(6);
    for (int i = 0; i < 6; i++) {
        assert_true(results[i].lost == (i == 4));
        says(i, i == 4 ? "" : "go 1");
        step(i, "on");
    }
    take_all(6);
    for (int i = 0; i < 6; i++)
        says(i, i == 4 ? "" : "on 2");
}

/* All that begin before any has waited are one process's; their steps wait for it, and later episodes have more. */
static void episodes_that_begin_quickly_spread(void **state) {
    int n = 1;
    (void)state;
    open_all(4, 30);
    for (int round = 0; round < 5 && n == 1; round++) {
        for (int i = 0; i < 6; i++)
            reset(i, "quick", 1);
        take_all(6);
        for (int i = 0; i < 6; i++) {
            says(i, "");
            step(i, "who");
        }
        take_all(6);
        n = count_processes(0, 6);
        ax_tool_beside_close(beside);
        assert_ok(ax_tool_beside_open(&beside, tools));
    }
    assert_in_range(n, 2, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(slow_calls_overlap, end),
        cmocka_unit_test_teardown(processes_are_bounded, end),
        cmocka_unit_test_teardown(calls_one_by_one_need_one_process, end),
        cmocka_unit_test_teardown(calls_of_an_answer_keep_their_order, end),
        cmocka_unit_test_teardown(a_program_knows_its_answers, end),
        cmocka_unit_test_teardown(a_failure_is_of_one_call, end),
        cmocka_unit_test_teardown(what_stays_is_ended_together, end),
        cmocka_unit_test_teardown(too_many_are_refused, end),
        cmocka_unit_test_teardown(episodes_overlap, end),
        cmocka_unit_test_teardown(a_death_ends_one_of_a_process, end),
        cmocka_unit_test_teardown(episodes_that_begin_quickly_spread, end),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
