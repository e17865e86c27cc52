/* Decay and strength of the gated delta rule, forward and backward. */
#include "kernels/ops/family.h"

/* As another of the gates. */
static bool is_gate(tensor t, tensor a) {
    return is_2d(t, a->dtype, a->shape[0], a->shape[1]);
}
static const char *check_gates(tensor a, tensor b, tensor log, tensor bias) {
    NEED(b->ndim == 2 && real(b) && b->shape[1] > 0 && is_gate(b, b));
    NEED(is_1d(log, b->dtype, log->shape[0]) && is_1d(bias, b->dtype, bias->shape[0]));
    NEED(log->shape[0] > 0 && log->shape[0] % b->shape[1] == 0);
    NEED(bias->shape[0] > 0 && bias->shape[0] % log->shape[0] == 0);
    NEED(b->shape[0] % (log->shape[0] / b->shape[1]) == 0);
    NEED(is_2d(a, b->dtype, b->shape[0], b->shape[1] * (bias->shape[0] / log->shape[0])));
    return NULL;
}

static const char *check_delta_gates_forward(const struct ax_delta_gates_forward *f) {
    const char *broken = check_gates(&f->a, &f->b, &f->log, &f->bias);
    if (broken)
        return broken;
    NEED(is_2d(&f->g, accum(&f->a), f->a.shape[0], f->a.shape[1]));
    NEED(is_2d(&f->beta, accum(&f->b), f->b.shape[0], f->b.shape[1]));
    return NULL;
}

/* +, exp, 1+, ln, exp, ·, −; −, exp, 1+, ÷, · */
PER_ELEMENT(delta_gates_forward, 12, a)

/* Decays of a head. */
static int64_t width_of(const struct ax_shape *s) {
    return s->head_dim > 0 ? s->head_dim : 1;
}

static struct ax_tensor gate(struct ax_case_builder *b, int64_t width) {
    struct ax_tensor t = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols * width);
    ax_case_randomize(b, &t, -3, 3);
    return t;
}
static void build_delta_gates_forward(struct ax_case_builder *b, struct ax_delta_gates_forward *f) {
    const struct ax_shape *s = b->shape;
    f->a = gate(b, width_of(s));
    f->b = gate(b, 1);
    f->log = ax_case_in1(b, b->real, s->heads);
    f->bias = ax_case_in1(b, b->real, s->heads * width_of(s));
    f->g = ax_case_out2(b, b->accum, s->rows, s->cols * width_of(s));
    f->beta = ax_case_out2(b, b->accum, s->rows, s->cols);
    f->scale = s->first > 0 ? 2 : 1;
}

static const struct ax_shape shapes_delta_gates_forward[] = {
    {"one", .rows = 1, .cols = 1, .heads = 1},
    {"tokens", .rows = 70, .cols = 5, .heads = 5},
    {"key heads", .rows = 66, .cols = 4, .heads = 12, .pad = 4, .first = 1},
    {"channels", .rows = 35, .cols = 3, .heads = 3, .head_dim = 20, .pad = 4},
    {"channels of key heads", .rows = 12, .cols = 2, .heads = 6, .head_dim = 5},
    {"row", .big = true, .rows = 2048 * 16, .cols = 2, .heads = 32, .pad = 2},
    {"row of channels", .big = true, .rows = 2048, .cols = 8, .heads = 8, .head_dim = 128},
};

AX_OP_INFO(delta_gates_forward, IN(a), IN(b), IN(log), IN(bias), OUT(g), OUT(beta));

static const char *check_delta_gates_backward(const struct ax_delta_gates_backward *b) {
    const char *broken = check_gates(&b->a, &b->b, &b->log, &b->bias);
    if (broken)
        return broken;
    NEED(is_2d(&b->dg, accum(&b->a), b->a.shape[0], b->a.shape[1]));
    NEED(is_2d(&b->dbeta, accum(&b->b), b->b.shape[0], b->b.shape[1]));
    NEED(is_gate(&b->da, &b->a) && is_gate(&b->db, &b->b));
    NEED(!given(&b->dlog) || is_1d(&b->dlog, accum(&b->a), b->log.shape[0]));
    NEED(!given(&b->dbias) || is_1d(&b->dbias, accum(&b->a), b->bias.shape[0]));
    return NULL;
}

/* g and σ(b) again but for a product; σ(a + bias) 3, da 2, db 4, two sums of 3 */
PER_ELEMENT(delta_gates_backward, 23, a)

static void build_delta_gates_backward(struct ax_case_builder *b,
                                       struct ax_delta_gates_backward *f) {
    const struct ax_shape *s = b->shape;
    f->dg = ax_case_in2(b, b->accum, s->rows, s->cols * width_of(s));
    f->dbeta = ax_case_in2(b, b->accum, s->rows, s->cols);
    f->a = gate(b, width_of(s));
    f->b = gate(b, 1);
    f->log = ax_case_in1(b, b->real, s->heads);
    f->bias = ax_case_in1(b, b->real, s->heads * width_of(s));
    f->da = ax_case_out2(b, b->real, s->rows, s->cols * width_of(s));
    f->db = ax_case_out2(b, b->real, s->rows, s->cols);
    f->dlog = ax_case_in1(b, b->accum, s->heads);
    f->dbias = ax_case_in1(b, b->accum, s->heads * width_of(s));
    f->scale = s->first > 0 ? 2 : 1;
}

#define shapes_delta_gates_backward shapes_delta_gates_forward

AX_OP_INFO(delta_gates_backward, IN(dg), IN(dbeta), IN(a), IN(b), IN(log), IN(bias), OUT(da),
           OUT(db), INOUT(dlog), INOUT(dbias));
