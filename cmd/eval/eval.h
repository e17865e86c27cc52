/* `axtrain eval`: its parts. Private to cmd/eval/ and cmd/eval.c.
 *
 * Reading order: eval.c (command line, configuration, data), run.c (the model's passes), pass.c
 * (options and output of sampled answers), samples.c (their texts), best.c (the best of them by another
 * model), print.c (output); tasks.c (tasks of lm-evaluation-harness) and score.c (reward models), which replace all
 * of these. */
#ifndef AX_CMD_EVAL_EVAL_H
#define AX_CMD_EVAL_EVAL_H

#include "base/lock.h"
#include "model/adapter/adapters.h"
#include "cmd/train/data/data.h"
#include "cmd/eval/best.h"
#include "cmd/eval/pass.h"
#include "cmd/eval/samples.h"
#include "cmd/eval/tasks.h"
#include "cmd/ranks.h"
#include "cmd/args/text_args.h"
#include "optim/evaluate/answers.h"

/* The results of one adapter, or of the base. */
struct ax_eval_turn {
    int adapter;
    struct ax_eval_result result;
    struct ax_greedy greedy;
    struct ax_sampled pass; /* sampled answers */
};

#define AX_EVAL_SOLVE "final-answer" /* value of --task */

struct ax_eval {
    /* requested */
    struct ax_arg_list adapter_args;
    const char *base_name;
    const char *model, *data, *config, *type, *dtype_name, *mesh, *device, *out;
    struct ax_eval_tasks tasks; /* the harness's, or final-answer or a scorer's */
    int64_t max_rows, threads;
    struct ax_sampled_options pass_options;
    const char *pass_at;      /* "1,4,8" */
    int64_t seed;             /* −1: not given */
    struct ax_eval_best best; /* --best-of */
    const char *log_steps;    /* FILE; NULL: not asked for */
    struct ax_tool_args tool_args;
    bool per_row, json, old_harness;    /* old_harness: an option that is gone */
    const struct ax_classifier *scores; /* --task reward, prm; NULL: none */
    /* evaluated */
    struct ax_ranks ranks;
    char *model_dir;
    struct ax_lock use; /* lock on the model's folder, if it is in a cache */
    struct ax_config cfg;
    struct ax_setup_data setup;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
    struct ax_questions
        q; /* training or evaluation examples; the rows contain results of the current turn */
    const struct ax_corpus_report *left_out; /* rows of the data set that are left out */
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_adapters adapters;
    enum ax_dtype dtype;
    enum ax_storage store; /* how frozen matrices are stored */
    bool solve;
    struct ax_text_tools_options tool_options;
    struct ax_tools *tools;   /* that answers call; NULL: none */
    struct ax_tool_chat chat; /* with tools, as the next */
    struct ax_episode_rules rules;
    json_t **prompts; /* [q.n] as a scorer reads them, if texts are kept; NULL: not asked */
    /* results */
    size_t n_scored;
    int n_turns; /* with several adapters, the first is the base */
    struct ax_eval_turn turns[AX_ARG_LIST_MAX + 1];
    struct ax_buf row_lines; /* lines of records, with per_row */
    uint64_t arena_bytes;
};

/* Loads the model and fills in the results, one turn after the other. */
enum ax_status ax_eval_run(struct ax_eval *e);
/* score.c: all of `--task reward|prm`, from an eval whose options are set: writes rows to -o, and to `out`
 * what is printed. */
enum ax_status ax_eval_score(struct ax_eval *e, const struct ax_classifier *kind,
                             struct ax_buf *out);

enum ax_status ax_eval_print(const struct ax_eval *e, struct ax_buf *out);
/* A line of JSON per example, for the turn that just ended. */
enum ax_status ax_eval_print_rows(struct ax_eval *e, const struct ax_eval_turn *t);
/* v as a line; takes v, of which NULL is lack of memory. */
enum ax_status ax_eval_put_json(struct ax_buf *out, json_t *v, size_t flags);
/* sum/n, or 0. */
static inline double ax_eval_per(double sum, double n) {
    return n > 0 ? sum / n : 0;
}

#endif
