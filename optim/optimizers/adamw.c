/* AdamW (Loshchilov & Hutter 2019): two moments per element; the formulas are in kernels/ops.h. */
#include "optim/optimizers/optimizer.h"

static void defaults(struct ax_optimizer_options *o) {
    o->beta1 = 0.9;
    o->beta2 = 0.999;
    o->eps = 1e-8;
    o->weight_decay = 0.01;
}

static int slots(const struct ax_optimizer_options *o, const struct ax_piece *p,
                 struct ax_slot_size *s) {
    if (o->moments == AX_MOMENTS_8BIT) {
        const int64_t blocks = (p->phase + p->n + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
        s[0] = (struct ax_slot_size){"exp_avg", AX_U8, p->n, AX_STATE_SIGNED_CODES};
        s[1] = (struct ax_slot_size){"exp_avg_sq", AX_U8, p->n, AX_STATE_UNSIGNED_CODES};
        s[2] = (struct ax_slot_size){"exp_avg_scale", p->accum, blocks, AX_STATE_BLOCKS};
        s[3] = (struct ax_slot_size){"exp_avg_sq_scale", p->accum, blocks, AX_STATE_BLOCKS};
        return 4;
    }
    const enum ax_dtype dtype = o->moments == AX_MOMENTS_FULL ? p->accum : AX_BF16;
    s[0] = (struct ax_slot_size){"exp_avg", dtype, p->n, AX_STATE_ELEMENTS};
    s[1] = (struct ax_slot_size){"exp_avg_sq", dtype, p->n, AX_STATE_ELEMENTS};
    return 2;
}

static enum ax_status update_8bit(struct ax_queue *q, const struct ax_optimizer_options *o,
                                  const struct ax_update *u) {
    return ax_run_adamw_8bit(q, &(struct ax_adamw_8bit){.master = u->master,
                                                        .grad = u->grad,
                                                        .exp_avg = u->state[0],
                                                        .exp_avg_sq = u->state[1],
                                                        .exp_avg_scale = u->state[2],
                                                        .exp_avg_sq_scale = u->state[3],
                                                        .copy = u->copy,
                                                        .beta1 = o->beta1,
                                                        .beta2 = o->beta2,
                                                        .eps = o->eps,
                                                        .weight_decay = u->weight_decay,
                                                        .scalars = u->scalars,
                                                        .remainder = u->remainder,
                                                        .draw = u->draw,
                                                        .phase = u->piece.phase});
}

static enum ax_status update(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u) {
    if (o->moments == AX_MOMENTS_8BIT)
        return update_8bit(q, o, u);
    return ax_run_adamw(q, &(struct ax_adamw){.master = u->master,
                                              .grad = u->grad,
                                              .exp_avg = u->state[0],
                                              .exp_avg_sq = u->state[1],
                                              .copy = u->copy,
                                              .beta1 = o->beta1,
                                              .beta2 = o->beta2,
                                              .eps = o->eps,
                                              .weight_decay = u->weight_decay,
                                              .scalars = u->scalars,
                                              .remainder = u->remainder,
                                              .draw = u->draw,
                                              .nearest = o->moments == AX_MOMENTS_BF16_NEAREST});
}

const struct ax_optimizer ax_optimizer_adamw = {"adamw", AX_SCOPE_BLOCK, defaults, slots, update};
