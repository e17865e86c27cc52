/* The optimizer's state of every parameter, in this rank's persistent memory, and the update of one
 * parameter with it. */
#ifndef AX_OPTIM_STATE_H
#define AX_OPTIM_STATE_H

#include "model/model.h"
#include "optim/optimizer.h"

/* Of one parameter: named, 1-D. Zero before the first update. Elements follow the parameter's own
 * order from `first` (of its local slice) on; *_scale has one per 8-bit block, *_row and *_col one
 * per row and column (ax_state_layout says which is which). */
struct ax_param_state {
    struct ax_piece piece; /* n = 0: nothing of it is here */
    int64_t first;
    int64_t at; /* of element `first`, in the segment's shard */
    int n;
    struct ax_state_slot slots[AX_MAX_STATE];
};

/* *out: [m->n_params], ax_free. AX_ERR_CONFIG where the optimizer needs whole matrices and the mesh
 * cuts them, and what ax_optimizer_check refuses. */
enum ax_status ax_param_states_create(struct ax_param_state **out, const struct ax_model *m,
                                      const struct ax_optimizer *optimizer,
                                      const struct ax_optimizer_options *o);

/* What a checkpoint holds of the masters and of this: live, ax_state_parts_free. */
enum ax_status ax_param_states_parts(const struct ax_model *m, const struct ax_param_state *states,
                                     struct ax_state_parts *out);

/* What the model computes with, from the masters that a checkpoint gave back: rounded again as the
 * update of `scalars` (seed and step) rounded it, or NULL: to nearest, as before any update. */
enum ax_status ax_param_round(const struct ax_model *m, int index,
                              const struct ax_param_state *state,
                              const struct ax_step_scalars *scalars);

/* Parameter `index` and its state; its gradient is zero then. */
enum ax_status ax_param_update(const struct ax_model *m, int index, struct ax_param_state *state,
                               const struct ax_optimizer *optimizer,
                               const struct ax_optimizer_options *o,
                               const struct ax_step_scalars *scalars);

#endif
