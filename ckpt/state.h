/* What a checkpoint holds of each parameter besides the weights of the model folder: masters and
 * optimizer state, in parts that this rank owns and that any other mesh can put together again.
 *
 * A part is elements [first, first + n), in row-major order, of the block `start … start + size` of
 * the global tensor: a tensor-parallel or expert slice, and of it the run in this rank's shard. */
#ifndef AX_CKPT_STATE_H
#define AX_CKPT_STATE_H

#include "parallel/unit.h"

#define AX_SLOT_NAME 32

struct ax_state_part {
    const char *name; /* HF name of the parameter, borrowed */
    const char *slot; /* "master", or the optimizer's name for it ("exp_avg"), borrowed */
    enum ax_dtype dtype;
    int ndim;
    int64_t shape[AX_MAX_DIMS];                    /* of the whole tensor */
    int64_t start[AX_MAX_DIMS], size[AX_MAX_DIMS]; /* the block */
    int64_t first, n;                              /* elements of the block that are here */
    void *data;                                    /* [n], live memory of the unit */
    int unit;
};

struct ax_state_parts {
    int n;
    struct ax_state_part *list; /* in the order of units */
};

/* The parts of this rank: of every trainable parameter the master (or the weight itself, where it
 * is its own master) and each slot of optimizer state. */
enum ax_status ax_state_parts_make(struct ax_state_parts *out, const struct ax_mesh *mesh,
                                   const struct ax_unit *units, int n_params,
                                   const struct ax_param *params);
void ax_state_parts_free(struct ax_state_parts *p);
uint64_t ax_state_parts_bytes(const struct ax_state_parts *p);

/* Copies what two parts of one tensor have in common from `from` (whose data is `bytes`, possibly
 * unaligned) to `to`; returns how many elements. Both have the same shape and dtype. */
int64_t ax_state_part_copy(const struct ax_state_part *to, const struct ax_state_part *from,
                           const void *bytes);

#endif
