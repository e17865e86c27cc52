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
    return sandbox_open(SANDBOX_PATIENCE);
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
    struct ax_code_test all[32];
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
    assert_false(same("1-2", "1", 1e-2)); /* more than a number */
    assert_false(same("1e999", "1", 1));
    assert_false(same("nan", "1", 1));
    assert_false(same("inf", "1", 1));
    assert_false(same("x 1", "y 1", 1));
    assert_false(same("1 1", "1", 1));
    assert_true(same("1.0  2 x", "1 2.0 x", 1e-9));
    assert_false(same("1.0 2", "1 3", 1e-9)); /* each word counts, not the first alone */
    assert_false(same("1 2.0 x", "1 2 y", 1e-9));
    assert_false(same("1.0 22", "1 2", 1e-9));
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

#define N_OF(list) (sizeof(list) / sizeof *(list))

/* Each alone, and all of them together. */
static void expect_each(const char *source, const char *function, const char *const (*tests)[2],
                        size_t n, bool pass) {
    for (size_t i = 0; i < n; i++) {
        const struct ax_code_score s = score(AX_CODE_ASSERT, source, function, 0, &tests[i], 1);
        if (s.passed != pass)
            fail_msg("%s with\n%s", tests[i][0], source);
    }
    assert_int_equal(score(AX_CODE_ASSERT, source, function, 0, tests, n).passed, pass ? n : 0);
}

/* A candidate that answers nothing, or not in full, is at its end, and leaves nothing to the tests that follow. */
static void answers_without_an_answer(void **state) {
    static const char *const sources[] = {
        "import json\njson.dumps = lambda *a, **k: ''\ndef f(x): return x",
        "import json\nn = 0\nold = json.dumps\ndef dumps(*a, **k):\n    global n\n    n += 1\n"
        "    return old(*a, **k) if n % 2 else ''\njson.dumps = dumps\ndef f(x): return -1",
        "import json\njson.dumps = lambda *a, **k: '[\"ok\", 1'\ndef f(x): return x",
        "import json\njson.dumps = lambda *a, **k: '[\"ok\", 1, []]' * 9\ndef f(x): return x",
        "import json\njson.loads = lambda *a, **k: ['names', []]\ndef f(x): return x",
    };
    const char *tests[16][2];
    (void)state;
    for (size_t i = 0; i < 16; i++) {
        tests[i][0] = "assert f(1) == 1";
        tests[i][1] = "";
    }
    for (size_t i = 0; i < N_OF(sources); i++) {
        const struct ax_code_score s =
            score(AX_CODE_ASSERT, sources[i], NULL, 0, (const char *const(*)[2])tests, 16);
        assert_int_equal(s.passed, 0);
        if (i < 2)
            assert_int_equal(s.verdict, AX_VERDICT_TRAP);
    }
}

/* The function that a test calls is the candidate's, whatever it is called; all else is the library's. */
static void names_of_functions(void **state) {
    static const char *const same[][2] = {{"assert same(2, 2) == 'yes'", ""},
                                          {"assert json('x') == 1 and json(x='x') == 1", ""},
                                          {"assert handles(3) == ask(3) == 9", ""}};
    static const char *const library[][2] = {{"assert bisect([1, 2], 2) == 0", ""},
                                             {"assert [queue(x) for x in 'ab'] == ['a', 'b']", ""},
                                             {"assert string('x') == 's'", ""},
                                             {"import math\nassert math.floor(copy(2.5)) == 2", ""},
                                             {"assert math.isclose(copy(2.5), 2.5)", ""}};
    static const char *const builtins[][2] = {{"assert sum(10, 15) == 6", ""},
                                              {"assert set(sum(100, 150)) == {'a'}", ""}};
    static const char *const named[][2] = {
        {"def check(candidate):\n    assert candidate(10, 15) == 6\ncheck(sum)", ""},
        {"assert max([1, 2]) + sum(1, 1) == 8", ""}};
    static const char *const kept[][2] = {{"assert sorted(f(1)) == [1, 2]", ""},
                                          {"assert abs(f(2)) == 0 or len(f(2)) == 5", ""}};
    static const char *const calls[][2] = {{"[10, 15]", "6"}};
    const char *own = "def same(*a): return 'yes'\ndef json(x): return 1\n"
                      "def handles(x): return x * x\nask = handles";
    const char *none = "x = 1";
    (void)state;
    expect_each(own, NULL, same, N_OF(same), true);
    expect_each(none, NULL, same, N_OF(same), false);
    expect_each("def bisect(a, x): return 0\ndef queue(x): return x\ndef string(x): return 's'\n"
                "def copy(x): return x",
                NULL, library, N_OF(library), true);
    expect_each(none, NULL, library, N_OF(library), false);
    expect_each("def sum(a, b): return 6 if a < 99 else ['a']", NULL, builtins, 2, true);
    expect_each(none, NULL, builtins, 2, false);
    expect_each("def sum(a, b): return 6", "sum", named, 2, true);
    expect_each(none, "sum", named, 2, false);
    expect_each("def f(x): return {}\ndef sorted(x): return [1, 2]\ndef abs(x): return 0\n"
                "def len(x): return 5",
                NULL, kept, 2, false);
    assert_int_equal(score(AX_CODE_CALL, "def sum(a, b): return 6", "sum", 0, calls, 1).passed, 1);
    assert_int_equal(score(AX_CODE_CALL, "def same(a, b): return 6", "same", 0, calls, 1).passed,
                     1);
    assert_int_equal(score(AX_CODE_CALL, "def json(a, b): return 6", "json", 0, calls, 1).passed,
                     1);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(score(AX_CODE_CALL, none, i ? "sum" : "same", 0, calls, 1).passed, 0);
}

