/* A low-rank change of a matrix, or of a part of it, that is applied while it is written: W + s·B·A, in
 * double, rounded once to the file's dtype. */
#ifndef AX_CKPT_HF_DELTA_H
#define AX_CKPT_HF_DELTA_H

#include <stdint.h>

#include "kernels/queue.h"

/* Elements in memory, which are converted while they are written to a file. */
struct ax_live {
    enum ax_dtype dtype;
    const void AX_DEVICE *data; /* elements from `base` on */
    int64_t base;
    struct ax_queue *q; /* reads `data`; NULL: data is in the host's memory */
};

struct ax_delta {
    int64_t cols, r; /* r = 0: no change */
    int64_t start;   /* element of the matrix at which the part begins */
    double scale;
    const float *a, *b; /* [r][cols], [rows][r], on the host */
};

/* Elements [first, first + n) of the changed tensor as `wanted`; n ≤ 1 Mi. The same bits for any
 * division into ranges. */
enum ax_status ax_delta_convert(const struct ax_delta *d, const struct ax_live *s,
                                enum ax_dtype wanted, int64_t first, int64_t n, void *out);

#endif
