/* The sandbox, attacked and measured; --python and --wasmtime are those of `axtrain sandbox run`.
 *
 *     sandbox attack [--quiet]                    programs that try to get out, to stay in, to see each
 *         other and to earn a reward that they do not deserve (attacks.txt; cheats.txt and
 *         more_cheats.txt, which differ in their tests), each alone and
 *         all of them concurrently beside an honest one; exit code 1 if one of them succeeds
 *     sandbox bench [--threads N] [--seconds N]   programs per second, and how even their times are, with
 *         the options of `axtrain bench` */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "cmd/sandbox.h"
#include "data/reward/sandbox/reward.h"
#include "tests/bench/input.h"
#include "tests/bench/program.h"

__asm__(".pushsection .rodata\n"
        ".global ax_sandbox_attacks, ax_sandbox_cheats, ax_sandbox_more_cheats\n"
        "ax_sandbox_attacks: .incbin \"tests/bench/attacks.txt\"\n .byte 0\n"
        "ax_sandbox_cheats: .incbin \"tests/bench/cheats.txt\"\n .byte 0\n"
        "ax_sandbox_more_cheats: .incbin \"tests/bench/more_cheats.txt\"\n .byte 0\n"
        ".popsection\n");
extern const char ax_sandbox_attacks[], ax_sandbox_cheats[], ax_sandbox_more_cheats[];

/* Several more than there are. */
enum { MAX_ATTACKS = 240, AT_ONCE = 8 };

static char *axtrain; /* the program that workers are */

/* ---- the lists: "=== NAME: EXPECTED" and a program, again and again ---- */

struct attack {
    char name[80], expected[80];
    struct ax_bytes source;
};

static size_t read_list(const char *text, struct attack *all) {
    size_t n = 0;
    while (*text != '\0') {
        struct attack *a = &all[n++];
        AX_ASSERT(n <= MAX_ATTACKS && strncmp(text, "=== ", 4) == 0);
        const size_t head = strcspn(text, "\n");
        const char *colon = text + head;
        while (*colon != ':')
            colon--;
        (void)snprintf(a->name, sizeof a->name, "%.*s", (int)(colon - text) - 4, text + 4);
        (void)snprintf(a->expected, sizeof a->expected, "%.*s", (int)(text + head - colon) - 2,
                       colon + 2);
        const char *end = strstr(text + head, "\n=== ");
        a->source.data = text + head + 1;
        end = end ? end + 1 : text + strlen(text);
        a->source.n = (size_t)(end - a->source.data);
        text = end;
    }
    return n;
}

/* ---- expectations ---- */

/* Is the verdict one of "fuel, stack, trap or exit 1"? "exit" is any exit code. */
static bool is_one_of(const char *list, const struct ax_sandbox_result *r) {
    char verdict[32];
    (void)ax_sandbox_verdict_text(r, verdict);
    const size_t whole = strlen(verdict), word = strlen(ax_verdict_names[r->verdict]);
    if (strncmp(list, "any", 3) == 0)
        return r->verdict != AX_VERDICT_CRASH && r->verdict != AX_VERDICT_TIME;
    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, ",");
        const char * or = strstr(p, " or ");
        n = or &&(size_t)(or -p) < n ? (size_t)(or -p) : n;
        if ((n == whole && strncmp(p, verdict, n) == 0) ||
            (n == word && strncmp(p, ax_verdict_names[r->verdict], n) == 0))
            return true;
        p += n;
        p += *p == ',' ? 2 : *p == ' ' ? 4 : 0;
    }
    return false;
}

static bool is_expected(const struct attack *a, const struct ax_sandbox_result *r) {
    const char *prints = strstr(a->expected, ", prints ");
    if (prints) {
        prints += strlen(", prints ");
        const struct ax_bytes want = {prints, strlen(prints)};
        if (!ax_code_same_output((struct ax_bytes){r->out.data, r->out.len}, want, 0))
            return false;
    }
    return is_one_of(a->expected, r);
}

/* ---- programs ---- */

static const char honest[] = "import re, collections\n"
                             "print(collections.Counter(re.findall('[a-z]', 'a quick fox')))\n"
                             "print(sum(i * i for i in range(1000)), id(object()))\n";

