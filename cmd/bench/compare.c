/* Compares older results with newer ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/bench/result.h"

#define MAX_NAMES 12 /* names that only one side has; more are only counted */

enum ax_status ax_bench_tolerance_parse(const char *text, double *out) {
    char *end;
    const double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || !(percent >= 0 && percent <= 100))
        return ax_error(AX_ERR_CONFIG,
                        "--tolerance: expected a percentage from 0%% to 100%%, such as 5%%, got "
                        "\"%s\"",
                        text);
    *out = percent / 100;
    return AX_OK;
}

enum ax_bench_verdict ax_bench_judge(const struct ax_bench_figure *old,
                                     const struct ax_bench_figure *now, double tolerance) {
    const double slack = tolerance * old->value;
    const double gain = now->lower_is_better ? old->value - now->value : now->value - old->value;
    return gain < -slack ? AX_BENCH_WORSE : gain > slack ? AX_BENCH_BETTER : AX_BENCH_SAME;
}

/* ---- machines ---- */

static const char *fact(char *buf, size_t size, const struct ax_bench_list *l, const char *key) {
    const json_t *v = json_object_get(l->machine, key);
    if (json_is_integer(v))
        snprintf(buf, size, "%lld", (long long)json_integer_value(v));
    else
        snprintf(buf, size, "%s", json_is_string(v) ? json_string_value(v) : "unknown");
    return buf;
}

static enum ax_status put_machines(struct ax_buf *out, const char *old_name,
                                   const struct ax_bench_list *old,
                                   const struct ax_bench_list *now) {
    static const char *const keys[] = {"cpu", "cpus", "instruction_set"};
    char a[128], b[128];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        fact(a, sizeof a, old, keys[i]);
        fact(b, sizeof b, now, keys[i]);
        if (strcmp(a, b) != 0)
            AX_TRY(ax_buf_printf(out, "warning: %s is from a different machine: %s was %s, is %s\n",
                                 old_name, keys[i], a, b));
    }
    if (old->threads != now->threads)
        return ax_buf_printf(out, "warning: %s used %lld threads, this run uses %lld\n", old_name,
                             (long long)old->threads, (long long)now->threads);
    return AX_OK;
}

/* ---- the table ---- */

/* Names in `a` that `b` lacks. */
static enum ax_status put_alone(struct ax_buf *out, const char *what, const struct ax_bench_list *a,
                                const struct ax_bench_list *b) {
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (ax_bench_list_find(b, a->list[i].name))
            continue;
        if (n++ < MAX_NAMES)
            AX_TRY(ax_buf_printf(out, "%s: %s\n", what, a->list[i].name));
    }
    return n > MAX_NAMES ? ax_buf_printf(out, "%s: %zu more\n", what, n - MAX_NAMES) : AX_OK;
}

static enum ax_status put_pair(struct ax_buf *out, const struct ax_bench_result *old,
                               const struct ax_bench_result *now, double tolerance, int *worse) {
    static const char *const words[] = {"", "better", "WORSE"};
    char a[32], b[32], ratio[32] = "-";
    if (strcmp(old->unit, now->unit) != 0)
        return ax_buf_printf(out, "%-44s cannot be compared: %s became %s\n", now->name, old->unit,
                             now->unit);
    const enum ax_bench_verdict v = ax_bench_judge(&old->figure, &now->figure, tolerance);
    *worse += v == AX_BENCH_WORSE;
    if (old->figure.value > 0)
        snprintf(ratio, sizeof ratio, "%.3f", now->figure.value / old->figure.value);
    return ax_buf_printf(out, "%-44s %10s %10s %-10s %7s  %s\n", now->name,
                         ax_bench_format(a, sizeof a, old->figure.value),
                         ax_bench_format(b, sizeof b, now->figure.value), now->unit, ratio,
                         words[v]);
}

enum ax_status ax_bench_compare(struct ax_buf *out, const char *old_name,
                                const struct ax_bench_list *old, const struct ax_bench_list *now,
                                double tolerance, int *worse) {
    *worse = 0;
    AX_TRY(put_machines(out, old_name, old, now));
    AX_TRY(ax_buf_printf(out, "%-44s %10s %10s %-10s %7s\n", "", "old", "new", "", "new/old"));
    for (size_t i = 0; i < now->n; i++) {
        const struct ax_bench_result *before = ax_bench_list_find(old, now->list[i].name);
        if (before)
            AX_TRY(put_pair(out, before, &now->list[i], tolerance, worse));
    }
    AX_TRY(put_alone(out, "not measured this time", old, now));
    AX_TRY(put_alone(out, "new", now, old));
    return ax_buf_printf(out, "%d worse by more than %g%%\n", *worse, 100 * tolerance);
}
