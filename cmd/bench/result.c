/* The list, its JSON, and the comparison of two. */
#include "cmd/bench/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/io.h"

#define MAX_FILE (16u << 20)

/* ---- the list ---- */

/* NULL: no result with this name. */
static const struct ax_bench_result *find_result(const struct ax_bench_list *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->list[i].name, name) == 0)
            return &l->list[i];
    return NULL;
}

enum ax_status ax_bench_list_add(struct ax_bench_list *l, const char *name,
                                 const struct ax_bench_figure *f) {
    if (find_result(l, name))
        return ax_error(AX_ERR_FAILED, "two results are named %s", name);
    AX_TRY(ax_grow(&l->list, l->n, &l->cap, sizeof *l->list));
    struct ax_bench_result *r = &l->list[l->n];
    AX_TRY(ax_strdup(&r->name, name));
    const enum ax_status st = ax_strdup(&r->unit, f->unit);
    if (st != AX_OK) {
        ax_free(r->name);
        return st;
    }
    r->figure = *f;
    r->figure.unit = r->unit;
    l->n++;
    return AX_OK;
}

void ax_bench_list_free(struct ax_bench_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        ax_free(l->list[i].name);
        ax_free(l->list[i].unit);
    }
    ax_free(l->list);
    json_decref(l->machine);
    *l = (struct ax_bench_list){0};
}

const char *ax_bench_format(char *buf, size_t size, double value) {
    const double a = fabs(value);
    int digits = 0;
    for (double limit = 1000; digits < 8 && a < limit && a > 0; limit /= 10)
        digits++;
    snprintf(buf, size, "%.*f", digits, value);
    return buf;
}

/* ---- out ---- */

static json_t *result_json(const struct ax_bench_result *r) {
    const struct ax_bench_figure *f = &r->figure;
    json_t *share = f->share < 0 ? json_null() : json_real(f->share);
    return json_pack("{ss sf ss ss so}", "name", r->name, "value", f->value, "unit", f->unit,
                     "better", f->lower_is_better ? "lower" : "higher", "share_of_peak", share);
}

enum ax_status ax_bench_list_json(const struct ax_bench_list *l, json_t **out) {
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *results = json_array();
    for (size_t i = 0; i < l->n; i++)
        json_array_append_new(results, result_json(&l->list[i]));
    *out = json_pack("{ss sO sI ss so}", "version", AX_VERSION, "machine", l->machine, "threads",
                     (json_int_t)l->threads, "date", date, "results", results);
    if (*out && json_array_size(results) == l->n)
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_NOMEM, "out of memory for the results");
}

/* ---- in ---- */

/* Text that will be printed on a terminal. */
static enum ax_status read_text(struct ax_json v, const char **out) {
    AX_TRY(ax_json_str(v, out));
    for (const char *c = *out; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return ax_json_error(v, "contains a control character");
    return AX_OK;
}

static enum ax_status read_result(struct ax_bench_list *l, struct ax_json v) {
    struct ax_bench_figure f;
    const char *name, *better;
    const struct ax_json value = ax_json_get(v, "value");
    AX_TRY(read_text(ax_json_get(v, "name"), &name));
    AX_TRY(read_text(ax_json_get(v, "unit"), &f.unit));
    AX_TRY(ax_json_str(ax_json_get(v, "better"), &better));
    AX_TRY(ax_json_f64(value, &f.value));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "share_of_peak"), -1, &f.share));
    f.lower_is_better = strcmp(better, "lower") == 0;
    if (!f.lower_is_better && strcmp(better, "higher") != 0)
        return ax_json_error(ax_json_get(v, "better"),
                             "expected \"higher\" or \"lower\", got "
                             "\"%.40s\"",
                             better);
    if (f.value < 0)
        return ax_json_error(value, "expected 0 or more, got %g", f.value);
    if (find_result(l, name))
        return ax_json_error(ax_json_get(v, "name"), "\"%.80s\" appears twice", name);
    return ax_bench_list_add(l, name, &f);
}

static enum ax_status read_machine(struct ax_bench_list *l, struct ax_json machine) {
    const char *key, *text;
    json_t *value;
    if (!json_is_object(machine.v))
        return ax_json_error(machine, "expected an object");
    l->machine = json_deep_copy(machine.v);
    if (!l->machine)
        return ax_error(AX_ERR_NOMEM, "out of memory for the older results");
    json_object_foreach(l->machine, key, value) if (json_is_string(value))
        AX_TRY(read_text(ax_json_get(machine, key), &text));
    return AX_OK;
}

static enum ax_status read_all(struct ax_bench_list *l, struct ax_json root) {
    const struct ax_json results = ax_json_get(root, "results");
    if (!json_is_array(results.v))
        return ax_json_error(results, "expected a list; is this what `axtrain bench -o` wrote?");
    AX_TRY(read_machine(l, ax_json_get(root, "machine")));
    AX_TRY(ax_json_i64_or(ax_json_get(root, "threads"), 0, INT32_MAX, 0, &l->threads));
    for (size_t i = 0; i < ax_json_size(results); i++)
        AX_TRY(read_result(l, ax_json_at(results, i)));
    return AX_OK;
}

enum ax_status ax_bench_list_parse(struct ax_bench_list *l, const char *name, const char *text,
                                   size_t len) {
    struct ax_json_doc doc;
    *l = (struct ax_bench_list){0};
    AX_TRY(ax_json_parse(&doc, name, text, len));
    const enum ax_status st = read_all(l, ax_json_root(&doc));
    ax_json_free(&doc);
    if (st != AX_OK)
        ax_bench_list_free(l);
    return st;
}

enum ax_status ax_bench_list_load(struct ax_bench_list *l, const char *path) {
    char *text;
    size_t len;
    *l = (struct ax_bench_list){0};
    if (!ax_path_exists(path))
        return ax_error(AX_ERR_CONFIG, "--compare: no such file: %s", path);
    AX_TRY(ax_read_file(path, MAX_FILE, &text, &len));
    const enum ax_status st = ax_bench_list_parse(l, path, text, len);
    ax_free(text);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "--compare");
}

/* ---- older results with newer ones ---- */

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

/* Names in `a` that `b` lacks. */
static enum ax_status put_alone(struct ax_buf *out, const char *what, const struct ax_bench_list *a,
                                const struct ax_bench_list *b) {
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (find_result(b, a->list[i].name))
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
        const struct ax_bench_result *before = find_result(old, now->list[i].name);
        if (before)
            AX_TRY(put_pair(out, before, &now->list[i], tolerance, worse));
    }
    AX_TRY(put_alone(out, "not measured this time", old, now));
    AX_TRY(put_alone(out, "new", now, old));
    return ax_buf_printf(out, "%d worse by more than %g%%\n", *worse, 100 * tolerance);
}
