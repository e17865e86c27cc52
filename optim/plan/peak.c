#include "optim/plan/peak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/dtype.h"

#define SIDE  1536
#define LARGE 4096 /* rows and columns for a GPU, several at a time, … */
#define LATE  8
#define QUICK 1e-3 /* … which takes less for the first rows; an emulated one takes more */
#define ROWS  384  /* a run of a few milliseconds: on a busy machine some are not interrupted */
/* A processor that was idle, or that something else uses for a moment, agrees with itself for some milliseconds. */
#define ROUNDS   5
#define ROUND    0.01 /* seconds of runs */
#define UNSTEADY 1.2
#define FEW_ROWS 48
#define NUMBERS  (1 << 16) /* different ones in an operand */

struct peak {
    enum ax_dtype dtype;
    int64_t rows, side;
    const char *numbers; /* of both operands, again and again */
    int rounds;
    double limit;   /* seconds of all runs, but two at least: slow machines need no third */
    double seconds; /* of the best run; the first one warms up */
    double slowest; /* the best run of the slowest round */
};

static struct ax_tensor take(struct ax_runtime *rt, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    return ax_stack_take(&rt->arena.persistent, "peak", ax_tensor_2d(dtype, NULL, rows, cols));
}

/* Different numbers, as a model has: on equal ones, or few, a GPU takes less power, and is faster. */
static enum ax_status make_numbers(char **numbers, enum ax_dtype dtype) {
    const struct ax_rng_key key = {.seed = 1};
    AX_TRY(ax_alloc(numbers, NUMBERS, ax_dtype_size(dtype)));
    for (int64_t i = 0; i < NUMBERS; i++)
        ax_store(dtype, *numbers, i, ax_rng_normal(key, (uint64_t)i));
    return AX_OK;
}

static enum ax_status put_numbers(struct ax_runtime *rt, const struct ax_tensor *t,
                                  const char *numbers) {
    const int64_t n = ax_tensor_numel(t), size = (int64_t)ax_dtype_size(t->dtype);
    char AX_DEVICE *to = t->data;
    for (int64_t i = 0; i < n; i += NUMBERS)
        AX_TRY(ax_queue_write(rt->q, to + i * size, numbers,
                              (size_t)((n - i < NUMBERS ? n - i : NUMBERS) * size)));
    return AX_OK;
}

/* Seconds of one product, or several as one run. */
static enum ax_status run(struct ax_queue *q, const struct ax_gemm *g, double *seconds) {
    const int products = g->b.shape[0] == LARGE ? LATE : 1;
    const double start = ax_clock_now();
    for (int n = 0; n < products; n++)
        AX_TRY(ax_run_gemm(q, g));
    AX_TRY(ax_queue_finish(q));
    *seconds = ax_clock_now() - start;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct peak *p = ctx;
    const struct ax_gemm g = {.a = take(rt, p->dtype, p->rows, p->side),
                              .b = take(rt, p->dtype, p->side, p->side),
                              .c = take(rt, ax_dtype_accum(p->dtype), p->rows, p->side),
                              .trans_b = true,
                              .alpha = 1};
    double once, total;
    if (ax_runtime_planning(rt)) /* takes no time, however often */
        return run(rt->q, &g, &once);
    AX_TRY(put_numbers(rt, &g.a, p->numbers));
    AX_TRY(put_numbers(rt, &g.b, p->numbers));
    AX_TRY(run(rt->q, &g, &total));
    p->seconds = INFINITY;
    p->slowest = 0;
    for (int i = 0; i == 0 || (i < p->rounds && total < p->limit); i++) {
        double best = INFINITY, spent = 0;
        do {
            AX_TRY(run(rt->q, &g, &once));
            best = fmin(best, once);
            spent += once;
        } while (spent < fmin(ROUND, p->limit));
        total += spent;
        p->slowest = fmax(p->slowest, best);
        p->seconds = fmin(p->seconds, best);
    }
    return AX_OK;
}

