/* Private to linear.c and linear_operands.c: the operands of a linear's products. */
#ifndef AX_MODEL_CORE_LINEAR_OPERANDS_H
#define AX_MODEL_CORE_LINEAR_OPERANDS_H

#include "model/core/linear.h"

/* Parts [first, end) that run as one GEMM, which computes columns [at, at + out). */
struct ax_linear_run {
    int first, end;
    int64_t at, out;
};

static inline enum ax_dtype ax_linear_compute(const struct ax_linear *l) {
    return l->unit->segments[l->weight[0]->segment].compute;
}

/* Advances to the run after `r`, or to the first if r->end = 0; false if there is none. */
bool ax_linear_next_run(const struct ax_linear *l, struct ax_linear_run *r);
/* The run's matrices (or, ndim 1, biases) as one tensor, from the first one's address. */
struct ax_tensor ax_linear_joined(const struct ax_linear *l, const struct ax_linear_run *r,
                                  struct ax_tensor first, int ndim);
/* True if the caller is to write the gradient of the run's weights, and not to add to it (unit.h). */
bool ax_linear_run_begins(const struct ax_linear *l, const struct ax_linear_run *r);
/* Columns [at, at + n), or rows of a vector; an absent tensor stays absent. */
static inline struct ax_tensor ax_linear_columns(const struct ax_tensor *t, int64_t at, int64_t n) {
    if (!t->data)
        return *t;
    return t->ndim == 1 ? ax_tensor_rows(t, at, n) : ax_tensor_cols(t, at, n);
}
/* The columns of a part, or of parts from it on, of the gradient dy [T][out] of all. */
static inline struct ax_tensor ax_linear_grad_part(const struct ax_tensor *dy, int part, int64_t at,
                                                   int64_t n) {
    struct ax_tensor t = ax_linear_columns(dy, at, n);
    if (dy->range)
        t.range = dy->range + 2 * (ptrdiff_t)part;
    return t;
}
/* The run's weights; if packed, they are unpacked into scratch. */
enum ax_status ax_linear_run_weight(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, struct ax_tensor *out);
/* True if products read weights with the adapters merged into them. */
static inline bool ax_linear_merges(const struct ax_linear *l) {
    return ax_linear_quant(l) && ax_fake_quant_merges(l->quant);
}
/* The run's weights as a product reads them: w itself, or its quantized values with merged
 * adapters, in scratch. */
enum ax_status ax_linear_used_weight(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_run *r, enum ax_fake_sum sum,
                                     const struct ax_tensor *w, struct ax_tensor *out);
/* The part that this rank has of rows that are split by columns if the linear's split is
 * `columns`. */
static inline struct ax_fake_part ax_linear_share(const struct ax_linear *l,
                                                  enum ax_linear_split columns) {
    const int64_t n = l->weight[0]->shape[1];
    return l->split == columns         ? (struct ax_fake_part){AX_FAKE_COLUMNS, n}
           : l->split == AX_SPLIT_NONE ? (struct ax_fake_part){AX_FAKE_ROWS, 0}
                                       : AX_FAKE_ALL;
}
/* dy as a product of backward reads it: itself, or the quantized values of each part, in
 * scratch. */
enum ax_status ax_linear_used_grad(struct ax_runtime *rt, const struct ax_linear *l,
                                   const struct ax_linear_run *r, enum ax_fake_sum sum,
                                   const struct ax_tensor *dy, struct ax_tensor *out);
/* dw += d, the gradient of the values of a run's weights, but for weights that rounding clips. */
enum ax_status ax_linear_values_grad(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_run *r, const struct ax_tensor *d,
                                     const struct ax_tensor *dw);

/* ---- adapters ---- */

/* True if x·Aᵀ is yet to be computed in this pass, which the caller then does. */
bool ax_linear_projects(const struct ax_linear *l);
/* Sets what the run's adapters share of T rows, by part of the linear: x·Aᵀ where forward keeps it,
 * the rest in scratch. */
void ax_linear_take_shared(struct ax_runtime *rt, const struct ax_linear *l,
                           const struct ax_linear_run *r, int64_t T, bool backward,
                           struct ax_adapter_shared shared[AX_LINEAR_MAX_PARTS]);
/* The run's matrices for a call of their adapters: `all` has tensors of all of them (data NULL: not
 * needed), of which a matrix gets its rows of w and its columns of the others. */
void ax_linear_list(const struct ax_linear *l, const struct ax_linear_run *r,
                    const struct ax_adapter_part *all,
                    const struct ax_adapter_shared shared[AX_LINEAR_MAX_PARTS],
                    struct ax_adapter_part parts[AX_LINEAR_MAX_PARTS]);

#endif
