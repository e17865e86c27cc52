/* y = x·Wᵀ (+ b): the one place where a weight matrix meets activations.
 *
 * A linear may join several HF matrices that read the same input (q, k, v; gate, up): they lie
 * behind each other in the unit and run as one GEMM. */
#ifndef AX_MODEL_LINEAR_H
#define AX_MODEL_LINEAR_H

#include "parallel/unit.h"

#define AX_LINEAR_MAX_PARTS 3

struct ax_linear {
    const struct ax_unit *unit;
    int n_parts;
    const struct ax_param *weight[AX_LINEAR_MAX_PARTS]; /* each [out_i][in] */
    const struct ax_param *bias[AX_LINEAR_MAX_PARTS];   /* each [out_i]; all or none (NULL) */
};

int64_t ax_linear_in(const struct ax_linear *l);  /* of this rank */
int64_t ax_linear_out(const struct ax_linear *l); /* of this rank, all parts */

/* y [T][out] = x [T][in]·Wᵀ + b + addend (addend [T][out] or NULL). */
enum ax_status ax_linear_forward(struct ax_queue *q, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y);
/* dW += dyᵀ·x, db += Σ dy, and dx = dy·W where dx is not NULL. */
enum ax_status ax_linear_backward(struct ax_queue *q, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx);

#endif
