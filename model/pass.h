/* Runs a micro-batch's pass through the model, unit by unit. The residual stream and the tensors
 * saved for backward live on the micro-batch's slot; everything else is scratch, which is released
 * when the unit ends. */
#ifndef AX_MODEL_PASS_H
#define AX_MODEL_PASS_H

#include "model/core/pass.h"
#include "model/model.h"

enum ax_status ax_slot_create(struct ax_slot *s, const struct ax_model *m, struct ax_stack *stack);
/* The n slots of training, each on its own stack of the arena. away_rows > 0: residuals of up to
 * away_rows rows go to the host tier. */
enum ax_status ax_slots_create(struct ax_slot *slots, int n, const struct ax_model *m,
                               int64_t away_rows);
void ax_slot_free(struct ax_slot *s);

/* Begin and end the use of the micro-batch's slot. */
enum ax_status ax_pass_begin(struct ax_pass *p);
void ax_pass_end(struct ax_pass *p);
/* The unit must be gathered. Order: forward 0 … n−1, then backward n−1 … 0. */
enum ax_status ax_pass_forward(struct ax_pass *p, int unit);
enum ax_status ax_pass_backward(struct ax_pass *p, int unit);
/* The other half of a halved backward, for the units in the same order; they need not be
 * gathered. */
enum ax_status ax_pass_weights(struct ax_pass *p, int unit);
/* Forward through all units, gathered one at a time: evaluation and decoding. With a pipeline, through those of
 * each stage in turn; one of them has the head. */
enum ax_status ax_pass_forward_all(struct ax_pass *p);
bool ax_model_has_head(const struct ax_model *m);

#endif
