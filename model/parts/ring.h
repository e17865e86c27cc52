/* Ring attention (Liu et al. 2023): the other way to attend on ranks of cp, with the same split of the
 * sequence (model/core/batch.h) as context_parallel.h's gather.
 *
 * In hop h of cp − 1, each rank sends the keys and values of its runs to the rank h further on, while it
 * attends to those that it got in the hop before; hop 0 is its own. What the hops give is merged in
 * accumulation dtype (op attention_merge). In backward keys and values travel again, and their
 * gradients back to whose they are, behind the next hop's work. Every message is one run, straight
 * from its owner, so those that no query sees are not sent: half of the tail ones under a causal mask,
 * and whatever documents and windows leave out.
 *
 * Per rank there are two hops' keys and values (in backward also two hops' gradients, and those on their
 * way back), however many ranks share the sequence. */
#ifndef AX_MODEL_PARTS_RING_H
#define AX_MODEL_PARTS_RING_H

#include "model/core/pass.h"

/* a: as for ax_attend_forward, for this rank's rows; max_q, max_k and cu are set here. */
enum ax_status ax_ring_forward(struct ax_pass *p, const struct ax_attention *a);
enum ax_status ax_ring_backward(struct ax_pass *p, const struct ax_attention_backward *b);

#endif
