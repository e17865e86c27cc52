/* The routers' load balancing loss (Switch Transformer, Fedus et al. 2021), as in transformers:
 * over the tokens of all layers together, without padding, aux = E·Σ_e f_e·P_e, f_e = choices of e
 * per token, P_e = mean probability of e.
 *
 * Each micro-batch has its own f and P over all its tokens: before backward, the sums are reduced
 * over cp and tp. A step's aux loss is the mean over micro-batches and data ranks, each weighted as
 * in the main loss (its Σ weight / the step's Σ weight, or pairs or documents), so a micro-batch without labels counts
 * nothing and a single micro-batch matches transformers. The objective is loss + coef·aux;
 * transformers calls coef router_aux_loss_coef. With pipeline stages, f would need layers of other
 * stages: rejected (optim/step/step.c). */
#ifndef AX_MODEL_PARTS_BALANCE_H
#define AX_MODEL_PARTS_BALANCE_H

#include "model/core/pass.h"

/* Starts a micro-batch: allocates its counts from the slot and zeroes them. */
enum ax_status ax_balance_begin(struct ax_pass *p);
/* Accumulation dtype [2][E], for router_forward to add to; data NULL without a balancing loss. */
struct ax_tensor ax_balance_load(const struct ax_pass *p);
/* Accumulation dtype [E]: the gradient for every token's probabilities (op router_balance), data
 * NULL = none. Computed on the first call in backward, when all layers' forward is done. */
enum ax_status ax_balance_slope(struct ax_pass *p, struct ax_tensor *slope);

#endif
