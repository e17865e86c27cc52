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
 * dy and columns of W, of columns of dy and x (torchao's rowwise). Adapters stay beside it. Where the device has
 * products of 8-bit floats with such scales, Q is codes (linear_codes.c), else their values. */
#ifndef AX_MODEL_CORE_FAKE_QUANT_H
#define AX_MODEL_CORE_FAKE_QUANT_H

#include "kernels/quant/scheme.h"
#include "parallel/units/unit.h"

/* The state of a model, which its linears share. */
struct ax_fake_quant {
    struct ax_scheme scheme;
    bool on; /* in this pass */
    /* weights have quantized values already (a quantized folder's): only inputs are quantized */
    bool stored;
    bool straight; /* gradients pass through clamping, too: adapters of frozen weights */
    int64_t used;  /* FP8 training: tokens of this rank's batch without padding */
    /* Ranges of weights with one scale each, while these do not change; by their number among `params` */
    const struct ax_param *params;
    struct ax_tensor ranges; /* F32 [n][2]; data NULL = nothing is kept */
    int64_t *known;          /* [n]: the step in which a range was found */
    int64_t step;            /* training's, which says when weights change; 0 = none */
};

/* Room for the ranges of n weights, where ax_fake_quant_of_tensors holds. ax_fake_quant_free also takes what was
 * never begun. */
enum ax_status ax_fake_quant_begin(struct ax_runtime *rt, struct ax_fake_quant *f,
                                   const struct ax_param *params, int n);
void ax_fake_quant_free(struct ax_fake_quant *f);
/* From here on to the next call, weights stay as they are, in passes that train. */
static inline void ax_fake_quant_step(struct ax_fake_quant *f) {
    f->step++;
}

/* True if adapters are merged into the weights that are quantized. */
static inline bool ax_fake_quant_merges(const struct ax_fake_quant *f) {
    return !f->scheme.quantizes_grad && !f->stored;
}

/* True in FP8 training if all three products read the same values of a weight. */
static inline bool ax_fake_quant_of_tensors(const struct ax_fake_quant *f) {
    return f->scheme.quantizes_grad && f->scheme.weight.block == AX_BLOCK_TENSOR;
}

/* True if a weight's format has a scale of all of a matrix, so that several matrices are several calls. */
bool ax_fake_quant_has_tensor_scale(const struct ax_fake_quant *f);

/* The part of an activation that a rank of tp has: some of its n columns, some of its rows, or all
 * of it. */
struct ax_fake_part {
    enum { AX_FAKE_OF_ALL, AX_FAKE_COLUMNS, AX_FAKE_ROWS } kind;
    int64_t n; /* AX_FAKE_COLUMNS: columns in total */
};
#define AX_FAKE_ALL ((struct ax_fake_part){AX_FAKE_OF_ALL, 0})
/* The dimension that a product sums over; rows only in FP8 training. */
enum ax_fake_sum { AX_SUM_COLUMNS, AX_SUM_ROWS };

/* AX_ERR_CONFIG if blocks do not divide the inputs of a matrix. */
enum ax_status ax_fake_quant_check(const struct ax_fake_quant *f, const struct ax_param *w);

/* to = the quantized values of w [out][in], which is p or rows of it; both in compute dtype. to may
 * be w. */
enum ax_status ax_fake_quant_weight(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                    const struct ax_param *p, enum ax_fake_sum sum,
                                    const struct ax_tensor *w, const struct ax_tensor *to);
/* Embedding p [V][D], of which this rank has w: the looked-up rows x [T][D] become their quantized
 * values; and d [T][D], the gradient of these values, becomes the gradient of the rows x. w and x
 * in compute dtype. */
enum ax_status ax_fake_quant_rows(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  const struct ax_param *p, const struct ax_tensor *w,
                                  const struct ax_tensor *x);
enum ax_status ax_fake_quant_rows_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                       const struct ax_param *p, const struct ax_tensor *x,
                                       const struct ax_tensor *d);
/* True if the gradient of a weight differs from the gradient of its quantized value. */
bool ax_fake_quant_clips(const struct ax_fake_quant *f);
/* grad += the gradient of w, given d, the gradient of its quantized value; both in accumulation
 * dtype. */
enum ax_status ax_fake_quant_weight_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                         const struct ax_param *p, const struct ax_tensor *w,
                                         const struct ax_tensor *d, const struct ax_tensor *grad);

/* x [T][in] becomes its quantized values, in scratch. */
enum ax_status ax_fake_quant_input(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                   struct ax_fake_part part, enum ax_fake_sum sum,
                                   struct ax_tensor *x);
/* dx, the gradient of the quantized values, becomes the gradient of x. */
enum ax_status ax_fake_quant_input_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                        const struct ax_tensor *x, struct ax_fake_part part,
                                        const struct ax_tensor *dx);
/* Where the op that writes x or dy of such products leaves the ranges of its n parts, those of x.range; nowhere if it
 * is NULL. */
struct ax_range_of ax_fake_quant_range(const struct ax_runtime *rt, const struct ax_fake_quant *f,
                                       struct ax_fake_part part, int64_t n,
                                       const struct ax_tensor *x);
/* An operand of products of 8-bit floats, as fp8_codes makes it (kernels/quant/quant_ops.h), in scratch, with a scale
 * for all of it, or for each of its rows, or columns; rows or columns with data NULL: not made. */
struct ax_fake_codes {
    struct ax_tensor rows, columns, row_scale, column_scale;
    enum ax_quant kind;
};
enum ax_codes_layout { AX_CODES_ROWS = 1, AX_CODES_COLUMNS = 2 }; /* a mask */
/* Codes in place of values, in FP8 training: of w [out][in], which is p or rows of several like it, x [T][in] and
 * dy [T][out]. */
enum ax_status ax_fake_quant_weight_codes(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                          const struct ax_param *p, unsigned layouts,
                                          const struct ax_tensor *w, struct ax_fake_codes *to);
enum ax_status ax_fake_quant_input_codes(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                         struct ax_fake_part part, unsigned layouts,
                                         const struct ax_tensor *x, struct ax_fake_codes *to);
enum ax_status ax_fake_quant_grad_codes(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                        struct ax_fake_part part, unsigned layouts,
                                        const struct ax_tensor *dy, struct ax_fake_codes *to);

/* to = the quantized values of dy [T][out], in FP8 training. */
enum ax_status ax_fake_quant_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  struct ax_fake_part part, enum ax_fake_sum sum,
                                  const struct ax_tensor *dy, const struct ax_tensor *to);

#endif
