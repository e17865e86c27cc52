/* Reports the results of tasks. */
#ifndef AX_OPTIM_EVALUATE_TASKS_REPORT_H
#define AX_OPTIM_EVALUATE_TASKS_REPORT_H

#include "optim/evaluate/tasks/metrics.h"
#include "optim/evaluate/tasks/requests.h"
#include "optim/evaluate/tasks/tree.h"

/* A task with everything from its file to its results. */
struct ax_task_job {
    struct ax_task task;
    struct ax_task_prompts prompts;
    struct ax_task_requests requests;
    struct ax_task_scores scores;
    struct ax_task_result *results; /* [filters][metrics] */
};
/* Scores the model's answers. */
enum ax_status ax_task_job_finish(struct ax_task_job *j);
void ax_task_job_free(struct ax_task_job *j); /* safe on a zeroed one */

/* Lines of a table: its head, and a row. */
struct ax_task_row {
    const char *name, *filter, *metric; /* name: only in a task's first row */
    int depth;                          /* depth in groups */
    int64_t shots;                      /* −1: not shown */
    struct ax_task_result result;
};
enum ax_status ax_task_report_head(struct ax_buf *out);
enum ax_status ax_task_report_row(const struct ax_task_row *r, struct ax_buf *out);

/* A table: task, examples, filter, metric, value, standard error. A group's tasks are indented
 * below it. jobs: [tasks of the tree]. */
enum ax_status ax_task_report_table(const struct ax_task_tree *t, const struct ax_task_job *jobs,
                                    struct ax_buf *out);
/* {"results": {TASK or GROUP: {"METRIC,FILTER": …, "METRIC_stderr,FILTER": …}}, "groups",
 * "group_subtasks", "n-shot", "n-samples", "higher_is_better"}, with lm-evaluation-harness's names.
 */
enum ax_status ax_task_report_json(const struct ax_task_tree *t, const struct ax_task_job *jobs,
                                   json_t **out);
/* One line of JSON per record and filter, with the keys of lm-evaluation-harness's --log_samples:
 * the record, the model's input and answer, and the metrics. */
enum ax_status ax_task_report_samples(const struct ax_task_job *j, struct ax_buf *out);

/* Numbers of a group: means of its tasks' numbers. */

struct ax_task_group_value {
    const char *metric, *filter;
    struct ax_task_result result;
};

struct ax_task_group_values {
    struct ax_task_group_value *list; /* ordered by metric, then by filter */
    size_t n;
};
/* Tasks that lack a metric or filter are left out of its mean. The standard error of a mean by size
 * is pooled: √(Σ (n−1) e² n / (Σ n − k) / Σ n) for k tasks of n records; of a plain mean, √(Σ
 * e²)/k; NaN if a task has none. */
enum ax_status ax_task_group_aggregate(struct ax_task_group_values *v, const struct ax_task_tree *t,
                                       const struct ax_task_node *group,
                                       const struct ax_task_job *jobs);
void ax_task_group_values_free(struct ax_task_group_values *v); /* safe on a zeroed one */

#endif
