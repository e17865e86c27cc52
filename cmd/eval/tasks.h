/* `axtrain eval --task NAME|FILE`: tasks of lm-evaluation-harness (cmd/harness/harness.h). Private to eval.c and cmd/eval/. */
#ifndef AX_CMD_EVAL_TASKS_H
#define AX_CMD_EVAL_TASKS_H

#include "base/mem.h"
#include "cmd/args/args.h"
#include "cmd/ranks.h"

struct ax_eval_tasks {
    struct ax_arg_list names;                            /* and files */
    const char *include_path;                            /* a folder of task files; NULL: none */
    const char *model, *base, *dtype, *system, *samples; /* samples: a file; NULL: none */
    const struct ax_arg_list *adapters;
    struct ax_ranks *ranks;
    int64_t num_fewshot;                    /* -1: as in the task files */
    int64_t max_length;                     /* 0: all of the model's positions */
    int64_t max_rows, batch, threads, seed; /* 0 rows: all; 0 batch: as memory allows */
    bool chat, single_turn, json;
};
/* Appends the results, on rank 0. */
enum ax_status ax_eval_tasks_run(const struct ax_eval_tasks *o, struct ax_buf *out);

#endif
