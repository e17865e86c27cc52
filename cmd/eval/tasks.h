/* `axtrain eval --task FILE`, and by lm-evaluation-harness itself with --harness. Private to eval*.c and
 * cmd/eval/. */
#ifndef AX_CMD_EVAL_TASKS_H
#define AX_CMD_EVAL_TASKS_H

#include <jansson.h>

#include "base/mem.h"
#include "cmd/args.h"
#include "cmd/ranks.h"

struct ax_eval_tasks {
    struct ax_arg_list files;
    const char *include_path;                            /* folder for task names; or NULL */
    const char *model, *base, *dtype, *system, *samples; /* samples: a file; NULL: none */
    const struct ax_arg_list *adapters;
    struct ax_ranks *ranks;
    int64_t num_fewshot;                    /* -1: as in the task files */
    int64_t max_length;                     /* 0: all of the model's positions */
    int64_t max_rows, batch, threads, seed; /* 0 rows: all; 0 batch: as memory allows */
    bool chat, single_turn, json, harness;
};
/* Appends the results, on rank 0. */
enum ax_status ax_eval_tasks_run(const struct ax_eval_tasks *o, struct ax_buf *out);
enum ax_status ax_eval_harness_run(const struct ax_eval_tasks *o, struct ax_buf *out);

/* ---- what both do ---- */

struct ax_task_run_counters;
struct ax_text_model;
enum ax_status ax_eval_tasks_open_model(const struct ax_eval_tasks *o, struct ax_text_model *model);
/* --max-length, or the model's. */
enum ax_status ax_eval_tasks_length(const struct ax_eval_tasks *o,
                                    const struct ax_text_model *model, int64_t *out);
/* --json: `results`, an object, behind what was done. */
enum ax_status ax_eval_tasks_put_json(const struct ax_eval_tasks *o,
                                      const struct ax_task_run_counters *c, json_t *results,
                                      struct ax_buf *out);
/* The line below a table. */
enum ax_status ax_eval_tasks_put_counters(const struct ax_text_model *model,
                                          const struct ax_task_run_counters *c, struct ax_buf *out);

#endif
