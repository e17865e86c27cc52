/* Adafactor (Shazeer & Stern 2018): for a matrix it keeps one second moment per row and column; the
 * formulas, torch's and transformers', are in kernels/ops.h. */
#include "optim/optimizers/optimizer.h"

#include "optim/optimizers/matrix.h"

/* Like transformers' Trainer: the learning rate is the schedule's. */
static void defaults(struct ax_optimizer_options *o) {
    o->eps = 1e-30;
    o->eps2 = 1e-3;
    o->decay_rate = -0.8;
    o->clip_threshold = 1;
}

static int slots(const struct ax_optimizer_options *o, const struct ax_piece *p,
                 struct ax_slot_size *s) {
    (void)o;
    s[0] = (struct ax_slot_size){"exp_avg_sq", p->accum, p->n, AX_STATE_ELEMENTS};
    if (p->cols == 0)
        return 1;
    s[0] = (struct ax_slot_size){"exp_avg_sq_row", p->accum, p->rows, AX_STATE_WHOLE};
    s[1] = (struct ax_slot_size){"exp_avg_sq_col", p->accum, p->cols, AX_STATE_WHOLE};
    return 2;
}

static enum ax_status update(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u) {
    const bool matrix = u->piece.cols > 0;
    struct ax_adafactor a = {.master = ax_as_matrix(&u->master, &u->piece),
                             .grad = ax_as_matrix(&u->grad, &u->piece),
                             .copy = ax_as_matrix(&u->copy, &u->piece),
                             .decay = o->decay_rate,
                             .eps1 = o->eps,
                             .eps2 = o->eps2,
                             .threshold = o->clip_threshold,
                             .weight_decay = u->weight_decay,
                             .torch = o->torch_rule,
                             .scale_parameter = o->scale_parameter,
                             .scalars = u->scalars,
                             .remainder = ax_as_matrix(&u->remainder, &u->piece),
                             .draw = u->draw};
    if (matrix) {
        a.row = u->state[0];
        a.col = u->state[1];
    } else {
        a.exp_avg_sq = u->state[0];
    }
    return ax_run_adafactor(q, &a);
}

const struct ax_optimizer ax_optimizer_adafactor = {"adafactor", AX_SCOPE_MATRIX, defaults, slots,
                                                    update};
