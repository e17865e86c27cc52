/* y = x·Wᵀ (+ b): the only place where a weight matrix is multiplied with activations. So packed
 * storage (unpacked into scratch for the GEMM), adapters and fake quantization come in here. In a
 * model that trains for a scheme, y = Q(x)·Q(W + s·B·A)ᵀ (+ b): what is trained are the merged and
 * quantized weights. In training with 8-bit floats, all three products have quantized operands.
 *
 * A linear may combine several HF matrices that read the same input (q, k, v; gate, up): those that
 * are contiguous in the unit run as one GEMM. With tensor parallelism
 * (model/parallel/tensor_parallel.h) a linear is split over its outputs (rows [T/tp] in, own
 * columns of all T rows out), over its inputs (own columns of all T rows in, rows [T/tp] out), or
 * not at all (rows [T/tp] in and out). */
#ifndef AX_MODEL_CORE_LINEAR_H
#define AX_MODEL_CORE_LINEAR_H

#include "model/lora/adapter.h"
#include "model/core/fake_quant.h"
#include "model/parallel/tensor_parallel.h"

#define AX_LINEAR_MAX_PARTS 3

enum ax_linear_split { AX_SPLIT_OUTPUTS, AX_SPLIT_INPUTS, AX_SPLIT_NONE };

struct ax_later; /* later.h */
struct ax_linear;
/* Called before a linear's product with its input x [T][in] on this rank. */
struct ax_linear_watch {
    enum ax_status (*see)(void *ctx, const struct ax_linear *l, const struct ax_tensor *x);
    void *ctx;
};

struct ax_linear {
    const struct ax_unit *unit;
    enum ax_linear_split split;
    int n_parts;
    const struct ax_param *weight[AX_LINEAR_MAX_PARTS]; /* each [out_i][in] */
    const struct ax_param *bias[AX_LINEAR_MAX_PARTS];   /* each [out_i]; all or none (NULL) */
    struct ax_adapter adapter[AX_LINEAR_MAX_PARTS];     /* the adapter of each part */
    int place; /* its number among its layer's linears with adapters */
    /* with tp: its rows travel while others are multiplied, unless the products read quantized
     * rows */
    bool overlaps;
    /* Where its backward leaves the gradients of weights for later; it or what it points to NULL:
     * backward computes them. */
    struct ax_later *const *later;
    const struct ax_fake_quant *quant;   /* NULL: none */
    const struct ax_linear_watch *watch; /* watches forward passes; NULL: nobody */
};

int64_t ax_linear_in(const struct ax_linear *l); /* columns of its input on this rank */
/* columns of its output on this rank, all parts */
int64_t ax_linear_out(const struct ax_linear *l);

/* Declares x·Aᵀ of its adapters, which forward keeps for backward (ax_adapter_run.kept), in a batch of
 * T tokens. */
void ax_linear_declare(const struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                       struct ax_saved *s);

/* In FP8 training with one scale for a tensor, what writes an operand of l leaves its range beside it (`range` of its
 * tensor), unless rows are gathered before they are multiplied. Room for that of its input s; where that of its input x
 * goes, nowhere if there is no room; and the same of the gradient dy of its output, with a range for each part, in
 * scratch. */
void ax_linear_declare_input(const struct ax_runtime *rt, const struct ax_linear *l,
                             struct ax_saved *s);
struct ax_range_of ax_linear_input_range(const struct ax_runtime *rt, const struct ax_linear *l,
                                         const struct ax_tensor *x);
struct ax_range_of ax_linear_take_grad_range(struct ax_runtime *rt, const struct ax_linear *l,
                                             struct ax_tensor *dy);

/* y = x·Wᵀ + b + addend (shaped as y, or NULL). */
enum ax_status ax_linear_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y);
/* Gradients of the trainable parameters, and dx = dy·W if dx is not NULL. */
enum ax_status ax_linear_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx);

/* The same, with dx added to instead of written: of a further linear with the input x. */
enum ax_status ax_linear_backward_more(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_tensor *x, const struct ax_tensor *dy,
                                       const struct ax_tensor *dx);

/* How operands are quantized in this pass; NULL: not at all. */
const struct ax_fake_quant *ax_linear_quant(const struct ax_linear *l);
/* The weights of all parts [out][in] as products read them, for a caller that multiplies with
 * pieces of them: unpacked, in scratch; rounded with their merged adapters if the model trains for
 * a scheme, else without adapters. The parts must run as one GEMM. */
enum ax_status ax_linear_weights(struct ax_runtime *rt, const struct ax_linear *l,
                                 struct ax_tensor *out);

/* out [out_i] = Σ w² per row of part i, over this rank's inputs; out in accumulation dtype. */
enum ax_status ax_linear_row_squares(struct ax_runtime *rt, const struct ax_linear *l, int part,
                                     const struct ax_tensor *out);

#endif
