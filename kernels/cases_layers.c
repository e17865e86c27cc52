/* Cases of the ops that layers are made of, attention aside. */
#include <math.h>

#include "kernels/cases_builder.h"

void ax_case_build_fill(struct ax_case_builder *b, struct ax_fill *a) {
    a->dst = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols);
    a->value = 0.3;
}

void ax_case_build_copy(struct ax_case_builder *b, struct ax_copy *a) {
    enum ax_dtype to = b->real;
    if (b->shape->to != NULL) {
        AX_ASSERT(ax_dtype_parse(b->shape->to, &to) == AX_OK);
    }
    a->src = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->dst = ax_case_out2(b, to, b->shape->rows, b->shape->cols);
}

void ax_case_build_add(struct ax_case_builder *b, struct ax_add *a) {
    const struct ax_shape *s = b->shape;
    a->dst = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_OUT), s->rows, s->cols);
    a->src = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    a->alpha = 0.7;
}

void ax_case_build_gemm(struct ax_case_builder *b, struct ax_gemm *a) {
    const struct ax_shape *s = b->shape;
    enum ax_dtype to = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->trans_a = ax_case_has(b, AX_SHAPE_TRANS_A);
    a->trans_b = ax_case_has(b, AX_SHAPE_TRANS_B);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->alpha = a->accumulate ? 1 : 0.5;
    a->a = a->trans_a ? ax_case_in2(b, b->real, s->inner, s->rows)
                      : ax_case_in2(b, b->real, s->rows, s->inner);
    a->b = a->trans_b ? ax_case_in2(b, b->real, s->cols, s->inner)
                      : ax_case_in2(b, b->real, s->inner, s->cols);
    a->c = a->accumulate ? ax_case_in2(b, to, s->rows, s->cols)
                         : ax_case_out2(b, to, s->rows, s->cols);
    if (ax_case_has(b, AX_SHAPE_BIAS)) {
        a->bias = ax_case_in1(b, b->real, s->cols);
    }
    if (ax_case_has(b, AX_SHAPE_ADDEND)) {
        a->addend = ax_case_in2(b, to, s->rows, s->cols);
    }
}

void ax_case_build_colsum(struct ax_case_builder *b, struct ax_colsum *a) {
    a->x = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->out = ax_case_in1(b, b->accum, b->shape->cols);
}

/* Tokens reach one beyond the shard on either side. */
static struct ax_tensor tokens(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    int64_t around = s->first > 0 ? 1 : 0;
    return ax_case_ids(b, s->rows, s->first - around, s->first + s->inner + around);
}

void ax_case_build_embedding_forward(struct ax_case_builder *b, struct ax_embedding_forward *a) {
    const struct ax_shape *s = b->shape;
    a->weight = ax_case_dense2(b, b->real, s->inner, s->cols);
    ax_case_randomize(b, &a->weight, -1, 1);
    a->tokens = tokens(b);
    a->out = ax_case_out2(b, ax_case_stream(b, AX_SHAPE_ACCUM_OUT), s->rows, s->cols);
    a->first_row = s->first;
}

void ax_case_build_embedding_backward(struct ax_case_builder *b, struct ax_embedding_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dout = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    a->tokens = tokens(b);
    a->dweight = ax_case_dense2(b, b->accum, s->inner, s->cols);
    ax_case_randomize(b, &a->dweight, -1, 1);
    a->first_row = s->first;
    a->skip_token = s->first + 1;
}

/* [T][D], or [T][H][hd] where heads are asked for (then real). */
static struct ax_tensor norm_out(struct ax_case_builder *b, enum ax_dtype dtype) {
    const struct ax_shape *s = b->shape;
    return s->heads > 0 ? ax_case_out3(b, s->rows, s->heads)
                        : ax_case_out2(b, dtype, s->rows, s->cols);
}

