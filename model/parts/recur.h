/* The delta rule and Mamba-2's recurrence (kernels/delta_ops.h) over a batch's rows, for the mixers that are one of
 * them. A document begins with a state: zeros, the one in the cache, or, with cp, the one that the rank of the run
 * before hands on. */
#ifndef AX_MODEL_PARTS_RECUR_H
#define AX_MODEL_PARTS_RECUR_H

#include "model/core/pass.h"

/* Declares s, with cp the states with which this rank's runs began, [2][Hv·dk·dv]. */
void ax_recur_declare(const struct ax_pass *p, struct ax_saved *s, int64_t state_elements);

/* a: all of the rule's operands but documents and states; entered is what ax_recur_declare declared. */
enum ax_status ax_recur_forward(const struct ax_pass *p, const struct ax_layer *l,
                                const struct ax_delta_rule *a, const struct ax_saved *entered);
/* b: the same, with gradients of rows but not of states. */
enum ax_status ax_recur_backward(const struct ax_pass *p, const struct ax_delta_backward *b,
                                 const struct ax_saved *entered);

#endif
