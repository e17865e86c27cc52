/* The model's part: scores and answers of many requests at the same time, which share the keys and
 * values of the prompts' common beginnings. */
#ifndef AX_CMD_TASKS_RUN_H
#define AX_CMD_TASKS_RUN_H

#include "cmd/generate/text_model.h"
#include "cmd/tasks/requests.h"

struct ax_task_run_options {
    int64_t lanes; /* sequences at the same time; 0: as many as memory makes sensible */
    uint64_t seed; /* of sampling */
    int adapter;   /* AX_ADAPTER_NONE: none */
};

struct ax_task_run_counters {
    int64_t requests, prompt_tokens, shared_tokens, generated_tokens;
    double seconds; /* loading included */
};

/* Fills in what the requests of all tasks have out. */
enum ax_status ax_task_run(struct ax_text_model *model, struct ax_task_requests *const *list,
                           size_t n, const struct ax_task_run_options *o,
                           struct ax_task_run_counters *counters);

#endif
