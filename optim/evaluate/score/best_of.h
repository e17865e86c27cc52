/* The best of several answers by a scorer: --best-of N --scorer DIR of eval and generate.
 *
 * The answers are collected as text while another model gives them; when that model is gone, the
 * scorer's is loaded and scores all of them. So there is one model in memory at a time.
 *
 * A process reward model reads an answer as steps: its pieces between the folder's separators if
 * these are white space, else its lines; blank ones are no steps. Prompts that are messages are, for
 * it, the text of the messages, a line each. A reward model reads the answer as the assistant's
 * turn, with its own chat template, or as the continuation of a text. */
#ifndef AX_OPTIM_EVALUATE_SCORE_BEST_OF_H
#define AX_OPTIM_EVALUATE_SCORE_BEST_OF_H

#include "optim/evaluate/score/steps.h"
#include "optim/evaluate/score/records.h"

/* Options of a command. */
struct ax_best_of_args {
    int64_t n;          /* --best-of: answers per prompt, from 2 on; 0: not asked for */
    const char *scorer; /* --scorer */
    const char *by;     /* --score-by; NULL: min */
};
#define AX_BEST_OF_MAX 1024

/* Must not move while it is open. */
struct ax_best_of {
    enum ax_score_by by;
    struct ax_text_scorer scorer;
    struct ax_score_set set;
    size_t n, cap;   /* answers */
    int64_t *row;    /* [n]: in `set`; -1: it has no score */
    double *scores;  /* [n]; NaN: none, for the answer is blank or too long for the scorer */
    size_t unscored; /* answers without a score */
    bool told_lost;  /* the log says that the scorer's template leaves out tools */
};
/* `o` but for its model: the options of the run. */
enum ax_status ax_best_of_open(struct ax_best_of *b, const struct ax_best_of_args *a,
                               const struct ax_text_scorer_options *o);
void ax_best_of_close(struct ax_best_of *b); /* safe on a zeroed one */
bool ax_best_of_by_steps(const struct ax_best_of *b);

/* A prompt, a text or a list of messages, as the scorer reads it: a new reference in *out. tools: the
 * definitions in its record, a list or JSON text; NULL: none. AX_ERR_DATA if it cannot, so that nobody
 * waits for answers first. */
enum ax_status ax_best_of_prompt(const struct ax_best_of *b, const json_t *prompt,
                                 const json_t *tools, json_t **out);
/* Adds an answer to a prompt from ax_best_of_prompt. */
enum ax_status ax_best_of_add(struct ax_best_of *b, const json_t *prompt, const char *text,
                              size_t len);
/* Fills `scores`, once. Has a runtime of its own, unless the scorer's model is open elsewhere. */
enum ax_status ax_best_of_run(struct ax_best_of *b);
/* Forgets the answers, for others. */
enum ax_status ax_best_of_clear(struct ax_best_of *b);
/* Index of the highest score, the first of equal ones; those without one are below all others. */
size_t ax_best_of_choose(const double *scores, size_t n);

#endif
