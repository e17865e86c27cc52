/* The optimizers' updates. */
#include "kernels/ops/family.h"

struct update_options {
    bool copy;       /* a compute copy is written */
    bool bf16_state; /* moments are BF16 */
    bool nearest;    /* and rounded to nearest */
    bool remainder;  /* masters are BF16 plus 16 bits; not with float64 */
    bool stochastic; /* masters are BF16; not with float64 */
    bool nesterov;
    bool vector;     /* adafactor: not a matrix */
    bool torch;      /* adafactor: torch's, else transformers' */
    bool scale;      /* adafactor: scale_parameter */
    double momentum; /* sgd */
};
#define UPDATE(...) OPTIONS(update_options, __VA_ARGS__)

/* Dense, and of the same shape as the (dense) tensor `as`. */
static bool is_like(tensor t, enum ax_dtype dtype, tensor as) {
    return given(t) && t->dtype == dtype && same_shape(t, as) && ax_tensor_is_dense(t) &&
           ax_tensor_is_dense(as);
}

/* Masters are accumulation dtype, or BF16 with or without a remainder; a copy goes only with the
 * first, in a compute dtype that has this accumulation dtype. */
static bool weights_fit(tensor master, tensor copy, tensor remainder) {
    if (master->dtype == AX_BF16) {
        return given(master) && !given(copy) &&
               (!given(remainder) || is_like(remainder, AX_I16, master));
    }
    return given(master) && sums(master) && !given(remainder) &&
           (!given(copy) ||
            (real(copy) && accum(copy) == master->dtype && is_like(copy, copy->dtype, master)));
}

static bool is_moment(tensor t, tensor grad) {
    return is_like(t, grad->dtype, grad) || is_like(t, AX_BF16, grad);
}

/* [rows][cols], or 1-D if rows is 0; the flags select how masters are kept. */
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
    const struct update_options *o = ax_case_options(b);
    struct update_operands u = {.copy = {.dtype = b->real},
                                .remainder = {.dtype = AX_I16},
                                .draw = {.stream = 77, .first = b->shape->first}};
    if (b->shape->inner > 0) { /* a slice of the parameter's columns */
        u.draw.row = b->shape->inner;
        u.draw.gap = 19;
        u.draw.column = 2;
    }
    const bool split = o->remainder && b->real != AX_F64;
    const bool drawn = o->stochastic && b->real != AX_F64;
    u.master = place_random(b, split || drawn ? AX_BF16 : b->accum, -1);
    u.grad = place_random(b, b->accum, -1);
    if (split) {
        u.remainder = place(b, AX_I16);
        ax_case_randomize(b, &u.remainder, -32768, 32767);
    } else if (!drawn && o->copy) {
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
    const struct update_options *o = ax_case_options(b);
    return o->bf16_state ? AX_BF16 : b->accum;
}

static const char *check_adamw(const struct ax_adamw *a) {
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, accum(&a->master), &a->master));
    NEED(is_moment(&a->exp_avg, &a->grad) && is_moment(&a->exp_avg_sq, &a->grad));
    NEED(a->exp_avg.dtype == a->exp_avg_sq.dtype);
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(adamw, 16, master)

static void build_adamw(struct ax_case_builder *b, struct ax_adamw *a) {
    const struct update_options *o = ax_case_options(b);
    TAKE(a);
    a->grad = u.grad;
    a->exp_avg = place_random(b, moments(b), -1);
    a->exp_avg_sq = place_random(b, moments(b), 0.01);
    a->beta1 = 0.9;
    a->beta2 = 0.99;
    a->eps = 1e-8;
    a->weight_decay = 0.1;
    a->nearest = o->nearest;
}

