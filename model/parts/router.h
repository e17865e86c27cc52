/* The router of a mixture of experts: to which experts a token goes, their weights, and the
 * gradient of both; losses that balance the experts. */
#ifndef AX_MODEL_PARTS_ROUTER_H
#define AX_MODEL_PARTS_ROUTER_H

#include "model/core/pass.h"

struct ax_builder;

void ax_router_init(struct ax_builder *b, struct ax_layer *l);
/* The router's decision on h [T][D]: sets probs [T][E], weights and experts [T][k]; and unscaled [T][k], the weights
 * before they are multiplied by the factors of their experts, if these have some. */
struct ax_router_choice {
    struct ax_tensor probs, weights, experts, unscaled;
};
enum ax_status ax_router_choose(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *h, const struct ax_router_choice *c);
/* dh += the gradient through the weights, given dweights [T][k], and that of the balancing loss; dW
 * likewise. */
enum ax_status ax_router_gradient(const struct ax_layer *l, struct ax_pass *p,
                                  const struct ax_router_choice *c,
                                  const struct ax_tensor *dweights, const struct ax_tensor *h,
                                  const struct ax_tensor *dh);

/* ---- losses that balance experts ---- */

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

/* Starts a micro-batch: allocates its counts from the slot and zeroes them. */
enum ax_status ax_balance_begin(struct ax_pass *p);

/* The routers' balancing loss by sequence (DeepSeek-V2 §2.2.3, DeepSeek-V3 eq. 17–20: seq_aux): for
 * each document d of n tokens, and each layer with a router to k of E experts,
 *
 *   L_d = Σ_e f_e·P_e,   f_e = E/(k·n)·(tokens of d that chose e),   P_e = 1/n·Σ_t p'[t][e]
 *
 * where p' is p, or, of sigmoid routers, p/Σ_e p. f has no gradient. A step's loss is the sum
 * over layers of the mean over its documents, whatever micro-batches and data ranks have them and
 * however many of their tokens are trained on. The objective is loss + coef·it; DeepSeek calls coef
 * aux_loss_alpha (0.001, 0.0001). Packing changes nothing, because documents are counted and not
 * rows; layers are independent, so stages of a pipeline are no obstacle. */

/* Rows of packed documents: inputs and outputs. */
struct ax_sequence_rows {
    struct ax_tensor probs, experts; /* accumulation [T][E]; i32 [T][k], −1 = padding */
    struct ax_tensor cu;     /* i32 [≥ n_docs + 1]: document d is tokens [cu[d], cu[d+1]) */
    struct ax_tensor order;  /* i32: token of row first + t; data NULL: first + t itself */
    struct ax_tensor counts; /* F64 [≥ n_docs][E]: tokens of each document for each expert */
    struct ax_tensor slopes; /* accumulation [T][E] */
    int64_t first, n_docs;
    bool sigmoid;
    double coef; /* a document's share is 1/scalars->documents */
    struct ax_step_scalars AX_DEVICE *scalars;
};
/* counts = the tokens of these rows for each expert. */
enum ax_status ax_sequence_count(struct ax_queue *q, const struct ax_sequence_rows *r);
/* slopes = d(coef·loss)/dp, given the counts of entire documents; adds these rows' part of the loss to
 * scalars->sequence_loss. */
enum ax_status ax_sequence_slopes(struct ax_queue *q, const struct ax_sequence_rows *r);

#endif
