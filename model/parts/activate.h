/* What an MLP, or an expert, does between its products: act(gate) ∘ up, or max(0, up)² (struct ax_arch). */
#ifndef AX_MODEL_PARTS_ACTIVATE_H
#define AX_MODEL_PARTS_ACTIVATE_H

#include "model/core/pass.h"

/* act [T][F] from gate_up, [gate | up] or up; of up alone without a range. */
enum ax_status ax_activate_forward(const struct ax_pass *p, const struct ax_tensor *gate_up,
                                   const struct ax_tensor *act, struct ax_range_of range);
/* gate_up: in, as in forward; out, its gradient, given dact. */
enum ax_status ax_activate_backward(const struct ax_pass *p, const struct ax_tensor *dact,
                                    const struct ax_tensor *gate_up, struct ax_range_of range);

#endif
