/* Saves during training: a thread writes the checkpoint directly from live weights and optimizer
 * state, through a queue of its own, while the next step computes its gradients. The optimizer
 * waits with each unit until the writer has read it. If the disk is slower than a step, the rest of
 * the unit is copied instead: to host memory, as long as there is some; or, on a device with a host
 * tier, by the device itself, to a stage that is part of the plan. The host does not wait for that
 * copy: it precedes the update in the queue's order.
 *
 * One save at a time; start waits for the previous one. Only the training thread calls these
 * functions. */
#ifndef AX_CKPT_STATE_SAVER_H
#define AX_CKPT_STATE_SAVER_H

#include "base/threads.h"
#include "ckpt/state/checkpoint.h"
#include "kernels/stage.h"

/* A tensor of the folder, and this rank's parts of it: up to two. */
struct ax_save_weight {
    const char *name;
    int ndim;
    int64_t shape[AX_MAX_DIMS];
    int unit;
    enum ax_dtype dtype; /* target dtype of the file */
    int n_parts;
    struct ax_save_part {
        struct ax_tensor value; /* live; dense */
        struct ax_block block;
        struct ax_delta delta; /* constant */
    } parts[2];
};

/* Borrowed until the save is finished, except `run`, which the saver owns, and the paths, which it
 * copies. */
struct ax_save_job {
    const char *output_dir;
    int64_t step;
    struct ax_hf_save hf; /* dir, n, tensors, sums and team are ignored */
    bool state_only;      /* no model folder: hf and weights are ignored */
    int n_weights;        /* weights of all ranks: the same number on each */
    const struct ax_save_weight *weights;
    const struct ax_state_parts *parts; /* NULL: weights only */
    const struct ax_mesh *mesh;
    json_t *run;
    int64_t limit; /* checkpoints to keep after this one is verified; 0 = all */
    int n_keep;    /* number of steps in `keep`, whose checkpoints are never removed */
    int64_t keep[2];
};

struct ax_saver {
    struct ax_queue *training; /* borrowed; NULL: data is in the host's memory */
    /* reads the data while `training` computes; used by one thread at a time */
    struct ax_queue *q;
    struct ax_team *team; /* the ranks that write; borrowed while a save is active; or NULL */
    pthread_mutex_t mutex;
    pthread_cond_t read; /* a unit has been read, or the save has ended */
    struct ax_stage stage;
    int n_units;
    int *pending; /* [n_units] tensors of the unit that the writer has not read yet */
    bool busy;
    struct ax_worker worker;
    struct ax_saver_work *work;
    bool placed;   /* on rank 0: the last folder has its name, whatever failed then */
    double waited; /* total seconds the training thread spent in these functions */
};

enum ax_status ax_saver_create(struct ax_saver *s, struct ax_queue *training, struct ax_team *team,
                               int n_units);
/* Takes a stage for saves of these weights and parts from the device's host tier, at most `most`
 * bytes; the optimizer waits for data that does not fit. Does nothing without a host tier. Call it
 * while planning, too. */
#define AX_SAVER_STAGE ((size_t)1 << 30)
void ax_saver_create_stage(struct ax_saver *s, int n_weights, const struct ax_save_weight *weights,
                           const struct ax_state_parts *parts, size_t most);
/* Waits for an active save but drops its error: call ax_saver_finish first. Safe on a zeroed
 * one. */
void ax_saver_free(struct ax_saver *s);

/* Saves, together with all ranks of the team, the state after everything that has been enqueued on
 * `training`, for which it waits; returns before anything is written. Takes `job->run`, even on
 * error. */
enum ax_status ax_saver_start(struct ax_saver *s, const struct ax_save_job *job);
/* Returns when the unit may be modified. */
void ax_saver_before_update(struct ax_saver *s, int unit);
/* Waits until the active save is written and verified and old checkpoints are removed (a failed
 * removal is only a warning). AX_OK if there is none. */
enum ax_status ax_saver_finish(struct ax_saver *s);
/* True if the active save has ended, so that ax_saver_finish would not wait. */
bool ax_saver_is_due(struct ax_saver *s);

#endif
