/* Tasks at evaluations during training: a program that has them asks for scores and answers of texts, and the model gives
 * them as it is in memory. It runs in the arena's rollout phase, whose size is part of the plan; so training is bit-identical
 * with and without tasks. */
#ifndef AX_OPTIM_EVALUATE_TASKS_H
#define AX_OPTIM_EVALUATE_TASKS_H

#include "model/text/text_requests.h"
#include "optim/losses/figures.h"
#include "parallel/fabric/team.h"

struct ax_tasks {
    int lanes;          /* sequences at a time; 0: there are no tasks */
    int64_t max_length; /* tokens of the longest text, with its answer */
    struct ax_stop_tokens stop;
    uint64_t seed; /* for sampling */
    /* Has the tasks evaluated by calls of ax_tasks_answer, alike on all ranks; rank 0 adds its figures. *stopped: the run
     * is to end, and there are none. */
    enum ax_status (*run)(void *ctx, struct ax_model *m, struct ax_team *team,
                          struct ax_figures *out, bool *stopped);
    void *ctx;
};

/* The positions that the model needs; 0 without tasks. */
static inline int64_t ax_tasks_positions(const struct ax_tasks *t) {
    return t->lanes > 0 ? t->max_length + 1 : 0;
}
/* While planning: what any list of requests needs. */
enum ax_status ax_tasks_plan(const struct ax_tasks *t, struct ax_model *m);
/* Fills in the requests. Scratch and slots must be empty. AX_INTERRUPTED if a rank is asked to stop meanwhile. */
enum ax_status ax_tasks_answer(const struct ax_tasks *t, struct ax_model *m, struct ax_team *team,
                               struct ax_text_requests *r);

#endif
