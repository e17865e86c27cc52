/* Quantization-aware training (Jacob et al. 2018): the linears of a model see the values that their
 * weights and inputs will have in a scheme's formats (kernels/quant/scheme.h), and gradients pass straight
 * through the rounding. Nothing of it is stored: values are made in scratch for each product.
 *
 * Where a scale spans ranks, they agree on the largest numbers; where blocks do, ranks gather each other's
 * columns. Memory and collectives are the same
 * whether it is on or off.
 *
 * Training in 8-bit floats (Micikevicius et al. 2022) is the same for the two products of backward as
 * well, and for training passes only: with current scaling, whose amax is of the very tensor,
 *
 *   y = Q(x)·Q(W)ᵀ     dx = Q(dy)·Q(W)     dW = Q(dy)ᵀ·Q(x)
 *
 * where scales are of a tensor; or of what a product does not sum over: of rows of x and W, of rows of
 * dy and columns of W, of columns of dy and x (torchao's rowwise). Adapters stay beside it. */
#ifndef AX_MODEL_CORE_FAKE_QUANT_H
#define AX_MODEL_CORE_FAKE_QUANT_H

#include "kernels/quant/scheme.h"
#include "parallel/units/unit.h"

/* Of a model; its linears share it. */
struct ax_fake_quant {
    struct ax_scheme scheme;
    bool on;       /* in this pass */
    bool stored;   /* weights are values already (a folder's): only inputs are quantized */
    bool straight; /* gradients pass through clamping, too: adapters of frozen weights */
    int64_t used;  /* of FP8 training: tokens of this rank's batch that are no padding */
};

/* True if adapters are merged into the weights that are quantized. */
static inline bool ax_fake_quant_merges(const struct ax_fake_quant *f) {
    return !f->scheme.quantizes_grad && !f->stored;
}

/* True of FP8 training where all three products read the same values of a weight. */
static inline bool ax_fake_quant_of_tensors(const struct ax_fake_quant *f) {
    return f->scheme.quantizes_grad && f->scheme.weight.block == AX_BLOCK_TENSOR;
}

/* What ranks of tp have of an activation: some of its n columns, or some rows, each; or all of it. */
struct ax_fake_part {
    enum { AX_FAKE_OF_ALL, AX_FAKE_COLUMNS, AX_FAKE_ROWS } kind;
    int64_t n; /* of AX_FAKE_COLUMNS */
};
#define AX_FAKE_ALL ((struct ax_fake_part){AX_FAKE_OF_ALL, 0})
/* What a product sums over. Of FP8 training; else columns. */
enum ax_fake_sum { AX_SUM_COLUMNS, AX_SUM_ROWS };

/* AX_ERR_CONFIG if blocks do not divide the inputs of a matrix. */
enum ax_status ax_fake_quant_check(const struct ax_fake_quant *f, const struct ax_param *w);

/* to = the values of w [out][in], which is p or rows of it; both compute. to may be w. */
enum ax_status ax_fake_quant_weight(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                    const struct ax_param *p, enum ax_fake_sum sum,
                                    const struct ax_tensor *w, const struct ax_tensor *to);
/* Looked-up rows x [T][D] of an embedding p [V][D], of which w is what this rank has, become their values;
 * and d [T][D], the gradient of the values, becomes that of the rows x. w and x compute. */
enum ax_status ax_fake_quant_rows(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  const struct ax_param *p, const struct ax_tensor *w,
                                  const struct ax_tensor *x);
enum ax_status ax_fake_quant_rows_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                       const struct ax_param *p, const struct ax_tensor *x,
                                       const struct ax_tensor *d);
/* True if the gradient of a weight differs from that of its value. */
bool ax_fake_quant_clips(const struct ax_fake_quant *f);
/* grad += the gradient of w, given d, that of its value; both accumulation. */
enum ax_status ax_fake_quant_weight_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                         const struct ax_param *p, const struct ax_tensor *w,
                                         const struct ax_tensor *d, const struct ax_tensor *grad);

/* x [T][in] becomes its values, in scratch. */
enum ax_status ax_fake_quant_input(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                   struct ax_fake_part part, enum ax_fake_sum sum,
                                   struct ax_tensor *x);
/* dx, the gradient of the values, becomes that of x. */
enum ax_status ax_fake_quant_input_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                        const struct ax_tensor *x, struct ax_fake_part part,
                                        const struct ax_tensor *dx);
/* to = the values of dy [T][out], in FP8 training. */
enum ax_status ax_fake_quant_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  struct ax_fake_part part, enum ax_fake_sum sum,
                                  const struct ax_tensor *dy, const struct ax_tensor *to);

#endif