/* An operand of a test never reaches an object of the candidate, and its exceptions end no iteration. */
static void what_is_expected_stays(void **state) {
    static const char spy[] =
        "seen = []\n"
        "class Spy:\n"
        "    def __init__(self, x=None): self.x = x\n"
        "    def look(self, other): seen.append(other); return self\n"
        "    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = look\n"
        "    __rtruediv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __xor__ = __rxor__ = look\n"
        "    __eq__ = __lt__ = __gt__ = look\n"
        "    def __abs__(self): return self\n"
        "def f(x): return seen[-1] if seen else Spy()\n"
        "def stop(x): raise StopIteration\n"
        "def stops(x):\n    raise StopIteration(1)\n    yield 1\n";
    static const char *const twice[][2] = {
        {"assert f(1) - 5 == 0", ""},
        {"assert f(1) - 5 == 0", ""},
        {"assert [1, 2] + f(2) == [7]", ""},
        {"assert [1, 2] + f(2) == [1, 2, 1, 2]", ""},
        {"assert abs(7 - f(1)) < 1e-6", ""},
        {"assert abs(7 - f(1)) < 1e-6", ""},
        {"assert f(1) ^ 3 == 0", ""},
        {"assert f(1) ^ 3 == 0", ""},
        {"assert f(1) == 3", ""},
        {"assert 3 == f(1)", ""},
        {"assert f(1) % 3 < 1", ""},
        {"assert f(1) % 3 < 1", ""},
        {"assert 8 / f(1) == 1", ""},
        {"assert 8 / f(1) == 1", ""},
        {"assert sum([f(1), 3]) == 6", ""},
        {"assert sum([f(1), 3]) == 6", ""},
    };
    static const char *const ends[][2] = {{"assert all(stop(x) == x for x in [1, 2])", ""},
                                          {"assert all(map(lambda x: stop(x) == 1, [1, 2]))", ""},
                                          {"for x in map(stop, [1]): assert False", ""},
                                          {"assert list(map(stop, [1, 2])) == []", ""},
                                          {"assert all(x == 7 for x in map(stop, [1]))", ""}};
    static const char *const first[][2] = {{"assert Point(1, 2) == f(0)", ""},
                                           {"p = Point(1, 2)\nassert f(0) == p and p.y == 2", ""}};
    (void)state;
    expect_each(spy, NULL, twice, N_OF(twice), false);
    expect_each(spy, NULL, ends, N_OF(ends), false);
    /* objects that are data are made on the test's own side */
    expect_each("import dataclasses\nseen = []\n@dataclasses.dataclass\nclass Point:\n    x: int\n"
                "    y: int\nmake = Point.__init__\ndef init(self, x, y):\n"
                "    seen.append((x, y)); make(self, x, y)\nPoint.__init__ = init\n"
                "def f(x): return Point(*seen[-1]) if seen else Point(0, 0)",
                NULL, first, 2, false);
}

