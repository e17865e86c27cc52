/* The list and its JSON. */
#include "cmd/bench/result.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"

#define MAX_FILE (16u << 20)

/* ---- the list ---- */

const struct ax_bench_result *ax_bench_list_find(const struct ax_bench_list *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->list[i].name, name) == 0)
            return &l->list[i];
    return NULL;
}

enum ax_status ax_bench_list_add(struct ax_bench_list *l, const char *name,
                                 const struct ax_bench_figure *f) {
    if (ax_bench_list_find(l, name))
        return ax_error(AX_ERR_FAILED, "two results are named %s", name);
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 32;
        AX_TRY(ax_regrow(&l->list, l->cap, cap, sizeof *l->list));
        l->cap = cap;
    }
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
    if (ax_bench_list_find(l, name))
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
