/* `axtrain sandbox bench`: how many programs per second, and how even their times are. */
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "cmd/bench/bench.h"
#include "cmd/sandbox/forms.h"
#include "cmd/sandbox/sandbox.h"
#include "data/reward/sandbox/reward.h"

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
     {add, "assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert add(-1, 1) == 0"},
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

enum ax_status ax_sandbox_bench(int argc, char **argv) {
    struct ax_sandbox_command c = {0};
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
