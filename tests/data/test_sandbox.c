/* Programs in the sandbox: what they can do and see, their ends, and that neither a run before nor
 * one beside makes a difference. `build/tests/bench/sandbox attack` has the list of attacks. */
#include <setjmp.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/data/sandbox_case.h"

static int open_all(void **state) {
    (void)state;
    return sandbox_open(SANDBOX_PATIENCE);
}

static int close_all(void **state) {
    (void)state;
    return sandbox_close();
}

static void programs_run(void **state) {
    (void)state;
    assert_run("print(1)", "", AX_VERDICT_EXIT, 0, "1\n");
    assert_run("print(sum(map(int, input().split())))", "1 2 3\n", AX_VERDICT_EXIT, 0, "6\n");
    assert_run("import sys\nfor line in sys.stdin: print(line.strip()[::-1])", "ab\ncd",
               AX_VERDICT_EXIT, 0, "ba\ndc\n");
    assert_run("import sys\nsys.exit(7)", "", AX_VERDICT_EXIT, 7, "");
    assert_run("1 / 0", "", AX_VERDICT_EXIT, 1, "");
    assert_run("this is no Python", "", AX_VERDICT_EXIT, 1, "");
    assert_run("print('\xc3\xa4')", "", AX_VERDICT_EXIT, 0, "\xc3\xa4\n");
    assert_run("import atexit\natexit.register(print, 2)\nprint(__name__)", "", AX_VERDICT_EXIT, 0,
               "__main__\n2\n");
    /* calls of C functions that call Python, as deep as the interpreter's own limit allows */
    assert_run("import functools\n@functools.lru_cache(None)\ndef f(n):\n"
               "    return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f(90))",
               "", AX_VERDICT_EXIT, 0, "2880067194370816120\n");
}

/* Of more than a socket takes at a time. */
static void long_inputs(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    char *input = malloc(N + 1), want[64];
    assert_non_null(input);
    for (int i = 0; i < N; i++)
        input[i] = (char)('a' + i % 1009 % 26);
    input[N] = '\0';
    int letters = 0;
    for (int i = 0; i < N; i++)
        letters += input[i] == 'b';
    snprintf(want, sizeof want, "%d %d %.5s\n", N, letters, input + N - 5);
    assert_run("import sys\ns = sys.stdin.read()\nprint(len(s), s.count('b'), s[-5:])", input,
               AX_VERDICT_EXIT, 0, want);
    free(input);
}

static void limits(void **state) {
    (void)state;
    assert_run("while True: pass", "", AX_VERDICT_FUEL, 0, "");
    assert_run("x = [0] * 10**9", "", AX_VERDICT_EXIT, 1, "");
    assert_run("while True: print('x' * 1000)", "", AX_VERDICT_OUTPUT, 0, NULL);
    assert_run("import os\nos.abort()", "", AX_VERDICT_TRAP, 0, "");
    assert_run("import os\nos._exit = lambda code: None", "", AX_VERDICT_TRAP, 0, "");
}

/* After a program that changed what it could reach, grew the memory and filled the stack's pages. */
static void the_next_run_is_as_the_first(void **state) {
    static const char look[] =
        "import builtins, sys, json, random, time\n"
        "print(hasattr(builtins, 'mark'), 'mark' in sys.modules,\n"
        "      hasattr(json, 'mark'), random.random(), time.time(), id(object()),\n"
        "      len(bytearray(1000)), hash('x'))\n";
    static const char mark[] = "import builtins, sys, json, random\n"
                               "builtins.mark = json.mark = sys.modules['mark'] = 1\n"
                               "random.seed(7)\nx = []\n";
    static const char grow[] = "import builtins\nbuiltins.mark = x = bytearray(100 << 20)\n"
                               "for i in range(0, len(x), 4096): x[i] = 1\n"
                               "def f(n): return sorted([n], key=f)\nf(1)";
    struct ax_sandbox_result first = run_with(look, "");
    (void)state;
    assert_int_equal(first.verdict, AX_VERDICT_EXIT);
    assert_int_equal(first.exit_code, 0);
    assert_memory_equal(first.out.data, "False False False ", 18);
    for (int i = 0; i < 8; i++) {
        const char *before = i % 2 ? mark : grow;
        struct ax_sandbox_result r = run_with(before, ""), again = run_with(look, "");
        assert_int_equal(r.verdict, AX_VERDICT_EXIT);
        assert_int_equal(again.fuel, first.fuel);
        assert_int_equal(again.out.len, first.out.len);
        assert_memory_equal(again.out.data, first.out.data, first.out.len);
        ax_sandbox_result_free(&r);
        ax_sandbox_result_free(&again);
    }
    ax_sandbox_result_free(&first);
}

