/* Building blocks of generated problems and programming tasks: numbers drawn one after the other,
 * texts with slots, and the tables of word problems. Private to data/records/problems/. */
#ifndef AX_DATA_RECORDS_PROBLEMS_TEXT_H
#define AX_DATA_RECORDS_PROBLEMS_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

struct ax_problem_draw {
    struct ax_rng_key key;
    uint64_t next;
};
static inline struct ax_problem_draw ax_problem_draw(uint64_t seed, uint64_t index) {
    return (struct ax_problem_draw){.key = {seed, (uint32_t)(index >> 32), (uint32_t)index}};
}
static inline int64_t ax_problem_below(struct ax_problem_draw *d, int64_t n) {
    return (int64_t)ax_rng_below(d->key, d->next++, (uint64_t)n);
}

/* A text of bounded size, NUL-terminated: what the tables make of any problem fits. */
struct ax_problem_text {
    char s[768];
    size_t n;
};
void ax_problem_put(struct ax_problem_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends n bytes of a pattern. {name} stands for a word: words[] are names, each followed by its
 * text; a name that is not among them is a lower-case letter, of one of 26 values. */
void ax_problem_fill(struct ax_problem_text *out, const char *pattern, size_t n,
                     const char *const *words, size_t n_words, const int64_t *values);

/* `numbers`: one-letter variables in order, "a:2-9" drawn from a range (ends may be variables),
 * "d=a*b" computed (+ - * /; operands are variables or numbers). Draws repeat until every number is
 * positive and every division exact.
 *
 * In texts {a} is a variable, {P} and {Q} two people, {he} {his} {him} {He} of {P}, {things} and
 * {thing} the subject, {box} and {boxes} its container, {day} a weekday. `steps` has a line with one
 * equation, {a*b=d}, for each step; the answer is the result of the last. */
struct ax_problem_story {
    int level; /* the table is sorted by it */
    const char *numbers, *question, *steps;
};
extern const struct ax_problem_story ax_problem_stories[];
extern const int ax_problem_n_stories;

#endif
