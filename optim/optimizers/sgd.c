/* SGD with optional (Nesterov) momentum; the formula is in kernels/ops.h. */
#include "optim/optimizers/optimizer.h"

/* torch.optim.SGD's: no momentum, no decay. */
static void defaults(struct ax_optimizer_options *o) {
    o->momentum = 0;
}

static int slots(const struct ax_optimizer_options *o, const struct ax_piece *p,
                 struct ax_slot_size *s) {
    s[0] = (struct ax_slot_size){"momentum_buffer", p->accum, p->n, AX_STATE_ELEMENTS};
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
                                          .scalars = u->scalars,
                                          .remainder = u->remainder,
                                          .draw = u->draw});
}

const struct ax_optimizer ax_optimizer_sgd = {"sgd", AX_SCOPE_ELEMENT, defaults, slots, update};
