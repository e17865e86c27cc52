/* The conditions of the optimizers' updates: see ops_check.c. */
#include "kernels/ops_check.h"

static bool is_accum(enum ax_dtype dtype) {
    return dtype == AX_F32 || dtype == AX_F64;
}

/* Dense, and of the same shape as the (dense) tensor `as`. */
static bool is_like(tensor t, enum ax_dtype dtype, tensor as) {
    return given(t) && t->dtype == dtype && same_shape(t, as) && ax_tensor_is_dense(t) &&
           ax_tensor_is_dense(as);
}

/* Masters are accum, or BF16 with or without a remainder; a copy goes with the first only and has a
 * compute dtype whose masters these are. */
static bool weights_fit(tensor master, tensor copy, tensor remainder) {
    if (master->dtype == AX_BF16) {
        return given(master) && !given(copy) &&
               (!given(remainder) || is_like(remainder, AX_I16, master));
    }
    return given(master) && is_accum(master->dtype) && !given(remainder) &&
           (!given(copy) ||
            (real(copy) && accum(copy) == master->dtype && is_like(copy, copy->dtype, master)));
}

static bool is_moment(tensor t, tensor grad) {
    return is_like(t, grad->dtype, grad) || is_like(t, AX_BF16, grad);
}

const char *ax_check_adamw(const struct ax_adamw *a) {
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, accum(&a->master), &a->master));
    NEED(is_moment(&a->exp_avg, &a->grad) && is_moment(&a->exp_avg_sq, &a->grad));
    NEED(a->exp_avg.dtype == a->exp_avg_sq.dtype);
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_adamw_8bit(const struct ax_adamw_8bit *a) {
    NEED(a->phase >= 0 && a->phase < AX_8BIT_BLOCK);
    const int64_t blocks = (a->phase + a->master.shape[0] + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
    enum ax_dtype sums = accum(&a->master);
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, sums, &a->master));
    NEED(is_like(&a->exp_avg, AX_U8, &a->grad) && is_like(&a->exp_avg_sq, AX_U8, &a->grad));
    NEED(is_1d(&a->exp_avg_scale, sums, blocks) && is_1d(&a->exp_avg_sq_scale, sums, blocks));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_sgd(const struct ax_sgd *a) {
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, accum(&a->master), &a->master));
    NEED(given(&a->momentum_buffer) == (a->momentum != 0));
    NEED(!given(&a->momentum_buffer) || is_like(&a->momentum_buffer, a->grad.dtype, &a->grad));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_lion(const struct ax_lion *a) {
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, accum(&a->master), &a->master));
    NEED(is_moment(&a->exp_avg, &a->grad));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_adafactor(const struct ax_adafactor *a) {
    enum ax_dtype sums = accum(&a->master);
    NEED(weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, sums, &a->master));
    NEED(a->master.ndim == 1 || a->master.ndim == 2);
    NEED(a->master.ndim != 1 || is_like(&a->exp_avg_sq, sums, &a->grad));
    NEED(a->master.ndim != 2 ||
         (is_1d(&a->row, sums, a->master.shape[0]) && is_1d(&a->col, sums, a->master.shape[1])));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_muon_momentum(const struct ax_muon_momentum *a) {
    NEED(given(&a->grad) && a->grad.ndim == 2 && is_accum(a->grad.dtype));
    NEED(is_like(&a->momentum_buffer, a->grad.dtype, &a->grad));
    NEED(real(&a->out) && accum(&a->out) == a->grad.dtype);
    NEED(is_like(&a->out, a->out.dtype, &a->grad));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_muon_apply(const struct ax_muon_apply *a) {
    NEED(a->master.ndim == 2 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(real(&a->update) && accum(&a->update) == accum(&a->master));
    NEED(is_like(&a->update, a->update.dtype, &a->master));
    NEED(a->scalars != NULL);
    return NULL;
}
