/* Where the elements of a tensor come from: an array, or a function that computes them (a file's
 * blocks, dequantized on demand). */
#ifndef AX_KERNELS_ELEMENTS_H
#define AX_KERNELS_ELEMENTS_H

#include "kernels/dtype.h"

struct ax_elements {
    enum ax_dtype dtype;
    const void *data; /* may be unaligned; unless there is `read` */
    /* Writes elements [first, first + n) in `dtype` to out. Any range, from any thread. */
    enum ax_status (*read)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
};
struct ax_elements ax_elements_of(enum ax_dtype dtype, const void *data); /* an array's */
/* Elements [first, first + n) as `wanted`. An array's cannot fail. */
enum ax_status ax_elements_read(const struct ax_elements *e, int64_t first, int64_t n,
                                enum ax_dtype wanted, void *out);

#endif
