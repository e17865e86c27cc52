/* Cases of the optimizers' updates. */
#include "kernels/cases_builder.h"

/* [rows][cols], or 1-D where rows is 0; what the flags make of masters goes with it. */
struct update_operands {
    struct ax_tensor master, grad, copy, remainder;
    struct ax_draw draw;
};

static struct ax_tensor place(struct ax_case_builder *b, enum ax_dtype dtype) {
    const struct ax_shape *s = b->shape;
    return s->rows > 0 ? ax_case_dense2(b, dtype, s->rows, s->cols)
                       : ax_case_out1(b, dtype, s->cols);
}

static struct ax_tensor place_random(struct ax_case_builder *b, enum ax_dtype dtype, double low) {
    struct ax_tensor t = place(b, dtype);
    ax_case_randomize(b, &t, low, 1);
    return t;
}

static struct update_operands operands(struct ax_case_builder *b) {
    struct update_operands u = {.copy = {.dtype = b->real},
                                .remainder = {.dtype = AX_I16},
                                .draw = {.stream = 77, .first = b->shape->first}};
    if (b->shape->inner > 0) { /* a slice of the parameter's columns */
        u.draw.row = b->shape->inner;
        u.draw.gap = 19;
        u.draw.column = 2;
    }
    const bool split = ax_case_has(b, AX_SHAPE_REMAINDER) && b->real != AX_F64;
    const bool drawn = ax_case_has(b, AX_SHAPE_STOCHASTIC) && b->real != AX_F64;
    u.master = place_random(b, split || drawn ? AX_BF16 : b->accum, -1);
    u.grad = place_random(b, b->accum, -1);
    if (split) {
        u.remainder = place(b, AX_I16);
        ax_case_randomize(b, &u.remainder, -32768, 32767);
    } else if (!drawn && ax_case_has(b, AX_SHAPE_COPY)) {
        u.copy = place(b, b->real);
    }
    return u;
}

#define TAKE(args)                                                                                 \
    const struct update_operands u = operands(b);                                                  \
    (args)->master = u.master;                                                                     \
    (args)->copy = u.copy;                                                                         \
    (args)->remainder = u.remainder;                                                               \
    (args)->draw = u.draw;                                                                         \
    (args)->scalars = b->scalars

static enum ax_dtype moments(const struct ax_case_builder *b) {
    return ax_case_has(b, AX_SHAPE_BF16_STATE) ? AX_BF16 : b->accum;
}

void ax_case_build_adamw(struct ax_case_builder *b, struct ax_adamw *a) {
    TAKE(a);
    a->grad = u.grad;
    a->exp_avg = place_random(b, moments(b), -1);
    a->exp_avg_sq = place_random(b, moments(b), 0.01);
    a->beta1 = 0.9;
    a->beta2 = 0.99;
    a->eps = 1e-8;
    a->weight_decay = 0.1;
    a->nearest = ax_case_has(b, AX_SHAPE_NEAREST);
}

/* The second moment's codes are those of sizeable numbers, so that no update is large. */
void ax_case_build_adamw_8bit(struct ax_case_builder *b, struct ax_adamw_8bit *a) {
    TAKE(a);
    a->grad = u.grad;
    a->phase = b->shape->first;
    const int64_t blocks = (a->phase + b->shape->cols + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
    a->exp_avg = place(b, AX_U8);
    ax_case_randomize(b, &a->exp_avg, 0, 255);
    a->exp_avg_sq = place(b, AX_U8);
    ax_case_randomize(b, &a->exp_avg_sq, 100, 255);
    a->exp_avg_scale = ax_case_out1(b, b->accum, blocks);
    ax_case_randomize(b, &a->exp_avg_scale, 0.1, 1);
    a->exp_avg_sq_scale = ax_case_out1(b, b->accum, blocks);
    ax_case_randomize(b, &a->exp_avg_sq_scale, 0.1, 1);
    a->beta1 = 0.9;
    a->beta2 = 0.99;
    a->eps = 1e-8;
    a->weight_decay = 0.1;
}

void ax_case_build_sgd(struct ax_case_builder *b, struct ax_sgd *a) {
    TAKE(a);
    a->grad = u.grad;
    a->momentum = b->shape->momentum;
    if (a->momentum != 0) {
        a->momentum_buffer = place_random(b, b->accum, -1);
    }
    a->weight_decay = 0.1;
    a->nesterov = ax_case_has(b, AX_SHAPE_NESTEROV);
}

void ax_case_build_lion(struct ax_case_builder *b, struct ax_lion *a) {
    TAKE(a);
    a->grad = u.grad;
    a->exp_avg = place_random(b, moments(b), -1);
    a->beta1 = 0.9;
    a->beta2 = 0.99;
    a->weight_decay = 0.1;
}

void ax_case_build_adafactor(struct ax_case_builder *b, struct ax_adafactor *a) {
    TAKE(a);
    a->grad = u.grad;
    a->torch = ax_case_has(b, AX_SHAPE_TORCH);
    if (ax_case_has(b, AX_SHAPE_VECTOR)) {
        a->exp_avg_sq = place_random(b, b->accum, 0.01);
    } else {
        a->row = ax_case_out1(b, b->accum, b->shape->rows);
        ax_case_randomize(b, &a->row, 0.01, 1);
        a->col = ax_case_out1(b, b->accum, b->shape->cols);
        ax_case_randomize(b, &a->col, 0.01, 1);
    }
    a->decay = -0.8;
    a->eps1 = a->torch ? 0x1p-23 : 1e-30;
    a->eps2 = 1e-3;
    a->threshold = 1;
    a->weight_decay = 0.1;
    a->scale_parameter = ax_case_has(b, AX_SHAPE_SCALE);
}

void ax_case_build_muon_momentum(struct ax_case_builder *b, struct ax_muon_momentum *a) {
    a->grad = place_random(b, b->accum, -1);
    a->momentum_buffer = place_random(b, b->accum, -1);
    a->out = place(b, b->real);
    a->momentum = 0.95;
    a->eps = 1e-7;
    a->nesterov = ax_case_has(b, AX_SHAPE_NESTEROV);
    a->scalars = b->scalars;
}

void ax_case_build_muon_apply(struct ax_case_builder *b, struct ax_muon_apply *a) {
    TAKE(a);
    a->update = place_random(b, b->real, -1);
    a->ratio = 1.5;
    a->weight_decay = 0.1;
}
