/* Short convolutions, forward and backward. */
#include "kernels/ops/family.h"

struct conv_options {
    int64_t taps; /* 0: 4 */
    bool silu, biased, pieces, frozen;
};
#define CONV(...) OPTIONS(conv_options, __VA_ARGS__)

static int64_t taps_of(const struct conv_options *o) {
    return o->taps > 0 ? o->taps : 4;
}

static const char *check_conv(const struct ax_conv *a) {
    NEED(a->x.ndim == 2 && real(&a->x) && a->w.ndim == 2);
    const int64_t channels = a->x.shape[1], taps = a->w.shape[1];
    NEED(is_2d(&a->x, a->x.dtype, a->x.shape[0], channels));
    NEED(is_dense_2d(&a->w, a->x.dtype, channels, taps));
    NEED(taps >= 2 && taps <= AX_CONV_TAPS);
    NEED(!given(&a->bias) || is_1d(&a->bias, a->x.dtype, channels));
    NEED(a->cu_q.shape[0] >= 1 && is_1d(&a->cu_q, AX_I32, a->cu_q.shape[0]));
    if (!given(&a->before))
        return NULL;
    NEED(is_2d(&a->before, a->x.dtype, (a->cu_q.shape[0] - 1) * (taps - 1), channels));
    NEED(is_1d(&a->cu_k, AX_I32, a->cu_q.shape[0]));
    return NULL;
}

static void build_conv(struct ax_case_builder *b, struct ax_conv *a) {
    const struct conv_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->w = ax_case_dense_in2(b, b->real, s->cols, taps_of(o));
    if (o->biased)
        a->bias = ax_case_in1(b, b->real, s->cols);
    if (o->pieces) {
        a->before = ax_case_in2(b, b->real, s->n_documents * (taps_of(o) - 1), s->cols);
        a->cu_k = ax_case_cumulative(b, true);
    }
    a->cu_q = ax_case_cumulative(b, false);
    a->silu = o->silu;
}

static const char *check_conv_forward(const struct ax_conv_forward *f) {
    const char *broken = check_conv(&f->a);
    if (broken)
        return broken;
    NEED(same_shape(&f->a.x, &f->a.y) && f->a.y.dtype == f->a.x.dtype);
    NEED(f->a.x.data != f->a.y.data);
    return NULL;
}

/* A product and a sum for each tap; −, exp, 1+, ÷ of z·σ(z). */
static struct ax_op_cost cost_conv_forward(const struct ax_conv_forward *f) {
    return ax_op_per_element(ax_operands_conv_forward(), f,
                             2 * (double)f->a.w.shape[1] + (f->a.silu ? 4 : 0), &f->a.x);
}

static void build_conv_forward(struct ax_case_builder *b, struct ax_conv_forward *f) {
    build_conv(b, &f->a);
    f->a.y = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols);
}

static const struct ax_shape_document one[] = {{1, 1}};
static const struct ax_shape_document packed[] = {{5, 5}, {0, 0}, {1, 1},  {17, 17},
                                                  {2, 2}, {0, 0}, {40, 40}};
static const struct ax_shape_document pieces[] = {{3, 3}, {2, 3}, {7, 50}, {1, 3},
                                                  {0, 9}, {4, 6}, {1, 1}};
static const struct ax_shape_document decoding[] = {{1, 9},  {1, 1}, {1, 2}, {1, 3},
                                                    {1, 64}, {1, 4}, {1, 5}};
static const struct ax_shape_document row_of_2048[] = {{1500, 1500}, {548, 548}};
static const struct ax_shape_document row_of_4096[] = {{4096, 4096}};

/* Of both directions. */
/* clang-format off */
#define TO_TRAIN \
    {"one", DOCUMENTS(one), .rows = 1, .cols = 1}, \
    {"packed", DOCUMENTS(packed), .rows = 70, .cols = 37}, \
    {"packed, silu", DOCUMENTS(packed), .rows = 65, .cols = 64, CONV(.taps = 3, .silu = true)}, \
    {"strided, biased", DOCUMENTS(packed), .rows = 66, .cols = 24, .pad = 8, CONV(.taps = 2, .biased = true)}, \
    {"eight taps", DOCUMENTS(packed), .rows = 65, .cols = 19, CONV(.taps = 8, .silu = true, .biased = true)}, \
    {"row", DOCUMENTS(row_of_2048), .big = true, .rows = 2048, .cols = 1536, CONV(.taps = 3)}
/* clang-format on */

static const struct ax_shape shapes_conv_forward[] = {
    TO_TRAIN,
    {"pieces", DOCUMENTS(pieces), .rows = 19, .cols = 50, CONV(.pieces = true)},
    {"decoding", DOCUMENTS(decoding), .rows = 8, .cols = 40, .pad = 8,
     CONV(.taps = 3, .silu = true, .biased = true, .pieces = true)},
    {"8B row", DOCUMENTS(row_of_4096), .huge = true, .rows = 4096, .cols = 8192,
     CONV(.silu = true)},
};

AX_OP_INFO(conv_forward, IN(a.x), IN(a.w), IN(a.bias), IN(a.before), IN(a.cu_q), IN(a.cu_k),
           OUT(a.y));

static const char *check_conv_backward(const struct ax_conv_backward *b) {
    const char *broken = check_conv(&b->a);
    if (broken)
        return broken;
    const struct ax_conv *a = &b->a;
    NEED(!given(&a->before));
    NEED(same_shape(&a->x, &b->dy) && b->dy.dtype == a->x.dtype);
    NEED(same_shape(&a->x, &b->dx) && b->dx.dtype == a->x.dtype);
    NEED(b->dx.data != b->dy.data && b->dx.data != a->x.data);
    NEED(!given(&b->dw) || is_dense_2d(&b->dw, accum(&a->x), a->w.shape[0], a->w.shape[1]));
    NEED(!given(&b->dbias) || is_1d(&b->dbias, accum(&a->x), a->w.shape[0]));
    return NULL;
}

/* dx and dw as forward; z again, and the slope. */
static struct ax_op_cost cost_conv_backward(const struct ax_conv_backward *b) {
    const double taps = 2 * (double)b->a.w.shape[1];
    const double flops =
        taps + (b->dw.data ? taps : 0) + (b->dbias.data ? 1 : 0) + (b->a.silu ? taps + 9 : 0);
    return ax_op_per_element(ax_operands_conv_backward(), b, flops, &b->a.x);
}

static void build_conv_backward(struct ax_case_builder *b, struct ax_conv_backward *f) {
    const struct conv_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    build_conv(b, &f->a);
    f->dy = ax_case_in2(b, b->real, s->rows, s->cols);
    f->dx = ax_case_out2(b, b->real, s->rows, s->cols);
    if (o->frozen)
        return;
    f->dw = ax_case_dense_in2(b, b->accum, s->cols, taps_of(o));
    if (o->biased)
        f->dbias = ax_case_in1(b, b->accum, s->cols);
}

static const struct ax_shape shapes_conv_backward[] = {
    TO_TRAIN,
    {"frozen", DOCUMENTS(packed), .rows = 65, .cols = 33, CONV(.frozen = true, .biased = true)},
    {"8B row", DOCUMENTS(row_of_4096), .huge = true, .rows = 4096, .cols = 8192,
     CONV(.silu = true)},
};

AX_OP_INFO(conv_backward, IN(a.x), IN(a.w), IN(a.bias), IN(a.cu_q), IN(dy), OUT(dx), INOUT(dw),
           INOUT(dbias));
