/* Products of a linear in FP8 training whose operands are codes. Where scales are of tensors, each part of a linear
 * has its own, and so products of its own; where they are of rows, so has dx, which sums over parts' columns. */
#ifndef AX_MODEL_CORE_LINEAR_CODES_H
#define AX_MODEL_CORE_LINEAR_CODES_H

#include "model/core/linear_operands.h"

/* True if products are of codes in this pass: the device has them with such scales, and nothing else reads the
 * values, as DoRA does; not if weights are gathered as codes. Sizes are multiples of AX_FP8_STEP: if that alone does
 * not hold, *odd is true (NULL: nobody asks). */
bool ax_linear_takes_codes(const struct ax_runtime *rt, const struct ax_linear *l, bool *odd);

/* True if the queue's device multiplies codes, with scales of tensors, or of rows. */
bool ax_linear_device_takes_codes(const struct ax_queue *q, bool of_tensors);

/* A run's operands, by part of the linear, from w [out][in] and dy [T][out] of the run. `layouts` is a mask of enum
 * ax_codes_layout. Those of which no scale is a part's are the first part's, for the whole run. */
struct ax_linear_codes {
    struct ax_fake_codes part[AX_LINEAR_MAX_PARTS];
};
enum ax_status ax_linear_weight_codes(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_linear_run *r, unsigned layouts,
                                      const struct ax_tensor *w, struct ax_linear_codes *to);
enum ax_status ax_linear_grad_codes(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, unsigned layouts,
                                    const struct ax_tensor *dy, struct ax_linear_codes *to);

/* One product of a run: c is y, dx or dW. */
struct ax_linear_product {
    const struct ax_linear_run *r;
    const struct ax_fake_codes *x;
    const struct ax_linear_codes *w, *dy;
    struct ax_tensor c, bias, addend; /* bias and addend of y; data NULL = none */
    bool adds;                        /* y (without addend) or dx is added to c */
};
/* y (+)= x·Wᵀ (+ bias) (+ addend), of rows of x and W. */
enum ax_status ax_linear_outputs_of_codes(struct ax_runtime *rt, const struct ax_linear_product *p);
/* dx (+)= dy·W, of rows of dy and columns of W. */
enum ax_status ax_linear_inputs_of_codes(struct ax_runtime *rt, const struct ax_linear_product *p);
/* dW += dyᵀ·x, of columns of dy and x. */
enum ax_status ax_linear_gradients_of_codes(struct ax_runtime *rt,
                                            const struct ax_linear_product *p);

#endif
