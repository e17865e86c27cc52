#include "optim/evaluate/tasks/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

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
