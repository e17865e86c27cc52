/* Options, figures and output shared by all benchmarks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/threads.h"
#include "cmd/bench/bench.h"
#include "cmd/train/env.h"
#include "kernels/backend.h"
#include "optim/plan/bandwidth.h"
#include "optim/plan/peak.h"

#define MAX_OPTIONS 32

/* ---- options ---- */

static enum ax_status check_out(const char *path) {
    char *parent;
    AX_TRY(ax_path_parent(&parent, path));
    const bool is_dir = ax_path_is_dir(parent);
    ax_free(parent);
    return is_dir ? AX_OK : ax_error(AX_ERR_CONFIG, "-o: the folder of %s does not exist", path);
}

enum ax_status ax_bench_parse(struct ax_bench *b, int argc, char **argv, int n,
                              const struct ax_arg *own) {
    struct ax_arg args[MAX_OPTIONS];
    const struct ax_arg shared[] = {
        {"--json", AX_ARG_FLAG, &b->json, 0, 0},
        {"-o", AX_ARG_STRING, &b->out, 0, 0},
        {"--compare", AX_ARG_STRING, &b->compare, 0, 0},
        {"--tolerance", AX_ARG_STRING, &b->tolerance, 0, 0},
    };
    const int n_shared = sizeof shared / sizeof *shared;
    int n_positional;
    AX_ASSERT(n + n_shared <= MAX_OPTIONS);
    memcpy(args, own, (size_t)n * sizeof *own);
    memcpy(args + n, shared, sizeof shared);
    AX_TRY(ax_args_parse(argc, argv, n + n_shared, args, 0, 0, NULL, &n_positional));
    if (b->several)
        return AX_OK;
    if (b->tolerance && !b->compare)
        return ax_error(AX_ERR_CONFIG, "bench: --tolerance needs --compare OLD.json");
    AX_TRY(ax_bench_tolerance_parse(b->tolerance ? b->tolerance : "5%", &b->allowed));
    if (b->out)
        AX_TRY(check_out(b->out));
    return b->compare ? ax_bench_list_load(&b->old, b->compare) : AX_OK;
}

bool ax_bench_tells(const struct ax_bench *b) {
    return !b->json && !b->several;
}

/* ---- figures ---- */

enum ax_status ax_bench_add(struct ax_bench *b, const struct ax_bench_figure *f, const char *name,
                            ...) {
    char text[256], value[32];
    va_list args;
    va_start(args, name);
    vsnprintf(text, sizeof text, name, args);
    va_end(args);
    AX_TRY(ax_bench_list_add(&b->results, text, f));
    if (b->json)
        return AX_OK;
    printf("%-52s %10s %-9s", text, ax_bench_format(value, sizeof value, f->value), f->unit);
    if (f->share >= 0)
        printf(" %5.1f%% of peak", 100 * f->share);
    printf("\n");
    fflush(stdout);
    return AX_OK;
}

enum ax_status ax_bench_detail(struct ax_bench *b, const char *kind, json_t *value) {
    if (!b->details)
        b->details = json_object();
    return json_object_set_new(b->details, kind, value) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for the result");
}

enum ax_status ax_bench_backend(struct ax_bench *b, const char *backend) {
    if (strcmp(backend, "cuda") != 0)
        return AX_OK;
    return ax_backend_choose(backend, false, &b->backend);
}

static struct ax_runtime_options peaks_of(const struct ax_bench *b) {
    return (struct ax_runtime_options){.backend = b->backend ? b->backend : "cpu",
                                       .threads = (int)b->threads};
}

enum ax_status ax_bench_bandwidth(struct ax_bench *b, double *bytes) {
    const struct ax_runtime_options ro = peaks_of(b);
    if (b->bandwidth == 0)
        AX_TRY(ax_measure_copy_bandwidth(&ro, &b->bandwidth));
    *bytes = b->bandwidth;
    return AX_OK;
}

enum ax_status ax_bench_peak(struct ax_bench *b, double *flops) {
    const struct ax_runtime_options ro = peaks_of(b);
    if (b->peak.flops == 0)
        AX_TRY(ax_measure_peak(&ro, AX_PEAK_SECONDS, &b->peak));
    *flops = b->peak.flops;
    return AX_OK;
}

static int by_value(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

double ax_bench_median(double *values, size_t n) {
    AX_ASSERT(n > 0);
    qsort(values, n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* ---- the end ---- */

static enum ax_status write_out(const struct ax_bench *b) {
    json_t *all;
    char *text = NULL;
    size_t len;
    AX_TRY(ax_bench_list_json(&b->results, &all));
    enum ax_status st = AX_OK;
    if (b->details && json_object_update(all, b->details) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for the result");
    if (st == AX_OK)
        st = ax_json_dump(all, &text, &len);
    if (st == AX_OK && b->json)
        printf("%s\n", text);
    if (st == AX_OK && b->out)
        st = ax_write_file_atomic(b->out, text, len);
    ax_free(text);
    json_decref(all);
    return st;
}

/* With --json, standard output has the JSON, so the table goes to standard error. */
static enum ax_status compare(const struct ax_bench *b) {
    struct ax_buf table = {0};
    int worse = 0;
    enum ax_status st =
        ax_bench_compare(&table, b->compare, &b->old, &b->results, b->allowed, &worse);
    if (st == AX_OK)
        fprintf(b->json ? stderr : stdout, "%s%s", b->json ? "" : "\n", table.data);
    ax_buf_free(&table);
    if (st == AX_OK && worse > 0)
        st = ax_error(AX_ERR_FAILED, "bench: %d of %zu figures are worse than in %s", worse,
                      b->results.n, b->compare);
    return st;
}

/* What the shares are of, and whether another instruction set would be faster. */
static enum ax_status report_peak(struct ax_bench *b) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = (int)b->threads};
    char text[AX_PEAK_TEXT];
    struct ax_peak faster;
    if (b->peak.flops == 0)
        return AX_OK;
    AX_TRY(ax_measure_faster_set(&ro, &faster));
    if (!b->json)
        printf("peak: %s\n", ax_peak_text(&b->peak, text, sizeof text));
    if (!b->json && faster.flops > 0)
        printf("AXTRAIN_CPU=%s would be faster: %s\n", faster.kernels,
               ax_peak_text(&faster, text, sizeof text));
    return ax_bench_detail(b, "peak",
                           json_pack("{sf ss ss}", "flops", b->peak.flops, "dtype",
                                     ax_dtype_info(b->peak.dtype)->name, "kernels",
                                     b->peak.kernels));
}

enum ax_status ax_bench_finish(struct ax_bench *b) {
    AX_TRY(report_peak(b));
    AX_TRY(ax_env_facts(&b->results.machine));
    json_object_del(b->results.machine, "axtrain"); /* the version has its own key */
    b->results.threads = b->threads > 0 ? b->threads : ax_cpu_count();
    if (b->json || b->out)
        AX_TRY(write_out(b));
    return b->compare ? compare(b) : AX_OK;
}

void ax_bench_free(struct ax_bench *b) {
    ax_bench_list_free(&b->old);
    ax_bench_list_free(&b->results);
    json_decref(b->details);
}
