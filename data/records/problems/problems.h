/* Grade-school word problems with worked steps and checkable answers: unlimited data for
 * experiments, reproducible from a seed.
 *
 * Reading order: text.h, problems.c (the tables; solutions, right and wrong; records);
 * coding.h has programming tasks.
 *
 * A problem comes from a story with names, things and numbers drawn at random such that every step
 * yields a positive integer. Whether a problem belongs to training or test depends only on its
 * question, so the two never share one, whatever the seeds. */
#ifndef AX_DATA_RECORDS_PROBLEMS_PROBLEMS_H
#define AX_DATA_RECORDS_PROBLEMS_PROBLEMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "data/records/problems/text.h"

enum { AX_PROBLEM_LEVELS = 4 };

struct ax_problem {
    int level; /* 1 … AX_PROBLEM_LEVELS: the number of steps */
    int story; /* index of its story */
    struct ax_problem_text question, steps[AX_PROBLEM_LEVELS]; /* "They hold 3 * 4 = 12 apples." */
    struct ax_problem_text program; /* in Python: prints the right answer */
    int64_t answer;                 /* result of the last step */
};

struct ax_problem_kind {
    int min_level, max_level;
    int64_t scale; /* the numbers that stories draw are this many times as large */
};

/* Problem `index` of a seed. If `mistake` is not NULL, its solution is wrong: a mistake in line
 * *mistake, and the lines after it computed with its result. The lines are the steps and, as line
 * `level`, the answer, which is wrong as well. */
void ax_problem_make(struct ax_problem *out, uint64_t seed, uint64_t index,
                     struct ax_problem_kind kind, int *mistake);
/* The largest number in question, steps and answer. */
int64_t ax_problem_largest_number(const struct ax_problem *p);
/* One question in eight belongs to the test split. */
bool ax_problem_is_test(const char *question);

/* Records; NULL if memory is out.
 * {"messages": [{user: question}, {assistant: steps and "#### answer"}], "level": …} */
json_t *ax_problem_row(const struct ax_problem *p);
/* The same, with a call of the tool python, of this definition, in place of the steps. */
json_t *ax_problem_tool_row(const struct ax_problem *p, json_t *python);
/* {"prompt": [user], "chosen": [assistant], "rejected": [assistant], "level": …} */
json_t *ax_problem_pair_row(const struct ax_problem *right, const struct ax_problem *wrong);
/* {"prompt": question, "completions": [line, …], "labels": [true, …], "level": …}; the labels are
 * false from line `mistake` on. */
json_t *ax_problem_steps_row(const struct ax_problem *p, int mistake);
/* Appends a record as a line, and frees it. */
enum ax_status ax_problem_put_row(struct ax_buf *out, json_t *row);

/* Tells the model the form of the answer, so that untrained models can solve the problems too. */
extern const char ax_problem_instruction[];

#endif
