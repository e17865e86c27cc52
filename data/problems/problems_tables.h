/* Building blocks of problems. Private to data/problems/. */
#ifndef AX_DATA_PROBLEMS_PROBLEMS_TABLES_H
#define AX_DATA_PROBLEMS_PROBLEMS_TABLES_H

#include <stddef.h>

/* `numbers`: one-letter variables in order, "a:2-9" drawn from a range (ends may be variables),
 * "d=a*b" computed (+ - * /; operands are variables or numbers). Draws repeat until every number is
 * positive and every division exact. The answer is the result of the last step's "=".
 *
 * In texts {a} is a variable, {P} and {Q} two people, {he} {his} {him} {He} of {P}, {things} and
 * {thing} the subject, {box} and {boxes} its container, {day} a weekday. `steps`: one per line. */
struct ax_problem_template {
    int level;
    const char *numbers, *question, *steps;
};
extern const struct ax_problem_template ax_problem_templates[];
extern const size_t ax_n_problem_templates;

struct ax_problem_person {
    const char *name;
    int she;
};
extern const struct ax_problem_person ax_problem_people[];
extern const size_t ax_n_problem_people;

struct ax_problem_noun {
    const char *one, *many;
};
extern const struct ax_problem_noun ax_problem_things[], ax_problem_boxes[];
extern const size_t ax_n_problem_things, ax_n_problem_boxes;

extern const char *const ax_problem_days[7];

#endif
