/* Tools: functions of Python, programs and the sandbox, good ones, and all that can go wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "data/tools/tools.h"
#include "tests/data/sandbox_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static const char functions[] =
    "import os, sys, time, subprocess\n"
    "count = 0\n"
    "def text(x: str) -> str:\n"
    "    '''\n    Gives it back.\n\n    Args:\n        x: A text.\n    '''\n"
    "    print('to the log')\n"
    "    return x\n"
    "def act(what: str):\n"
    "    '''\n    Does something.\n\n    Args:\n        what: What.\n    '''\n"
    "    global count\n"
    "    count += 1\n"
    "    if what == 'count': return count\n"
    "    if what == 'none': return None\n"
    "    if what == 'list': return [1, {'a': 'b'}]\n"
    "    if what == 'raise': raise ValueError(\"it's wrong\")\n"
    "    if what == 'exit': sys.exit(3)\n"
    "    if what == 'die': os._exit(3)\n"
    "    if what == 'hang': time.sleep(100)\n"
    "    if what == 'flood': return 'x' * 10_000_000\n"
    "    if what == 'errors': sys.stderr.write('y' * 10_000_000)\n"
    "    if what == 'nul': return 'a\\0b\\udc80'\n"
    "    if what == 'deep': return act('deep')\n"
    "    if what == 'input': return repr(sys.stdin.read())\n"
    "    if what == 'write': os.write(1, b'{\"result\": \"forged\"}\\n'); return 'own'\n"
    "    if what == 'orphan': subprocess.Popen(['sleep', '100']); return 'left'\n"
    "    if what == 'env': return ' '.join(sorted(k for k in os.environ if 'TOKEN' in k or 'TOOL' "
    "in k))\n"
    "    return what\n"
    "async def later(times: int):\n"
    "    '''\n    Multiplies a text.\n\n    Args:\n        times: How often.\n    '''\n"
    "    return 'ab' * times\n"
    "def untold(x: int): return x\n"
    "def half(x: int, y: int):\n"
    "    '''\n    Has one word too few.\n\n    Args:\n        x: One.\n    '''\n";

static const char program[] =
    "#!/usr/bin/env python3\n"
    "import json, os, sys, time\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    if 'tools' in q:\n"
    "        p = {'type': 'object', 'properties': {'x': {'type': 'string'}}, 'required': ['x']}\n"
    "        a = {'tools': [{'type': 'function', 'function': {'name': n, 'description': n, "
    "'parameters': p}}\n"
    "                       for n in ('look', 'find')]}\n"
    "    elif q['arguments']['x'] == 'die': os._exit(1)\n"
    "    elif q['arguments']['x'] == 'hang': time.sleep(100)\n"
    "    elif q['arguments']['x'] == 'rubbish': print('rubbish', flush=True); continue\n"
    "    elif q['arguments']['x'] == 'number': a = {'result': {'n': 1}}\n"
    "    elif q['arguments']['x'] == 'error': a = {'error': 'not here'}\n"
    "    elif q['arguments']['x'] == 'flood': a = {'result': 'x' * 10_000_000}\n"
    "    elif q['arguments']['x'] == 'long': a = {'result': 'x' * 100_000}\n"
    "    else: a = {'result': f\"{q['call']} {q['arguments']['x']} {q['rollout']} {q['turn']}\"}\n"
    "    print(json.dumps(a), flush=True)\n";

static struct ax_tools *tools;

static bool keeps; /* of tools that are opened */

static enum ax_status open_tools(const char *const *names, size_t n, double timeout) {
    const struct ax_tools_options o = {.names = names,
                                       .n = n,
                                       .timeout = timeout,
                                       .program = getenv("AX_TEST_BIN"),
                                       .sandbox_cache = SANDBOX_CACHE,
                                       .threads = 2,
                                       .keeps = keeps};
    return ax_tools_open(&tools, &o);
}

