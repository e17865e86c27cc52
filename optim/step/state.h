/* Every parameter's optimizer state, in this rank's persistent memory or its device's host tier, and
 * the update of one parameter. */
#ifndef AX_OPTIM_STEP_STATE_H
#define AX_OPTIM_STEP_STATE_H

#include "model/model.h"
#include "optim/optimizers/optimizer.h"
#include "parallel/units/unit.h"

/* Optimizer state and masters in the device's host tier: an update brings them in pieces into two
 * alternating buffers and takes them back, so that one piece is copied while another is computed. */
struct ax_state_stream {
    bool full; /* an update needs a full parameter: Muon, Adafactor */
    size_t bytes;
    void AX_DEVICE *buffer[2];
    uint64_t moved[2]; /* ticket of the last copy of each */
    int next;
};

/* What is enqueued from here on finds the states in the host tier. */
enum ax_status ax_state_stream_end(const struct ax_state_stream *s, struct ax_queue *q);

/* State of one parameter: named, 1-D. Zero before the first update. Elements are in the parameter's
 * order, starting at `first` of its local slice; *_scale has one per 8-bit block, *_row and *_col
 * one per row and column (ax_state_layout says which is which). */
struct ax_param_state {
    struct ax_state_stream *stream; /* NULL: the state is in the device's memory */
    struct ax_piece piece;          /* n = 0: not stored here */
    int64_t first;
    int64_t at; /* position of element `first` in the segment's shard */
    int n;
    struct ax_state_slot slots[AX_MAX_STATE];
};

/* *out: [m->n_params], ax_free. AX_ERR_CONFIG if the optimizer needs unsharded matrices but the
 * mesh shards them, or if ax_optimizer_check fails. With a stream, which must outlive the states,
 * they are in the host tier. */
enum ax_status ax_param_states_create(struct ax_param_state **out, const struct ax_model *m,
                                      const struct ax_optimizer *optimizer,
                                      const struct ax_optimizer_options *o,
                                      struct ax_state_stream *stream);

/* The parts of masters and optimizer state in a checkpoint: live views; free with
 * ax_state_parts_free. */
enum ax_status ax_param_states_parts(const struct ax_model *m, const struct ax_param_state *states,
                                     struct ax_state_parts *out);

/* Recomputes the compute copy from masters loaded from a checkpoint: rounded as the update of
 * `scalars` (seed and step) rounded it, or, if NULL, to nearest, as before any update. */
enum ax_status ax_param_round(const struct ax_model *m, int index,
                              const struct ax_param_state *state,
                              const struct ax_step_scalars AX_DEVICE *scalars);

/* Updates parameter `index` and its state. */
enum ax_status ax_param_update(const struct ax_model *m, int index, struct ax_param_state *state,
                               const struct ax_optimizer *optimizer,
                               const struct ax_optimizer_options *o,
                               const struct ax_step_scalars AX_DEVICE *scalars);

#endif
