/* Where the elements of a tensor come from: an array, or a function that computes them (a file's
 * blocks, dequantized on demand). */
#ifndef AX_KERNELS_ELEMENTS_H
#define AX_KERNELS_ELEMENTS_H

#include "kernels/dtype.h"

struct ax_elements {
    enum ax_dtype dtype;
    const void *data; /* of an array; may be unaligned. Not used if `read` is set */
    /* Writes elements [first, first + n) in `dtype` to out. Any range, from any thread. */
    enum ax_status (*read)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
};
struct ax_elements ax_elements_of(enum ax_dtype dtype, const void *data); /* of an array */
/* Converts elements [first, first + n) to `wanted`. Cannot fail for an array. */
enum ax_status ax_elements_read(const struct ax_elements *e, int64_t first, int64_t n,
                                enum ax_dtype wanted, void *out);

#endif
