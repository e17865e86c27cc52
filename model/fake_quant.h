/* Quantization-aware training (Jacob et al. 2018): the linears of a model see the values that their
 * weights and inputs will have in a scheme's formats (kernels/scheme.h), and gradients pass straight
 * through the rounding. Nothing of it is stored: values are made in scratch for each product.
 *
 * Where a scale spans ranks, they agree on the largest numbers. Memory and collectives are the same
 * whether it is on or off. */
#ifndef AX_MODEL_FAKE_QUANT_H
#define AX_MODEL_FAKE_QUANT_H

#include "kernels/scheme.h"
#include "parallel/unit.h"

/* Of a model; its linears share it. */
struct ax_fake_quant {
    struct ax_scheme scheme;
    bool on;       /* in this pass */
    bool straight; /* gradients pass through clamping, too: adapters of frozen weights */
};

/* AX_ERR_CONFIG if blocks do not divide the inputs of a matrix on this rank. */
enum ax_status ax_fake_quant_check(const struct ax_fake_quant *f, const struct ax_param *w);

/* to = the values of w [out][in], which is p or rows of it; both compute. to may be w. */
enum ax_status ax_fake_quant_weight(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                    const struct ax_param *p, const struct ax_tensor *w,
                                    const struct ax_tensor *to);
/* True if the gradient of a weight differs from that of its value. */
bool ax_fake_quant_clips(const struct ax_fake_quant *f);
/* grad += the gradient of w, given d, that of its value; both accumulation. */
enum ax_status ax_fake_quant_weight_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                         const struct ax_param *p, const struct ax_tensor *w,
                                         const struct ax_tensor *d, const struct ax_tensor *grad);

/* x [T][in] becomes its values, in scratch. `split`: ranks of tp have some columns each. */
enum ax_status ax_fake_quant_input(struct ax_runtime *rt, const struct ax_fake_quant *f, bool split,
                                   struct ax_tensor *x);
/* dx, the gradient of the values, becomes that of x. */
enum ax_status ax_fake_quant_input_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                        const struct ax_tensor *x, bool split,
                                        const struct ax_tensor *dx);

#endif