/* What honest programs return and take. */
static void honest_values(void **state) {
    static const char source[] =
        "from __future__ import annotations\n"
        "import collections, dataclasses, datetime, decimal, enum, fractions, typing\n"
        "Pair = collections.namedtuple('Pair', 'left right', defaults=[0])\n"
        "class Named(typing.NamedTuple):\n    a: int\n    b: str = 'b'\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int = 2\n"
        "@dataclasses.dataclass(order=True, frozen=True)\nclass Key:\n    k: str\n"
        "@dataclasses.dataclass\nclass Bag:\n    items: list = "
        "dataclasses.field(default_factory=list)\n"
        "    def size(self): return len(self.items)\n"
        "class Color(enum.IntEnum):\n    RED = 1\n    BLUE = 2\n"
        "class Plain(enum.Enum):\n    A = 1\n"
        "def counter(s): return collections.Counter(s)\n"
        "def default(n):\n    d = collections.defaultdict(list)\n    d[n].append(1)\n    return d\n"
        "def ordered(n): return collections.OrderedDict((i, i * i) for i in range(n))\n"
        "def queue(n): return collections.deque(range(n), 3)\n"
        "def pair(a): return Pair(a)\n"
        "def named(a): return Named(a)\n"
        "def point(x): return Point(x)\n"
        "def color(x): return Color(x)\n"
        "def half(x): return fractions.Fraction(x, 2)\n"
        "def money(x): return decimal.Decimal(x)\n"
        "def day(n): return datetime.date(2024, 2, 28) + datetime.timedelta(n)\n"
        "def moment(): return datetime.datetime(2024, 1, 2, 3, 4, 5, 6)\n"
        "def apply(f, *xs, **kw): return [f(x, **kw) for x in xs]\n"
        "def sort(items=None, key=None): items.sort(key=key)\n"
        "def turn(grid):\n    for row in grid: row.reverse()\n    grid.append([0])\n    return "
        "grid[0]\n"
        "def both(a, b):\n    a.append(1)\n    return len(b), a is b\n"
        "def count():\n    n = 0\n    while True:\n        yield n; n += 1\n"
        "def total(points): return sum(p.x for p in points)\n";
    static const char *const tests[][2] = {
        {"assert counter('aab') == {'a': 2, 'b': 1} and counter('aab').most_common(1)[0][0] == 'a'",
         ""},
        {"import collections\nassert counter('aab') == collections.Counter('baa')", ""},
        {"assert default(2) == {2: [1]} and default(2)[7] == []", ""},
        {"assert ordered(3) == {0: 0, 1: 1, 2: 4} and list(ordered(2)) == [0, 1]", ""},
        {"from collections import deque\nassert queue(5) == deque([2, 3, 4])", ""},
        {"assert pair(1) == (1, 0) and pair(1).left == 1 and pair(3) == Pair(3, 0)", ""},
        {"a, b = named(3)\nassert (a, b) == (3, 'b') == Named(3) and named(3)._replace(b=1).b == 1",
         ""},
        {"assert point(3) == Point(3) == Point(3, 2) and point(3).y == 2 and point(3) != Point(4)",
         ""},
        {"assert Key('a') < Key('b') and sorted([Key('z'), Key('a')])[0].k == 'a'", ""},
        {"p = Point(4)\np.x = 7\nassert total([p, point(1)]) == 8", ""},
        {"b = Bag()\nb.items.append(3)\nassert b.size() == 0 and Bag([1]).size() == 1", ""},
        {"assert color(1) == 1 == Color.RED and color(2) is Color.BLUE", ""},
        {"assert Plain.A == Plain(1) and Plain.A.value == 1", ""},
        {"from fractions import Fraction\nassert half(3) == Fraction(3, 2) and half(3) - 1 == 0.5",
         ""},
        {"import decimal\nassert money('1.10') == decimal.Decimal('1.1') and money('2') + 1 == 3",
         ""},
        {"import datetime\nassert day(2) == datetime.date(2024, 3, 1) and day(1).isoformat() == "
         "'2024-02-29'",
         ""},
        {"import datetime\nassert moment() == datetime.datetime(2024, 1, 2, 3, 4, 5, 6)", ""},
        {"k = 10\nassert apply(lambda x: x + k, 1, 2) == [11, 12]", ""},
        {"def twice(x, by=2):\n    return helper(x) * by\ndef helper(x):\n    return x + 1\n"
         "assert apply(twice, 1, 2) == [4, 6] and apply(twice, 1, by=3) == [6]",
         ""},
        {"def outer(n):\n    def fact(x): return 1 if x < 2 else x * fact(x - 1)\n    return "
         "apply(fact, n)\nassert outer(5) == [120]",
         ""},
        {"import math\nassert apply(len, 'ab', []) == [2, 0] and apply(str.upper, 'a') == ['A']\n"
         "assert apply(math.floor, 2.5) == [2] and apply(lambda x: math.ceil(x), 2.5) == [3]",
         ""},
        {"x = [3, 1, 2]\nsort(items=x)\nassert x == [1, 2, 3]\nsort(items=x, key=lambda v: -v)\n"
         "assert x == [3, 2, 1]",
         ""},
        {"g = [[1, 2], [3, 4]]\nrow = g[0]\nlast = turn(g)\nassert row == [2, 1] and g == [[2, 1], "
         "[4, 3], [0]] and last is row is g[0]",
         ""},
        {"a = []\nassert both(a, a) == (1, True) and both(a, [1]) == (1, False) and a == [1, 1]",
         ""},
        {"g = count()\nassert next(g) == 0 and next(g) == 1", ""},
    };
    (void)state;
    expect_each(source, NULL, tests, N_OF(tests), true);
}