static const struct ax_shape shapes_adamw[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003},
    {"first step", .cols = 37, .flags = AX_SHAPE_FIRST_STEP, UPDATE(.copy = true)},
    {"copy", .cols = 70, UPDATE(.copy = true)},
    {"skipped", .cols = 70, .flags = AX_SHAPE_SKIP, UPDATE(.copy = true)},
    {"bf16 moments", .cols = 1003, .first = 5, UPDATE(.bf16_state = true, .copy = true)},
    {"bf16 moments, nearest", .cols = 70, UPDATE(.bf16_state = true, .nearest = true)},
    {"remainder", .cols = 1003, UPDATE(.remainder = true)},
    {"bf16 master", .cols = 40001, .first = 3, UPDATE(.stochastic = true)},
    {"all bf16", .cols = 1003, .first = 2, UPDATE(.stochastic = true, .bf16_state = true)},
    {"all bf16, slice", .cols = 1003, .first = 2, .inner = 37,
     UPDATE(.stochastic = true, .bf16_state = true)},
    {"gate_up", .big = true, .cols = 3072 * 576, UPDATE(.copy = true)},
    {"gate_up, bf16 moments", .big = true, .cols = 3072 * 576,
     UPDATE(.copy = true, .bf16_state = true)},
    {"gate_up, remainder", .big = true, .cols = 3072 * 576, UPDATE(.remainder = true)},
    {"gate_up, bf16 master", .big = true, .cols = 3072 * 576,
     UPDATE(.stochastic = true, .bf16_state = true)},
    {"8B down, remainder, bf16 moments", .huge = true, .cols = 4096 * 14336,
     UPDATE(.remainder = true, .bf16_state = true)},
};

AX_OP_INFO(adamw, INOUT_ROWS(master), IN_ROWS(grad), INOUT_ROWS(exp_avg), INOUT_ROWS(exp_avg_sq),
           INOUT_ROWS(remainder), OUT_ROWS(copy));

static const char *check_adamw_8bit(const struct ax_adamw_8bit *a) {
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

PER_ELEMENT(adamw_8bit, 22, master) /* plus twice ·scale, ÷scale, |x|max */

/* The second moment's codes stand for large numbers, so that no update is large. */
static void build_adamw_8bit(struct ax_case_builder *b, struct ax_adamw_8bit *a) {
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

/* first: elements missing from the first block. */
static const struct ax_shape shapes_adamw_8bit[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003, UPDATE(.copy = true)},
    {"short first block", .cols = 700, .first = 56},
    {"within a block", .cols = 7, .first = 56},
    {"first step", .cols = 256, .flags = AX_SHAPE_FIRST_STEP, UPDATE(.copy = true)},
    {"skipped", .cols = 70, .flags = AX_SHAPE_SKIP, UPDATE(.copy = true)},
    {"remainder", .cols = 1003, UPDATE(.remainder = true)},
    {"bf16 master", .cols = 40001, .first = 3, UPDATE(.stochastic = true)},
    {"gate_up", .big = true, .cols = 3072 * 576, UPDATE(.copy = true)},
    {"8B down, remainder", .huge = true, .cols = 4096 * 14336, UPDATE(.remainder = true)},
};

AX_OP_INFO(adamw_8bit, INOUT(master), IN(grad), INOUT(exp_avg), INOUT(exp_avg_sq),
           INOUT(exp_avg_scale), INOUT(exp_avg_sq_scale), INOUT(remainder), OUT(copy));

static const char *check_sgd(const struct ax_sgd *a) {
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, accum(&a->master), &a->master));
    NEED(given(&a->momentum_buffer) == (a->momentum != 0));
    NEED(!given(&a->momentum_buffer) || is_like(&a->momentum_buffer, a->grad.dtype, &a->grad));
    NEED(a->scalars != NULL);
    return NULL;
}

static struct ax_op_cost cost_sgd(const struct ax_sgd *a) {
    double flops = a->momentum_buffer.data == NULL ? 5 : a->nesterov ? 9 : 7;
    return ax_op_per_element(ax_operands_sgd(), a, flops, &a->master);
}

