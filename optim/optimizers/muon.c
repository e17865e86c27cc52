/* Muon (K. Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024): the momentum
 * of a hidden matrix is replaced by the nearest matrix whose singular values are all about 1, using
 * only matrix products. Everything else (embedding, head, vectors) goes to AdamW.
 *
 * One Newton–Schulz step, with a, b, c = 3.4445, −4.7750, 2.0315 and A = X·Xᵀ:
 *   X ← a·X + (b·A + c·A·A)·X
 * For a matrix taller than wide, multiplies from the right with the smaller A = Xᵀ·X. */
#include <math.h>

#include "optim/optimizers/matrix.h"

static void defaults(struct ax_optimizer_options *o) {
    ax_optimizer_adamw.defaults(o);
    o->momentum = 0.95;
    o->nesterov = true;
    o->weight_decay = 0.1;
    o->ns_steps = 5;
}

static int slots(const struct ax_optimizer_options *o, const struct ax_piece *p,
                 struct ax_slot_size *s) {
    if (!p->hidden)
        return ax_optimizer_adamw.slots(o, p, s);
    s[0] = (struct ax_slot_size){"momentum_buffer", p->accum, p->n, AX_STATE_ELEMENTS};
    return 1;
}

static struct ax_tensor take(struct ax_queue *q, enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return ax_stack_take(q->scratch, "matrix iteration", ax_tensor_2d(dtype, NULL, rows, cols));
}

/* dst = alpha·src + beta·a·b */
static enum ax_status multiply_add(struct ax_queue *q, const struct ax_tensor *dst, double alpha,
                                   const struct ax_tensor *src, double beta,
                                   const struct ax_tensor *a, const struct ax_tensor *b) {
    AX_TRY(ax_run_fill(q, &(struct ax_fill){*dst, 0}));
    AX_TRY(ax_run_add(q, &(struct ax_add){*dst, *src, alpha}));
    return ax_run_gemm(
        q, &(struct ax_gemm){.a = *a, .b = *b, .c = *dst, .accumulate = true, .alpha = beta});
}

static enum ax_status iterate(struct ax_queue *q, int steps, struct ax_tensor *x) {
    const bool tall = x->shape[0] > x->shape[1];
    const int64_t side = tall ? x->shape[1] : x->shape[0];
    const struct ax_tensor square = take(q, x->dtype, side, side);
    const struct ax_tensor factor = take(q, x->dtype, side, side);
    struct ax_tensor next = take(q, x->dtype, x->shape[0], x->shape[1]);
    for (int i = 0; i < steps; i++) {
        AX_TRY(ax_run_gemm(
            q, &(struct ax_gemm){
                   .a = *x, .b = *x, .c = square, .trans_a = tall, .trans_b = !tall, .alpha = 1}));
        AX_TRY(multiply_add(q, &factor, -4.7750, &square, 2.0315, &square, &square));
        AX_TRY(multiply_add(q, &next, 3.4445, x, 1, tall ? x : &factor, tall ? &factor : x));
        const struct ax_tensor swap = *x;
        *x = next;
        next = swap;
    }
    return AX_OK;
}

enum ax_status ax_muon_orthogonalize(struct ax_queue *q, int steps, struct ax_tensor *x) {
    const struct ax_tensor home = *x;
    const size_t mark = ax_stack_mark(q->scratch);
    enum ax_status st = iterate(q, steps, x);
    if (st == AX_OK && x->data != home.data)
        st = ax_run_copy(q, &(struct ax_copy){home, *x});
    *x = home;
    ax_stack_release(q->scratch, mark);
    return st;
}

static double ratio(const struct ax_optimizer_options *o, const struct ax_piece *p) {
    const double rows = (double)p->rows, cols = (double)p->cols;
    return o->match_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
}

static enum ax_status update_hidden(struct ax_queue *q, const struct ax_optimizer_options *o,
                                    const struct ax_update *u, struct ax_tensor *x) {
    AX_TRY(ax_run_muon_momentum(
        q, &(struct ax_muon_momentum){.grad = ax_as_matrix(&u->grad, &u->piece),
                                      .momentum_buffer = ax_as_matrix(&u->state[0], &u->piece),
                                      .out = *x,
                                      .momentum = o->momentum,
                                      .eps = 1e-7,
                                      .nesterov = o->nesterov,
                                      .scalars = u->scalars}));
    AX_TRY(ax_muon_orthogonalize(q, o->ns_steps, x));
    return ax_run_muon_apply(
        q, &(struct ax_muon_apply){.master = ax_as_matrix(&u->master, &u->piece),
                                   .update = *x,
                                   .copy = ax_as_matrix(&u->copy, &u->piece),
                                   .ratio = ratio(o, &u->piece),
                                   .weight_decay = u->weight_decay,
                                   .scalars = u->scalars,
                                   .remainder = ax_as_matrix(&u->remainder, &u->piece),
                                   .draw = u->draw});
}

/* The iteration runs in compute dtype: that of the copy, or of the master. */
static enum ax_status update(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u) {
    if (!u->piece.hidden)
        return ax_optimizer_adamw.update(q, o, u);
    const size_t mark = ax_stack_mark(q->scratch);
    struct ax_tensor x =
        take(q, u->copy.data ? u->copy.dtype : u->master.dtype, u->piece.rows, u->piece.cols);
    const enum ax_status st = update_hidden(q, o, u, &x);
    ax_stack_release(q->scratch, mark);
    return st;
}

const struct ax_optimizer ax_optimizer_muon = {"muon", AX_SCOPE_MATRIX, defaults, slots, update};
