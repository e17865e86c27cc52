/* Lion (Chen et al. 2023): steps of constant size, by the sign of one moment; the formula is in
 * kernels/ops.h. */
#include "optim/optimizers/optimizer.h"

static void defaults(struct ax_optimizer_options *o) {
    o->beta1 = 0.9;
    o->beta2 = 0.99;
}

static int slots(const struct ax_optimizer_options *o, const struct ax_piece *p,
                 struct ax_slot_size *s) {
    const enum ax_dtype dtype = o->moments == AX_MOMENTS_FULL ? p->accum : AX_BF16;
    s[0] = (struct ax_slot_size){"exp_avg", dtype, p->n, AX_STATE_ELEMENTS};
    return 1;
}

static enum ax_status update(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u) {
    return ax_run_lion(q, &(struct ax_lion){.master = u->master,
                                            .grad = u->grad,
                                            .exp_avg = u->state[0],
                                            .copy = u->copy,
                                            .beta1 = o->beta1,
                                            .beta2 = o->beta2,
                                            .weight_decay = u->weight_decay,
                                            .scalars = u->scalars,
                                            .remainder = u->remainder,
                                            .draw = u->draw});
}

const struct ax_optimizer ax_optimizer_lion = {"lion", AX_SCOPE_ELEMENT, defaults, slots, update};
