/* Where the elements of a tensor come from: an array, or a function that computes them (a file's
 * blocks, dequantized on demand). */
#ifndef AX_KERNELS_ELEMENTS_H
#define AX_KERNELS_ELEMENTS_H

#include "kernels/dtype.h"

/* The codes of a number format stored in a file, for packed storage, which keeps codes. */
struct ax_element_codes {
    int quant;     /* enum ax_quant, whose codes are bytes and whose scales are numbers */
    int64_t block; /* elements that share a scale */
    /* Reads the codes of elements [first, first + n), full blocks, and their scales. Any range,
     * from any thread. */
    enum ax_status (*read)(void *ctx, int64_t first, int64_t n, unsigned char *codes, float *scale);
};

struct ax_elements {
    enum ax_dtype dtype;
    const void *data; /* elements of an array; may be unaligned. Not used if `read` is set */
    /* Writes elements [first, first + n) in `dtype` to out. Any range, from any thread. */
    enum ax_status (*read)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
    const struct ax_element_codes *codes; /* NULL: none */
    /* file and name of a tensor, whose values must be finite; else NULL */
    const char *file, *name;
};
struct ax_elements ax_elements_of(enum ax_dtype dtype, const void *data); /* elements of an array */
/* Converts elements [first, first + n) to `wanted`. Cannot fail for an array without `file`. */
enum ax_status ax_elements_read(const struct ax_elements *e, int64_t first, int64_t n,
                                enum ax_dtype wanted, void *out);

/* AX_ERR_DATA, with file and tensor, if one of n elements from `first` on, given in `values`, is
 * infinite or NaN. AX_OK without `file`, and with AXTRAIN_NONFINITE=allow in the environment. */
enum ax_status ax_elements_check(const struct ax_elements *e, int64_t first, int64_t n,
                                 const void *values);

#endif
