/* Runs requests on the model: many at a time, which share the keys and values of common
 * prefixes. */
#ifndef AX_OPTIM_EVALUATE_TASKS_RUN_H
#define AX_OPTIM_EVALUATE_TASKS_RUN_H

#include "model/text/text_model.h"
#include "optim/evaluate/tasks/requests.h"

struct ax_task_run_options {
    int64_t lanes; /* sequences at a time; 0: by the memory of their keys and values */
    uint64_t seed; /* for sampling */
    int adapter;   /* AX_ADAPTER_NONE: none */
};

struct ax_task_run_counters {
    int64_t requests, prompt_tokens, shared_tokens, generated_tokens;
    double seconds; /* including loading */
};

/* Fills in the output fields of all tasks' requests. */
enum ax_status ax_task_run(struct ax_text_model *model, struct ax_task_requests *const *list,
                           size_t n, const struct ax_task_run_options *o,
                           struct ax_task_run_counters *counters);

#endif