static void build_sgd(struct ax_case_builder *b, struct ax_sgd *a) {
    const struct update_options *o = ax_case_options(b);
    TAKE(a);
    a->grad = u.grad;
    a->momentum = o->momentum;
    if (a->momentum != 0)
        a->momentum_buffer = place_random(b, b->accum, -1);
    a->weight_decay = 0.1;
    a->nesterov = o->nesterov;
}

static const struct ax_shape shapes_sgd[] = {
    {"plain", .cols = 1003},
    {"momentum", .cols = 37, UPDATE(.copy = true, .momentum = 0.9)},
    {"first step", .cols = 37, .flags = AX_SHAPE_FIRST_STEP, UPDATE(.momentum = 0.9)},
    {"nesterov", .cols = 70, UPDATE(.nesterov = true, .copy = true, .momentum = 0.9)},
    {"skipped", .cols = 70, .flags = AX_SHAPE_SKIP, UPDATE(.copy = true, .momentum = 0.9)},
    {"remainder", .cols = 1003, UPDATE(.remainder = true, .momentum = 0.9)},
    {"bf16 master", .cols = 1003, .first = 1, UPDATE(.stochastic = true)},
    {"gate_up", .big = true, .cols = 3072 * 576, UPDATE(.copy = true, .momentum = 0.9)},
};

AX_OP_INFO(sgd, INOUT_ROWS(master), IN_ROWS(grad), INOUT_ROWS(momentum_buffer),
           INOUT_ROWS(remainder), OUT_ROWS(copy));

