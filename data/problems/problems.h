/* Grade-school word problems with worked steps and checkable answers: unlimited data for
 * experiments, reproducible from a seed.
 *
 * Reading order: story.h, problems.c (right solutions), wrong.c (wrong ones), rows.c (records).
 *
 * A problem comes from a template (problems_tables.c): a story with names, things and numbers drawn
 * at random such that every step yields a positive integer. Whether a problem belongs to training
 * or test depends only on its question, so the two never share one, whatever the seeds. */
#ifndef AX_DATA_PROBLEMS_PROBLEMS_H
#define AX_DATA_PROBLEMS_PROBLEMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

enum { AX_PROBLEM_LEVELS = 4, AX_PROBLEM_MAX_STEPS = 6 };

struct ax_problem {
    int level;    /* 1 … AX_PROBLEM_LEVELS: steps of reasoning */
    int template; /* index of the story */
    int n_steps;
    char *question;
    char *steps[AX_PROBLEM_MAX_STEPS]; /* "The boxes hold 3 * 4 = 12 apples." */
    int64_t answer;                    /* result of the last step */
};
void ax_problem_free(struct ax_problem *p); /* safe on a zeroed one */

/* Problem `index` of a seed, with a level in [min_level, max_level]. */
enum ax_status ax_problem_make(struct ax_problem *out, uint64_t seed, uint64_t index, int min_level,
                               int max_level);
/* The same problem with a wrong solution: a mistake in line *first, and the lines after it computed
 * with its result. The lines are the steps and, as line n_steps, the answer, which is wrong as
 * well. */
enum ax_status ax_problem_make_wrong(struct ax_problem *out, uint64_t seed, uint64_t index,
                                     int min_level, int max_level, int *first);
/* Of question, steps and answer. */
int64_t ax_problem_largest_number(const struct ax_problem *p);
/* One question in eight belongs to the test split. */
bool ax_problem_is_test(const struct ax_problem *p);
/* {"messages": [{user: question}, {assistant: steps and "#### answer"}], "level": …}; free with
 * json_decref. */
enum ax_status ax_problem_row(const struct ax_problem *p, json_t **out);
/* {"prompt": [user], "chosen": [assistant], "rejected": [assistant], "level": …} */
enum ax_status ax_problem_pair_row(const struct ax_problem *right, const struct ax_problem *wrong,
                                   json_t **out);
/* {"prompt": question, "completions": [line, …], "labels": [true, …], "level": …}; the labels are
 * false from line first_wrong on. */
enum ax_status ax_problem_steps_row(const struct ax_problem *p, int first_wrong, json_t **out);

/* Tells the model the form of the answer, so that untrained models can solve the problems too. */
extern const char ax_problem_instruction[];

#endif
