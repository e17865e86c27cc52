#include "optim/evaluate/tasks/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* ---- numbers of a group ---- */

/* The tasks of a group. */
struct members {
    const struct ax_task_job *jobs;
    size_t *tasks, n;
};

/* NULL if the task does not have this metric or filter. */
static const struct ax_task_result *result_of(const struct ax_task_job *j, const char *metric,
                                              const char *filter) {
    const struct ax_task *t = &j->task;
    for (size_t f = 0; f < t->n_filters; f++)
        for (size_t m = 0; m < t->n_metrics; m++)
            if (strcmp(t->filters[f].name, filter) == 0 &&
                strcmp(ax_task_metric_name(t->metrics[m].kind), metric) == 0)
                return &j->results[f * t->n_metrics + m];
    return NULL;
}

static bool mean_of(const struct members *g, const struct ax_task_group_metric *m,
                    const char *filter, struct ax_task_result *out) {
    double sum = 0, weights = 0, squares = 0, pooled = 0, records = 0;
    size_t k = 0;
    for (size_t i = 0; i < g->n; i++) {
        const struct ax_task_job *j = &g->jobs[g->tasks[i]];
        const struct ax_task_result *r = result_of(j, m->metric, filter);
        if (!r)
            continue;
        const double n = (double)j->scores.n, w = m->by_size ? n : 1;
        sum += r->value * w;
        weights += w;
        squares += r->error * r->error;
        pooled += (n - 1) * r->error * r->error * n;
        records += n;
        k++;
    }
    if (k == 0)
        return false;
    out->value = sum / weights;
    out->error =
        m->by_size ? sqrt(pooled / (records - (double)k) / records) : sqrt(squares) / (double)k;
    return true;
}

static enum ax_status add_value(struct ax_task_group_values *v, const struct members *g,
                                const struct ax_task_group_metric *m, const char *filter) {
    struct ax_task_result r;
    if (!mean_of(g, m, filter, &r))
        return AX_OK;
    AX_TRY(ax_regrow(&v->list, v->n, v->n + 1, sizeof *v->list));
    v->list[v->n++] = (struct ax_task_group_value){m->metric, filter, r};
    return AX_OK;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of all filters, sorted; names may repeat. */
static enum ax_status all_filters(const struct members *g, const char ***out, size_t *n) {
    size_t cap = 0;
    *n = 0;
    for (size_t i = 0; i < g->n; i++)
        cap += g->jobs[g->tasks[i]].task.n_filters;
    AX_TRY(ax_alloc(out, cap, sizeof **out));
    for (size_t i = 0; i < g->n; i++) {
        const struct ax_task *t = &g->jobs[g->tasks[i]].task;
        for (size_t f = 0; f < t->n_filters; f++)
            (*out)[(*n)++] = t->filters[f].name;
    }
    if (*n > 0)
        qsort(*out, *n, sizeof **out, by_text);
    return AX_OK;
}

static enum ax_status add_metric(struct ax_task_group_values *v, const struct members *g,
                                 const struct ax_task_group_metric *m, const char *group) {
    const size_t before = v->n;
    const char **filters;
    size_t n;
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < m->n_filters; i++)
        AX_TRY(add_value(v, g, m, m->filters[i]));
    if (m->n_filters == 0) {
        AX_TRY(all_filters(g, &filters, &n));
        for (size_t i = 0; i < n && st == AX_OK; i++)
            if (i == 0 || strcmp(filters[i], filters[i - 1]) != 0)
                st = add_value(v, g, m, filters[i]);
        ax_free(filters);
    }
    if (st == AX_OK && v->n == before)
        ax_log_warn("group %s: none of its tasks has the metric %s of aggregate_metric_list", group,
                    m->metric);
    return st;
}

enum ax_status ax_task_group_aggregate(struct ax_task_group_values *v, const struct ax_task_tree *t,
                                       const struct ax_task_node *group,
                                       const struct ax_task_job *jobs) {
    struct members g = {.jobs = jobs};
    *v = (struct ax_task_group_values){0};
    AX_TRY(ax_task_node_tasks(t, group, &g.tasks, &g.n));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < group->n_metrics && st == AX_OK; i++)
        st = add_metric(v, &g, &group->metrics[i], group->name);
    ax_free(g.tasks);
    if (st != AX_OK)
        ax_task_group_values_free(v);
    return st;
}

