/* A tensor in a file that is two in memory, concatenated by row: each row is `run` elements of the
 * first and `other_run` of the second. Stacked ones have one row. */
#ifndef AX_CKPT_HF_CONCAT_H
#define AX_CKPT_HF_CONCAT_H

#include <stdint.h>

#include "kernels/dtype.h"

struct ax_concat {
    const void *other; /* dtype as the first; NULL = only the first */
    int64_t run, other_run;
};

/* How many of the elements before `i` belong to the first one. */
int64_t ax_concat_first(const struct ax_concat *j, int64_t i);
/* Elements [first, first + n) as `wanted`; `data` are the first one's (dtype `is`), starting at its
 * element `base`. */
void ax_concat_convert(const struct ax_concat *j, enum ax_dtype is, const void *data, int64_t base,
                       enum ax_dtype wanted, int64_t first, int64_t n, void *out);

#endif
