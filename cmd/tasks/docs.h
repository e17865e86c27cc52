/* The records of a split. */
#ifndef AX_CMD_TASKS_DOCS_H
#define AX_CMD_TASKS_DOCS_H

#include "cmd/tasks/task.h"

struct ax_task_place {
    size_t file; /* of ax_task_docs.files */
    uint64_t line;
};

struct ax_task_docs {
    json_t **list; /* objects, which all have the same columns: null where a record lacks one */
    struct ax_task_place *places;
    size_t n, cap;
    char **files;
    size_t n_files;
};

/* Local files are looked for in `folder` (NULL: the current one), then beside the task's file. A
 * data set of the hub is brought into the cache. At most `most` records; 0: all. AX_ERR_DATA where
 * there are none. */
enum ax_status ax_task_docs_load(struct ax_task_docs *d, const struct ax_task *t, const char *split,
                                 const char *folder, int64_t most);
/* Records of the task file itself; the list is borrowed. */
enum ax_status ax_task_docs_from_list(struct ax_task_docs *d, json_t *list);
void ax_task_docs_free(struct ax_task_docs *d); /* safe on a zeroed one */
/* "FILE:LINE" of a record, written to buf, returned. */
const char *ax_task_docs_where(const struct ax_task_docs *d, size_t i, char *buf, size_t size);

/* Texts of records [from, n), which came from CSV: columns of integers, numbers, True and False get
 * those types, and empty fields and "NA" become null, as pandas reads them. (docs_csv.c) */
enum ax_status ax_task_docs_type_csv(struct ax_task_docs *d, size_t from);

#endif
