/* Cases of the ops of a mixture of experts. */
#include <math.h>

#include "kernels/cases_builder.h"

static int32_t *i32_of(const struct ax_tensor *t) {
    return t->data;
}

static struct ax_tensor dense_in2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                  int64_t cols) {
    struct ax_tensor t = ax_case_dense2(b, dtype, rows, cols);
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

/* Rows that are padding: a fourth, the last ones. */
static int64_t tokens(const struct ax_case_builder *b) {
    int64_t rows = b->shape->rows;
    return ax_case_has(b, AX_SHAPE_PADDING) ? rows - rows / 4 : rows;
}

void ax_case_build_router_forward(struct ax_case_builder *b, struct ax_router_forward *a) {
    const struct ax_shape *s = b->shape;
    a->logits = ax_case_out2(b, b->accum, s->rows, s->groups);
    ax_case_randomize(b, &a->logits, -4, 4);
    for (int64_t i = 0; i < s->rows * s->groups && b->memory && ax_case_has(b, AX_SHAPE_TIES);
         i++) {
        int64_t at = i / s->groups * a->logits.row_stride + i % s->groups;
        ax_store(b->accum, a->logits.data, at, floor(ax_load(b->accum, a->logits.data, at)));
    }
    a->probs = ax_case_dense2(b, b->accum, s->rows, s->groups);
    a->weights = ax_case_dense2(b, b->accum, s->rows, s->choices);
    a->experts = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    if (ax_case_has(b, AX_SHAPE_PADDING)) {
        a->valid = ax_case_out1(b, AX_I32, 1);
        if (b->memory != NULL) {
            i32_of(&a->valid)[0] = (int32_t)(s->first + tokens(b));
        }
    }
    if (ax_case_has(b, AX_SHAPE_BALANCE)) {
        a->load = dense_in2(b, b->accum, 2, s->groups);
    }
    a->first = s->first;
    a->renormalise = ax_case_has(b, AX_SHAPE_RENORMALISE);
}

void ax_case_build_router_balance(struct ax_case_builder *b, struct ax_router_balance *a) {
    const struct ax_shape *s = b->shape;
    a->load = ax_case_dense2(b, b->accum, 2, s->groups);
    ax_case_randomize(b, &a->load, 0, ax_case_has(b, AX_SHAPE_SKIP) ? 0 : 9);
    a->slope = ax_case_out1(b, b->accum, s->groups);
    a->k = s->choices;
    a->weight = 6;
    a->coef = 0.02;
    a->counts = true;
    a->scalars = b->scalars;
}

/* Chosen experts are neighbours; probabilities are positive but do not add up to one. */
void ax_case_build_router_backward(struct ax_case_builder *b, struct ax_router_backward *a) {
    const struct ax_shape *s = b->shape;
    a->probs = ax_case_dense2(b, b->accum, s->rows, s->groups);
    ax_case_randomize(b, &a->probs, 0.01, 0.4);
    a->experts = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    for (int64_t i = 0; i < s->rows * s->choices && b->memory != NULL; i++) {
        int64_t t = i / s->choices, expert = (3 * t + i % s->choices) % s->groups;
        i32_of(&a->experts)[i] = t < tokens(b) ? (int32_t)expert : -1;
    }
    a->dweights = dense_in2(b, b->accum, s->rows, s->choices);
    if (ax_case_has(b, AX_SHAPE_BALANCE)) {
        a->slope = ax_case_in1(b, b->accum, s->groups);
    }
    a->dlogits = ax_case_out2(b, b->real, s->rows, s->groups);
    a->renormalise = ax_case_has(b, AX_SHAPE_RENORMALISE);
}

/* Keys reach two beyond the groups where some are in none. */
void ax_case_build_group_rows(struct ax_case_builder *b, struct ax_group_rows *a) {
    const struct ax_shape *s = b->shape;
    int64_t around = ax_case_has(b, AX_SHAPE_PADDING) ? 2 : 0;
    struct ax_tensor keys =
        ax_case_ids(b, s->rows * s->choices, s->first - around, s->first + s->groups + around);
    a->keys = ax_tensor_2d(AX_I32, keys.data, s->rows, s->choices);
    a->places = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    a->offsets = ax_case_out1(b, AX_I32, s->groups + 1);
    a->counts = ax_case_out1(b, AX_I32, s->groups);
    a->first = s->first;
}

/* Distinct rows, the last first; every fifth is missing where some are. */
static struct ax_tensor rows_of(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    struct ax_tensor rows = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    for (int64_t i = 0; i < s->rows * s->choices && b->memory != NULL; i++) {
        bool none = ax_case_has(b, AX_SHAPE_PADDING) && i % 5 == 4;
        i32_of(&rows)[i] = none ? -1 : (int32_t)(s->inner - 1 - i);
    }
    return rows;
}

void ax_case_build_combine_forward(struct ax_case_builder *b, struct ax_combine_forward *a) {
    const struct ax_shape *s = b->shape;
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->src = ax_case_in2(b, b->real, s->inner, s->cols);
    a->rows = rows_of(b);
    if (!ax_case_has(b, AX_SHAPE_UNWEIGHTED)) {
        a->weights = dense_in2(b, b->accum, s->rows, s->choices);
    }
    if (ax_case_has(b, AX_SHAPE_ADDEND)) {
        a->addend = ax_case_in2(b, stream, s->rows, s->cols);
    }
    a->out = ax_case_out2(b, stream, s->rows, s->cols);
}

void ax_case_build_combine_backward(struct ax_case_builder *b, struct ax_combine_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dout = ax_case_in2(b, b->real, s->rows, s->cols);
    a->src = ax_case_in2(b, b->real, s->inner, s->cols);
    a->rows = rows_of(b);
    a->weights = dense_in2(b, b->accum, s->rows, s->choices);
    a->dsrc = ax_case_out2(b, b->real, s->inner, s->cols);
    a->dweights = ax_case_dense2(b, b->accum, s->rows, s->choices);
}

/* [groups][rows][cols], `pad` elements between the matrices. */
static struct ax_tensor matrices(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                 int64_t cols) {
    const struct ax_shape *s = b->shape;
    struct ax_tensor t =
        ax_case_place(b, dtype, s->pad, 3, (const int64_t[]){s->n_documents, rows, cols});
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

/* a [rows][inner], c [rows][cols]; with trans_a b [rows][cols]. */
void ax_case_build_grouped_gemm(struct ax_case_builder *b, struct ax_grouped_gemm *a) {
    const struct ax_shape *s = b->shape;
    a->trans_a = ax_case_has(b, AX_SHAPE_TRANS_A);
    a->trans_b = ax_case_has(b, AX_SHAPE_TRANS_B);
    a->a = ax_case_in2(b, b->real, s->rows, s->inner);
    if (a->trans_a) {
        a->b = ax_case_in2(b, b->real, s->rows, s->cols);
        a->c = matrices(b, b->accum, s->inner, s->cols);
    } else {
        a->b = a->trans_b ? matrices(b, b->real, s->cols, s->inner)
                          : matrices(b, b->real, s->inner, s->cols);
        a->c = ax_case_out2(b, b->real, s->rows, s->cols);
    }
    a->offsets = ax_case_out1(b, AX_I32, s->n_documents + 1);
    for (int g = 0, at = 0; g <= s->n_documents && b->memory != NULL; g++) {
        i32_of(&a->offsets)[g] = at;
        at += g < s->n_documents ? s->documents[g].nq : 0;
    }
    a->expected_rows = s->rows;
}
