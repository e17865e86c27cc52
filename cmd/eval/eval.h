/* `axtrain eval`: its parts. Private to cmd/eval/ and cmd/eval.c.
 *
 * Reading order: eval.c (command line, configuration, data), run.c (the model's passes),
 * questions.c (prompts and expected answers), solve.c (answers by generation), pass.c (several
 * per example), samples.c (their texts), best.c (the best of them by another model), print.c and json.c (output); tasks.c (task files) and score.h (reward models), which
 * replace all of these. */
#ifndef AX_CMD_EVAL_EVAL_H
#define AX_CMD_EVAL_EVAL_H

#include "base/lock.h"
#include "model/adapter/adapters.h"
#include "cmd/train/data.h"
#include "cmd/eval/best.h"
#include "cmd/eval/pass.h"
#include "cmd/eval/samples.h"
#include "cmd/eval/tasks.h"
#include "cmd/ranks.h"
#include "data/text/stop_tokens.h"
#include "data/reward/final_answer.h"
#include "optim/evaluate/evaluate.h"

/* The generated answer to an example. */
struct ax_eval_answer {
    uint32_t prompt, end; /* tokens [0, prompt) are the prompt, [prompt, end) the expected answer */
    char want[AX_FINAL_ANSWER_MAX]; /* "" = the example has no final answer and is not used */
    char got[AX_FINAL_ANSWER_MAX];  /* "" = the model gave none */
    bool solved, cut;               /* cut: not finished after max_new_tokens */
    int64_t tokens;
    char *text;
    int64_t correct; /* number of correct samples, if there are several */
    /* if texts are kept: [N]; with --best-of, which of them the votes and the scorer choose */
    struct ax_eval_sample *samples;
    size_t majority, best;
};

struct ax_eval_row {
    struct ax_example_ref ref;     /* into the corpus */
    struct ax_eval_document score; /* the example's loss */
    struct ax_eval_answer answer;
};

/* The results of one adapter, or of the base. */
struct ax_eval_turn {
    int adapter;
    struct ax_eval_result result;
    int64_t n_solved, n_cut, generated;
    double generate_seconds;
    struct ax_eval_pass pass; /* pass@k of sampled answers */
};

struct ax_eval {
    /* requested */
    struct ax_arg_list adapter_args;
    const char *base_name;
    const char *model, *data, *config, *type, *dtype_name, *mesh, *device, *out;
    struct ax_eval_tasks tasks; /* task files, or final-answer */
    int64_t max_rows, max_new_tokens, batch, threads;
    struct ax_eval_pass_options pass_options;
    struct ax_eval_best best; /* --best-of */
    const char *log_steps;    /* FILE; NULL: not asked for */
    bool per_row, json;
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
    const struct ax_corpus *corpus;          /* training or evaluation examples */
    int64_t longest;                         /* tokens of the longest example */
    const struct ax_corpus_report *left_out; /* what the data set left out */
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_adapters adapters;
    enum ax_dtype dtype;
    enum ax_storage store; /* storage of the frozen matrices */
    struct ax_stop_tokens stop;
    bool solve;
    size_t n_rows;
    json_t **prompts; /* [n_rows] as a scorer reads them, if texts are kept; NULL: not asked */
    /* results; the rows contain those of the current turn */
    struct ax_eval_row *rows; /* [n_rows], in loader order */
    size_t n_scored;
    int64_t n_answers; /* examples that have an answer */
    int n_turns;       /* with several adapters, the first is the base */
    struct ax_eval_turn turns[AX_ARG_LIST_MAX + 1];
    struct ax_buf row_lines; /* lines of records, with per_row */
    uint64_t arena_bytes;
};

/* Loads the model and fills in the results, one turn after the other. */
enum ax_status ax_eval_run(struct ax_eval *e);
/* Finds prompt and final answer of every example. AX_ERR_DATA if none has one. */
enum ax_status ax_eval_questions(struct ax_eval *e);
/* Greedy answers from a loaded model; called once to plan and once for real. */
enum ax_status ax_eval_solve(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m);
/* Tokens [from, to) of a row's example. */
void ax_eval_copy_tokens(const struct ax_eval *e, const struct ax_eval_row *row, uint32_t from,
                         uint32_t to, int32_t *out);
/* "FILE:LINE" of an example, written to buf and returned. */
const char *ax_eval_where(const struct ax_eval *e, const struct ax_eval_row *row, char *buf,
                          size_t size);
/* Tokens of the longest prompt plus its answer: the positions that the model must support. */
int64_t ax_eval_positions(const struct ax_eval *e);

enum ax_status ax_eval_print(const struct ax_eval *e, struct ax_buf *out);
/* A line of JSON per example, for the turn that just ended. */
enum ax_status ax_eval_print_rows(struct ax_eval *e, const struct ax_eval_turn *t);
/* Everything as one object. */
enum ax_status ax_eval_print_json(const struct ax_eval *e, size_t flags, struct ax_buf *out);
/* v as a line; takes v, of which NULL is lack of memory. */
enum ax_status ax_eval_put_json(struct ax_buf *out, json_t *v, size_t flags);
/* sum/n, or 0. */
static inline double ax_eval_per(double sum, double n) {
    return n > 0 ? sum / n : 0;
}

/* *folder whose tokenizer and template read the records. Without a configuration, it is that of the
 * adapters, as they were trained, and so that all turns have the same tokens; NULL: the base's. */
enum ax_status ax_eval_text_folder(const struct ax_eval *e, const char **folder);

#endif
