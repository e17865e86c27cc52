/* Ranks that wait for each other while some of them run programs: a request to stop ends what some of them run on
 * all. Of the ranks with the same sequences, one runs it. */
#ifndef AX_MODEL_TEXT_TOGETHER_H
#define AX_MODEL_TEXT_TOGETHER_H

#include "data/reward/rewards.h"
#include "parallel/runtime.h"

struct ax_together {
    struct ax_runtime *rt;
    bool (*stop_now)(void *ctx); /* was this rank asked to stop? NULL: never */
    void *ctx;
};

/* Does this rank run it? */
bool ax_together_runs(const struct ax_mesh *m);
/* Asked while this rank waits; borrows t. */
struct ax_reward_watch ax_together_watch(struct ax_together *t);
/* Waits until no rank does. AX_INTERRUPTED, on all ranks: one of them was asked to stop; ax_together_note_stop
 * makes *stopped of it. */
enum ax_status ax_together_settle(struct ax_together *t);
enum ax_status ax_together_note_stop(enum ax_status st, bool *stopped);

#endif
