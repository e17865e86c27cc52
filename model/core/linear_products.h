/* The products of a linear's runs with rows that have arrived (linear.c gathers them), with packed
 * storage, adapters and quantized operands. Private to linear.c. */
#ifndef AX_MODEL_CORE_LINEAR_PRODUCTS_H
#define AX_MODEL_CORE_LINEAR_PRODUCTS_H

#include "model/core/linear_operands.h"

/* A run's operands other than rows, in scratch, for any number of products. */
struct ax_linear_made {
    struct ax_linear_run run;
    size_t mark; /* mark of the scratch stack before w and used */
    /* weights as they are, for adapters; and as products read them; data NULL: not needed */
    struct ax_tensor w, used;
    struct ax_adapter_shared adapter[AX_LINEAR_MAX_PARTS];
    struct ax_tensor dv; /* backward: [T][out] gradient before DoRA's scales; data NULL: it is dy */
};

/* Make the operands for forward; and for backward of T rows, with dx if `inputs`. */
enum ax_status ax_linear_make(struct ax_runtime *rt, const struct ax_linear *l,
                              const struct ax_linear_run *r, struct ax_linear_made *out);
enum ax_status ax_linear_make_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_run *r, int64_t T, bool inputs,
                                       struct ax_linear_made *out);

/* The rows of a product: x, and its quantized values if they differ; they are the linear's rows
 * from `first` on. */
struct ax_linear_inputs {
    struct ax_tensor x, values;
    int64_t first;
};

/* The run's columns of out = x·Wᵀ (+ b if `biased`) (+ addend, or NULL). */
enum ax_status ax_linear_run_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_made *made,
                                     const struct ax_linear_inputs *in, bool biased,
                                     const struct ax_tensor *addend, const struct ax_tensor *out);
/* For rows of dy from `first` on: dx (+)= dv·W, with adapters (dx NULL: skipped), and whatever
 * _gradients needs of these rows. */
enum ax_status ax_linear_run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_made *made, int64_t first,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx);
/* Afterwards, for all rows: gradients of all trainable parameters. `own` is dy before any gather,
 * so that each row counts once over tp. Products read in->values, adapters in->x. */
enum ax_status ax_linear_run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_made *made,
                                       const struct ax_linear_inputs *in,
                                       const struct ax_tensor *dy, const struct ax_tensor *own);
/* True if a part has an adapter, in use or not. */
bool ax_linear_is_adapted(const struct ax_linear *l);
/* True if _gradients reads the weights. */
bool ax_linear_gradients_read(const struct ax_linear *l, const struct ax_linear_made *made);

#endif
