/* What code is worth: by outputs, by calls and by assertions. That no cheat is worth anything is
 * tested by `build/tests/bench/sandbox attack`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/reward/sandbox/reward.h"
#include "tests/data/sandbox_case.h"

static int open_all(void **state) {
    (void)state;
    return sandbox_open(AX_SANDBOX_SECONDS);
}

static int close_all(void **state) {
    (void)state;
    return sandbox_close();
}

static struct ax_bytes text(const char *s) {
    return (struct ax_bytes){s, strlen(s)};
}

static struct ax_code_score score(enum ax_code_mode mode, const char *source, const char *function,
                                  double tolerance, const char *const (*tests)[2], size_t n) {
    struct ax_code_test all[16];
    struct ax_code_score s = {0};
    for (size_t i = 0; i < n; i++)
        all[i] = (struct ax_code_test){text(tests[i][0]), text(tests[i][1])};
    const struct ax_code code = {.mode = mode,
                                 .source = text(source),
                                 .function = function,
                                 .tolerance = tolerance,
                                 .tests = all,
                                 .n_tests = n,
                                 .limits = AX_SANDBOX_LIMITS};
    if (ax_code_rewards(sandbox, &code, 1, &s) != AX_OK)
        fail_msg("%s", ax_error_text());
    return s;
}

static bool same(const char *output, const char *expected, double tolerance) {
    return ax_code_same_output(text(output), text(expected), tolerance);
}

static void outputs_are_compared(void **state) {
    (void)state;
    assert_true(same("1 2\n3\n", "1 2\n3", 0));
    assert_true(same("1 2  \r\n3\n\n\n", "1 2\n3\n", 0));
    assert_true(same("", "\n", 0));
    assert_false(same(" 1", "1", 0));
    assert_false(same("1\n\n2", "1\n2", 0));
    assert_false(same("1 2", "1  2", 0));
    assert_false(same("1", "1\n2", 0));
    assert_false(same("1\n2", "1", 0));
    assert_false(same("1", "", 0));
    assert_false(same("0.30000000000000004", "0.3", 0));
    assert_true(same("0.30000000000000004 x", "0.3 x", 1e-9));
    assert_true(same("1000001", "1000000", 1e-5));
    assert_false(same("1.1", "1.0", 1e-2));
    assert_false(same("nan", "1", 1));
    assert_false(same("inf", "1", 1));
    assert_false(same("x 1", "y 1", 1));
    assert_false(same("1 1", "1", 1));
    assert_true(same("nan", "nan", 1e-9));
}

static void programs_by_their_output(void **state) {
    static const char *const tests[][2] = {{"2 3\n", "5\n"}, {"-1 1", "0"}, {"1 1", "3"}};
    const struct ax_code_score s =
        score(AX_CODE_STDIO, "a, b = map(int, input().split())\nprint(a + b)", NULL, 0, tests, 3);
    (void)state;
    assert_int_equal(s.passed, 2);
    assert_true(s.reward == 2.0 / 3);
    /* the right output is worth nothing with the wrong exit code */
    const struct ax_code_score bad = score(
        AX_CODE_STDIO, "a, b = map(int, input().split())\nprint(a + b)\n1 / 0", NULL, 0, tests, 3);
    assert_int_equal(bad.passed, 0);
    assert_int_equal(bad.exit_code, 1);
    assert_true(score(AX_CODE_RUN, "print(1)", NULL, 0, NULL, 0).reward == 1);
    assert_true(score(AX_CODE_RUN, "raise SystemExit(1)", NULL, 0, NULL, 0).reward == 0);
    const struct ax_code_score slow = score(AX_CODE_STDIO, "while True: pass", NULL, 0, tests, 1);
    assert_int_equal(slow.verdict, AX_VERDICT_FUEL);
}

static void functions_by_their_results(void **state) {
    static const char *const tests[][2] = {
        {"[[1, 2], {\"a\": null}]", "[[2, 1], {\"a\": null}, true]"},
        {"[[], {}]", "[[], {}, true]"}};
    static const char source[] = "class Solution:\n"
                                 "    def f(self, x, d):\n"
                                 "        return (x[::-1], d, True)\n";
    static const char *const thirds[][2] = {{"[1]", "0.3333333"}, {"[2]", "0.67"}};
    (void)state;
    assert_int_equal(score(AX_CODE_CALL, source, "Solution().f", 0, tests, 2).passed, 2);
    assert_int_equal(score(AX_CODE_CALL, source, "Solution().g", 0, tests, 2).passed, 0);
    assert_int_equal(score(AX_CODE_CALL, "def f(x): return x / 3", "f", 1e-6, thirds, 2).passed, 1);
    /* a number is not a truth value, nor a text */
    static const char *const ones[][2] = {{"[]", "1"}};
    assert_int_equal(score(AX_CODE_CALL, "def f(): return 1", "f", 0, ones, 1).passed, 1);
    assert_int_equal(score(AX_CODE_CALL, "def f(): return '1'", "f", 0, ones, 1).passed, 0);
}

