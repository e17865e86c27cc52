/* The number of steps of a run, and when to evaluate, save and log. */
#ifndef AX_OPTIM_TRAIN_SCHEDULE_H
#define AX_OPTIM_TRAIN_SCHEDULE_H

#include "optim/train/sequences.h"

struct ax_train_schedule {
    int64_t total;
    struct ax_lr_schedule lr;
    int64_t eval_every, save_every; /* in steps; 0: not by steps */
    int64_t logging_steps;
    const char *limit; /* the key that determines total */
    double of_epoch;   /* steps per epoch, at most total */
    int64_t unit;      /* an epoch's sequences are used in multiples of this; the rest is dropped */
    bool keeps_short;  /* but for an epoch of fewer */
    bool countable;    /* as in the data */
    int64_t n_epochs;  /* number of epochs counted */
    int64_t *sequences; /* [n_epochs] per epoch */
    double doc_tokens;  /* per document on average; 0 = unknown */
};
enum ax_status ax_train_schedule_make(struct ax_train_schedule *s, const struct ax_train_options *o,
                                      int data_ranks);
/* How many of an epoch's sequences are used. */
int64_t ax_train_schedule_used(const struct ax_train_schedule *s, int64_t sequences);
/* Notes for reward functions how far the run is when a rollout's next generation is drawn, which is first trained on after
 * `step` steps; also of a schedule that is not made. */
enum ax_status ax_train_schedule_progress(struct ax_train_schedule *s,
                                          const struct ax_train_data *d, int64_t step,
                                          struct ax_rollout *r);
/* Warns of what begins only after the last step. */
void ax_train_schedule_warn(const struct ax_train_schedule *s, const struct ax_train_options *o);
void ax_train_schedule_free(struct ax_train_schedule *s);
/* *epochs done after this step, and whether the step is the *last of its epoch. Counts the epoch if
 * it has not been counted. */
enum ax_status ax_train_epoch_after(struct ax_train_schedule *s, const struct ax_train_sequences *r,
                                    const struct ax_train_data *d, double *epochs, bool *last);

#endif
