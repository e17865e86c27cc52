/* What --task names → tasks and the groups that they belong to. */
#ifndef AX_CMD_TASKS_TREE_H
#define AX_CMD_TASKS_TREE_H

#include "cmd/tasks/index.h"
#include "cmd/tasks/task.h"

#define AX_TASK_NO_TASK SIZE_MAX

/* An entry of aggregate_metric_list. */
struct ax_task_group_metric {
    const char *metric;
    const char **filters; /* [n_filters]; none: those that the tasks have */
    size_t n_filters;
    bool by_size; /* tasks weigh as much as they have records */
};

struct ax_task_node {
    char *name;
    const char *alias; /* of a group */
    size_t task;       /* of the tree's tasks; AX_TASK_NO_TASK: a group, with */
    struct ax_task_node **children;
    size_t n, cap;
    struct ax_task_group_metric *metrics;
    size_t n_metrics;
};

struct ax_task_tree {
    const char *include_path; /* NULL: names are looked for beside the group's file */
    struct ax_task_index **indexes;
    size_t n_indexes;
    struct ax_task_yaml **groups; /* files */
    size_t n_groups;
    struct ax_task_spec **tasks;
    size_t n_tasks;
    struct ax_task_node root; /* its children are what was asked for */
};

/* Adds a file, a name, or several of both with commas between them. AX_ERR_CONFIG names what is
 * missing. */
enum ax_status ax_task_tree_add(struct ax_task_tree *t, const char *what);
void ax_task_tree_free(struct ax_task_tree *t); /* safe on a zeroed one */

/* Reads aggregate_metric_list; the node owns the entries. (group.c) */
enum ax_status ax_task_group_read_metrics(struct ax_task_node *group, struct ax_task_key k);

/* Numbers of the tasks in and below a node, each once, in their order; the list is owned by the
 * caller. */
enum ax_status ax_task_node_tasks(const struct ax_task_tree *t, const struct ax_task_node *node,
                                  size_t **list, size_t *n);

#endif
