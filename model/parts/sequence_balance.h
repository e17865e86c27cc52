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
#ifndef AX_MODEL_PARTS_SEQUENCE_BALANCE_H
#define AX_MODEL_PARTS_SEQUENCE_BALANCE_H

#include "model/parts/router.h"

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

/* In backward: slopes of a layer's rows in scratch, for router_backward; data NULL without the loss.
 * Collective over tp and cp. */
enum ax_status ax_sequence_balance(struct ax_pass *p, const struct ax_router_choice *c,
                                   struct ax_tensor *slopes);

#endif
