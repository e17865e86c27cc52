/* The records of a split. */
#ifndef AX_OPTIM_EVALUATE_TASKS_DOCS_H
#define AX_OPTIM_EVALUATE_TASKS_DOCS_H

#include "optim/evaluate/tasks/task.h"

struct ax_task_place {
    size_t file; /* index in ax_task_docs.files */
    uint64_t line;
};

struct ax_task_docs {
    json_t **list; /* objects with the same columns; missing values are null */
    struct ax_task_place *places;
    size_t n, cap;
    char **files;
    size_t n_files;
};

/* Loads a split: at most `most` records (0: all). Local files are searched in `folder` (NULL: the
 * current one), then next to the task's file; a data set of the hub is downloaded into the cache.
 * AX_ERR_DATA if there are no records. */
enum ax_status ax_task_docs_load(struct ax_task_docs *d, const struct ax_task *t, const char *split,
                                 const char *folder, int64_t most);
/* Uses records from the task file itself; the list is borrowed. */
enum ax_status ax_task_docs_from_list(struct ax_task_docs *d, json_t *list);
void ax_task_docs_free(struct ax_task_docs *d); /* safe on a zeroed one */
/* Writes "FILE:LINE" of a record to buf and returns it. */
const char *ax_task_docs_where(const struct ax_task_docs *d, size_t i, char *buf, size_t size);

#endif
