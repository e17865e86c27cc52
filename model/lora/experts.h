/* Adapters of a layer's experts: lora_target_parameters, as PEFT adapts stacked weights.
 *
 *   y_e = x_e·W_eᵀ + s·(x_e·A_eᵀ)·B_eᵀ    W = mlp.experts.gate_up_proj or .down_proj [E][out][in]
 *
 * One A [E·r][in], in expert order, and one B [out][r·E], whose column j·E + e is column j of B_e.
 * PEFT nests: if both weights of a layer have an adapter, the first one's tensors are below
 * experts.base_layer.
 *
 * Every rank of an ep group has all of A and B and uses the part of its own experts; the rest of
 * its gradient is zero, so the sum over ranks is the full gradient. */
#ifndef AX_MODEL_LORA_EXPERTS_H
#define AX_MODEL_LORA_EXPERTS_H

#include "model/lora/adapter.h"
#include "parallel/units/expert.h"

struct ax_expert_adapter {
    struct ax_runtime *rt;
    const struct ax_adapter_run *run;
    const struct ax_unit *unit;
    const struct ax_param *a, *b; /* NULL: none */
    int64_t n_experts, r;
    int64_t first, n_local; /* experts [first, first + n_local) are here */
    double scale;
};

/* Rows sorted by expert: x [R][in], y [R][out]; offsets (i32 [part.n+1]) say where each expert of
 * the part has its rows, and mirror has what the host knows of them. */
struct ax_expert_rows {
    struct ax_tensor x, y, offsets;
    struct ax_mirror *mirror;
    struct ax_expert_part part;
};
/* y += the adapters' contribution. */
enum ax_status ax_adapter_experts_forward(const struct ax_expert_adapter *a,
                                          const struct ax_expert_rows *rows);
/* rows->y is the gradient of the output; computes the gradients of A and B, and dx [R][in] += …. */
enum ax_status ax_adapter_experts_backward(const struct ax_expert_adapter *a,
                                           const struct ax_expert_rows *rows,
                                           const struct ax_tensor *dx);

#endif
