/* Gradients of matrices that backward may leave for later, because no other layer waits for them.
 * Copies of what these products read are kept in the slot's memory, from its end, in place of the
 * activations that backward releases. The products and their sums are the same as without. */
#ifndef AX_MODEL_CORE_LATER_H
#define AX_MODEL_CORE_LATER_H

#include "parallel/units/expert.h"

struct ax_pass;
struct ax_later_product;
typedef enum ax_status ax_later_fn(struct ax_pass *p, const struct ax_later_product *a);

#define AX_LATER_KEPT 5
struct ax_later_product {
    const struct ax_unit *unit;
    ax_later_fn *run;
    const void *of;                       /* argument of run: a linear, or a layer's experts */
    struct ax_tensor kept[AX_LATER_KEPT]; /* operands of run */
    struct ax_expert_part part;           /* experts: the part */
    struct ax_mirror mirror;              /* experts: the offsets on the host */
};

struct ax_later {
    struct ax_stack *stack;
    struct ax_later_product *list; /* owned */
    int n, cap, done;
};

/* Takes memory for a copy of t. */
struct ax_tensor ax_later_take(struct ax_later *a, const struct ax_tensor *t);
/* Adds a product to compute later; called in the backward of its unit. */
enum ax_status ax_later_add(struct ax_later *a, const struct ax_later_product *product);
/* Computes the products of a unit, which must be the next in the list. */
enum ax_status ax_later_run(struct ax_later *a, struct ax_pass *p, const struct ax_unit *unit);
/* Releases the memory when all products are done. */
void ax_later_end(struct ax_later *a);
void ax_later_free(struct ax_later *a);

#endif
