/* The routers' load balancing loss (Switch Transformer, Fedus et al. 2021), as transformers
 * computes it: over the tokens of all layers together, without padding, aux = E·Σ_e f_e·P_e,  f_e
 * = choices of e per token,  P_e = mean probability of e.
 *
 * Every micro-batch has its own f and P, over all its tokens: the sums include the rows on other ranks
 * of cp and tp before backward. A step's aux loss is the mean over micro-batches and data
 * ranks, each weighted as in the main loss (its Σ weight / the step's Σ weight), so that a
 * micro-batch without labels counts nothing and one micro-batch gives transformers' figure. The
 * objective is loss + coef·aux; transformers calls coef router_aux_loss_coef. Under a pipeline f
 * would need the layers of other stages: refused (optim/step.c). */
#ifndef AX_MODEL_BALANCE_H
#define AX_MODEL_BALANCE_H

#include "model/pass.h"

/* The micro-batch starts: its counts take memory of the slot and are zero. */
enum ax_status ax_balance_begin(struct ax_pass *p);
/* accum [2][E] for router_forward to add to; data NULL without a balancing loss. */
struct ax_tensor ax_balance_load(const struct ax_pass *p);
/* accum [E]: the gradient for every token's probabilities (op router_balance), data NULL = none.
 * The first layer of backward that asks has it made: all layers' forward is then done. */
enum ax_status ax_balance_slope(struct ax_pass *p, struct ax_tensor *slope);

#endif