static int begin(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    put_text("acts.py", functions);
    put_text("look", program);
    assert_int_equal(chmod(in_scratch("look"), 0700), 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_tools_close(tools);
    tools = NULL;
    return 0;
}

/* What the model sees of a call with one argument; *st: of the run. */
static char *call(const char *name, const char *key, const char *value, bool *failed,
                  enum ax_status *st) {
    json_t *c = json_pack("{s:{s:s, s:{s:s}}}", "function", "name", name, "arguments", key, value);
    const struct ax_tool_request r = {.call = c, .rollout = 17, .turn = 2};
    struct ax_tool_result out = {0};
    *st = ax_tools_run(tools, 1, &r, NULL, &out);
    *failed = out.failed;
    json_decref(c);
    return out.text;
}

static void says(const char *name, const char *key, const char *value, bool fails,
                 const char *want) {
    bool failed;
    enum ax_status st;
    char *text = call(name, key, value, &failed, &st);
    assert_int_equal(st, AX_OK);
    if (failed != fails || strcmp(text, want) != 0)
        fail_msg("%s %s: %s\n  not %s", name, value, text, want);
    ax_free(text);
}

static const char *function_of(const char *name) {
    static char all[4][600];
    static int next;
    char *own = all[next = (next + 1) % 4];
    snprintf(own, sizeof *all, "%s:%s", in_scratch("acts.py"), name);
    return own;
}

/* ---- definitions ---- */

static void definitions_are_those_of_transformers(void **state) {
    static const char *const names[] = {"multiply", "search", "weather", "mixed", "nothing"};
    char paths[5][600];
    const char *list[5];
    struct ax_json_doc want;
    (void)state;
    assert_ok(ax_json_load(&want, golden_path("tools/schemas.json"), 1 << 20));
    for (size_t i = 0; i < 5; i++) {
        snprintf(paths[i], sizeof paths[i], "%s:%s", golden_path("tools/schemas.py"), names[i]);
        list[i] = paths[i];
    }
    assert_ok(open_tools(list, 5, 0));
    for (size_t i = 0; i < 5; i++)
        assert_true(json_equal(json_array_get(ax_tools_definitions(tools), i),
                               json_object_get(json_object_get(want.root, "schemas"), names[i])));
    ax_json_free(&want);
}

static void bad_tools_are_refused(void **state) {
    const struct {
        const char *name, *why;
    } cases[] = {{function_of("untold"), "it has no docstring"},
                 {function_of("half"), "does not say what y is"},
                 {function_of("actt"), "did you mean act?"},
                 {"no_such_module.f", "ModuleNotFoundError"},
                 {"./no_such_program", "no such program"},
                 {"/tmp", "no such program"},
                 {"search", "expected python, module.function"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(open_tools(&cases[i].name, 1, 0), AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), cases[i].why))
            fail_msg("%s: %s", cases[i].name, ax_error_text());
        ax_error_clear();
    }
    const char *const twice[] = {function_of("act"), function_of("act")};
    assert_int_equal(open_tools(twice, 2, 0), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "another tool is called act"));
    ax_error_clear();
}

/* ---- functions ---- */

static void functions_answer(void **state) {
    const char *const names[] = {function_of("text"), function_of("act")};
    (void)state;
    assert_ok(open_tools(names, 2, 5));
    says("text", "x", "é {\"a\"}\n<|im_end|>", false, "é {\"a\"}\n<|im_end|>");
    says("act", "what", "count", false, "1");
    says("act", "what", "count", false, "2"); /* the process stays */
    says("act", "what", "none", false, "None");
    says("act", "what", "list", false, "[1, {'a': 'b'}]");
    says("act", "what", "raise", true, "{'error': \"it's wrong\"}");
    says("act", "what", "exit", true, "{'error': '3'}");
    says("act", "what", "nul", false,
         "a\xef\xbf\xbd"
         "b?");
    says("act", "what", "input", false, "''");
    says("act", "what", "write", false, "own"); /* what they write is no answer */
    says("act", "what", "errors", false, "errors");
    says("act", "what", "orphan", false, "left");
    says("act", "x", "1", true, "{'error': \"act() got an unexpected keyword argument 'x'\"}");
    says("divide", "x", "1", true, "{'error': 'Tool divide not found.'}");
}

