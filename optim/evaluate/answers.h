/* Questions of a data set, and a loaded model's answers to them: greedy ones, or several samples of each.
 *
 * The prompt of a question is everything in a record before its last trained span, and that span is the
 * expected answer. So every type of data set that trains on answers can be used, with exactly the tokens
 * of training. An answer is right if its final answer is (data/reward/final_answer.h); with tools, it is what the
 * last of its turns says. */
#ifndef AX_OPTIM_EVALUATE_ANSWERS_H
#define AX_OPTIM_EVALUATE_ANSWERS_H

#include "data/reward/final_answer.h"
#include "data/text/stop_tokens.h"
#include "data/text/tokenizer/tokenizer.h"
#include "data/tools/tools.h"
#include "model/core/sample.h"
#include "optim/evaluate/evaluate.h"

/* A sampled answer. */
struct ax_answer_sample {
    char *text; /* [len], and a NUL */
    size_t len;
    char got[AX_FINAL_ANSWER_MAX]; /* "" = none */
    bool right;
    double score; /* by another model, if it is asked; NaN: none */
};

struct ax_answer {
    uint32_t prompt, end; /* tokens [0, prompt) are the prompt, [prompt, end) the expected answer */
    char want[AX_FINAL_ANSWER_MAX]; /* "" = the record has no final answer and is not asked */
    char got[AX_FINAL_ANSWER_MAX];  /* "" = the model gave none */
    bool solved, cut;               /* cut: not finished after max_new_tokens */
    int64_t tokens;
    char *text; /* [len], and a NUL; with tools, that of the last turn; owned */
    size_t len;
    json_t *messages, *log; /* with tools, as an episode has them; owned */
    int64_t correct;        /* number of correct samples, if there are several */
    /* If texts are kept: [samples], and which of them the votes and a scorer choose. */
    struct ax_answer_sample *samples;
    size_t majority, best;
};

struct ax_question {
    struct ax_example_ref ref;     /* into the corpus */
    struct ax_eval_document score; /* its loss */
    struct ax_answer answer;
};

struct ax_questions {
    const struct ax_corpus *corpus;
    const struct ax_tokenizer *tokenizer;
    int64_t longest; /* tokens of the longest record */
    int64_t max_new_tokens, batch;
    struct ax_stop_tokens stop;
    const struct ax_episode_rules *turns; /* how answers call tools; NULL: they do not */
    struct ax_tools *tools;
    size_t n;
    struct ax_question *list; /* [n], in loader order */
    int64_t asked;            /* records that have an answer */
};

void ax_questions_free(struct ax_questions *q); /* the list */

/* Finds prompt and final answer of every record. AX_ERR_DATA if none has one. */
enum ax_status ax_questions_find(struct ax_questions *q);
/* Tokens [from, to) of a record. */
void ax_questions_tokens(const struct ax_questions *q, const struct ax_question *one, uint32_t from,
                         uint32_t to, int32_t *out);
/* "FILE:LINE" of a record, written to buf and returned. */
const char *ax_questions_where(const struct ax_questions *q, const struct ax_question *one,
                               char *buf, size_t size);
/* Tokens of the longest prompt plus its answer: the positions that the model must support. */
int64_t ax_questions_positions(const struct ax_questions *q);

/* ---- greedy answers ---- */

struct ax_greedy {
    int64_t solved, cut, generated;
    int64_t calls, failed; /* calls of tools */
    double seconds;
};
/* Called once to plan and once for real; fills the answers. */
enum ax_status ax_questions_solve(struct ax_questions *q, struct ax_model *m, struct ax_greedy *g);

/* ---- sampled answers ---- */

#define AX_SAMPLED_MAX_AT 8
#define AX_SAMPLED_MAX    1024

struct ax_sampled_options {
    int64_t samples; /* per question; 0: one greedy answer */
    struct ax_sampling sampling;
    int n_at;
    int64_t at[AX_SAMPLED_MAX_AT]; /* the k of pass@k */
};

struct ax_sampled {
    double at[AX_SAMPLED_MAX_AT]; /* means over the questions that were asked */
    int64_t correct, cut, generated;
    int64_t calls, failed; /* calls of tools */
    double seconds;
};
/* Called once to plan and once for real. Counts the correct ones in each answer. Samples depend on
 * seed, index and prompt, not batch or threads. */
enum ax_status ax_questions_sample(struct ax_questions *q, const struct ax_sampled_options *o,
                                   struct ax_model *m, struct ax_sampled *p);
/* The sample with the most frequent final answer, the first of equally frequent ones; samples without
 * a final answer have no vote. */
size_t ax_answer_vote(const struct ax_answer_sample *s, size_t n);

#endif