struct tally {
    int passed, failed;
};

static void report(struct tally *t, bool ok, const char *name, const char *got, const char *wanted,
                   const char *where) {
    t->passed += ok;
    t->failed += !ok;
    if (!ok)
        printf("FAILED  %s (%s): %s, expected %s\n", name, where, got, wanted);
}

/* Less than programs are given: many of these go on until nothing is left. */
static struct ax_sandbox_limits limits_of(void) {
    struct ax_sandbox_limits limits = AX_SANDBOX_LIMITS;
    limits.fuel = 1000000000;
    return limits;
}

static struct ax_sandbox_job job_of(const struct ax_bytes *parts) {
    return (struct ax_sandbox_job){.parts = parts, .n_parts = 2, .limits = limits_of()};
}

/* A wall time of a second is for a machine with nothing else to do: its tenfold still tells a flood
 * that is charged for from one that is not. */
static bool is_quick(const struct attack *a, const struct ax_sandbox_result *r) {
    return !strstr(a->expected, "within 1 s") || r->seconds < 10;
}

static enum ax_status alone(struct ax_sandbox *s, const struct attack *all, size_t n, bool print,
                            struct tally *t) {
    for (size_t i = 0; i < n; i++) {
        const struct ax_bytes parts[2] = {all[i].source, {"", 0}};
        const struct ax_sandbox_job job = job_of(parts);
        struct ax_sandbox_result r = {0};
        char verdict[32];
        AX_TRY(ax_sandbox_run(s, &job, 1, &r));
        const bool ok = is_expected(&all[i], &r) && is_quick(&all[i], &r);
        (void)ax_sandbox_verdict_text(&r, verdict);
        if (print)
            printf("%-44s %-8s %12llu fuel %8.1f ms\n", all[i].name, verdict,
                   (unsigned long long)r.fuel, r.seconds * 1e3);
        report(t, ok, all[i].name, verdict, all[i].expected, "alone");
        ax_sandbox_result_free(&r);
    }
    return AX_OK;
}

/* Every second program is the honest one, which must always do the same. */
static void compare(const struct attack *all, const struct ax_sandbox_result *results, size_t n,
                    struct tally *t) {
    const struct ax_sandbox_result *first = &results[0];
    char verdict[32];
    for (size_t i = 0; i < n; i++) {
        const struct ax_sandbox_result *h = &results[2 * i], *r = &results[2 * i + 1];
        report(t, is_expected(&all[i], r), all[i].name, ax_sandbox_verdict_text(r, verdict),
               all[i].expected, "beside others");
        const bool same = h->verdict == AX_VERDICT_EXIT && h->exit_code == 0 &&
                          h->fuel == first->fuel && h->out.len == first->out.len &&
                          memcmp(h->out.data, first->out.data, h->out.len) == 0;
        report(t, same, "honest program", ax_sandbox_verdict_text(h, verdict), "exit 0",
               all[i].name);
    }
}

static enum ax_status together(struct ax_sandbox *s, const struct attack *all, size_t n,
                               struct tally *t) {
    static struct ax_bytes parts[2 * MAX_ATTACKS][2];
    static struct ax_sandbox_job jobs[2 * MAX_ATTACKS];
    static struct ax_sandbox_result results[2 * MAX_ATTACKS];
    memset(results, 0, sizeof results);
    for (size_t i = 0; i < 2 * n; i++) {
        parts[i][0] = i % 2 ? all[i / 2].source : (struct ax_bytes){honest, strlen(honest)};
        parts[i][1] = (struct ax_bytes){"", 0};
        jobs[i] = job_of(parts[i]);
    }
    const enum ax_status st = ax_sandbox_run(s, jobs, 2 * n, results);
    if (st == AX_OK)
        compare(all, results, n, t);
    for (size_t i = 0; i < 2 * n; i++)
        ax_sandbox_result_free(&results[i]);
    return st;
}

/* ---- cheats ---- */

#define TEXT(s)                                                                                    \
    { s, sizeof(s) - 1 }
