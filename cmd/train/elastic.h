/* Runs that go on without ranks that are lost (docs/launch.md). */
#ifndef AX_CMD_TRAIN_ELASTIC_H
#define AX_CMD_TRAIN_ELASTIC_H

#include "cmd/train/setup.h"
#include "parallel/job/notes.h"

/* With the key elastic: sets s->o.elastic, and tells the launcher which smaller jobs would have the same batch. If this
 * job's launcher does not start ranks again, a warning says so. */
enum ax_status ax_setup_elastic_read(struct ax_train_setup *s);

/* The meshes with fewer data ranks than `sizes` on which a step has as many rows, largest first: at most `most` in
 * `meshes`; returns how many. dp_replicate shrinks first. A step has `accumulation` micro-batches of each data rank,
 * which are set by `key` in units of `per`; a generation `batches`, 0: as many as a step. */
struct ax_elastic_batch {
    int accumulation;
    const char *key; /* gradient_accumulation_steps, or batch_size */
    int64_t per, batches;
};
int ax_elastic_meshes(const struct ax_mesh_sizes *sizes, const struct ax_elastic_batch *batch,
                      int most, struct ax_notes_mesh *meshes);

#endif
