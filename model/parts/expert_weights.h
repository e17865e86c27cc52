/* The products of a layer's experts, each on its rows: y = x·Wᵀ + b and back.
 *
 * Matrices are parameters of their own, [out][in], at a constant stride; or stacked as in the file,
 * [E][in][out] or [E][out][in]. */
#ifndef AX_MODEL_PARTS_EXPERT_WEIGHTS_H
#define AX_MODEL_PARTS_EXPERT_WEIGHTS_H

#include "model/core/pass.h"

/* The matrices of gate and up of all experts, or of down. */
struct ax_expert_matrices {
    const struct ax_param *first; /* expert 0's; or all experts', if it has three dimensions */
    int parts;                    /* parameters of an expert: 2 (gate and up) or 1 */
    bool down;                    /* the experts' downs */
    const struct ax_param *bias;  /* bias of all experts; NULL if absent */
    bool in_first;                /* stacked as [E][in][out] */
};

/* rows->y = rows->x·Wᵀ + b. */
enum ax_status ax_expert_forward(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_expert_matrices *w,
                                 const struct ax_expert_rows *rows);
/* values = x [R][in] as products read it: x itself, or its quantized values in scratch. */
enum ax_status ax_expert_values(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *x, struct ax_tensor *values);
/* dx = y·W, where rows->y is the gradient of the outputs. */
enum ax_status ax_expert_input_gradient(const struct ax_layer *l, struct ax_pass *p,
                                        const struct ax_expert_matrices *w,
                                        const struct ax_expert_rows *rows,
                                        const struct ax_tensor *dx);
/* True if the matrices are trained. */
bool ax_expert_has_gradient(const struct ax_layer *l, const struct ax_pass *p,
                            const struct ax_expert_matrices *w);
/* dW += yᵀ·values, db += Σ y, where rows->y is the gradient of the outputs; only for trained
 * parameters. */
enum ax_status ax_expert_weight_gradient(const struct ax_layer *l, struct ax_pass *p,
                                         const struct ax_expert_matrices *w,
                                         const struct ax_expert_rows *rows,
                                         const struct ax_tensor *values);

#endif