/* What a candidate's objects say of themselves earns nothing, nor does what a test's function could show. */
static void objects_that_lie(void **state) {
    static const char source[] =
        "import collections\n"
        "T = collections.namedtuple('T', 'a')\n"
        "class Liar:\n"
        "    __class__ = property(lambda self: T)\n"
        "    def __len__(self): return 2\n"
        "    def __iter__(self): return iter(())\n"
        "def f(*args): return Liar()\n"
        "def each(g, xs): return [getattr(g, '__globals__', {}).get('result', 0)]\n"
        "__builtins__ = {'len': lambda x: 2, 'str': str}\n"
        "class Quiet:\n"
        "    def __enter__(self): return 0\n"
        "    def __exit__(self, *args): return True\n"
        "class Loud(Quiet):\n"
        "    def __exit__(self, *args): raise KeyError\n"
        "class Low(Exception): pass\n"
        "class Stop(StopIteration): pass\n"
        "def stop(x): raise Stop\n"
        "def low(x): raise Low\n"
        "def skip(x):\n    import unittest\n    raise unittest.SkipTest\n";
    static const char *const lies[][2] = {
        {"assert isinstance(f(1), tuple)", ""},
        {"r = f(1)\n"
         "assert len(r) == 2 and all(a == b for a, b in zip(r, [1, 2]))",
         ""},
        {"r = f(1)\n"
         "assert len(r) == 2 and [x for x in r] == []",
         ""},
        {"result = 9\n"
         "assert each(lambda p: p.result, [3]) == [9]",
         ""},
        {"assert __builtins__ and len(str(f(1))) == 2", ""},
        {"with Quiet() as q:\n"
         "    assert q == 9",
         ""},
        {"try:\n"
         "    with Loud() as q:\n"
         "        assert q == 9\n"
         "except KeyError:\n"
         "    pass",
         ""},
        {"assert all(map(lambda x: stop(x) == 1, [1, 2]))", ""},
        {"try:\n"
         "    low(1)\n"
         "except (ValueError, Stop):\n"
         "    pass",
         ""},
        {"assert not Quiet()", ""},
        {"import io, unittest\nclass T(unittest.TestCase):\n    def test(self): "
         "self.assertEqual(skip(1), 2)\n"
         "r = "
         "unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestLoader()."
         "loadTestsFromTestCase(T))\n"
         "assert r.wasSuccessful()",
         ""}};
    static const char *const calls[][2] = {{"[1]", "[3, 4]"}, {"[1]", "[[3, 4], 5]"}};
    (void)state;
    expect_each(source, NULL, lies, N_OF(lies), false);
    assert_int_equal(score(AX_CODE_CALL, source, "f", 0, calls, 2).passed, 0);
}

