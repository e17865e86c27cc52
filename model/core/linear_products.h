/* The products of a linear's runs with rows that are already there (linear.c brings them), with packed
 * storage, adapters and quantized operands. Private to linear.c. */
#ifndef AX_MODEL_CORE_LINEAR_PRODUCTS_H
#define AX_MODEL_CORE_LINEAR_PRODUCTS_H

#include "model/core/linear_operands.h"

/* A run's operands besides rows, in scratch, for any number of products. */
struct ax_linear_made {
    struct ax_linear_run run;
    size_t mark; /* of the scratch stack before w and used */
    struct ax_tensor w,
        used; /* as they are, for adapters, and as products see them; data NULL: nobody reads them */
    struct ax_adapter_shared adapter[AX_LINEAR_MAX_PARTS];
    struct ax_tensor dv; /* backward: [T][out] gradient before DoRA's scales; data NULL: it is dy */
};

/* For forward; for backward of T rows, with dx or not. */
enum ax_status ax_linear_make(struct ax_runtime *rt, const struct ax_linear *l,
                              const struct ax_linear_run *r, struct ax_linear_made *out);
enum ax_status ax_linear_make_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_run *r, int64_t T, bool inputs,
                                       struct ax_linear_made *out);

/* What products read: x, and its values if they differ; rows from `first` of the linear's on. */
struct ax_linear_inputs {
    struct ax_tensor x, values;
    int64_t first;
};

/* The run's columns of out = x·Wᵀ (+ b if `biased`) (+ addend, or NULL). */
enum ax_status ax_linear_run_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_made *made,
                                     const struct ax_linear_inputs *in, bool biased,
                                     const struct ax_tensor *addend, const struct ax_tensor *out);
/* Rows of dy from `first` on: dx (+)= dv·W, with adapters (dx NULL: not), and what _gradients needs of these rows. */
enum ax_status ax_linear_run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_made *made, int64_t first,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx);
/* Then, of all rows, the gradients of all that trains; `own` is dy before any gather, each row once over
 * tp. Products read in->values, adapters in->x. */
enum ax_status ax_linear_run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_made *made,
                                       const struct ax_linear_inputs *in,
                                       const struct ax_tensor *dy, const struct ax_tensor *own);
/* True if a part has an adapter, in use or not. */
bool ax_linear_is_adapted(const struct ax_linear *l);
/* True if _gradients reads the weights. */
bool ax_linear_gradients_read(const struct ax_linear *l, const struct ax_linear_made *made);

#endif
