/* SGD with optional (Nesterov) momentum; the formula is in kernels/ops.h. */
#include "optim/optimizer.h"

static int slots(const struct ax_optimizer_options *o, const char **names) {
    names[0] = "momentum_buffer";
    return o->momentum != 0;
}

static enum ax_status update(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u) {
    return ax_run_sgd(q, &(struct ax_sgd){.master = u->master,
                                          .grad = u->grad,
                                          .momentum_buffer = u->state[0],
                                          .copy = u->copy,
                                          .momentum = o->momentum,
                                          .weight_decay = u->weight_decay,
                                          .nesterov = o->nesterov,
                                          .scalars = u->scalars});
}

const struct ax_optimizer ax_optimizer_sgd = {"sgd", AX_SCOPE_ELEMENT, slots, update};
