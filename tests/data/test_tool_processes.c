/* What a program that is a tool finds around itself: arguments on its standard input alone, a group of its own, and an
 * end with all that it has started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/text/json.h"
#include "data/tools/tools.h"
#include "tests/data/process_case.h"
#include "tests/data/scratch.h"

static const char program[] =
    "#!/usr/bin/env python3\n"
    "import json, os, subprocess, sys, time\n"
    "def kept_by(pid):\n"
    "    text = b''.join(open(f'/proc/{pid}/{f}', 'rb').read() for f in ('cmdline', 'environ'))\n"
    "    return text.decode(errors='replace')\n"
    "def act(q):\n"
    "    x, path = q['arguments']['x'], q['arguments']['path']\n"
    "    if x.startswith('told'):\n"
    "        return [len(sys.argv), any(x in kept_by(p) for p in ('self', os.getppid()))]\n"
    "    if x == 'group': return os.getpgrp()\n"
    "    if x == 'files': return sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1]\n"
    "    if x in ('start', 'leave'):\n"
    "        p = subprocess.Popen(['sleep', '1000'], start_new_session=x == 'leave')\n"
    "        return p.pid\n"
    "    if x == 'fork and hang':\n"
    "        with open(path, 'w') as f: f.write(str(subprocess.Popen(['sleep', '1000']).pid))\n"
    "        time.sleep(1000)\n"
    "    return x\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    if 'tools' in q:\n"
    "        s = {'type': 'string'}\n"
    "        p = {'type': 'object', 'properties': {'x': s, 'path': s}}\n"
    "        a = {'tools': [{'type': 'function', 'function': {'name': 'act', 'description': "
    "'Acts.', 'parameters': p}}]}\n"
    "    else: a = {'result': act(q)}\n"
    "    print(json.dumps(a), flush=True)\n";

static struct ax_tools *tools;

static int begin(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    put_text("act", program);
    return chmod(in_scratch("act"), 0700);
}

static int open_tools(void **state) {
    const char *const names[] = {in_scratch("act")};
    const struct ax_tools_options o = {
        .names = names, .n = 1, .timeout = 3, .program = getenv("AX_TEST_BIN")};
    (void)state;
    assert_ok(ax_tools_open(&tools, &o));
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_tools_close(tools);
    tools = NULL;
    return 0;
}

/* Free the text. */
static char *act(const char *x) {
    json_t *call = json_pack("{s:{s:s, s:{s:s, s:s}}}", "function", "name", "act", "arguments", "x",
                             x, "path", in_scratch("pid"));
    const struct ax_tool_request r = {.call = call, .rollout = 17, .turn = 2};
    struct ax_tool_result out = {0};
    assert_ok(ax_tools_run(tools, 1, &r, NULL, &out));
    json_decref(call);
    return out.text;
}

static void says(const char *x, const char *want) {
    char *text = act(x);
    assert_string_equal(text, want);
    ax_free(text);
}

static pid_t number_of(const char *x) {
    char *text = act(x);
    const pid_t n = (pid_t)atoi(text);
    ax_free(text);
    assert_true(n > 1);
    return n;
}

static void arguments_come_on_standard_input(void **state) {
    char x[400], secret[300];
    (void)state;
    says("told-5b1c-apart", "[1, false]");
    /* no shell reads them */
    snprintf(secret, sizeof secret, "%s", in_scratch("touched"));
    snprintf(x, sizeof x, "$(touch %s)`touch %s`; touch %s\n\"'\\", secret, secret, secret);
    says(x, x);
    assert_int_equal(access(secret, F_OK), -1);
    says("--help", "--help");
}

static void nothing_else_is_open(void **state) {
    (void)state;
    says("files", "[0, 1, 2]");
}

static void a_program_has_its_own_group(void **state) {
    (void)state;
    const pid_t group = number_of("group");
    assert_true(group != getpgrp());
    assert_int_equal(kill(-group, 0), 0);
    assert_true(kill(-group, SIGUSR2) == 0); /* by which it dies, and we do not */
    char *text = act("group");
    assert_non_null(strstr(text, "it died: signal"));
    ax_free(text);
    assert_true(number_of("group") != group);
}

/* In its group, and out of it. */
static void what_it_has_started_ends_with_it(void **state) {
    const pid_t inside = number_of("start"), outside = number_of("leave");
    assert_true(is_running(inside) && is_running(outside));
    end(state);
    wait_for_end(inside);
    wait_for_end(outside);
}

static void a_call_that_hangs_ends_with_what_it_started(void **state) {
    size_t n;
    (void)state;
    says("fork and hang", "{'error': 'timeout: no answer within 3 s'}");
    char *text;
    assert_ok(ax_read_file(in_scratch("pid"), 100, &text, &n));
    wait_for_end((pid_t)atoi(text));
    ax_free(text);
    says("again", "again");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(arguments_come_on_standard_input, open_tools, end),
        cmocka_unit_test_setup_teardown(nothing_else_is_open, open_tools, end),
        cmocka_unit_test_setup_teardown(a_program_has_its_own_group, open_tools, end),
        cmocka_unit_test_setup_teardown(what_it_has_started_ends_with_it, open_tools, end),
        cmocka_unit_test_setup_teardown(a_call_that_hangs_ends_with_what_it_started, open_tools,
                                        end),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