static const struct ax_code_test asserts[] = {
    {TEXT("assert add(2, 3) == 5"), {0}},
    {TEXT("assert add(-1, 8) == 7 and add(1, 1) == 2"), {0}},
    {TEXT("assert abs(add(40, 60) - 100) < 1"), {0}},
};
static const struct ax_code_test calls[] = {
    {TEXT("[2, 3]"), TEXT("5")}, {TEXT("[-1, 8]"), TEXT("7")}, {TEXT("[40, 60]"), TEXT("100")}};

/* What does not show in the sum of two numbers: objects, iteration, exceptions, functions of the test. */
static const struct ax_code_test more[] = {
    {TEXT("r = pairs(3)\n"
          "assert isinstance(r, (list, tuple)) and len(r) == 3 and all(a == b for a, b in zip(r, "
          "[1, 4, 9]))"),
     {0}},
    {TEXT("r = pairs(2)\n"
          "assert len(r) == 2 and not any(a != b for a, b in zip(r, [1, 4]))"),
     {0}},
    {TEXT("assert Point(1, 2) == origin(1, 2) == Point(1, 2) and origin(1, 2).y == 2"), {0}},
    {TEXT("assert all(map(lambda x: square(x) == x * x, [2, 3, 4]))"), {0}},
    {TEXT("result = 9\n"
          "assert each(lambda p: p.result, [3]) == [9]"),
     {0}},
    {TEXT("try:\n"
          "    assert square(5) == 25\n"
          "except (KeyError, ValueError, StopIteration, RecursionError):\n"
          "    assert square(6) == 36"),
     {0}},
    {TEXT("with opened(3) as r:\n"
          "    assert r == 9"),
     {0}},
    {TEXT("x = [3, 1, 2]\n"
          "kept = x\n"
          "assert ordered(x) is None and x == [1, 2, 3] and kept is x and type(x[0]) is int"),
     {0}},
    {TEXT("def helper(x):\n"
          "    return x * x\n"
          "assert __builtins__ and len(str(square(4))) == len(str(helper(4)))"),
     {0}},
};

/* The tests of a list of cheats. */
struct suite {
    const char *name, *function;
    enum ax_code_mode mode;
    const struct ax_code_test *tests;
    size_t n;
};
#define SUITE(name, function, mode, tests)                                                         \
    { name, function, mode, tests, sizeof(tests) / sizeof *(tests) }
static const struct suite by_asserts = SUITE("assert", "add", AX_CODE_ASSERT, asserts);
static const struct suite by_calls = SUITE("call", "add", AX_CODE_CALL, calls);
static const struct suite by_more = SUITE("more", NULL, AX_CODE_ASSERT, more);

static enum ax_status cheat(struct ax_sandbox *s, const struct attack *all, size_t n,
                            const struct suite *suite, bool print, struct tally *t) {
    static struct ax_code codes[MAX_ATTACKS];
    static struct ax_code_score scores[MAX_ATTACKS];
    for (size_t i = 0; i < n; i++)
        codes[i] = (struct ax_code){.mode = suite->mode,
                                    .source = all[i].source,
                                    .function = suite->function,
                                    .tests = suite->tests,
                                    .n_tests = suite->n,
                                    .limits = limits_of()};
    AX_TRY(ax_code_rewards(s, codes, n, scores));
    for (size_t i = 0; i < n; i++) {
        char got[24];
        (void)snprintf(got, sizeof got, "%zu", scores[i].passed);
        report(t, strcmp(got, all[i].expected) == 0, all[i].name, got, all[i].expected,
               suite->name);
        if (print)
            printf("%-52s %s: %s of %zu\n", all[i].name, suite->name, got, suite->n);
    }
    return AX_OK;
}

