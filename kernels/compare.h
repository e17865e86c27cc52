/* Compares the outputs of two runs of a case (kernels/cases.h): a backend with the reference. */
#ifndef AX_KERNELS_COMPARE_H
#define AX_KERNELS_COMPARE_H

#include "kernels/cases.h"

/* Kept over calls. Zeroed before the first, except for by_library. */
struct ax_case_difference {
    bool
        by_library; /* a library computes products (of cuda): it rounds them to BF16 before it adds to them */
    double worst;    /* the largest deviation of an element, of its tolerance: up to 1 is within */
    char where[256]; /* the element with the worst deviation and its values; "" while worst is 0 */
};

/* `got` and `want` have the same elements of one operand of case c, in the host's memory. */
void ax_case_compare_operand(const struct ax_case *c, const char *name, const struct ax_tensor *got,
                             const struct ax_tensor *want, struct ax_case_difference *d);
/* Everything that a case writes, its scalars and measures too. */
void ax_case_compare(const struct ax_case *got, const struct ax_case *want,
                     struct ax_case_difference *d);
/* Element i of a tensor in the host's memory, in row-major order. */
double ax_case_element(const struct ax_tensor *t, int64_t i);

#endif