static const char *check_lion(const struct ax_lion *a) {
    NEED(a->master.ndim == 1 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(is_like(&a->grad, accum(&a->master), &a->master));
    NEED(is_moment(&a->exp_avg, &a->grad));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(lion, 11, master)

static void build_lion(struct ax_case_builder *b, struct ax_lion *a) {
    TAKE(a);
    a->grad = u.grad;
    a->exp_avg = place_random(b, moments(b), -1);
    a->beta1 = 0.9;
    a->beta2 = 0.99;
    a->weight_decay = 0.1;
}

static const struct ax_shape shapes_lion[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003, UPDATE(.copy = true)},
    {"skipped", .cols = 70, .flags = AX_SHAPE_SKIP, UPDATE(.copy = true)},
    {"bf16 moment", .cols = 1003, .first = 5, UPDATE(.bf16_state = true)},
    {"remainder", .cols = 40001, UPDATE(.remainder = true, .bf16_state = true)},
    {"bf16 master", .cols = 1003, .first = 3, UPDATE(.stochastic = true)},
    {"gate_up", .big = true, .cols = 3072 * 576, UPDATE(.copy = true)},
};

AX_OP_INFO(lion, INOUT_ROWS(master), IN_ROWS(grad), INOUT_ROWS(exp_avg), INOUT_ROWS(remainder),
           OUT_ROWS(copy));

static const char *check_adafactor(const struct ax_adafactor *a) {
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

/* g²; rows, columns (4); the update (4); its square (2); weights (3). The gradient is read three
 * times: for the moments, the size of the update, and the update. */
static struct ax_op_cost cost_adafactor(const struct ax_adafactor *a) {
    struct ax_op_cost cost = ax_op_per_element(ax_operands_adafactor(), a, 14, &a->master);
    cost.bytes += 2 * bytes_of(&a->grad);
    return cost;
}

static void build_adafactor(struct ax_case_builder *b, struct ax_adafactor *a) {
    const struct update_options *o = ax_case_options(b);
    TAKE(a);
    a->grad = u.grad;
    a->torch = o->torch;
    if (o->vector) {
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
    a->scale_parameter = o->scale;
}

static const struct ax_shape shapes_adafactor[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37, UPDATE(.copy = true)},
    {"tall", .rows = 1100, .cols = 35},
    {"wide", .rows = 3, .cols = 1300, UPDATE(.scale = true)},
    {"torch", .rows = 20, .cols = 70, UPDATE(.torch = true, .copy = true)},
    {"vector", .cols = 1003, UPDATE(.vector = true, .copy = true)},
    {"torch, vector", .cols = 40, UPDATE(.vector = true, .torch = true)},
    {"first step", .rows = 9, .cols = 33, .flags = AX_SHAPE_FIRST_STEP},
    {"skipped", .rows = 9, .cols = 33, .flags = AX_SHAPE_SKIP, UPDATE(.copy = true)},
    {"remainder", .rows = 9, .cols = 33, UPDATE(.remainder = true, .scale = true)},
    {"bf16 master", .rows = 9, .cols = 600, .first = 5, UPDATE(.stochastic = true, .torch = true)},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, UPDATE(.copy = true)},
    {"8B down, remainder", .huge = true, .rows = 4096, .cols = 14336, UPDATE(.remainder = true)},
};

AX_OP_INFO(adafactor, INOUT(master), IN(grad), INOUT(row), INOUT(col), INOUT(exp_avg_sq),
           INOUT(remainder), OUT(copy));

static const char *check_muon_momentum(const struct ax_muon_momentum *a) {
    NEED(given(&a->grad) && a->grad.ndim == 2 && sums(&a->grad));
    NEED(is_like(&a->momentum_buffer, a->grad.dtype, &a->grad));
    NEED(real(&a->out) && accum(&a->out) == a->grad.dtype);
    NEED(is_like(&a->out, a->out.dtype, &a->grad));
    NEED(a->scalars != NULL);
    return NULL;
}

/* The sum of squares and the result are two passes over gradient and buffer. */
static struct ax_op_cost cost_muon_momentum(const struct ax_muon_momentum *a) {
    struct ax_op_cost cost = ax_op_per_element(ax_operands_muon_momentum(), a, 12, &a->grad);
    cost.bytes += bytes_of(&a->grad) + bytes_of(&a->momentum_buffer);
    return cost;
}

static void build_muon_momentum(struct ax_case_builder *b, struct ax_muon_momentum *a) {
    const struct update_options *o = ax_case_options(b);
    a->grad = place_random(b, b->accum, -1);
    a->momentum_buffer = place_random(b, b->accum, -1);
    a->out = place(b, b->real);
    a->momentum = 0.95;
    a->eps = 1e-7;
    a->nesterov = o->nesterov;
    a->scalars = b->scalars;
}

static const struct ax_shape shapes_muon_momentum[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37, UPDATE(.nesterov = true)},
    {"pieces", .rows = 300, .cols = 131},
    {"skipped", .rows = 9, .cols = 33, .flags = AX_SHAPE_SKIP},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, UPDATE(.nesterov = true)},
};

AX_OP_INFO(muon_momentum, IN(grad), INOUT(momentum_buffer), OUT(out));

static const char *check_muon_apply(const struct ax_muon_apply *a) {
    NEED(a->master.ndim == 2 && weights_fit(&a->master, &a->copy, &a->remainder));
    NEED(real(&a->update) && accum(&a->update) == accum(&a->master));
    NEED(is_like(&a->update, a->update.dtype, &a->master));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(muon_apply, 3, master)

static void build_muon_apply(struct ax_case_builder *b, struct ax_muon_apply *a) {
    TAKE(a);
    a->update = place_random(b, b->real, -1);
    a->ratio = 1.5;
    a->weight_decay = 0.1;
}

static const struct ax_shape shapes_muon_apply[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37, UPDATE(.copy = true)},
    {"pieces", .rows = 300, .cols = 131, UPDATE(.copy = true)},
    {"skipped", .rows = 9, .cols = 33, .flags = AX_SHAPE_SKIP, UPDATE(.copy = true)},
    {"remainder", .rows = 9, .cols = 33, UPDATE(.remainder = true)},
    {"bf16 master", .rows = 40, .cols = 1000, .first = 5, UPDATE(.stochastic = true)},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, UPDATE(.copy = true)},
};

AX_OP_INFO(muon_apply, INOUT(master), INOUT(remainder), IN(update), OUT(copy));