static enum ax_status attack_all(int argc, char **argv) {
    static struct attack attacks[MAX_ATTACKS], cheats[MAX_ATTACKS], more_cheats[MAX_ATTACKS];
    struct ax_sandbox_command c = {.program = axtrain, .threads = AT_ONCE};
    struct tally t = {0};
    bool quiet = false;
    int n;
    const struct ax_arg args[] = {AX_SANDBOX_ARGS(&c), {"--quiet", AX_ARG_FLAG, &quiet, 0, 0}};
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 0, 0, NULL, &n));
    const size_t n_attacks = read_list(ax_sandbox_attacks, attacks);
    const size_t n_cheats = read_list(ax_sandbox_cheats, cheats);
    const size_t n_more = read_list(ax_sandbox_more_cheats, more_cheats);
    enum ax_status st = ax_sandbox_command_open(&c);
    if (st == AX_OK)
        st = alone(c.sandbox, attacks, n_attacks, !quiet, &t);
    if (st == AX_OK)
        st = together(c.sandbox, attacks, n_attacks, &t);
    if (st == AX_OK)
        st = cheat(c.sandbox, cheats, n_cheats, &by_asserts, !quiet, &t);
    if (st == AX_OK)
        st = cheat(c.sandbox, cheats, n_cheats, &by_calls, false, &t);
    if (st == AX_OK)
        st = cheat(c.sandbox, more_cheats, n_more, &by_more, !quiet, &t);
    ax_sandbox_command_close(&c);
    AX_TRY(st);
    printf("%d checks passed, %d failed\n", t.passed, t.failed);
    return t.failed == 0 ? AX_OK : ax_error(AX_ERR_FAILED, "%d checks failed", t.failed);
}

/* ---- speed ---- */

static const char trivial[] = "print(1)\n";

/* As models answer: five imports, a class, a few algorithms, some output. */
static const char typical[] =
    "import collections, heapq, itertools, math, re\n"
    "from functools import lru_cache\n"
    "class Graph:\n"
    "    def __init__(self, n):\n"
    "        self.n = n\n"
    "        self.adj = collections.defaultdict(list)\n"
    "    def add(self, a, b, w):\n"
    "        self.adj[a].append((b, w))\n"
    "        self.adj[b].append((a, w))\n"
    "    def distances(self, start):\n"
    "        dist = {start: 0}\n"
    "        heap = [(0, start)]\n"
    "        while heap:\n"
    "            d, u = heapq.heappop(heap)\n"
    "            if d > dist.get(u, math.inf):\n"
    "                continue\n"
    "            for v, w in self.adj[u]:\n"
    "                if d + w < dist.get(v, math.inf):\n"
    "                    dist[v] = d + w\n"
    "                    heapq.heappush(heap, (d + w, v))\n"
    "        return dist\n"
    "@lru_cache(None)\n"
    "def fib(n):\n"
    "    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
    "def words(text):\n"
    "    return collections.Counter(re.findall(r'[a-z]+', text.lower()))\n"
    "def main():\n"
    "    g = Graph(20)\n"
    "    for i in range(19):\n"
    "        g.add(i, i + 1, (i * 7) % 11 + 1)\n"
    "    print(sum(g.distances(0).values()))\n"
    "    print(fib(30))\n"
    "    print(words('The quick brown fox jumps over the lazy dog.').most_common(3))\n"
    "    print([''.join(p) for p in itertools.permutations('abc')])\n"
    "    rows = [[int(x) for x in line.split()] for line in ['1 2 3', '4 5 6']]\n"
    "    print([list(c) for c in zip(*rows)])\n"
    "    print(f'{math.pi:.6f} {math.gcd(84, 36)}')\n"
    "if __name__ == '__main__':\n"
    "    main()\n";

static const char heavy[] = "total = 0\n"
                            "for i in range(100000):\n"
                            "    total += i * i % 7\n"
                            "print(total)\n";

static const char add[] = "def add(a, b):\n    return a + b\n";

static const struct {
    const char *name;
    enum ax_sandbox_kind kind;
    size_t n_parts;
    const char *parts[4];
    size_t batch;
} programs[] = {
    {"trivial", AX_SANDBOX_PROGRAM, 2, {trivial, ""}, 400},
    {"typical", AX_SANDBOX_PROGRAM, 2, {typical, ""}, 100},
    {"heavy", AX_SANDBOX_PROGRAM, 2, {heavy, ""}, 4},
    {"check",
     AX_SANDBOX_CHECK,
     4,
     {add, "[\"assert\", \"assert add(1, 2) == 3\", null]",
      "[\"assert\", \"assert add(0, 0) == 0\", null]",
      "[\"assert\", \"assert add(-1, 1) == 0\", null]"},
     100},
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs, MAX_BATCH = 400 };