void ax_task_group_values_free(struct ax_task_group_values *v) {
    ax_free(v->list);
    *v = (struct ax_task_group_values){0};
}

/* ---- jobs ---- */

enum ax_status ax_task_job_finish(struct ax_task_job *j) {
    const struct ax_task *t = &j->task;
    AX_TRY(ax_task_score(&j->scores, &j->requests));
    AX_TRY(ax_alloc(&j->results, t->n_filters * t->n_metrics, sizeof *j->results));
    for (size_t f = 0; f < t->n_filters; f++)
        for (size_t m = 0; m < t->n_metrics; m++) {
            const enum ax_status st =
                ax_task_aggregate(t->metrics[m].aggregation, ax_task_values(&j->scores, f, m),
                                  j->scores.n, &j->results[f * t->n_metrics + m]);
            if (st != AX_OK)
                return ax_error_prefix(st, "%s", t->name);
        }
    return AX_OK;
}

void ax_task_job_free(struct ax_task_job *j) {
    ax_free(j->results);
    ax_task_scores_free(&j->scores);
    ax_task_requests_free(&j->requests);
    ax_task_prompts_free(&j->prompts);
    ax_task_free(&j->task);
    *j = (struct ax_task_job){0};
}

/* ---- table ---- */

enum ax_status ax_task_report_head(struct ax_buf *out) {
    return ax_buf_printf(out, "%-20s %6s  %-18s %-16s %10s\n", "task", "shots", "filter", "metric",
                         "value");
}

enum ax_status ax_task_report_row(const struct ax_task_row *r, struct ax_buf *out) {
    char error[32] = "", shots[24] = "";
    const int indent = r->depth < 8 ? 2 * r->depth : 16;
    if (!isnan(r->result.error))
        snprintf(error, sizeof error, " ± %.4f", r->result.error);
    if (r->shots >= 0)
        snprintf(shots, sizeof shots, "%lld", (long long)r->shots);
    return ax_buf_printf(out, "%*s%-*s %6s  %-18s %-16s %10.4f%s\n", indent, "", 20 - indent,
                         r->name, shots, r->filter, r->metric, r->result.value, error);
}

static enum ax_status put_task(const struct ax_task_job *j, int depth, struct ax_buf *out) {
    const struct ax_task *t = &j->task;
    for (size_t f = 0; f < t->n_filters; f++) {
        for (size_t m = 0; m < t->n_metrics; m++) {
            const struct ax_task_row r = {.name = f + m == 0 ? t->alias : "",
                                          .filter = t->filters[f].name,
                                          .metric = ax_task_metric_name(t->metrics[m].kind),
                                          .depth = depth,
                                          .shots = j->prompts.num_fewshot,
                                          .result = j->results[f * t->n_metrics + m]};
            AX_TRY(ax_task_report_row(&r, out));
        }
    }
    return AX_OK;
}

static enum ax_status put_group(const struct ax_task_tree *t, const struct ax_task_node *group,
                                const struct ax_task_job *jobs, int depth, struct ax_buf *out) {
    struct ax_task_group_values v;
    AX_TRY(ax_task_group_aggregate(&v, t, group, jobs));
    enum ax_status st = AX_OK;
    if (v.n == 0)
        st = ax_buf_printf(out, "%*s%s\n", 2 * depth, "", group->alias);
    for (size_t i = 0; i < v.n && st == AX_OK; i++) {
        const struct ax_task_row r = {.name = i == 0 ? group->alias : "",
                                      .filter = v.list[i].filter,
                                      .metric = v.list[i].metric,
                                      .depth = depth,
                                      .shots = -1,
                                      .result = v.list[i].result};
        st = ax_task_report_row(&r, out);
    }
    ax_task_group_values_free(&v);
    return st;
}

static enum ax_status put_node(const struct ax_task_tree *t, const struct ax_task_node *node,
                               const struct ax_task_job *jobs, int depth, struct ax_buf *out) {
    if (node->task != AX_TASK_NO_TASK)
        return put_task(&jobs[node->task], depth, out);
    AX_TRY(put_group(t, node, jobs, depth, out));
    for (size_t i = 0; i < node->n; i++)
        AX_TRY(put_node(t, node->children[i], jobs, depth + 1, out));
    return AX_OK;
}

