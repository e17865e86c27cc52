/* Finds the tasks that --task names, and the groups that contain them. */
#ifndef AX_OPTIM_EVALUATE_TASKS_TREE_H
#define AX_OPTIM_EVALUATE_TASKS_TREE_H

#include "optim/evaluate/tasks/task.h"

#define AX_TASK_NO_TASK SIZE_MAX

/* An entry of aggregate_metric_list. */
struct ax_task_group_metric {
    const char *metric;
    const char **filters; /* [n_filters]; if empty, all filters of the tasks */
    size_t n_filters;
    bool by_size; /* weighted by the tasks' numbers of records */
};

struct ax_task_node {
    char *name;
    const char *alias; /* a group's name in tables */
    size_t task;       /* index in the tree's tasks; AX_TASK_NO_TASK: a group with */
    struct ax_task_node **children;
    size_t n, cap;
    struct ax_task_group_metric *metrics;
    size_t n_metrics;
};

struct ax_task_index; /* names that the files of a folder define */

struct ax_task_tree {
    const char *include_path; /* NULL: names are looked up in the folder of the group's file */
    struct ax_task_index **indexes;
    size_t n_indexes;
    struct ax_task_yaml **groups; /* files */
    size_t n_groups;
    struct ax_task_spec **tasks;
    size_t n_tasks;
    struct ax_task_node root; /* its children are the tasks and groups requested */
};

/* Adds a file, a name, or a comma-separated list of these. AX_ERR_CONFIG names what is missing. */
enum ax_status ax_task_tree_add(struct ax_task_tree *t, const char *what);
void ax_task_tree_free(struct ax_task_tree *t); /* safe on a zeroed one */

/* The indices of the tasks in and below a node, in order, without duplicates; the caller owns the
 * list. */
enum ax_status ax_task_node_tasks(const struct ax_task_tree *t, const struct ax_task_node *node,
                                  size_t **list, size_t *n);

#endif
