/* Generated programming tasks with hidden tests: what a small model can learn to solve by its
 * rewards, unlimited and reproducible from a seed.
 *
 * A task is a chain of steps over a list of integers or an integer. The statement, the solution in
 * Python and the results of the tests are three readings of it: results are computed here, as Python
 * would, and never by running the solution. */
#ifndef AX_DATA_RECORDS_PROBLEMS_CODING_H
#define AX_DATA_RECORDS_PROBLEMS_CODING_H

#include <jansson.h>
#include <stdbool.h>

#include "data/records/problems/text.h"

enum { AX_CODING_LEVELS = 3, AX_CODING_TESTS = 8, AX_CODING_MAX_ITEMS = 8 };

struct ax_coding_value {
    bool list;
    int64_t n, v[AX_CODING_MAX_ITEMS]; /* an integer: n = 1 */
};
extern const int ax_coding_n_ops; /* number of kinds of steps */

struct ax_coding_task {
    int level; /* the number of steps */
    bool takes_list;
    struct {
        int op;
        int64_t k; /* the step's number, if it has one */
    } step[AX_CODING_LEVELS];
    const char *function, *argument; /* their names */
    struct ax_problem_text question, solution;
    struct {
        struct ax_coding_value argument, result;
    } test[AX_CODING_TESTS + 1]; /* the last is the example in the question, and no test */
};
/* Task `index` of a seed, with a level in [min_level, max_level]. Its tests tell it from others
 * nearby: without one of its steps, or with a number that is one more or less. */
void ax_coding_make(struct ax_coding_task *out, uint64_t seed, uint64_t index, int min_level,
                    int max_level);
/* A chain of `level` steps for the argument; it may make no sense as a task. */
void ax_coding_draw_steps(struct ax_coding_task *t, struct ax_problem_draw *d);
/* False where Python raises an exception, or a number is too large. */
bool ax_coding_compute(const struct ax_coding_task *t, struct ax_coding_value argument,
                       struct ax_coding_value *result);
void ax_coding_put_solution(struct ax_problem_text *out, const struct ax_coding_task *t);
/* One chain in eight belongs to the test split, whatever things are called in it. */
bool ax_coding_is_test(const struct ax_coding_task *t);
/* {"messages": [{user: question}, {assistant: solution}], "level": …, "entry_point": name,
 * "tests": [{"args": […], "result": …}, …]}, as the reward `code` reads it; NULL if memory is out. */
json_t *ax_coding_row(const struct ax_coding_task *t);

#endif
