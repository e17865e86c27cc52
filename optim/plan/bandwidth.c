#include "optim/plan/bandwidth.h"

#include "base/clock.h"

#define NUMBERS (32 << 20) /* 128 MiB of floats: more than caches hold */
#define RUNS    6
#define LATE    16 /* copies of a run on a GPU: until the host knows of the end takes as long as one */

static struct ax_tensor take(struct ax_runtime *rt) {
    return ax_stack_take(&rt->arena.persistent, "bandwidth", ax_tensor_1d(AX_F32, NULL, NUMBERS));
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    double *bytes = ctx, best = 0;
    const int copies = ax_queue_is_late(rt->q) ? LATE : 1;
    const struct ax_copy copy = {.dst = take(rt), .src = take(rt)};
    /* nonzero: pages never written to all map to one zero page */
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){copy.src, 1}));
    for (int i = 0; i <= RUNS; i++) {
        const double start = ax_clock_now();
        for (int n = 0; n < copies; n++)
            AX_TRY(ax_run_copy(rt->q, &copy));
        AX_TRY(ax_queue_finish(rt->q));
        const double seconds = ax_clock_now() - start;
        if (i > 0 && (best == 0 || seconds < best))
            best = seconds;
    }
    *bytes = best > 0 ? 2.0 * copies * (double)ax_tensor_bytes(&copy.src) / best : 0;
    return AX_OK;
}

enum ax_status ax_measure_copy_bandwidth(const struct ax_runtime_options *o, double *bytes) {
    const struct ax_runtime_options alone = {.backend = o->backend, .threads = o->threads};
    return ax_runtime_run(&alone, body, bytes, NULL);
}
