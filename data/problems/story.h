/* A problem before it is text: a template with words and numbers. Private to data/problems/. */
#ifndef AX_DATA_PROBLEMS_STORY_H
#define AX_DATA_PROBLEMS_STORY_H

#include "base/rng.h"
#include "data/problems/problems.h"
#include "data/problems/problems_tables.h"

/* Random numbers one after the other. */
struct ax_problem_draw {
    struct ax_rng_key key;
    uint64_t next;
};
int64_t ax_problem_below(struct ax_problem_draw *d, uint64_t n);

struct ax_problem_numbers {
    int64_t value[26]; /* of the variables a … z */
};
/* a op b; false if the result is not a positive integer. */
bool ax_problem_compute(int64_t a, char op, int64_t b, int64_t *out);

struct ax_problem_story {
    const struct ax_problem_template *template;
    struct ax_problem_numbers numbers;
    const struct ax_problem_person *who, *other;
    const struct ax_problem_noun *thing, *box;
    const char *day;
};
void ax_problem_draw_story(struct ax_problem_story *s, uint64_t seed, uint64_t index, int min_level,
                           int max_level);
/* Appends text (n bytes) of a template with its slots filled. */
enum ax_status ax_problem_fill(struct ax_buf *out, const struct ax_problem_story *s,
                               const char *text, size_t n);
/* Question and steps; the answer is not set. Free *out also after an error. */
enum ax_status ax_problem_write(struct ax_problem *out, const struct ax_problem_story *s);

#endif
