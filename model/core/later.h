/* What backward may leave for later: the gradients of matrices, for which no other layer waits. Of what is
 * put off, copies of what its products read are in the slot's memory, from its end, in place of the activations
 * that backward releases. The products are the same ones, so are their sums. */
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
    const void *of;                       /* for run: a linear, or a layer's experts */
    struct ax_tensor kept[AX_LATER_KEPT]; /* likewise */
    struct ax_expert_part part;           /* of experts, … */
    struct ax_mirror mirror;              /* … and of their offsets, which the host has */
};

struct ax_later {
    struct ax_stack *stack;
    struct ax_later_product *list; /* owned */
    int n, cap, done;
};

/* Memory like t's for a copy. */
struct ax_tensor ax_later_take(struct ax_later *a, const struct ax_tensor *t);
/* Puts off a product, in a backward of its unit. */
enum ax_status ax_later_add(struct ax_later *a, const struct ax_later_product *product);
/* Those of a unit, which are the next. */
enum ax_status ax_later_run(struct ax_later *a, struct ax_pass *p, const struct ax_unit *unit);
/* All are done: gives their memory back. */
void ax_later_end(struct ax_later *a);
void ax_later_free(struct ax_later *a);

#endif
