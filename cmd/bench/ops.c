/* `axtrain bench ops`: every op of the op table at the shapes of SmolLM2-135M (on a GPU, where the op has
 * them, at huge ones), with its bound: the fastest matrix product or the fastest copy. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/bench/bench.h"
#include "kernels/cases.h"

#define SECONDS  0.1 /* an op is repeated for this long … */
#define MIN_RUNS 5
#define MAX_RUNS 200
#define SLOW     1.0     /* … but runs only once if a call takes longer than this */
#define LATE     2e-3    /* seconds of a run where the host waits for the end: it takes 10 µs */
#define TINY     65536.0 /* bytes; below this, the call itself takes most of the time */

struct ops_bench {
    struct ax_bench *r;
    const char *dtype_name, *backend;
    struct ax_arg_list only;
    enum ax_dtype dtype;
    struct ax_runtime_options ro;
    /* the current case */
    struct ax_case c;
    double seconds; /* median */
    bool fell_back;
};

/* Of one call, of some in a row. */
static enum ax_status timed(struct ops_bench *b, struct ax_runtime *rt, int calls,
                            double *seconds) {
    const double start = ax_clock_now();
    for (int i = 0; i < calls; i++)
        AX_TRY(ax_case_run(&b->c, rt->q));
    AX_TRY(ax_queue_finish(rt->q));
    *seconds = (ax_clock_now() - start) / calls;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct ops_bench *b = ctx;
    double seconds[MAX_RUNS];
    size_t n = 0;
    AX_TRY(ax_case_send(&b->c, rt->q));
    AX_TRY(ax_case_prepare(&b->c, rt->q));
    AX_TRY(timed(b, rt, 1, &b->seconds)); /* warms up; planning needs no more */
    b->fell_back = rt->q->counters.fallbacks > 0;
    if (ax_runtime_planning(rt))
        return AX_OK;
    /* In the first call, libraries of a GPU planned too. */
    const bool on_gpu = ax_queue_is_late(rt->q);
    if (on_gpu)
        AX_TRY(timed(b, rt, 1, &b->seconds));
    if (b->seconds > SLOW)
        return AX_OK;
    const int calls = on_gpu && b->seconds < LATE ? 1 + (int)fmin(LATE / b->seconds, MAX_RUNS) : 1;
    const double start = ax_clock_now();
    while (n < MIN_RUNS || (n < MAX_RUNS && ax_clock_now() - start < SECONDS))
        AX_TRY(timed(b, rt, calls, &seconds[n++]));
    b->seconds = ax_bench_median(seconds, n);
    return AX_OK;
}

/* Reports the share of the bound that takes longer: memory traffic or arithmetic. */
static enum ax_status report(struct ops_bench *b) {
    const struct ax_op_cost cost = ax_op_cost(b->c.op, b->c.args);
    double bandwidth, peak;
    AX_TRY(ax_bench_bandwidth(b->r, &bandwidth));
    AX_TRY(ax_bench_peak(b->r, &peak));
    const bool by_flops = cost.flops / peak > cost.bytes / bandwidth;
    const double rate = (by_flops ? cost.flops : cost.bytes) / b->seconds;
    struct ax_bench_figure f = {rate / 1e9, by_flops ? "GFLOP/s" : "GB/s", false,
                                rate / (by_flops ? peak : bandwidth)};
    if (cost.bytes < TINY && !by_flops)
        f = (struct ax_bench_figure){1e6 * b->seconds, "us", true, -1};
    const bool by_ref = b->fell_back || strcmp(b->backend, "ref") == 0;
    return ax_bench_add(b->r, &f, "ops/%s/%s/%s%s", ax_op_name(b->c.op), b->c.shape->name,
                        ax_dtype_info(b->dtype)->name, by_ref ? "/ref" : "");
}

static enum ax_status time_case(struct ops_bench *b, enum ax_op op, const struct ax_shape *shape) {
    AX_TRY(ax_case_create(&b->c, op, shape, b->dtype, 1));
    enum ax_status st = ax_runtime_run(&b->ro, body, b, NULL);
    if (st == AX_OK)
        st = report(b);
    ax_case_free(&b->c);
    return st;
}

/* Times the shapes marked for timing, on a GPU the huge ones; if an op has none, its last shape. */
static enum ax_status time_op(struct ops_bench *b, enum ax_op op) {
    int n, n_huge;
    const struct ax_shape *shapes = ax_op_shapes(op, &n);
    const struct ax_shape *huge = ax_op_huge_shapes(op, &n_huge);
    if (strcmp(b->backend, "cuda") == 0 && n_huge > 0) {
        for (int i = 0; i < n_huge; i++)
            AX_TRY(time_case(b, op, &huge[i]));
        return AX_OK;
    }
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (!shapes[i].big && (any || i + 1 < n))
            continue;
        any = true;
        AX_TRY(time_case(b, op, &shapes[i]));
    }
    return AX_OK;
}

static enum ax_status find(const char *name, enum ax_op *out) {
    struct ax_nearest nearest = {.given = name, .within = 4};
    for (int op = 0; op < AX_OP_COUNT; op++) {
        if (strcmp(name, ax_op_name((enum ax_op)op)) == 0) {
            *out = (enum ax_op)op;
            return AX_OK;
        }
        ax_nearest_try(&nearest, ax_op_name((enum ax_op)op));
    }
    return nearest.name ? ax_error(AX_ERR_CONFIG, "--op: unknown op %s; did you mean %s?", name,
                                   nearest.name)
                        : ax_error(AX_ERR_CONFIG,
                                   "--op: unknown op %s; `axtrain bench ops` lists all ops", name);
}

static enum ax_status run(struct ops_bench *b) {
    enum ax_op chosen[AX_ARG_LIST_MAX] = {0};
    AX_TRY(ax_bench_dtype(b->dtype_name, &b->dtype));
    if (b->dtype != AX_F32 && b->dtype != AX_BF16)
        return ax_error(AX_ERR_CONFIG,
                        "--dtype: ops can be timed in float32 or bfloat16, not in %s",
                        ax_dtype_info(b->dtype)->name);
    for (int i = 0; i < b->only.n; i++)
        AX_TRY(find(b->only.text[i], &chosen[i]));
    for (int i = 0; i < b->only.n; i++)
        AX_TRY(time_op(b, chosen[i]));
    for (int op = 0; op < AX_OP_COUNT && b->only.n == 0; op++)
        AX_TRY(time_op(b, (enum ax_op)op));
    return AX_OK;
}

enum ax_status ax_bench_ops(struct ax_bench *r, int argc, char **argv) {
    struct ops_bench b = {.r = r, .backend = "cpu"};
    const struct ax_arg own[] = {
        {"--op", AX_ARG_LIST, &b.only, 0, 0},
        {"--dtype", AX_ARG_STRING, &b.dtype_name, 0, 0},
        {"--backend", AX_ARG_STRING, &b.backend, 0, 0},
        {"--threads", AX_ARG_INT, &r->threads, 1, 1024},
    };
    AX_TRY(ax_bench_parse(r, argc, argv, sizeof own / sizeof *own, own));
    AX_TRY(ax_bench_backend(r, b.backend));
    b.ro = (struct ax_runtime_options){.backend = b.backend, .threads = (int)r->threads};
    return run(&b);
}
