/* Elements in memory, which are converted while they are written to a file. */
#ifndef AX_CKPT_HF_LIVE_H
#define AX_CKPT_HF_LIVE_H

#include <stdint.h>

#include "kernels/queue.h"

struct ax_live {
    enum ax_dtype dtype;
    const void AX_DEVICE *data; /* elements from `base` on */
    int64_t base;
    struct ax_queue *q; /* reads `data`; NULL: data is in the host's memory */
};

/* Elements [first, first + n) as `wanted`; n ≤ 1 Mi. */
enum ax_status ax_live_convert(const struct ax_live *s, enum ax_dtype wanted, int64_t first,
                               int64_t n, void *out);

#endif