/* What honest candidates are tested with. */
static void assertions(void **state) {
    static const char source[] =
        "import math\n"
        "from collections import OrderedDict\n"
        "LIMIT = 10\n"
        "class Stack:\n"
        "    def __init__(self): self.items = []\n"
        "    def push(self, x): self.items.append(x); return self\n"
        "    def pop(self): return self.items.pop()\n"
        "    def __len__(self): return len(self.items)\n"
        "    def __getitem__(self, i): return self.items[i]\n"
        "    def __contains__(self, x): return x in self.items\n"
        "    def __add__(self, other):\n"
        "        s = Stack(); s.items = self.items + other.items; return s\n"
        "def sort(x): x.sort()\n"
        "def count():\n"
        "    i = 0\n"
        "    while True:\n"
        "        yield i; i += 1\n"
        "def fail(kind): raise {'v': ValueError, 'k': KeyError}[kind]('no')\n"
        "def echo(*args, **kwargs): return args, kwargs\n"
        "def area(r): return math.pi * r * r\n";
    static const char *const tests[][2] = {
        {"x = [3, 1, 2]\nsort(x)\nassert x == [1, 2, 3]", ""},
        {"s = Stack()\nassert s.push(1).push('a') is s\nassert len(s) == 2 and s[1] == 'a'\n"
         "assert s.pop() == 'a' and 1 in s and list(s.items) == [1]",
         ""},
        {"import itertools\nassert list(itertools.islice(count(), 3)) == [0, 1, 2]", ""},
        {"try:\n    fail('k')\nexcept KeyError:\n    pass\nelse:\n    assert False", ""},
        {"import math\nassert math.isclose(area(2), 12.566370614359172)", ""},
        {"v = [1, 2.5, 'x', None, True, (1, [2]), {1: {2}}, frozenset([3]), b'b', 1 << 200, -0.0, "
         "1j]\n"
         "assert echo(*v, k=v) == (tuple(v), {'k': v})\n"
         "assert [type(x) for x in echo(*v)[0]] == [type(x) for x in v]",
         ""},
        {"assert LIMIT == 10", ""},
        {"def check(f):\n    for i in range(50):\n        assert f(i) == ((i,), {})\ncheck(echo)",
         ""},
        {"a = Stack().push(1)\nb = Stack().push(2)\nassert (a + b).items == [1, 2] and a != b", ""},
        {"d = {'a': 1}\nassert echo(d)[0][0] == d and d == {'a': 1}", ""},
        {"assert sort([]) is None and missing", ""}, /* no such name: fails */
        {"assert not Stack()", ""},                  /* has no truth value: fails */
    };
    const struct ax_code_score s = score(AX_CODE_ASSERT, source, NULL, 0, tests, 12);
    (void)state;
    assert_int_equal(s.verdict, AX_VERDICT_EXIT);
    assert_int_equal(s.passed, 10);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(score(AX_CODE_ASSERT, source, NULL, 0, &tests[i], 1).passed, i < 10);
}

/* Limits of a candidate count over all tests; a test's own failures are not the candidate's end. */
static void limits(void **state) {
    static const char *const tests[][2] = {{"assert f(1) == 1", ""},    {"assert 1 / 0", ""},
                                           {"raise SystemExit(0)", ""}, {"assert f(1) == 1", ""},
                                           {"while True: f(200)", ""},  {"assert f(1) == 1", ""}};
    const struct ax_code_score s =
        score(AX_CODE_ASSERT, "def f(n): return sum(range(10**(n - 1))) + 1 if n < 3 else n", NULL,
              0, tests, 6);
    (void)state;
    assert_int_equal(s.passed, 2); /* the two before the endless one */
    static const char *const own[][2] = {
        {"assert f(3) == 3", ""}, {"f(9)", ""}, {"assert f(3) == 3", ""}};
    const struct ax_code_score dead =
        score(AX_CODE_ASSERT, "def f(n):\n    while n > 8: pass\n    return n", NULL, 0, own, 3);
    assert_int_equal(dead.passed, 1);
    assert_int_equal(dead.verdict, AX_VERDICT_FUEL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_compared),
        cmocka_unit_test(programs_by_their_output),
        cmocka_unit_test(functions_by_their_results),
        cmocka_unit_test(assertions),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
