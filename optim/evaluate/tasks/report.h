/* Reports the results of tasks. */
#ifndef AX_OPTIM_EVALUATE_TASKS_REPORT_H
#define AX_OPTIM_EVALUATE_TASKS_REPORT_H

#include "optim/evaluate/tasks/metrics.h"
#include "optim/evaluate/tasks/run.h"
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

#endif