/* The first rows tell whether all would take minutes, as on an emulated processor; they are enough there. */
static enum ax_status measure_rows(const struct ax_runtime_options *o, double limit,
                                   struct peak *p) {
    p->rows = FEW_ROWS;
    p->side = SIDE;
    p->rounds = 1;
    p->limit = 2 * QUICK;
    AX_TRY(ax_runtime_run(o, body, p, NULL));
    if (p->seconds >= 0.03)
        return AX_OK;
    const bool gpu = strcmp(o->backend, "cuda") == 0 && p->seconds < QUICK;
    p->rows = gpu ? LARGE : ROWS;
    p->side = gpu ? LARGE : SIDE;
    p->rounds = ROUNDS;
    p->limit = limit;
    return ax_runtime_run(o, body, p, NULL);
}

enum ax_status ax_measure_gemm_peak(const struct ax_runtime_options *o, enum ax_dtype dtype,
                                    double limit, struct ax_peak *peak) {
    /* one rank's own GEMM, whatever mesh it belongs to */
    const struct ax_runtime_options alone = {.backend = o->backend, .threads = o->threads};
    struct peak p = {.dtype = dtype};
    char *numbers;
    AX_TRY(make_numbers(&numbers, dtype));
    p.numbers = numbers;
    const enum ax_status st = measure_rows(&alone, limit, &p);
    ax_free(numbers);
    AX_TRY(st);
    const double flops = 2.0 * (double)(p.rows * p.side * p.side) * (p.side == LARGE ? LATE : 1);
    peak->dtype = dtype;
    peak->flops = p.seconds > 0 ? flops / p.seconds : 0;
    peak->slowest = p.slowest > 0 ? flops / p.slowest : 0;
    return AX_OK;
}

static enum ax_status measure_set(const struct ax_runtime_options *o, enum ax_cpu_isa isa,
                                  double limit, struct ax_peak *peak) {
    const struct ax_runtime_options on_set = {.backend = ax_cpu_isa_name(isa),
                                              .threads = o->threads};
    peak->kernels = on_set.backend;
    return ax_measure_gemm_peak(&on_set, ax_cpu_prefers_bf16(isa) ? AX_BF16 : AX_F32, limit, peak);
}

enum ax_status ax_measure_peak(const struct ax_runtime_options *o, double limit,
                               struct ax_peak *peak) {
    const enum ax_cpu_isa standard = ax_cpu_default_isa();
    if (strcmp(o->backend, "cpu") == 0 && standard != AX_CPU_NONE)
        return measure_set(o, ax_cpu_isa() == AX_CPU_AMX ? AX_CPU_AMX : standard, limit, peak);
    peak->kernels = o->backend;
    return ax_measure_gemm_peak(o, strcmp(o->backend, "cuda") == 0 ? AX_BF16 : AX_F32, limit, peak);
}

enum ax_status ax_measure_faster_set(const struct ax_runtime_options *o, struct ax_peak *peak) {
    struct ax_peak used;
    *peak = (struct ax_peak){0};
    if (ax_cpu_default_isa() == ax_cpu_isa() || ax_cpu_isa() == AX_CPU_AMX_EMULATED)
        return AX_OK; /* emulated tiles would take minutes */
    AX_TRY(measure_set(o, ax_cpu_isa(), AX_PEAK_SECONDS, &used));
    AX_TRY(measure_set(o, ax_cpu_default_isa(), AX_PEAK_SECONDS, peak));
    if (peak->flops <= used.flops)
        *peak = (struct ax_peak){0};
    return AX_OK;
}

const char *ax_peak_text(const struct ax_peak *peak, char *buf, size_t size) {
    char count[32], at_times[96] = "";
    if (peak->flops > UNSTEADY * peak->slowest && peak->slowest > 0)
        snprintf(at_times, sizeof at_times, "; at times only %sFLOP/s: is something else running?",
                 ax_format_count(count, sizeof count, peak->slowest));
    snprintf(buf, size, "%sFLOP/s (%s, %s)%s", ax_format_count(count, sizeof count, peak->flops),
             ax_dtype_info(peak->dtype)->name, peak->kernels, at_times);
    return buf;
}