enum ax_status ax_task_report_table(const struct ax_task_tree *t, const struct ax_task_job *jobs,
                                    struct ax_buf *out) {
    AX_TRY(ax_task_report_head(out));
    for (size_t i = 0; i < t->root.n; i++)
        AX_TRY(put_node(t, t->root.children[i], jobs, 0, out));
    return AX_OK;
}

/* ---- JSON ---- */

static json_t *number(double x) {
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "N/A" : x > 0 ? "inf" : "-inf");
}

static void put_result(json_t *v, const char *metric, const char *filter,
                       const struct ax_task_result *r) {
    char key[256];
    snprintf(key, sizeof key, "%s,%s", metric, filter);
    json_object_set_new(v, key, number(r->value));
    snprintf(key, sizeof key, "%s_stderr,%s", metric, filter);
    json_object_set_new(v, key, number(r->error));
}

static json_t *results_of(const struct ax_task_job *j) {
    const struct ax_task *t = &j->task;
    json_t *v = json_object();
    for (size_t f = 0; f < t->n_filters; f++)
        for (size_t m = 0; m < t->n_metrics; m++)
            put_result(v, ax_task_metric_name(t->metrics[m].kind), t->filters[f].name,
                       &j->results[f * t->n_metrics + m]);
    return v;
}

/* The parts of a JSON report. */
struct json_parts {
    json_t *results, *groups, *members, *shots, *samples, *better;
};

static void put_job(const struct json_parts *p, const struct ax_task_job *j) {
    const struct ax_task *t = &j->task;
    json_t *higher = json_object();
    for (size_t m = 0; m < t->n_metrics; m++)
        json_object_set_new(higher, ax_task_metric_name(t->metrics[m].kind),
                            json_boolean(t->metrics[m].higher_is_better));
    json_object_set_new(p->results, t->name, results_of(j));
    json_object_set_new(p->shots, t->name, json_integer((json_int_t)j->prompts.num_fewshot));
    json_object_set_new(p->samples, t->name, json_integer((json_int_t)j->scores.n));
    json_object_set_new(p->better, t->name, higher);
}

/* Writes the groups below a node, then the node. */
static enum ax_status put_groups(const struct json_parts *p, const struct ax_task_tree *t,
                                 const struct ax_task_node *node, const struct ax_task_job *jobs) {
    struct ax_task_group_values v;
    if (node->task != AX_TASK_NO_TASK)
        return AX_OK;
    for (size_t i = 0; i < node->n; i++)
        AX_TRY(put_groups(p, t, node->children[i], jobs));
    json_t *names = json_array(), *numbers = json_object();
    for (size_t i = 0; i < node->n; i++) {
        const struct ax_task_node *c = node->children[i];
        json_array_append_new(
            names, json_string(c->task != AX_TASK_NO_TASK ? jobs[c->task].task.name : c->name));
    }
    json_object_set_new(p->members, node->name, names);
    const enum ax_status st = ax_task_group_aggregate(&v, t, node, jobs);
    for (size_t i = 0; st == AX_OK && i < v.n; i++)
        put_result(numbers, v.list[i].metric, v.list[i].filter, &v.list[i].result);
    ax_task_group_values_free(&v);
    json_object_set(p->results, node->name, numbers);
    if (node->n_metrics > 0)
        json_object_set(p->groups, node->name, numbers);
    json_decref(numbers);
    return st;
}

enum ax_status ax_task_report_json(const struct ax_task_tree *t, const struct ax_task_job *jobs,
                                   json_t **out) {
    const struct json_parts p = {json_object(), json_object(), json_object(),
                                 json_object(), json_object(), json_object()};
    for (size_t i = 0; i < t->n_tasks; i++)
        put_job(&p, &jobs[i]);
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < t->root.n && st == AX_OK; i++)
        st = put_groups(&p, t, t->root.children[i], jobs);
    *out = json_pack("{so so so so so so}", "results", p.results, "groups", p.groups,
                     "group_subtasks", p.members, "n-shot", p.shots, "n-samples", p.samples,
                     "higher_is_better", p.better);
    if (st == AX_OK && *out)
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    AX_TRY(st);
    return ax_error(AX_ERR_NOMEM, "out of memory for the results");
}

/* ---- samples ---- */

static json_t *text_of(const struct ax_buf *b) {
    return json_stringn(b->data, b->len);
}

