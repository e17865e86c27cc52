/* Saving behind the training: a thread writes the checkpoint straight from live weights and
 * optimizer state while the next step computes its gradients; before the optimizer changes a unit
 * it waits until the writer has read it. Where the disk is slower than a step, what is left of the
 * unit is copied aside instead, as long as there is memory for that.
 *
 * One save at a time; start waits for the one before. Only the training thread calls these. */
#ifndef AX_CKPT_STATE_SAVER_H
#define AX_CKPT_STATE_SAVER_H

#include "base/threads.h"
#include "ckpt/state/checkpoint.h"

/* A tensor of the folder. */
struct ax_save_weight {
    const char *name;
    int ndim;
    int64_t shape[AX_MAX_DIMS];
    struct ax_tensor value;  /* live; dense */
    struct ax_concat concat; /* `shape` is then of both; the other one never changes */
    int unit;
    enum ax_dtype dtype; /* what it is converted to as it is written */
};

/* Everything here is borrowed until the save is finished, but `run`, which the saver takes over,
 * and the paths, which it copies. */
struct ax_save_job {
    const char *output_dir;
    int64_t step;
    struct ax_hf_save hf; /* dir, n, tensors, sums are not used */
    int n_weights;
    const struct ax_save_weight *weights;
    const struct ax_state_parts *parts; /* NULL: weights only */
    const struct ax_mesh *mesh;
    json_t *run;
    int64_t limit; /* checkpoints to keep once this one is verified; 0 = all */
    int n_keep;    /* of which never to remove: */
    int64_t keep[2];
};

struct ax_saver {
    pthread_mutex_t mutex;
    pthread_cond_t read; /* a unit has been read, or the save ended */
    int n_units;
    int *pending; /* [n_units] tensors of the unit that the writer has still to read */
    bool busy;
    struct ax_worker worker;
    struct ax_saver_work *work;
    double waited; /* seconds the training thread spent in these functions, in all */
};

enum ax_status ax_saver_create(struct ax_saver *s, int n_units);
/* Waits for a save in flight; its error is lost, so finish first. Safe on a zeroed one. */
void ax_saver_free(struct ax_saver *s);

/* The run goes on before anything is written. `job->run` is gone in any case. */
enum ax_status ax_saver_start(struct ax_saver *s, const struct ax_save_job *job);
/* Returns when the unit may be changed. */
void ax_saver_before_update(struct ax_saver *s, int unit);
/* Waits until the save in flight is on the disk and verified, and old ones are gone (one that
 * cannot be removed is only warned of); AX_OK without one. */
enum ax_status ax_saver_finish(struct ax_saver *s);
/* The save in flight has ended and finish would not wait. */
bool ax_saver_is_due(struct ax_saver *s);

#endif
