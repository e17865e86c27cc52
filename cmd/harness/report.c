#include "cmd/harness/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "base/log.h"

#define MAX_DEPTH 16 /* of groups in groups */
#define STDERR    "_stderr"

/* ---- what may come ---- */

static enum ax_status check_numbers(struct ax_json entry) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)entry.v, key, v) {
        if (!strchr(key, ','))
            return ax_json_error(entry, "\"%s\": expected METRIC,FILTER", key);
    }
    return AX_OK;
}

static enum ax_status check_results(struct ax_json results, struct ax_json aliases) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)results.v, name, v) {
        const struct ax_json entry = {.v = v, .doc = "lm_eval", .path = "results"};
        if (!json_is_object(v) || !json_is_string(json_object_get(aliases.v, name)))
            return ax_json_error(entry, "\"%s\": expected an object, and an alias", name);
        AX_TRY(check_numbers(entry));
    }
    return AX_OK;
}

static enum ax_status check_members(struct ax_json groups, struct ax_json results) {
    const char *name;
    json_t *list, *v;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)groups.v, name, list) {
        if (!json_is_array(list) || !json_object_get(results.v, name))
            return ax_json_error(groups, "\"%s\": expected a list, and results", name);
        json_array_foreach(list, i, v) {
            const char *member = json_string_value(v);
            if (!member || !json_object_get(results.v, member))
                return ax_json_error(groups, "\"%s\": expected names with results", name);
        }
    }
    return AX_OK;
}

enum ax_status ax_harness_check(struct ax_json root) {
    static const char *const objects[] = {"results", "groups",    "group_subtasks",  "alias",
                                          "n-shot",  "n-samples", "higher_is_better"};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        const struct ax_json v = ax_json_get(root, objects[i]);
        if (!json_is_object(v.v))
            return ax_json_error(v.v ? v : root, "expected an object \"%s\"", objects[i]);
    }
    const struct ax_json results = ax_json_get(root, "results");
    AX_TRY(check_results(results, ax_json_get(root, "alias")));
    return check_members(ax_json_get(root, "group_subtasks"), results);
}

/* ---- the table ---- */

struct table {
    const json_t *results, *aliases, *groups, *shots;
    struct ax_buf *out;
};

/* A number of a task or group. */
struct row {
    const char *name, *filter, *metric; /* name: only in the first row */
    int depth;                          /* in groups */
    int64_t shots;                      /* −1: not shown */
    double value, error;                /* error: the standard error, or NaN */
};

static enum ax_status put_row(const struct row *r, struct ax_buf *out) {
    char error[32] = "", shots[24] = "";
    const int indent = r->depth < 8 ? 2 * r->depth : 16;
    if (!isnan(r->error))
        snprintf(error, sizeof error, " ± %.4f", r->error);
    if (r->shots >= 0)
        snprintf(shots, sizeof shots, "%lld", (long long)r->shots);
    return ax_buf_printf(out, "%*s%-*s %6s  %-18s %-16s %10.4f%s\n", indent, "", 20 - indent,
                         r->name, shots, r->filter, r->metric, r->value, error);
}

/* NaN: there is none. */
static double number_of(const json_t *entry, const char *key) {
    const json_t *v = json_object_get(entry, key);
    const char *text = json_string_value(v);
    if (json_is_number(v))
        return json_number_value(v);
    return !text || strcmp(text, "N/A") == 0 ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
}

static bool is_error(const char *metric) {
    const size_t n = strlen(metric), m = strlen(STDERR);
    return n > m && strcmp(metric + n - m, STDERR) == 0;
}

static enum ax_status put_rows(const struct table *t, const char *name, int depth) {
    json_t *entry = json_object_get(t->results, name), *v;
    const json_t *shots = json_object_get(t->shots, name);
    const char *key, *alias = json_string_value(json_object_get(t->aliases, name));
    const bool group = json_object_get(t->groups, name) != NULL;
    int rows = 0;
    json_object_foreach(entry, key, v) {
        const char *comma = strchr(key, ',');
        char metric[128], error[256];
        snprintf(metric, sizeof metric, "%.*s", (int)(comma - key), key);
        snprintf(error, sizeof error, "%s" STDERR "%s", metric, comma);
        if (is_error(metric))
            continue;
        const struct row r = {.name = rows++ == 0 ? alias : "",
                              .filter = comma + 1,
                              .metric = metric,
                              .depth = depth,
                              .shots = group || !shots ? -1 : (int64_t)json_integer_value(shots),
                              .value = number_of(entry, key),
                              .error = number_of(entry, error)};
        AX_TRY(put_row(&r, t->out));
    }
    return rows > 0 ? AX_OK : ax_buf_printf(t->out, "%*s%s\n", 2 * depth, "", alias);
}

static enum ax_status put_node(const struct table *t, const char *name, int depth) {
    const json_t *members = json_object_get(t->groups, name);
    if (depth > MAX_DEPTH)
        return ax_error(AX_ERR_DATA, "lm_eval: groups in groups, more than %d deep", MAX_DEPTH);
    AX_TRY(put_rows(t, name, depth));
    for (size_t i = 0; i < json_array_size(members); i++)
        AX_TRY(put_node(t, json_string_value(json_array_get(members, i)), depth + 1));
    return AX_OK;
}

static bool is_member(const struct table *t, const char *name) {
    const char *group;
    json_t *list, *v;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)t->groups, group, list) {
        json_array_foreach(list, i, v) {
            if (strcmp(json_string_value(v), name) == 0)
                return true;
        }
    }
    return false;
}

enum ax_status ax_harness_table(const json_t *results, struct ax_buf *out) {
    const struct table t = {.results = json_object_get(results, "results"),
                            .aliases = json_object_get(results, "alias"),
                            .groups = json_object_get(results, "group_subtasks"),
                            .shots = json_object_get(results, "n-shot"),
                            .out = out};
    const char *name;
    json_t *v;
    AX_TRY(ax_buf_printf(out, "%-20s %6s  %-18s %-16s %10s\n", "task", "shots", "filter", "metric",
                         "value"));
    json_object_foreach((json_t *)(uintptr_t)t.results, name, v) {
        if (!is_member(&t, name))
            AX_TRY(put_node(&t, name, 0));
    }
    return AX_OK;
}

/* ---- figures ---- */

static void add_figures(const char *task, const json_t *entry, struct ax_figures *out, int *lost) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)entry, key, v) {
        const char *comma = strchr(key, ',');
        char metric[128];
        snprintf(metric, sizeof metric, "%.*s", (int)(comma - key), key);
        if (is_error(metric))
            continue;
        if (out->n == AX_FIGURES_MAX) {
            ++*lost;
            continue;
        }
        const bool plain = strcmp(comma, ",none") == 0;
        ax_fit(out->names[out->n], AX_FIGURES_NAME, "%s/%s", task, plain ? metric : key);
        out->values[out->n++] = number_of(entry, key);
    }
}

void ax_harness_figures(const json_t *results, struct ax_figures *out) {
    const char *name;
    json_t *entry;
    int lost = 0;
    json_object_foreach(json_object_get(results, "results"), name, entry)
        add_figures(name, entry, out, &lost);
    if (lost > 0)
        ax_log_warn("%d results of lm_eval_tasks are left out: there is room for %d figures", lost,
                    AX_FIGURES_MAX);
}
