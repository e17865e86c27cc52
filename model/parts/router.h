/* The router of a mixture of experts: to which experts a token goes, their weights, and the
 * gradient of both. */
#ifndef AX_MODEL_PARTS_ROUTER_H
#define AX_MODEL_PARTS_ROUTER_H

#include "model/core/pass.h"

struct ax_builder;

void ax_router_init(struct ax_builder *b, struct ax_layer *l);
/* The router's decision on h [T][D]: sets probs [T][E], weights and experts [T][k]. */
struct ax_router_choice {
    struct ax_tensor probs, weights, experts;
};
enum ax_status ax_router_choose(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *h, const struct ax_router_choice *c);
/* dh += the gradient through the weights, given dweights [T][k], and that of the balancing loss; dW
 * likewise. */
enum ax_status ax_router_gradient(const struct ax_layer *l, struct ax_pass *p,
                                  const struct ax_router_choice *c,
                                  const struct ax_tensor *dweights, const struct ax_tensor *h,
                                  const struct ax_tensor *dh);

#endif
