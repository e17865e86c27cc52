/* How parts of a checkpoint become this rank's parts. Private to checkpoint_load.c and its tests.
 *
 * 8-bit moments are read on a mesh that divides elements into other blocks: a block whose elements
 * come from one block is copied with its scale; else it is decoded, and encoded with the scale of
 * its largest element, as after an update. */
#ifndef AX_CKPT_STATE_CHECKPOINT_LOAD_H
#define AX_CKPT_STATE_CHECKPOINT_LOAD_H

#include "ckpt/state/state.h"

/* The codes of a shard or of this rank, and the scales of their blocks. */
struct ax_state_codes {
    const struct ax_state_part *codes, *scales;
    /* a shard's bytes: in the host's memory, possibly unaligned */
    const void *code_bytes, *scale_bytes;
};

/* AX_ERR_DATA if the number of scales is not the number of blocks. */
enum ax_status ax_state_codes_check(const struct ax_state_codes *c);
/* Fills `to` from n shards, which must have passed the check, 64 Ki elements at a time; *copied =
 * how many elements were found. */
enum ax_status ax_state_codes_copy(struct ax_queue *q, const struct ax_state_codes *to, size_t n,
                                   const struct ax_state_codes *from, int64_t *copied);

/* Copies the common elements of two parts of one tensor from `from` (whose data is `bytes`, in the
 * host's memory, possibly unaligned) to `to` through the queue; adds their number to *copied. Both
 * have the same shape and dtype. */
enum ax_status ax_state_part_copy(struct ax_queue *q, const struct ax_state_part *to,
                                  const struct ax_state_part *from, const void *bytes,
                                  int64_t *copied);

#endif
