/* Time step and decay of Mamba-2's recurrence, forward and backward. */
#include <math.h>

#include "kernels/ops/family.h"

static const char *check_step(tensor a, tensor log, tensor bias, double low, double high) {
    NEED(a->ndim == 2 && real(a) && is_2d(a, a->dtype, a->shape[0], a->shape[1]));
    NEED(is_1d(log, a->dtype, a->shape[1]) && is_1d(bias, a->dtype, a->shape[1]));
    NEED(low >= 0 && low < high);
    return NULL;
}

static const char *check_ssd_gates_forward(const struct ax_ssd_gates_forward *f) {
    const char *broken = check_step(&f->a, &f->log, &f->bias, f->low, f->high);
    if (broken)
        return broken;
    NEED(is_2d(&f->g, accum(&f->a), f->a.shape[0], f->a.shape[1]));
    NEED(is_2d(&f->step, accum(&f->a), f->a.shape[0], f->a.shape[1]));
    return NULL;
}

/* +, exp, 1+, ln, two bounds, exp, ·, − */
PER_ELEMENT(ssd_gates_forward, 9, a)

static struct ax_tensor step_input(struct ax_case_builder *b) {
    struct ax_tensor t = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols);
    ax_case_randomize(b, &t, -3, 3);
    return t;
}

/* Those with `first` have bounds that some steps exceed. */
static double low_of(const struct ax_shape *s) {
    return s->first > 0 ? 0.25 : 0;
}
static double high_of(const struct ax_shape *s) {
    return s->first > 0 ? 1.5 : (double)INFINITY;
}

static void build_ssd_gates_forward(struct ax_case_builder *b, struct ax_ssd_gates_forward *f) {
    const struct ax_shape *s = b->shape;
    f->a = step_input(b);
    f->log = ax_case_in1(b, b->real, s->cols);
    f->bias = ax_case_in1(b, b->real, s->cols);
    f->g = ax_case_out2(b, b->accum, s->rows, s->cols);
    f->step = ax_case_out2(b, b->accum, s->rows, s->cols);
    f->low = low_of(s);
    f->high = high_of(s);
}

static const struct ax_shape shapes_ssd_gates_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"tokens", .rows = 70, .cols = 5},
    {"bounded", .rows = 66, .cols = 12, .pad = 4, .first = 1},
    {"row", .big = true, .rows = 2048, .cols = 48, .pad = 16},
};

AX_OP_INFO(ssd_gates_forward, IN(a), IN(log), IN(bias), OUT(g), OUT(step));

static const char *check_ssd_gates_backward(const struct ax_ssd_gates_backward *b) {
    const char *broken = check_step(&b->a, &b->log, &b->bias, b->low, b->high);
    if (broken)
        return broken;
    const int64_t tokens = b->a.shape[0], heads = b->a.shape[1];
    NEED(is_2d(&b->dg, accum(&b->a), tokens, heads));
    NEED(is_2d(&b->dstep, accum(&b->a), tokens, heads));
    NEED(is_2d(&b->shares, accum(&b->a), tokens, heads));
    NEED(is_2d(&b->da, b->a.dtype, tokens, heads));
    NEED(!given(&b->dlog) || is_1d(&b->dlog, accum(&b->a), heads));
    NEED(!given(&b->dbias) || is_1d(&b->dbias, accum(&b->a), heads));
    NEED(!given(&b->dskip) || is_1d(&b->dskip, accum(&b->a), heads));
    return NULL;
}

/* the step again but for a product; σ(a + bias) 3, da 3, two sums and a product, another sum */
PER_ELEMENT(ssd_gates_backward, 18, a)

static void build_ssd_gates_backward(struct ax_case_builder *b, struct ax_ssd_gates_backward *f) {
    const struct ax_shape *s = b->shape;
    f->dg = ax_case_in2(b, b->accum, s->rows, s->cols);
    f->dstep = ax_case_in2(b, b->accum, s->rows, s->cols);
    f->shares = ax_case_in2(b, b->accum, s->rows, s->cols);
    f->a = step_input(b);
    f->log = ax_case_in1(b, b->real, s->cols);
    f->bias = ax_case_in1(b, b->real, s->cols);
    f->da = ax_case_out2(b, b->real, s->rows, s->cols);
    f->dlog = ax_case_in1(b, b->accum, s->cols);
    f->dbias = ax_case_in1(b, b->accum, s->cols);
    f->dskip = ax_case_in1(b, b->accum, s->cols);
    f->low = low_of(s);
    f->high = high_of(s);
}

#define shapes_ssd_gates_backward shapes_ssd_gates_forward

AX_OP_INFO(ssd_gates_backward, IN(dg), IN(dstep), IN(shares), IN(a), IN(log), IN(bias), OUT(da),
           INOUT(dlog), INOUT(dbias), INOUT(dskip));
