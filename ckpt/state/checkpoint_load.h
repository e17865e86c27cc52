/* Reads 8-bit moments on a mesh that divides elements into other blocks: a block whose elements
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

#endif
