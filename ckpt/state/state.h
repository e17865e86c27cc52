/* What a checkpoint holds of each parameter besides the weights of the model folder: masters and
 * optimizer state, in parts that this rank owns and that other meshes can put together again.
 *
 * A part is elements [first, first + n), in row-major order, of the block `start … start + size` of
 * the global tensor: a tensor-parallel or expert slice, and of it the run in this rank's shard.
 *
 * Reading order: state.c (parts), manifest.c, checkpoint.c (writing), checkpoint_load.c,
 * checkpoint_list.c (which to keep), saver.c (the thread that writes while training continues). */
#ifndef AX_CKPT_STATE_STATE_H
#define AX_CKPT_STATE_STATE_H

#include "parallel/unit.h"

#define AX_SLOT_NAME 32

struct ax_state_part {
    const char *name; /* HF name of the parameter, borrowed */
    const char *slot; /* "master", "master_remainder", or the optimizer's name for it ("exp_avg"),
                         borrowed */
    enum ax_dtype dtype;
    int ndim;
    int64_t shape[AX_MAX_DIMS];                    /* of the whole tensor */
    int64_t start[AX_MAX_DIMS], size[AX_MAX_DIMS]; /* the block */
    int64_t first, n;                              /* elements of the block that are here */
    void *data;                                    /* [n], live memory */
    int unit;
};

struct ax_state_parts {
    int n;
    struct ax_state_part *list; /* in the order of units */
};

/* How the numbers of a slot of optimizer state belong to a parameter's elements. */
enum ax_state_layout {
    AX_STATE_ELEMENTS, /* one each */
    AX_STATE_BLOCKS,   /* one for each AX_8BIT_BLOCK elements of the segment */
    AX_STATE_WHOLE     /* of the whole parameter, which no other rank has a piece of */
};

/* A slot of one parameter, of the piece of it that is here: 1-D. */
struct ax_state_slot {
    const char *name; /* borrowed */
    enum ax_state_layout layout;
    struct ax_tensor value;
};

/* Room for this many parameters with at most `max_slots` each. */
enum ax_status ax_state_parts_create(struct ax_state_parts *out, int n_params, int max_slots);
/* Adds this rank's parts of a parameter, none where nothing of it trains here: the master (or the
 * weight itself, where it is its own master), what is missing of it in 16 bits, and the slots.
 *
 * Slots of blocks are of shape [slices][AX_8BIT_BLOCK][blocks]: by tensor- or expert-parallel
 * slice, and by where in a block the slice begins. Both have to be the same for the numbers to mean
 * the same; a mesh where they are not finds nothing there. */
void ax_state_parts_add(struct ax_state_parts *out, const struct ax_mesh *mesh,
                        const struct ax_unit *unit, const struct ax_param *p, int n_slots,
                        const struct ax_state_slot *slots);
void ax_state_parts_free(struct ax_state_parts *p);
uint64_t ax_state_parts_bytes(const struct ax_state_parts *p);

/* Copies what two parts of one tensor have in common from `from` (whose data is `bytes`, possibly
 * unaligned) to `to`; returns how many elements. Both have the same shape and dtype. */
int64_t ax_state_part_copy(const struct ax_state_part *to, const struct ax_state_part *from,
                           const void *bytes);

#endif
