/* What backward may leave for later: the gradients of matrices, for which no other layer waits. Of each
 * linear put off, copies of what its products read, x and dy, are in the slot's memory, from its end, in
 * place of the activations that backward releases. The products are the same ones, so are their sums. */
#ifndef AX_MODEL_LATER_H
#define AX_MODEL_LATER_H

#include "parallel/runtime.h"

struct ax_linear;
struct ax_unit;

struct ax_later_product {
    const struct ax_linear *linear;
    struct ax_tensor x, dy; /* rows as its backward was given them */
};

struct ax_later {
    struct ax_stack *stack;
    struct ax_later_product *list; /* owned */
    int n, cap, done;
};

/* For a linear in its backward. */
enum ax_status ax_later_add(struct ax_later *a, struct ax_runtime *rt, const struct ax_linear *l,
                            const struct ax_tensor *x, const struct ax_tensor *dy);
/* Those of a unit, which are the next. */
enum ax_status ax_later_run(struct ax_later *a, struct ax_runtime *rt, const struct ax_unit *unit);
/* All are done: gives their memory back. */
void ax_later_end(struct ax_later *a);
void ax_later_free(struct ax_later *a);

#endif
