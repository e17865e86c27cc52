/* `axtrain eval`: its parts. Private to eval*.c.
 *
 * Read on: eval.c (command line, configuration, data), run.c (the model's passes),
 * questions.c (prompts and expected answers), solve.c (answers by generation), pass.c (several to a
 * row), print.c and json.c (what comes out). */
#ifndef AX_CMD_EVAL_EVAL_H
#define AX_CMD_EVAL_EVAL_H

#include "cmd/generate/adapters.h"
#include "cmd/train/data.h"
#include "cmd/eval/pass.h"
#include "cmd/generate/stop_tokens.h"
#include "data/reward/final_answer.h"
#include "optim/evaluate.h"

/* The answer to a row, by generation. */
struct ax_eval_answer {
    uint32_t prompt, end;           /* tokens [0, prompt) ask, [prompt, end) are the row's answer */
    char want[AX_FINAL_ANSWER_MAX]; /* "" = the row has no final answer, so it is not asked */
    char got[AX_FINAL_ANSWER_MAX];  /* "" = the model gave none */
    bool solved, cut;               /* cut: it had not ended after max_new_tokens */
    int64_t tokens;
    char *text;
    int64_t correct; /* of the drawn answers, where several were */
};

struct ax_eval_row {
    struct ax_example_ref ref;     /* of the corpus */
    struct ax_eval_document score; /* its loss */
    struct ax_eval_answer answer;
};

/* What one adapter, or the base, got. */
struct ax_eval_turn {
    int adapter;
    struct ax_eval_result result;
    int64_t n_solved, n_cut, generated;
    double generate_seconds;
    struct ax_eval_pass pass; /* of drawn answers */
};

struct ax_eval {
    /* what was asked for */
    struct ax_arg_list adapter_args;
    const char *base_name;
    const char *model, *data, *config, *type, *task, *dtype_name, *out;
    int64_t max_rows, max_new_tokens, batch, threads;
    struct ax_eval_pass_options pass_options;
    bool per_row, json;
    /* what is evaluated */
    char *model_dir;
    struct ax_config cfg;
    struct ax_setup_data setup;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
    const struct ax_corpus *corpus;          /* training or evaluation examples */
    int64_t longest;                         /* tokens of a row */
    const struct ax_corpus_report *left_out; /* of the data set */
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_adapters adapters;
    enum ax_dtype dtype;
    enum ax_store store; /* of the matrices */
    struct ax_stop_tokens stop;
    bool solve;
    size_t n_rows;
    /* results; the rows have those of the turn that is on */
    struct ax_eval_row *rows; /* [n_rows], in the order of the loader */
    size_t n_scored;
    int64_t n_answers; /* rows that are asked */
    int n_turns;       /* of several adapters the base goes first */
    struct ax_eval_turn turns[AX_ARG_LIST_MAX + 1];
    struct ax_buf row_lines; /* with per_row */
    uint64_t arena_bytes;
};

/* Loads the model and fills in the results, of one turn after the other. */
enum ax_status ax_eval_run(struct ax_eval *e);
/* Finds prompt and final answer of every row. AX_ERR_DATA when no row has one. */
enum ax_status ax_eval_questions(struct ax_eval *e);
/* Greedy answers, on a loaded model; called once to plan and once for real. */
enum ax_status ax_eval_solve(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m);
/* Tokens [from, to) of a row's example. */
void ax_eval_copy_tokens(const struct ax_eval *e, const struct ax_eval_row *row, uint32_t from,
                         uint32_t to, int32_t *out);
/* "FILE:LINE" of a row, written to buf, returned. */
const char *ax_eval_where(const struct ax_eval *e, const struct ax_eval_row *row, char *buf,
                          size_t size);
/* Tokens of the longest prompt and its answer: the positions that the model must have. */
int64_t ax_eval_positions(const struct ax_eval *e);

enum ax_status ax_eval_print(const struct ax_eval *e, struct ax_buf *out);
/* A line of JSON for each row, of the turn that was on. */
enum ax_status ax_eval_print_rows(struct ax_eval *e, const struct ax_eval_turn *t);
/* All as one object. */
enum ax_status ax_eval_print_json(const struct ax_eval *e, size_t flags, struct ax_buf *out);
/* sum/n, or 0. */
static inline double ax_eval_per(double sum, double n) {
    return n > 0 ? sum / n : 0;
}

#endif
