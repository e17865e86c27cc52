/* A checkpoint's data for each parameter besides the model folder's weights: masters and optimizer
 * state, in parts that this rank owns and other meshes can reassemble.
 *
 * A part is elements [first, first + n), in row-major order, of the block `start … start + size` of
 * the global tensor: of a tensor-parallel or expert slice, the run in this rank's shard.
 *
 * Reading order: state.c (parts), checkpoint.c (the manifest, writing), checkpoint_load.c
 * (also of other meshes), checkpoint_list.c (which to keep), saver.c (the thread that writes during
 * training). */
#ifndef AX_CKPT_STATE_STATE_H
#define AX_CKPT_STATE_STATE_H

#include "ckpt/tensors/block.h"
#include "parallel/units/unit.h"

#define AX_SLOT_NAME 32

/* How the numbers of an optimizer slot map to a parameter's elements. */
enum ax_state_layout {
    AX_STATE_ELEMENTS, /* one per element */
    /* a signed code per element (kernels/quant/dynamic_map.h), whose block has a factor in slot
     * NAME_scale */
    AX_STATE_SIGNED_CODES,
    AX_STATE_UNSIGNED_CODES, /* the same with unsigned codes */
    AX_STATE_BLOCKS,         /* one per AX_8BIT_BLOCK elements of the segment */
    AX_STATE_WHOLE           /* one set for the full parameter, which is on one rank */
};

struct ax_state_part {
    const char *name; /* HF name of the parameter, borrowed */
    const char *slot; /* "master", "master_remainder", the optimizer's name for it ("exp_avg"), or
                         "base": frozen weights that restarts change; borrowed */
    enum ax_dtype dtype;
    int ndim;
    int64_t shape[AX_MAX_DIMS];                    /* shape of the full tensor */
    int64_t start[AX_MAX_DIMS], size[AX_MAX_DIMS]; /* the block */
    int64_t first, n;                              /* elements of the block that this rank has */
    void AX_DEVICE *data;                          /* [n], live memory */
    int unit;
    enum ax_state_layout layout; /* AX_STATE_ELEMENTS, unless it is an optimizer's slot */
    /* another rank has the same elements and saves them; this one only loads them */
    bool elsewhere;
    bool copied; /* so has another rank of the same dp_replicate copy of the weights */
};

/* Sorts by tensor: name, then slot. 0: two parts of one tensor. */
int ax_state_part_compare(const struct ax_state_part *x, const struct ax_state_part *y);
/* Where the part's elements are in its tensor. */
struct ax_block ax_state_part_block(const struct ax_state_part *part);

struct ax_state_parts {
    int n;
    struct ax_state_part *list; /* in unit order */
    struct ax_queue *q;         /* reads and writes the data; NULL: data is in the host's memory */
};

/* A slot of one parameter, for this rank's piece: 1-D. */
struct ax_state_slot {
    const char *name; /* borrowed */
    enum ax_state_layout layout;
    struct ax_tensor value;
};

/* Capacity for this many parameters with at most `max_slots` each. */
enum ax_status ax_state_parts_create(struct ax_state_parts *out, int n_params, int max_slots);
/* Adds this rank's parts of a parameter, or none if it has no trainable element here: the master
 * (or the weight, if it is its own master), the 16-bit remainder, and the slots.
 *
 * * Slots of blocks have shape [slices][AX_8BIT_BLOCK][blocks]: by tensor- or expert-parallel slice,
 * and by the slice's offset in a block. Two such slots can be copied only if both indices and the
 * slices match; otherwise see checkpoint_load.h. */
void ax_state_parts_add(struct ax_state_parts *out, const struct ax_mesh *mesh,
                        const struct ax_unit *unit, const struct ax_param *p, int n_slots,
                        const struct ax_state_slot *slots);
/* Adds this rank's part of a frozen parameter's weights; `as_unit` is the part's unit. */
void ax_state_parts_add_frozen(struct ax_state_parts *out, const struct ax_mesh *mesh,
                               const struct ax_unit *unit, const struct ax_param *p,
                               const char *slot, int as_unit);
/* The part of a parameter's value that this rank saves: of the master (or of the weight, if that is
 * its own master), or of the weights in compute dtype. 1-D, live; *block says where it belongs.
 * False if there is none, or another rank saves it. */
bool ax_state_value(const struct ax_mesh *mesh, const struct ax_unit *unit,
                    const struct ax_param *p, bool master, struct ax_tensor *value,
                    struct ax_block *block);
void ax_state_parts_free(struct ax_state_parts *p);
uint64_t ax_state_parts_bytes(const struct ax_state_parts *p);

#endif
