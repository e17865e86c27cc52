/* lm-evaluation-harness in a Python process: it makes the prompts and the numbers, and asks for what a model says of texts.
 * For `axtrain eval --task` (cmd/eval/tasks.c), and evaluations during training (cmd/train/tasks.c). */
#ifndef AX_CMD_HARNESS_HARNESS_H
#define AX_CMD_HARNESS_HARNESS_H

#include "data/reward/sandbox/watch.h"
#include "data/text_side.h"
#include "model/text/text_requests.h"
#include "parallel/fabric/team.h"

#define AX_HARNESS_SEED 1234 /* the harness's default, for few-shot examples */

struct ax_harness_options {
    const char *option;       /* that names the tasks, for errors: "--task" */
    json_t *tasks;            /* names and files; borrowed */
    const char *include_path; /* a folder of task files; NULL: none */
    const char *system;       /* NULL: none */
    int64_t num_fewshot;      /* -1: as in the task files */
    int64_t max_rows, seed;   /* 0 rows: all */
    bool chat, single_turn;
    struct ax_buf *samples; /* gets a line of JSON per record and filter; NULL: none are made */
    /* the model: rank 0 has the harness, and all ranks make the same calls of `answer` */
    struct ax_team *team; /* NULL: one rank */
    const struct ax_text_side *side;
    int64_t max_length; /* tokens of the longest text */
    enum ax_status (*answer)(void *ctx, struct ax_text_requests *r);
    void *ctx;
    struct ax_watch
        *watch; /* looks on rank 0 while the harness thinks: AX_INTERRUPTED stops it; NULL: none */
};

struct ax_harness_outcome {
    json_t *results; /* only on rank 0; checked (report.h), to be freed; NULL: there are none */
    bool stopped;    /* on all ranks: by the watch, or an answer that was AX_INTERRUPTED */
    struct ax_error_record
        failure; /* only on rank 0: why there are none; st AX_OK: they are there, or it was stopped */
};
/* A failure of the harness itself is AX_OK and an outcome; errors are the model's, and the other ranks'. */
enum ax_status ax_harness_run(const struct ax_harness_options *o, struct ax_harness_outcome *out);
/* On one rank: AX_ERR_CONFIG or AX_ERR_FAILED if the package, a task or its data is missing. */
enum ax_status ax_harness_try(const struct ax_harness_options *o);

#endif
