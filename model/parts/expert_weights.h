/* The products of a layer's experts, each on its rows: y = x·Wᵀ + b and back.
 *
 * Matrices are parameters of their own, [out][in], at a constant stride; or stacked as in the file,
 * [E][in][out], with biases. */
#ifndef AX_MODEL_PARTS_EXPERT_WEIGHTS_H
#define AX_MODEL_PARTS_EXPERT_WEIGHTS_H

#include "model/core/pass.h"

/* Gate and up of all experts, or down. */
struct ax_expert_matrices {
    const struct ax_param *first; /* of expert 0; or of all, if it has three dimensions */
    int parts;                    /* parameters of an expert: 2 (gate and up) or 1 */
    const struct ax_param *bias;  /* of all; NULL without */
};
struct ax_expert_matrices ax_expert_gate_up(const struct ax_layer *l);
struct ax_expert_matrices ax_expert_down(const struct ax_layer *l);

/* rows->y = rows->x·Wᵀ + b. */
enum ax_status ax_expert_forward(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_expert_matrices *w,
                                 const struct ax_expert_rows *rows);
/* values = x [R][in] as products read it: x, or its values in scratch. */
enum ax_status ax_expert_values(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *x, struct ax_tensor *values);
/* Where rows->y is the gradient of the outputs: dx = y·W. */
enum ax_status ax_expert_input_gradient(const struct ax_layer *l, struct ax_pass *p,
                                        const struct ax_expert_matrices *w,
                                        const struct ax_expert_rows *rows,
                                        const struct ax_tensor *dx);
/* True if the matrices are trained. */
bool ax_expert_has_gradient(const struct ax_layer *l, const struct ax_pass *p,
                            const struct ax_expert_matrices *w);
/* … and of what is trained dW += yᵀ·values, db += Σ y. */
enum ax_status ax_expert_weight_gradient(const struct ax_layer *l, struct ax_pass *p,
                                         const struct ax_expert_matrices *w,
                                         const struct ax_expert_rows *rows,
                                         const struct ax_tensor *values);

#endif