/* The same verdicts, outputs and fuel in any order and beside anything. */
static void runs_do_not_see_each_other(void **state) {
    enum { N = 40 };
    char sources[N][200];
    struct ax_bytes parts[N][2];
    struct ax_sandbox_job jobs[N];
    struct ax_sandbox_result results[N] = {0};
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(sources[i], sizeof sources[i],
                 i % 4 == 3 ? "x = [%d]\nwhile x: x *= 2" : "print(sum(range(%d)), id(object()))",
                 i % 4 == 2 ? 10000 : 1000);
        parts[i][0] = (struct ax_bytes){sources[i], strlen(sources[i])};
        parts[i][1] = (struct ax_bytes){"", 0};
        jobs[i] =
            (struct ax_sandbox_job){.parts = parts[i], .n_parts = 2, .limits = AX_SANDBOX_LIMITS};
    }
    assert_int_equal(ax_sandbox_run(sandbox, jobs, N, results), AX_OK);
    for (int i = 4; i < N; i++) {
        assert_int_equal(results[i].verdict, results[i % 4].verdict);
        assert_int_equal(results[i].exit_code, results[i % 4].exit_code);
        assert_int_equal(results[i].fuel, results[i % 4].fuel);
        assert_int_equal(results[i].out.len, results[i % 4].out.len);
        assert_memory_equal(results[i].out.data, results[i % 4].out.data, results[i].out.len);
    }
    for (int i = 0; i < N; i++)
        ax_sandbox_result_free(&results[i]);
}

/* Python outlives a full memory; what fails for want of it is told from what fails anyway. */
static void failing_with_all_memory_in_use(void **state) {
    (void)state;
    assert_run("import os\n"
               "x, n = [], 1 << 22\n"
               "while n > 512:\n"
               "    try:\n"
               "        while True: x.append(bytearray(n))\n"
               "    except MemoryError: n //= 2\n"
               "os.abort()\n",
               "", AX_VERDICT_MEMORY, 0, "");
    assert_run("import os\nos.abort()\n", "", AX_VERDICT_TRAP, 0, "");
}

static void nothing_of_the_trainer_is_inside(void **state) {
    (void)state;
    assert_int_equal(setenv("AX_SECRET", "1", 1), 0);
    assert_run("import os\nprint(dict(os.environ), os.getcwd())", "", AX_VERDICT_EXIT, 0, "{} /\n");
    assert_run("import os\n"
               "for fd in range(3, 200):\n"
               "    try: os.fstat(fd); os.read(fd, 1); print('open', fd)\n"
               "    except OSError: pass\n",
               "", AX_VERDICT_EXIT, 0, "");
    assert_run(
        "import os\n"
        "for path in ('/', '/proc', '/etc/passwd', '/proc/self/environ', '.', '..', '/tmp'):\n"
        "    for f in (open, os.listdir, lambda p: open(p + '/x', 'w')):\n"
        "        try: print(path, f(path))\n"
        "        except OSError: pass\n",
        "", AX_VERDICT_EXIT, 0, "");
}

/* The worker's own view: no environment, no descriptors but its sockets and what it reads its pages
 * from. */
static void the_worker_has_nothing(void **state) {
    char path[200], text[400];
    (void)state;
    snprintf(path, sizeof path, "/proc/%d/environ", ax_sandbox_pid(sandbox));
    FILE *f = fopen(path, "r");
    if (!f) { /* it hides itself from others than root */
        assert_true(errno == EACCES && geteuid() != 0);
        return;
    }
    assert_int_equal(fread(text, 1, sizeof text, f), 0);
    fclose(f);
    snprintf(path, sizeof path,
             "ls -l /proc/%d/fd | sed 's/.*-> //; s/:.*//' | sort | uniq -c | tr -s ' \\n'",
             ax_sandbox_pid(sandbox));
    FILE *p = popen(path, "r");
    assert_non_null(p);
    text[fread(text, 1, sizeof text - 1, p)] = '\0';
    assert_int_equal(pclose(p), 0);
    if (!strstr(text, "2 socket") || strstr(text, "pipe") || strstr(text, "/home"))
        fail_msg("descriptors: %s", text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_run),
        cmocka_unit_test(long_inputs),
        cmocka_unit_test(limits),
        cmocka_unit_test(the_next_run_is_as_the_first),
        cmocka_unit_test(runs_do_not_see_each_other),
        cmocka_unit_test(failing_with_all_memory_in_use),
        cmocka_unit_test(nothing_of_the_trainer_is_inside),
        cmocka_unit_test(the_worker_has_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
