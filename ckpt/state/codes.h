/* Moments in 8 bits, read by a mesh whose blocks of codes are others: a block whose elements come from
 * one block is copied with its scale; else it is decoded, and encoded with the scale of its largest
 * element, as after an update. */
#ifndef AX_CKPT_STATE_CODES_H
#define AX_CKPT_STATE_CODES_H

#include "ckpt/state/state.h"

/* Codes and the scales of their blocks: of a shard, or of this rank. */
struct ax_state_codes {
    const struct ax_state_part *codes, *scales;
    const void *code_bytes, *scale_bytes; /* of a shard: in the host's memory, possibly unaligned */
};

/* AX_ERR_DATA if there are not as many scales as the codes have blocks. */
enum ax_status ax_state_codes_check(const struct ax_state_codes *c);
/* Fills `to` from the n shards, 64 Ki elements at a time; *copied: elements that were found. All have
 * passed the check. */
enum ax_status ax_state_codes_copy(struct ax_queue *q, const struct ax_state_codes *to, size_t n,
                                   const struct ax_state_codes *from, int64_t *copied);

#endif