/* Arguments are Python's to refuse, in its words, as in TRL: a type is a hint. What has not begun is not late. */
static void functions_check_their_arguments(void **state) {
    static const struct {
        const char *arguments, *says;
        bool fails, late;
    } cases[] = {
        {"{\"times\": 2}", "abab", false, true},
        {"{\"times\": true}", "ab", false, true},
        {"{\"times\": 2.0}", "{'error': \"can't multiply sequence by non-int of type 'float'\"}",
         true, true},
        {"{}", "{'error': \"later() missing 1 required positional argument: 'times'\"}", true,
         false},
        {"{\"times\": 2, \"x\": 1}",
         "{'error': \"later() got an unexpected keyword argument 'x'\"}", true, false},
    };
    const char *const names[] = {function_of("later")};
    (void)state;
    assert_ok(open_tools(names, 1, 5));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *c = json_pack("{s:{s:s, s:o}}", "function", "name", "later", "arguments",
                              json_loads(cases[i].arguments, 0, NULL));
        const struct ax_tool_request r = {.call = c};
        struct ax_tool_result out = {0};
        assert_ok(ax_tools_run(tools, 1, &r, NULL, &out));
        if (strcmp(out.text, cases[i].says) != 0 || out.failed != cases[i].fails ||
            out.late != cases[i].late)
            fail_msg("%s: %s, failed %d, late %d", cases[i].arguments, out.text, out.failed,
                     out.late);
        ax_free(out.text);
        json_decref(c);
    }
}

static void long_results_lose_their_middle(void **state) {
    const char *const names[] = {function_of("act"), in_scratch("look")};
    (void)state;
    assert_ok(open_tools(names, 2, 5));
    for (int i = 0; i < 2; i++) {
        bool failed;
        enum ax_status st;
        char *text = i ? call("look", "x", "long", &failed, &st)
                       : call("act", "what", "flood", &failed, &st);
        assert_int_equal(st, AX_OK);
        assert_false(failed);
        assert_true(strlen(text) <= AX_TOOLS_RESULT + 100);
        assert_non_null(strstr(text, "are left out ...]"));
        ax_free(text);
    }
}

static void environments_have_no_secrets(void **state) {
    const char *const names[] = {function_of("act")};
    (void)state;
    setenv("HF_TOKEN", "secret", 1);
    setenv("WANDB_TOKEN", "secret", 1);
    setenv("AXTRAIN_TOOL_PLACE", "here", 1);
    assert_ok(open_tools(names, 1, 5));
    says("act", "what", "env", false, "AXTRAIN_TOOL_PLACE");
    unsetenv("HF_TOKEN");
    unsetenv("WANDB_TOKEN");
    unsetenv("AXTRAIN_TOOL_PLACE");
}

static void failing_tools_are_started_again(void **state) {
    const char *const names[] = {function_of("act")};
    (void)state;
    assert_ok(open_tools(names, 1, 2));
    says("act", "what", "count", false, "1");
    says("act", "what", "die", true, "{'error': 'it died: exit code 3'}");
    says("act", "what", "count", false, "1");
    const double start = ax_clock_now();
    says("act", "what", "hang", true, "{'error': 'timeout: no answer within 2 s'}");
    assert_true(ax_clock_now() - start < 10);
    says("act", "what", "count", false, "1");
}

