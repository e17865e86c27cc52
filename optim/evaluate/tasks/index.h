/* The names of tasks, groups and tags that the task files in a folder define. */
#ifndef AX_OPTIM_EVALUATE_TASKS_INDEX_H
#define AX_OPTIM_EVALUATE_TASKS_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct ax_task_entry {
    char *name, *path;
    bool group;
    char **tags;
    size_t n_tags;
};

struct ax_task_index {
    char *folder;
    struct ax_task_entry *list; /* sorted by name */
    size_t n, cap;
    size_t unread; /* files that cannot be read, whose tags are unknown */
    char *why;     /* error of the first bad file; NULL: none */
};

/* Reads every FILE.yaml in the folder and its subfolders. If several define a name, the first path
 * counts. */
enum ax_status ax_task_index_open(struct ax_task_index *x, const char *folder);
void ax_task_index_close(struct ax_task_index *x); /* safe on a zeroed one */

/* NULL if there is no such task or group. */
const struct ax_task_entry *ax_task_index_find(const struct ax_task_index *x, const char *name);
/* The tasks with this tag, sorted by name; empty if there are none. The caller owns the list. */
enum ax_status ax_task_index_tag(const struct ax_task_index *x, const char *tag,
                                 const struct ax_task_entry ***list, size_t *n);
/* The error for an unknown name: AX_ERR_CONFIG "no task, group or tag NAME in FOLDER", with a
 * suggestion. */
enum ax_status ax_task_index_missing(const struct ax_task_index *x, const char *name);

#endif
