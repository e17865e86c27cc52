/* Integers of any size, as Python's int: sign and magnitude, limbs of 32 bits.
 *
 * Operands are bools, ints or big ints; results are AX_JINT where they fit. Bounded: beyond
 * AX_JBIG_LIMBS limbs an operation is refused (Python itself prints at most 4300 digits). */
#ifndef AX_DATA_JINJA_BIG_H
#define AX_DATA_JINJA_BIG_H

#include "data/jinja_value.h"

#define AX_JBIG_LIMBS 1024

struct ax_jbig {
    bool negative;
    size_t n;
    uint32_t limb[]; /* least significant first; limb[n - 1] != 0 */
};

enum ax_status ax_jbig_add(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                           struct ax_jval *out);
enum ax_status ax_jbig_sub(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                           struct ax_jval *out);
enum ax_status ax_jbig_mul(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                           struct ax_jval *out);
/* Floor division: x = q·y + r, r with the sign of y. y is not 0. */
enum ax_status ax_jbig_divmod(struct ax_jarena *a, struct ax_jval x, struct ax_jval y,
                              struct ax_jval *q, struct ax_jval *r);
int ax_jbig_compare(struct ax_jval x, struct ax_jval y);
/* Exactly, with a finite double. */
int ax_jbig_compare_double(struct ax_jval x, double d);
/* x / y as Python's true division: rounded once. y is not 0; inf beyond the range. */
enum ax_status ax_jbig_divide(struct ax_jarena *a, struct ax_jval x, struct ax_jval y, double *out);
double ax_jbig_to_double(struct ax_jval x); /* inf beyond the range */
/* The integer part of a finite double. */
enum ax_status ax_jbig_from_double(struct ax_jarena *a, double d, struct ax_jval *out);
/* n digits of base 2 to 36, underscores skipped. */
enum ax_status ax_jbig_parse(struct ax_jarena *a, const char *digits, size_t n, uint32_t base,
                             bool negative, struct ax_jval *out);
/* Text in base 2 to 16, lower case, with a minus where negative. */
enum ax_status ax_jbig_text(struct ax_jarena *a, struct ax_jval x, uint32_t base,
                            struct ax_jstr **out);

#endif