static bool is_right(const struct ax_sandbox_result *r) {
    bool all = r->verdict == AX_VERDICT_EXIT && r->exit_code == 0;
    for (size_t i = 0; i < r->passed.len; i++)
        all = all && r->passed.data[i] == 1;
    return all;
}

static enum ax_status run_batch(struct ax_sandbox *s, int which) {
    static struct ax_sandbox_job jobs[MAX_BATCH];
    static struct ax_sandbox_result results[MAX_BATCH];
    struct ax_bytes parts[4];
    const size_t n = programs[which].batch;
    bool right = true;
    for (size_t i = 0; i < programs[which].n_parts; i++)
        parts[i] = (struct ax_bytes){programs[which].parts[i], strlen(programs[which].parts[i])};
    for (size_t i = 0; i < n; i++)
        jobs[i] = (struct ax_sandbox_job){.kind = programs[which].kind,
                                          .parts = parts,
                                          .n_parts = programs[which].n_parts,
                                          .limits = AX_SANDBOX_LIMITS};
    memset(results, 0, sizeof results);
    AX_TRY(ax_sandbox_run(s, jobs, n, results));
    for (size_t i = 0; i < n; i++) {
        right = right && is_right(&results[i]);
        ax_sandbox_result_free(&results[i]);
    }
    return right ? AX_OK
                 : ax_error(AX_ERR_FAILED, "sandbox bench: %s has another verdict than exit 0",
                            programs[which].name);
}

static enum ax_status measure(struct ax_bench *b, struct ax_sandbox *s, int which, double seconds) {
    struct ax_sandbox_stats stats;
    const char *name = programs[which].name;
    AX_TRY(run_batch(s, which)); /* instances are new */
    ax_sandbox_take_stats(s, &stats);
    const double end = ax_clock_now() + seconds;
    do
        AX_TRY(run_batch(s, which));
    while (ax_clock_now() < end);
    ax_sandbox_take_stats(s, &stats);
    const struct ax_bench_figure speed = {(double)stats.runs / stats.seconds, "runs/s", false, -1};
    const struct ax_bench_figure p50 = {stats.p50 * 1e3, "ms", true, -1};
    const struct ax_bench_figure p99 = {stats.p99 * 1e3, "ms", true, -1};
    AX_TRY(ax_bench_add(b, &speed, "sandbox/%s/speed", name));
    AX_TRY(ax_bench_add(b, &p50, "sandbox/%s/p50", name));
    return ax_bench_add(b, &p99, "sandbox/%s/p99", name);
}

static enum ax_status measure_all(int argc, char **argv) {
    struct ax_sandbox_command c = {.program = axtrain};
    struct ax_bench b = {0};
    int64_t seconds = 3;
    const struct ax_arg own[] = {
        AX_SANDBOX_ARGS(&c),
        {"--threads", AX_ARG_INT, &c.threads, 1, AX_SANDBOX_MAX_THREADS},
        {"--seconds", AX_ARG_INT, &seconds, 1, 3600},
    };
    enum ax_status st = ax_bench_parse(&b, argc, argv, sizeof own / sizeof *own, own);
    const int cores = ax_cpu_count();
    if (c.threads == 0)
        c.threads = cores < AX_SANDBOX_MAX_THREADS ? cores : AX_SANDBOX_MAX_THREADS;
    b.threads = c.threads;
    if (st == AX_OK)
        st = ax_sandbox_command_open(&c);
    for (int i = 0; i < N_PROGRAMS && st == AX_OK; i++)
        st = measure(&b, c.sandbox, i, (double)seconds);
    ax_sandbox_command_close(&c);
    if (st == AX_OK)
        st = ax_bench_finish(&b);
    ax_bench_free(&b);
    return st;
}

static enum ax_status run(int argc, char **argv) {
    AX_TRY(ax_bench_axtrain(&axtrain));
    if (argc > 1 && strcmp(argv[1], "attack") == 0)
        return attack_all(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return measure_all(argc - 1, argv + 1);
    return ax_error(AX_ERR_CONFIG, "expected sandbox attack or sandbox bench");
}

int main(int argc, char **argv) {
    const int code = end_program(run(argc, argv));
    ax_free(axtrain);
    return code;
}