static void three_failures_in_a_row_end_the_run(void **state) {
    const char *const names[] = {function_of("act")};
    bool failed;
    enum ax_status st;
    (void)state;
    assert_ok(open_tools(names, 1, 5));
    for (int i = 0; i < AX_TOOLS_STRIKES; i++) {
        char *text = call("act", "what", "die", &failed, &st);
        assert_int_equal(st, i + 1 < AX_TOOLS_STRIKES ? AX_OK : AX_ERR_DATA);
        ax_free(text);
    }
    assert_non_null(
        strstr(ax_error_text(), "failed 3 times in a row; the last: it died: exit code 3"));
    ax_error_clear();
}

/* ---- programs ---- */

static void programs_answer(void **state) {
    const char *const names[] = {in_scratch("look")};
    (void)state;
    assert_ok(open_tools(names, 1, 2));
    assert_int_equal(json_array_size(ax_tools_definitions(tools)), 2);
    says("look", "x", "at", false, "look at 17 2");
    says("find", "x", "it", false, "find it 17 2");
    says("find", "x", "number", false, "{\"n\": 1}");
    says("find", "x", "error", true, "{'error': 'not here'}");
    says("find", "x", "rubbish", true, "{'error': 'not an answer: a line that is no JSON object'}");
    says("find", "x", "it", false, "find it 17 2");
    says("find", "x", "die", true, "{'error': 'it died: exit code 1'}");
    says("find", "x", "it", false, "find it 17 2");
    says("find", "x", "hang", true, "{'error': 'timeout: no answer within 2 s'}");
    says("find", "x", "it", false, "find it 17 2");
    says("find", "x", "flood", true,
         "{'error': 'not an answer: a line of more than 1048576 bytes'}");
}

/* ---- the sandbox ---- */

static void python_runs_in_the_sandbox(void **state) {
    static const char *const names[] = {"python"};
    static const struct {
        const char *code, *want;
        bool failed;
    } cases[] = {
        {"print(6 * 7)\nprint()", "42", false},
        {"x = 1", "", false},
        {"print(1 // 0)", "{'error': 'ZeroDivisionError: integer division or modulo by zero'}",
         true},
        {"print(total)", "{'error': \"NameError: name 'total' is not defined\"}", true},
        {"while True: pass", "{'error': 'the program ran for too long'}", true},
        {"while True: print('x' * 1000)", "{'error': 'the program wrote too much'}", true},
        {"raise SystemExit(4)", "{'error': 'the program ended with an error'}", true},
        {"import os; print(os.listdir('/'))", NULL, true},
        {"import socket; socket.create_connection(('127.0.0.1', 80))", NULL, true},
        {"import os; os.fork()", NULL, true},
        {"open('/etc/passwd')", NULL, true},
        {"import os; print(dict(os.environ))", "{}", false},
        {"print(__import__('sys').stdin.read())", "", false},
        {"def f(): return f()\nf()", NULL, true},
        {"x = 'x' * (1 << 40)", NULL, true},
        {"print('a\\0b')",
         "a\xef\xbf\xbd"
         "b",
         false},
    };
    (void)state;
    assert_ok(open_tools(names, 1, 0));
    assert_ok(ax_tools_start(tools));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool failed;
        enum ax_status st;
        char *text = call("python", "code", cases[i].code, &failed, &st);
        assert_int_equal(st, AX_OK);
        if (failed != cases[i].failed || (cases[i].want && strcmp(text, cases[i].want) != 0))
            fail_msg("%s gave %s", cases[i].code, text);
        ax_free(text);
    }
    /* a program leaves nothing to the next one */
    says("python", "code", "import builtins; builtins.x = 1; print(1)", false, "1");
    says("python", "code", "print(x)", true, "{'error': \"NameError: name 'x' is not defined\"}");
}

/* A program after others, its text; free with ax_free. */
static char *go_on(const char *const *earlier, size_t n, const char *code, int turn,
                   struct ax_tool_result *out) {
    json_t *list = json_array(), *c = json_pack("{s:{s:s, s:{s:s}}}", "function", "name", "python",
                                                "arguments", "code", code);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(earlier[i]));
    const struct ax_tool_request r = {.call = c, .rollout = 17, .turn = turn, .earlier = list};
    *out = (struct ax_tool_result){0};
    assert_ok(ax_tools_run(tools, 1, &r, NULL, out));
    json_decref(c);
    json_decref(list);
    return out->text;
}

