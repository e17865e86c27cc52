/* Calls of tools that run while their caller goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "data/tools/beside.h"
#include "tests/data/sandbox_case.h"
#include "tests/data/scratch.h"

/* Its tool has its own name, and answers after as many seconds as it is asked for. Where a file says so, it takes long
 * to start. */
static const char program[] =
    "#!/usr/bin/env python3\n"
    "import json, os, sys, time\n"
    "name = os.path.basename(sys.argv[0])\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    if 'tools' in q:\n"
    "        if os.path.exists(sys.argv[0] + '-waits'): time.sleep(50)\n"
    "        p = {'type': 'object', 'properties': {'x': {'type': 'number'}}, 'required': ['x']}\n"
    "        a = {'tools': [{'type': 'function', 'function': {'name': name, 'description': name, "
    "'parameters': p}}]}\n"
    "    elif q['arguments']['x'] < 0: os._exit(1)\n"
    "    else:\n"
    "        time.sleep(q['arguments']['x'])\n"
    "        a = {'result': f\"{name} {q['rollout']}\"}\n"
    "    print(json.dumps(a), flush=True)\n";

static struct ax_tools *tools;
static struct ax_tool_beside *beside;

#define MOST 64
static struct ax_tool_call calls[MOST];
static struct ax_tool_result results[MOST];

static int begin(void **state) {
    static char left[600], right[600];
    static const char *const names[] = {left, right, "python"};
    if (scratch_make(state) != 0)
        return -1;
    put_text("left", program);
    put_text("right", program);
    snprintf(left, sizeof left, "%s", in_scratch("left"));
    snprintf(right, sizeof right, "%s", in_scratch("right"));
    if (chmod(left, 0700) != 0 || chmod(right, 0700) != 0)
        return -1;
    const struct ax_tools_options o = {.names = names,
                                       .n = 3,
                                       .timeout = 60,
                                       .program = getenv("AX_TEST_BIN"),
                                       .sandbox_cache = SANDBOX_CACHE,
                                       .threads = 2,
                                       .workers = 1};
    return ax_tools_open(&tools, &o) == AX_OK && ax_tools_start(tools) == AX_OK &&
                   ax_tool_beside_open(&beside, tools) == AX_OK
               ? 0
               : -1;
}

static int end(void **state) {
    ax_tool_beside_close(beside);
    ax_tools_close(tools);
    return scratch_remove(state);
}

/* `arguments` is taken. */
static void hand_over(int i, const char *name, json_t *arguments) {
    json_t *call = json_pack("{s:{s:s, s:o}}", "function", "name", name, "arguments", arguments);
    results[i] = (struct ax_tool_result){0};
    calls[i] = (struct ax_tool_call){.request = {.call = call, .rollout = i, .turn = 1},
                                     .result = &results[i]};
    assert_ok(ax_tool_beside_begin(beside, &calls[i]));
}

static void wait_for(int i, const char *name, double seconds) {
    hand_over(i, name, json_pack("{s:f}", "x", seconds));
}

/* Which has ended. */
static int take(double seconds) {
    struct ax_tool_call *c;
    assert_ok(ax_tool_beside_take(beside, seconds, &c));
    return c ? (int)(c - calls) : -1;
}

/* What runs is cancelled; the tools remain. */
static void reopen(void) {
    ax_tool_beside_close(beside);
    assert_ok(ax_tool_beside_open(&beside, tools));
}

static void forget(int i) {
    json_decref((json_t *)(uintptr_t)calls[i].request.call);
    ax_free(results[i].text);
}

static void check(int i, const char *want) {
    if (strcmp(results[i].text, want) != 0)
        fail_msg("call %d: %s", i, results[i].text);
    forget(i);
}

static void what_is_ready_comes_first(void **state) {
    (void)state;
    wait_for(0, "left", 3);
    wait_for(1, "left", 0); /* a process has one call at a time */
    wait_for(2, "right", 0.2);
    hand_over(3, "nobody", json_object());
    assert_int_equal(take(0), 3);
    assert_int_equal(take(0), -1);
    assert_int_equal(take(30), 2);
    assert_int_equal(take(0), -1);
    assert_int_equal(take(30), 0);
    assert_int_equal(take(30), 1);
    assert_int_equal(take(0.01), -1);
    check(0, "left 0");
    check(1, "left 1");
    check(2, "right 2");
    check(3, "{'error': 'Tool nobody not found.'}");
    assert_true(results[0].seconds > 0.59 &&
                results[1].seconds < 0.5); /* its own, not its queue's */
}

static void programs_run_beside_processes(void **state) {
    (void)state;
    wait_for(0, "left", 5);
    for (int i = 1; i < 40; i++)
        hand_over(i, "python", json_pack("{s:o}", "code", json_sprintf("print(%d * %d)", i, i)));
    for (int i = 1; i < 40; i++)
        assert_true(take(30) > 0);
    assert_int_equal(take(30), 0);
    check(0, "left 0");
    for (int i = 1; i < 40; i++) {
        char want[16];
        snprintf(want, sizeof want, "%d", i * i);
        check(i, want);
    }
}

static void what_is_cancelled_is_gone(void **state) {
    const double start = ax_clock_now();
    (void)state;
    wait_for(0, "left", 50);
    wait_for(1, "left", 0);
    hand_over(2, "python", json_pack("{s:s}", "code", "while True: pass"));
    assert_int_equal(take(0.02), -1); /* its instructions last ten times as long */
    reopen();
    assert_true(ax_clock_now() - start < 10);
    assert_int_equal(take(0), -1);
    for (int i = 0; i < 3; i++)
        forget(i);
    wait_for(0, "left", 0);
    hand_over(1, "python", json_pack("{s:s}", "code", "print('again')"));
    assert_true(take(30) >= 0);
    assert_true(take(30) >= 0);
    check(0, "left 0");
    check(1, "again");
}

static void a_start_is_cancelled_as_a_call_is(void **state) {
    const double start = ax_clock_now();
    (void)state;
    put_text("left-waits", "");
    for (int i = 0; i < 2; i++) { /* the first one ends the process that there is */
        wait_for(0, "left", 50);
        assert_int_equal(take(0.02), -1);
        reopen();
        forget(0);
    }
    assert_true(ax_clock_now() - start < 10);
    assert_int_equal(unlink(in_scratch("left-waits")), 0);
}

/* A failed call has a result that says so; the third in a row ends the run, though the caller waits for another. */
static void failures_reach_the_caller(void **state) {
    struct ax_tool_call *c;
    (void)state;
    wait_for(9, "right", 50);
    for (int i = 0; i < AX_TOOLS_STRIKES - 1; i++) {
        wait_for(i, "left", -1);
        assert_int_equal(take(30), i);
        assert_true(results[i].failed);
        assert_non_null(strstr(results[i].text, "it died: exit code 1"));
        forget(i);
    }
    wait_for(0, "left", -1);
    assert_int_equal(ax_tool_beside_take(beside, 30, &c), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "left\" failed 3 times in a row"));
    reopen();
    forget(0);
    forget(9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_ready_comes_first),
        cmocka_unit_test(programs_run_beside_processes),
        cmocka_unit_test(what_is_cancelled_is_gone),
        cmocka_unit_test(a_start_is_cancelled_as_a_call_is),
        cmocka_unit_test(failures_reach_the_caller),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
