/* The products of a linear's runs with rows that are already there (linear.c brings them), with packed
 * storage, adapters and quantized operands. Private to linear.c. */
#ifndef AX_MODEL_LINEAR_PRODUCTS_H
#define AX_MODEL_LINEAR_PRODUCTS_H

#include "model/linear_operands.h"

/* What products read: x, and its values if they differ. */
struct ax_linear_inputs {
    struct ax_tensor x, values;
};

/* out = x·Wᵀ (+ b if `biased`) (+ addend, or NULL). */
enum ax_status ax_linear_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_linear_inputs *in, bool biased,
                                 const struct ax_tensor *addend, const struct ax_tensor *out);
/* Gradients of a run's trainable matrices and biases; `own` is dy before any gather, each row once over tp. */
enum ax_status ax_linear_run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_run *r, const struct ax_tensor *x,
                                       const struct ax_tensor *dy, const struct ax_tensor *own);
/* dx (+)= dv·W of a run (dx NULL: not), and the adapters' gradients (x is read by those alone). */
enum ax_status ax_linear_run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx);

#endif
