/* `axtrain eval --task final-answer --best-of N --scorer DIR`: each problem is answered greedily and N
 * times at random; solved by the greedy answer, by the most frequent one, and by the one that the
 * scorer prefers. Private to cmd/eval/ and cmd/eval.c. */
#ifndef AX_CMD_EVAL_BEST_H
#define AX_CMD_EVAL_BEST_H

#include "base/text/json.h"
#include "optim/evaluate/score/best_of.h"

struct ax_eval;
struct ax_answer;

struct ax_eval_best {
    struct ax_best_of_args args;
    struct ax_best_of of;
    int64_t majority, best; /* problems that they solve */
};

/* Opens the scorer. */
enum ax_status ax_eval_best_open(struct ax_eval *e);
/* Scores the answers and counts. The model that gave them must be gone. */
enum ax_status ax_eval_best_run(struct ax_eval *e);
void ax_eval_best_close(struct ax_eval *e);

/* Results: of the entire run, as JSON (NULL: out of memory); added to a record; and as lines of
 * text. */
json_t *ax_eval_best_json(const struct ax_eval *e);
void ax_eval_best_add_row(const struct ax_eval *e, const struct ax_answer *a, json_t *row);
enum ax_status ax_eval_best_put(const struct ax_eval *e, struct ax_buf *out);

#endif
