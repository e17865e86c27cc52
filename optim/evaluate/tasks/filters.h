/* Generated texts → extracted answers. */
#ifndef AX_OPTIM_EVALUATE_TASKS_FILTERS_H
#define AX_OPTIM_EVALUATE_TASKS_FILTERS_H

#include "optim/evaluate/tasks/task.h"

/* Applies a pipeline to a record's answers, a list of texts. *out is a list, or a single value
 * after take_first; owned by the caller. */
enum ax_status ax_task_filter(const struct ax_task_filters *p, const json_t *answers,
                              const json_t *doc, json_t **out);

#endif