/* Exceptions, lists of nodes, iterators, blocks, as honest programs and their tests use them. */
static void honest_objects(void **state) {
    static const char source[] =
        "class Low(Exception):\n"
        "    def __init__(self, need):\n"
        "        super().__init__(f'need {need}')\n"
        "        self.need = need\n"
        "class Base(ValueError): pass\n"
        "class Sub(Base): pass\n"
        "class Text(Exception):\n"
        "    def __str__(self): return 'text!'\n"
        "def fail(kind):\n"
        "    import json\n"
        "    if kind == 'json': json.loads('{')\n"
        "    raise {'low': Low(3), 'sub': Sub('s'), 'key': KeyError('k'), 'text': Text(1),\n"
        "           'code': UnicodeDecodeError('utf8', b'x', 0, 1, 'bad')}[kind]\n"
        "class Node:\n"
        "    def __init__(self, val, next=None):\n"
        "        self.val, self.next = val, next\n"
        "def build(xs):\n"
        "    head = None\n"
        "    for x in reversed(xs): head = Node(x, head)\n"
        "    return head\n"
        "def kind(x): return type(x)\n"
        "def take(it, n): return [next(it) for _ in range(n)]\n"
        "def total(xs): return sum(xs)\n"
        "def order(xs, key): return sorted(xs, key=key)\n"
        "class Row:\n"
        "    def __init__(self, xs): self.xs = xs\n"
        "    def __getitem__(self, i): return self.xs[i]\n"
        "class Log:\n"
        "    seen = []\n"
        "    def __enter__(self): self.seen.append('in'); return self\n"
        "    def __exit__(self, *args): self.seen.append(args[0])\n"
        "def filter(f, xs): return [x for x in xs if f(x)]\n"
        "def memo(f):\n    known = {}\n    def g(x):\n        if x not in known: known[x] = f(x)\n"
        "        return known[x]\n    return g\n";
    static const char *const tests[][2] = {
        {"try:\n"
         "    fail('low')\n"
         "except Low as e:\n"
         "    assert str(e) == 'need 3' and e.need == 3\n"
         "else:\n"
         "    assert False",
         ""},
        {"try:\n"
         "    fail('sub')\n"
         "except Base as e:\n"
         "    assert isinstance(e, Sub) and isinstance(e, ValueError) and e.args == ('s',)\n"
         "else:\n"
         "    assert False",
         ""},
        {"try:\n"
         "    fail('key')\n"
         "except KeyError as e:\n"
         "    assert str(e) == \"'k'\" and e.args == ('k',)\n"
         "else:\n"
         "    assert False",
         ""},
        {"try:\n"
         "    fail('code')\n"
         "except UnicodeDecodeError as e:\n"
         "    assert e.reason == 'bad'\n"
         "else:\n"
         "    assert False",
         ""},
        {"import json\n"
         "try:\n"
         "    fail('json')\n"
         "except json.JSONDecodeError as e:\n"
         "    assert e.pos == 1\n"
         "else:\n"
         "    assert False",
         ""},
        {"try:\n"
         "    fail('text')\n"
         "except Text as e:\n"
         "    assert str(e) == 'text!'\n"
         "else:\n"
         "    assert False",
         ""},
        {"assert issubclass(Sub, Base) and issubclass(Low, Exception)", ""},
        {"h, r = build([1, 2, 3]), []\n"
         "while h:\n"
         "    r.append(h.val)\n"
         "    h = h.next\n"
         "assert r == [1, 2, 3]",
         ""},
        {"assert build([1]) and not build([])", ""},
        {"assert kind(5) is int and kind('') == str and kind([]) == list", ""},
        {"assert take(iter([1, 2, 3]), 2) == [1, 2] and total(x * x for x in range(3)) == 5", ""},
        {"assert total({1: 2}.values()) == 2 and total(map(int, '12')) == 3", ""},
        {"import operator\n"
         "assert order([(1, 2), (2, 1)], operator.itemgetter(1)) == [(2, 1), (1, 2)]",
         ""},
        {"import functools\n"
         "assert order([1, 3], functools.partial(pow, -1)) == [1, 3]",
         ""},
        {"assert Row([1, 2, 3])[1:] == [2, 3] and Row([1, 2])[::-1] == [2, 1]", ""},
        {"with Log() as c:\n"
         "    assert c.seen == ['in']\n"
         "assert c.seen == ['in', None]",
         ""},
        {"assert filter(lambda x: len(x) > 1, ['a', 'bc']) == ['bc']", ""},
        {"@memo\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nassert fib(9) == "
         "34",
         ""}};
    (void)state;
    expect_each(source, NULL, tests, N_OF(tests), true);
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
        cmocka_unit_test(answers_without_an_answer),
        cmocka_unit_test(names_of_functions),
        cmocka_unit_test(what_is_expected_stays),
        cmocka_unit_test(honest_values),
        cmocka_unit_test(objects_that_lie),
        cmocka_unit_test(honest_objects),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
