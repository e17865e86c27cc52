/* AdamW (Loshchilov & Hutter 2019): two moments per element; the formula is in kernels/ops.h. */
#include "optim/optimizer.h"

static int slots(const struct ax_optimizer_options *o, const char **names) {
    (void)o;
    names[0] = "exp_avg";
    names[1] = "exp_avg_sq";
    return 2;
}

static enum ax_status update(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u) {
    return ax_run_adamw(q, &(struct ax_adamw){.master = u->master,
                                              .grad = u->grad,
                                              .exp_avg = u->state[0],
                                              .exp_avg_sq = u->state[1],
                                              .copy = u->copy,
                                              .beta1 = o->beta1,
                                              .beta2 = o->beta2,
                                              .eps = o->eps,
                                              .weight_decay = u->weight_decay,
                                              .scalars = u->scalars});
}

const struct ax_optimizer ax_optimizer_adamw = {"adamw", AX_SCOPE_ELEMENT, slots, update};
