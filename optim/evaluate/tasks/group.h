/* Numbers of a group: means of its tasks' numbers. */
#ifndef AX_OPTIM_EVALUATE_TASKS_GROUP_H
#define AX_OPTIM_EVALUATE_TASKS_GROUP_H

#include "optim/evaluate/tasks/report.h"
#include "optim/evaluate/tasks/tree.h"

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
