/* The range of what an op of rows has written (struct ax_range_of): by a pass of its own. */
#ifndef AX_KERNELS_CPU_VEC_ROWS_RANGES_H
#define AX_KERNELS_CPU_VEC_ROWS_RANGES_H

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"

/* Sets it, if it is asked for, after y is written. */
static inline enum ax_status leave_range(struct ax_queue *q, const struct ax_range_of *range,
                                         const struct ax_tensor *y) {
    if (range->t.data == NULL)
        return AX_OK;
    return AX_VEC(ax_cpu_quant_range)(
        q,
        &(struct ax_quant_range){.x = ax_tensor_rows(y, 0, least(range->rows, y->shape[0])),
                                 .range = range->t},
        NULL);
}

#endif
