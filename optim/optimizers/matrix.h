/* Views a flat operand of an update as a matrix. */
#ifndef AX_OPTIM_OPTIMIZERS_MATRIX_H
#define AX_OPTIM_OPTIMIZERS_MATRIX_H

#include "optim/optimizers/optimizer.h"

/* [rows][cols] if the piece is a matrix; otherwise, or if absent, unchanged. */
static inline struct ax_tensor ax_as_matrix(const struct ax_tensor *flat,
                                            const struct ax_piece *p) {
    if (!flat->data || p->cols == 0)
        return *flat;
    return ax_tensor_2d(flat->dtype, flat->data, p->rows, p->cols);
}

#endif
