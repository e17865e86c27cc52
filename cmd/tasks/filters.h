/* Generated texts → extracted answers. */
#ifndef AX_CMD_TASKS_FILTERS_H
#define AX_CMD_TASKS_FILTERS_H

#include "cmd/tasks/task.h"

/* What a pipeline makes of the answers to a record, a list of texts: a list, or after take_first
 * one value. Owned by the caller. */
enum ax_status ax_task_filter(const struct ax_task_filters *p, const json_t *answers,
                              const json_t *doc, json_t **out);

#endif
