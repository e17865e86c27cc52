/* A tensor in a file that is two in memory, concatenated by row: each row is `run` elements of the
 * first and `other_run` of the second. Stacked ones have one row. */
#ifndef AX_CKPT_HF_CONCAT_H
#define AX_CKPT_HF_CONCAT_H

#include <stdint.h>

#include "kernels/queue.h"

struct ax_concat {
    const void AX_DEVICE *other; /* dtype as the first; NULL = only the first */
    int64_t run, other_run;
};

/* The two, and where they are. */
struct ax_concat_source {
    struct ax_concat concat;
    enum ax_dtype dtype;
    const void AX_DEVICE *data; /* the first one's elements from `base` on */
    int64_t base;
    struct ax_queue *q;       /* that reads `data`; NULL: it is in the host's memory */
    struct ax_queue *other_q; /* … `other` */
};

/* How many of the elements before `i` belong to the first one. */
int64_t ax_concat_first(const struct ax_concat *j, int64_t i);
/* Elements [first, first + n) as `wanted`; n ≤ 1 Mi. */
enum ax_status ax_concat_convert(const struct ax_concat_source *s, enum ax_dtype wanted,
                                 int64_t first, int64_t n, void *out);

#endif
