/* Experts in a halved backward: the gradients of their matrices, products of rows alone, are left
 * for later (model/core/later.h). A round's rows are kept for all experts of this rank: x and dy of
 * gates and ups, and of downs. */
#ifndef AX_MODEL_PARTS_MOE_LATER_H
#define AX_MODEL_PARTS_MOE_LATER_H

#include "model/core/later.h"
#include "model/core/pass.h"

/* True if a layer's experts leave gradients for later in this pass. Not if rows travel, because
 * these products hide their way back. */
bool ax_moe_waits(const struct ax_layer *l, const struct ax_pass *p);
/* Takes memory for the copies. inputs: rows of gates and ups, for all experts here; act
 * [R][width]. */
struct ax_later_product ax_moe_put_off(const struct ax_layer *l, const struct ax_pass *p,
                                       const struct ax_expert_rows *inputs,
                                       const struct ax_tensor *act);
/* Copies a part's rows of d [R][D], the gradient of the outputs. */
enum ax_status ax_moe_keep_outputs(const struct ax_pass *p, const struct ax_later_product *late,
                                   const struct ax_expert_part *part, const struct ax_tensor *d);
/* Copies the rest once inputs->y is the gradient of gates and ups, and adds the product to the
 * list. */
enum ax_status ax_moe_keep(const struct ax_pass *p, struct ax_later_product *late,
                           const struct ax_expert_rows *inputs, const struct ax_tensor *act);

#endif
