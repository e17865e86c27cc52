/* The names that the task files of a folder define: of tasks, groups and tags. */
#ifndef AX_CMD_TASKS_INDEX_H
#define AX_CMD_TASKS_INDEX_H

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
    char *why;     /* of the first of them; NULL: none */
};

/* Reads each FILE.yaml in the folder and those below it. Of equal names the first path has it. */
enum ax_status ax_task_index_open(struct ax_task_index *x, const char *folder);
void ax_task_index_close(struct ax_task_index *x); /* safe on a zeroed one */

/* NULL: no such task or group. */
const struct ax_task_entry *ax_task_index_find(const struct ax_task_index *x, const char *name);
/* The tasks with this tag, sorted by name; the list is owned by the caller, and empty for none. */
enum ax_status ax_task_index_tag(const struct ax_task_index *x, const char *tag,
                                 const struct ax_task_entry ***list, size_t *n);
/* AX_ERR_CONFIG: "no task, group or tag NAME in FOLDER", with a suggestion and what was not read. */
enum ax_status ax_task_index_missing(const struct ax_task_index *x, const char *name);

#endif