/* [context, continuation] per choice, [context, {until …}], or [text]. */
static enum ax_status arguments(const struct ax_task_job *j, size_t i, json_t *list) {
    const struct ax_task_prompts *p = &j->prompts;
    const struct ax_task_item *x = &p->items[i];
    const struct ax_task_generation *g = &j->task.generation;
    json_t *until = json_array();
    if (j->task.output == AX_TASK_ROLLING)
        json_array_append_new(list, json_pack("[O]", x->target));
    if (j->task.output == AX_TASK_LOGLIKELIHOOD)
        json_array_append_new(list, json_pack("[oO]", text_of(&x->contexts[0]), x->target));
    for (size_t k = 0; k < g->n_until; k++)
        json_array_append_new(until, json_string(g->until[k]));
    if (j->task.output == AX_TASK_GENERATE)
        json_array_append_new(list, json_pack("[o{sO sI sf}]", text_of(&x->contexts[0]), "until",
                                              until, "max_gen_toks", (json_int_t)g->max_tokens,
                                              "temperature", g->temperature));
    json_decref(until);
    for (size_t k = 0; j->task.output == AX_TASK_MULTIPLE_CHOICE && k < json_array_size(x->choices);
         k++) {
        struct ax_buf text = {0};
        const enum ax_status st = ax_task_continuation(p, i, k, &text);
        json_array_append_new(
            list, json_pack("[oo]", text_of(&x->contexts[p->several ? k : 0]), text_of(&text)));
        ax_buf_free(&text);
        AX_TRY(st);
    }
    return AX_OK;
}

/* [log-likelihood, greedy] per request, or the texts. */
static json_t *answers(const struct ax_task_job *j, size_t i) {
    const struct ax_task_requests *r = &j->requests;
    if (j->scores.answers)
        return json_incref(j->scores.answers[i]);
    json_t *list = json_array();
    for (size_t k = r->first[i]; k < r->first[i + 1]; k++)
        json_array_append_new(list, json_pack("[fb]", r->list[k].loglikelihood, r->list[k].greedy));
    return list;
}

static void put_metrics(const struct ax_task_job *j, size_t i, size_t f, json_t *v) {
    json_t *names = json_array();
    for (size_t m = 0; m < j->task.n_metrics; m++) {
        const struct ax_task_value x = ax_task_values(&j->scores, f, m)[i];
        const struct ax_task_metric *metric = &j->task.metrics[m];
        const bool pair = j->task.output == AX_TASK_ROLLING || metric->kind == AX_METRIC_F1 ||
                          metric->kind == AX_METRIC_MCC;
        const char *name = ax_task_metric_name(metric->kind);
        json_array_append_new(names, json_string(name));
        json_object_set_new(v, name,
                            x.pair ? json_incref(x.pair)
                            : pair ? json_pack("[oo]", number(x.x), number(x.y))
                                   : number(x.x));
    }
    json_object_set_new(v, "metrics", names);
}

static enum ax_status put_sample(const struct ax_task_job *j, size_t i, size_t f,
                                 struct ax_buf *out) {
    const struct ax_task_item *x = &j->prompts.items[i];
    json_t *list = json_array(), *resps = answers(j, i);
    json_t *target = j->prompts.several ? x->text : x->target;
    const enum ax_status st = arguments(j, i, list);
    json_t *filtered = j->scores.filtered ? j->scores.filtered[f * j->scores.n + i] : resps;
    json_t *v =
        json_pack("{ss sI sO sO* sO sO sO ss}", "task", j->task.name, "doc_id", (json_int_t)i,
                  "doc", (json_t *)(uintptr_t)x->doc, "target", target, "arguments", list, "resps",
                  resps, "filtered_resps", filtered, "filter", j->task.filters[f].name);
    if (v)
        put_metrics(j, i, f, v);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    json_decref(list);
    json_decref(resps);
    AX_TRY(st);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a sample");
    const enum ax_status put = ax_buf_printf(out, "%s\n", text);
    ax_free(text);
    return put;
}

enum ax_status ax_task_report_samples(const struct ax_task_job *j, struct ax_buf *out) {
    for (size_t i = 0; i < j->scores.n; i++)
        for (size_t f = 0; f < j->task.n_filters; f++)
            AX_TRY(put_sample(j, i, f, out));
    return AX_OK;
}
