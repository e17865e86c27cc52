/* A linear whose matrix holds several outputs, one after the other, each of which tp splits.
 *
 * Where every rank of tp has all of the matrix (AX_SPLIT_NONE), each rank computes its rows for all columns,
 * and ranks exchange them; a matrix per output is split itself, and the linear is all there is. */
#ifndef AX_MODEL_CORE_OWN_COLUMNS_H
#define AX_MODEL_CORE_OWN_COLUMNS_H

#include "model/core/linear.h"

#define AX_OWN_COLUMNS 5 /* outputs, at most */

/* This rank's columns of a linear's output, output by output. */
struct ax_own_columns {
    int n;
    struct {
        int64_t from, n;
    } of[AX_OWN_COLUMNS];
};

/* y [T][Σ n] from this rank's rows h [T/tp][in]. */
enum ax_status ax_own_columns_forward(struct ax_runtime *rt, const struct ax_linear *lin,
                                      const struct ax_own_columns *own, const struct ax_tensor *h,
                                      const struct ax_tensor *y);
/* Gradients of the parameters and, if not NULL, of h. */
enum ax_status ax_own_columns_backward(struct ax_runtime *rt, const struct ax_linear *lin,
                                       const struct ax_own_columns *own, const struct ax_tensor *h,
                                       const struct ax_tensor *dy, const struct ax_tensor *dh);
/* Multiplies output i of y [T][Σ n] by factor[i], in place. */
enum ax_status ax_own_columns_scale(struct ax_runtime *rt, const struct ax_own_columns *own,
                                    const double *factor, const struct ax_tensor *y);

#endif