static void programs_go_on(void **state) {
    static const char *const names[] = {"python"};
    static const struct {
        const char *earlier[3];
        size_t n;
        const char *code, *want;
        bool failed, ran;
    } cases[] = {
        {{"x = 6\nprint(x)", "def f(y):\n    return x * y"}, 2, "print(f(7))", "42", false, true},
        {{NULL}, 0, "print(x)", "{'error': \"NameError: name 'x' is not defined\"}", true, true},
        {{"x = 1\n1 // 0\nx = 2", "raise SystemExit(3)"}, 2, "print(x)", "1", false, true},
        {{"not python", "x = '\\u00e4\\n\"\xc3\xa4\xf0\x9f\x99\x82'"},
         2,
         "print(len(x), x)",
         NULL,
         false,
         true},
        {{"import sys\nprint('a', file=sys.stderr)\nsys.stdout = None"},
         1,
         "print('b')",
         "b",
         false,
         true},
        {{"import math"}, 1, "print(__name__, math.pi > 3)", "__main__ True", false, true},
        {{"while True: pass"},
         1,
         "print(1)",
         "{'error': 'the program ran for too long'}",
         true,
         false},
        {{"x = [0]"}, 1, "(", NULL, true, true},
    };
    (void)state;
    struct ax_tool_result r;
    keeps = true;
    assert_ok(open_tools(names, 1, 0));
    keeps = false;
    assert_ok(ax_tools_start(tools));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = go_on(cases[i].earlier, cases[i].n, cases[i].code, 1, &r);
        if (r.failed != cases[i].failed || r.ran != cases[i].ran ||
            (cases[i].want && strcmp(text, cases[i].want) != 0))
            fail_msg("case %zu: %s gave %s", i + 1, cases[i].code, text);
        ax_free(text);
    }
    /* what is random is so once: another turn sees the same number */
    static const char *const draw[] = {"import random\nx = random.random()\nprint(x)"};
    char *first = go_on(NULL, 0, draw[0], 1, &r), *again = go_on(draw, 1, "print(x)", 2, &r);
    assert_true(strlen(first) > 5);
    assert_string_equal(first, again);
    ax_free(first);
    ax_free(again);
    /* the limits of one program are those of all together: each of these alone would end, with interpreters of 800
     * to 3,300 instructions in a turn of the loop */
    static const char loop[] = "for i in range(1_500_000): pass";
    static const char *const much[] = {loop, loop, loop, loop, loop, loop};
    char *text = NULL;
    size_t n = 0;
    for (r.failed = false; n <= sizeof much / sizeof *much && !r.failed; n++) {
        ax_free(text);
        text = go_on(much, n, loop, 1, &r);
    }
    if (!(n > 1 && r.failed && !r.ran))
        fail_msg("program %zu: %s", n, text);
    ax_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(definitions_are_those_of_transformers, end),
        cmocka_unit_test_teardown(bad_tools_are_refused, end),
        cmocka_unit_test_teardown(functions_answer, end),
        cmocka_unit_test_teardown(functions_check_their_arguments, end),
        cmocka_unit_test_teardown(long_results_lose_their_middle, end),
        cmocka_unit_test_teardown(environments_have_no_secrets, end),
        cmocka_unit_test_teardown(failing_tools_are_started_again, end),
        cmocka_unit_test_teardown(three_failures_in_a_row_end_the_run, end),
        cmocka_unit_test_teardown(programs_answer, end),
        cmocka_unit_test_teardown(python_runs_in_the_sandbox, end),
        cmocka_unit_test_teardown(programs_go_on, end),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