static struct ax_tensor norm_in(struct ax_case_builder *b, enum ax_dtype dtype) {
    struct ax_tensor t = norm_out(b, dtype);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

static struct ax_tensor rstd(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    return s->heads > 0 ? ax_case_dense2(b, b->accum, s->rows, s->heads)
                        : ax_case_out1(b, b->accum, s->rows);
}

void ax_case_build_rmsnorm_forward(struct ax_case_builder *b, struct ax_rmsnorm_forward *a) {
    a->x = norm_in(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN));
    a->weight = ax_case_in1(b, b->real, a->x.shape[a->x.ndim - 1]);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : norm_out(b, b->real);
    a->rstd = rstd(b);
    a->eps = 1e-5;
}

void ax_case_build_rmsnorm_backward(struct ax_case_builder *b, struct ax_rmsnorm_backward *a) {
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_IN);
    const bool in_place = ax_case_has(b, AX_SHAPE_IN_PLACE);
    a->dy = norm_in(b, in_place ? stream : b->real);
    a->x = norm_in(b, stream);
    a->weight = ax_case_in1(b, b->real, a->x.shape[a->x.ndim - 1]);
    a->rstd = rstd(b);
    ax_case_randomize(b, &a->rstd, 0.5, 2);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->dx = in_place ? a->dy : a->accumulate ? norm_in(b, stream) : norm_out(b, stream);
    if (!ax_case_has(b, AX_SHAPE_FROZEN)) {
        a->dweight = ax_case_in1(b, b->accum, a->weight.shape[0]);
    }
}

void ax_case_build_rope(struct ax_case_builder *b, struct ax_rope *a) {
    const struct ax_shape *s = b->shape;
    a->x = ax_case_in3(b, s->rows, s->heads);
    a->cos = ax_case_dense2(b, b->accum, s->inner, s->cols);
    a->sin = ax_case_dense2(b, b->accum, s->inner, s->cols);
    for (int64_t i = 0; i < s->inner * s->cols && b->memory != NULL; i++) {
        double angle = ax_case_uniform(b, i, -3, 3);
        ax_store(b->accum, a->cos.data, i, cos(angle));
        ax_store(b->accum, a->sin.data, i, sin(angle));
    }
    a->positions = ax_case_ids(b, s->rows, 0, s->inner);
    a->inverse = ax_case_has(b, AX_SHAPE_INVERSE);
}

/* Distinct rows of dst, the last first; every fifth is skipped. */
void ax_case_build_scatter_rows(struct ax_case_builder *b, struct ax_scatter_rows *a) {
    const struct ax_shape *s = b->shape;
    int64_t choices = s->choices > 0 ? s->choices : 1;
    a->dst = ax_case_in2(b, b->real, s->inner, s->cols);
    a->src = ax_case_in2(b, b->real, s->rows, s->cols);
    a->rows = choices > 1 ? ax_case_dense2(b, AX_I32, s->rows, choices)
                          : ax_case_out1(b, AX_I32, s->rows);
    for (int64_t i = 0; i < s->rows * choices && b->memory != NULL; i++) {
        int64_t to = (s->inner - 1 - i) % s->inner;
        ((int32_t *)a->rows.data)[i] = i % 5 == 4 ? -1 : (int32_t)to;
    }
}

void ax_case_build_swiglu_forward(struct ax_case_builder *b, struct ax_swiglu_forward *a) {
    a->gate_up = ax_case_out2(b, b->real, b->shape->rows, 2 * b->shape->cols);
    ax_case_randomize(b, &a->gate_up, -4, 4);
    a->y = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols);
}

void ax_case_build_swiglu_backward(struct ax_case_builder *b, struct ax_swiglu_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dy = ax_case_in2(b, b->real, s->rows, s->cols);
    a->gate_up = ax_case_out2(b, b->real, s->rows, 2 * s->cols);
    ax_case_randomize(b, &a->gate_up, -4, 4);
    a->dgate_up = ax_case_has(b, AX_SHAPE_IN_PLACE)
                      ? a->gate_up
                      : ax_case_out2(b, b->real, s->rows, 2 * s->cols);
}
