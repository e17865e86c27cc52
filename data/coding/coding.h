/* Generated programming tasks with hidden tests: what a small model can learn to solve by its
 * rewards, unlimited and reproducible from a seed.
 *
 * Reading order: ops.h (the words of specifications), ops_*.c (what each computes), spec.h
 * (specifications, and their values), draw.c, write.c (English and Python), tests.c, rows.c.
 *
 * A specification is a chain of steps over integers, lists of them or text. The statement, the
 * solution in Python and the results of the tests are three readings of it: results are computed here,
 * as Python would, and never by running the solution. */
#ifndef AX_DATA_CODING_CODING_H
#define AX_DATA_CODING_CODING_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { AX_CODING_LEVELS = 3 };

struct ax_coding_task;

/* Task `index` of a seed, with a level (the number of steps) in [min_level, max_level]. */
enum ax_status ax_coding_make(struct ax_coding_task **out, uint64_t seed, uint64_t index,
                              int min_level, int max_level);
void ax_coding_free(struct ax_coding_task *t); /* NULL is fine */

/* What the user is asked. */
const char *ax_coding_question(const struct ax_coding_task *t);
/* One specification in eight belongs to the test split, however it is worded and whatever things are
 * called in it. */
bool ax_coding_is_test(const struct ax_coding_task *t);
/* {"messages": [{user: question}, {assistant: solution}], "level": …, "entry_point": name,
 * "tests": [{"args": […], "result": …}, …]}, as the reward `code` reads it; free with json_decref. */
enum ax_status ax_coding_row(const struct ax_coding_task *t, json_t **out);

#endif
