/* A flat operand of an update as the matrix it is. */
#ifndef AX_OPTIM_MATRIX_H
#define AX_OPTIM_MATRIX_H

#include "optim/optimizer.h"

/* [rows][cols] where the piece is a matrix; else, and where it is absent, as it was. */
static inline struct ax_tensor ax_as_matrix(const struct ax_tensor *flat,
                                            const struct ax_piece *p) {
    if (!flat->data || p->cols == 0)
        return *flat;
    return ax_tensor_2d(flat->dtype, flat->data, p->rows, p->cols);
}

#endif
