/* What adapters need besides GEMMs: dropout, scales and sums of columns, DoRA. */
#include "kernels/ops/family.h"

struct adapter_options {
    double p; /* dropout */
};
#define ADAPTER(...) OPTIONS(adapter_options, __VA_ARGS__)

static const char *check_dropout(const struct ax_dropout *a) {
    NEED(a->x.ndim == 2 && real(&a->x));
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->x.dtype);
    NEED(a->p >= 0 && a->p < 1 && a->scalars != NULL);
    NEED(a->first_row >= 0 && a->first_col >= 0 && a->first_col + a->x.shape[1] <= a->cols);
    NEED(!a->accumulate || a->x.data != a->y.data);
    NEED(!given(&a->rows) || is_1d(&a->rows, AX_I32, a->x.shape[0]));
    return NULL;
}

static struct ax_op_cost cost_dropout(const struct ax_dropout *a) {
    struct ax_op_cost cost =
        ax_op_per_element(ax_operands_dropout(), a, a->accumulate ? 2 : 1, &a->x);
    cost.bytes += a->accumulate ? bytes_of(&a->y) : 0;
    return cost;
}

/* If the shape is a shard, rows and columns in the middle of a wider tensor. */
static void build_dropout(struct ax_case_builder *b, struct ax_dropout *a) {
    const struct adapter_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x
           : a->accumulate                   ? ax_case_in2(b, b->real, s->rows, s->cols)
                                             : ax_case_out2(b, b->real, s->rows, s->cols);
    a->p = o->p;
    a->tensor = 77;
    a->first_row = 5 * s->first;
    a->first_col = s->first;
    a->cols = s->cols + 2 * s->first;
    a->scalars = b->scalars;
    if (s->inner > 0)
        a->rows = ax_case_ids(b, s->rows, 0, s->inner);
}

static const struct ax_shape shapes_dropout[] = {
    {"one", .rows = 1, .cols = 1, ADAPTER(.p = 0.5)},
    {"odd", .rows = 5, .cols = 37, ADAPTER(.p = 0.1)},
    {"off", .rows = 3, .cols = 20},
    {"in place", .rows = 4, .cols = 66, .flags = AX_SHAPE_IN_PLACE, ADAPTER(.p = 0.3)},
    {"adds, shard, strided", .rows = 6, .cols = 21, .pad = 5, .first = 3, .flags = ACC,
     ADAPTER(.p = 0.5)},
    {"some rows", .rows = 7, .cols = 30, .inner = 50, .first = 2, ADAPTER(.p = 0.4)},
    {"hidden", .big = true, .rows = 2048, .cols = 576, ADAPTER(.p = 0.05)},
};

AX_OP_INFO(dropout, IN(x), OUT(y), IN(rows));

static const char *check_colscale(const struct ax_colscale *a) {
    NEED(a->x.ndim == 2 && real(&a->x));
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->x.dtype);
    NEED(!given(&a->scale) || is_1d(&a->scale, accum(&a->x), a->x.shape[1]));
    NEED(!given(&a->bias) || is_1d(&a->bias, a->bias.dtype, a->x.shape[1]));
    NEED(!given(&a->bias) || (real(&a->bias) && is_stream(&a->x, a->bias.dtype)));
    NEED(!given(&a->addend) || (same_shape(&a->addend, &a->x) && a->addend.dtype == a->x.dtype));
    return NULL;
}

static struct ax_op_cost cost_colscale(const struct ax_colscale *a) {
    double flops = (a->scale.data != NULL) + (a->bias.data != NULL) + (a->addend.data != NULL);
    return ax_op_per_element(ax_operands_colscale(), a, flops, &a->x);
}

static void build_colscale(struct ax_case_builder *b, struct ax_colscale *a) {
    const struct ax_shape *s = b->shape;
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->x = ax_case_in2(b, stream, s->rows, s->cols);
    if (!ax_case_has(b, AX_SHAPE_SKIP))
        a->scale = ax_case_in1(b, b->accum, s->cols);
    if (ax_case_has(b, AX_SHAPE_BIAS))
        a->bias = ax_case_in1(b, b->real, s->cols);
    if (ax_case_has(b, AX_SHAPE_ADDEND))
        a->addend = ax_case_in2(b, stream, s->rows, s->cols);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : ax_case_out2(b, stream, s->rows, s->cols);
}

static const struct ax_shape shapes_colscale[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37, .flags = AX_SHAPE_BIAS},
    {"in place", .rows = 4, .cols = 66, .flags = AX_SHAPE_IN_PLACE | AX_SHAPE_ADDEND},
    {"bias only", .rows = 3, .cols = 20, .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND | AX_SHAPE_SKIP},
    {"strided", .rows = 3, .cols = 24, .pad = 8, .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND},
    {"all accum but bias", .rows = 5, .cols = 37,
     .flags = OUT32 | AX_SHAPE_BIAS | AX_SHAPE_ADDEND | AX_SHAPE_IN_PLACE},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072},
};

AX_OP_INFO(colscale, IN_ROWS(x), IN(scale), IN(bias), IN_ROWS(addend), OUT_ROWS(y));

static const char *check_coldot(const struct ax_coldot *a) {
    NEED(a->a.ndim == 2 && real(&a->a));
    NEED(same_shape(&a->a, &a->b) && a->b.dtype == a->a.dtype);
    NEED(is_1d(&a->out, accum(&a->a), a->a.shape[1]));
    return NULL;
}

PER_ELEMENT(coldot, 2, a)

static void build_coldot(struct ax_case_builder *b, struct ax_coldot *a) {
    const struct ax_shape *s = b->shape;
    a->a = ax_case_in2(b, b->real, s->rows, s->cols);
    a->b = ax_case_in2(b, b->real, s->rows, s->cols);
    a->out = ax_case_in1(b, b->accum, s->cols);
}

static const struct ax_shape shapes_coldot[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37},
    {"tall, strided", .rows = 300, .cols = 9, .pad = 3},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072},
};

AX_OP_INFO(coldot, IN(a), IN(b), INOUT(out));

static const char *check_dora_norm(const struct ax_dora_norm *a) {
    NEED(a->weight.ndim == 2 && real(&a->weight));
    int64_t rows = a->weight.shape[0], r = a->b.shape[1];
    NEED(is_2d(&a->weight, a->weight.dtype, rows, a->weight.shape[1]));
    NEED(is_2d(&a->b, a->weight.dtype, rows, r));
    NEED(is_2d(&a->p, accum(&a->weight), rows, r));
    NEED(is_1d(&a->out, accum(&a->weight), rows));
    return NULL;
}

static struct ax_op_cost cost_dora_norm(const struct ax_dora_norm *a) {
    struct ax_op_cost cost = ax_op_per_element(ax_operands_dora_norm(), a, 2, &a->weight);
    cost.flops += 2 * elements(&a->p);
    return cost;
}

static void build_dora_norm(struct ax_case_builder *b, struct ax_dora_norm *a) {
    const struct ax_shape *s = b->shape;
    a->weight = ax_case_in2(b, b->real, s->rows, s->cols);
    a->b = ax_case_in2(b, b->real, s->rows, s->inner);
    a->p = ax_case_in2(b, b->accum, s->rows, s->inner);
    a->out = ax_case_out1(b, b->accum, s->rows);
}

static const struct ax_shape shapes_dora_norm[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 5, .cols = 37, .inner = 3},
    {"strided", .rows = 4, .cols = 80, .inner = 16, .pad = 8},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 16},
};

AX_OP_INFO(dora_norm, IN_ROWS(weight), IN_ROWS(b), IN_ROWS(p), OUT_ROWS(out));

static const char *check_dora_scale(const struct ax_dora_scale *a) {
    int64_t n = a->magnitude.shape[0];
    enum ax_dtype dtype = accum(&a->magnitude);
    NEED(real(&a->magnitude) && is_1d(&a->magnitude, a->magnitude.dtype, n));
    NEED(is_1d(&a->sumsq, dtype, n) && is_1d(&a->scale, dtype, n) && is_1d(&a->inverse, dtype, n));
    return NULL;
}

PER_ELEMENT(dora_scale, 3, magnitude)

static void build_dora_scale(struct ax_case_builder *b, struct ax_dora_scale *a) {
    int64_t n = b->shape->cols;
    a->magnitude = ax_case_in1(b, b->real, n);
    a->sumsq = ax_case_in1(b, b->accum, n);
    ax_case_randomize(b, &a->sumsq, 0.5, 4);
    a->scale = ax_case_out1(b, b->accum, n);
    a->inverse = ax_case_out1(b, b->accum, n);
}

static const struct ax_shape shapes_dora_scale[] = {
    {"one", .cols = 1},
    {"odd", .cols = 37},
    {"gate_up", .big = true, .cols = 3072},
};

AX_OP_INFO(dora_scale, IN_ROWS(magnitude), IN_ROWS(sumsq), OUT_ROWS(scale), OUT_ROWS(inverse));

static const char *check_low_rank(tensor weight, tensor b, tensor a) {
    const enum ax_dtype dtype = weight->dtype;
    NEED(given(weight) && real(weight) && weight->ndim == 2 && rows_apart(weight));
    NEED(is_2d(b, dtype, weight->shape[0], b->shape[1]));
    NEED(is_2d(a, dtype, b->shape[1], weight->shape[1]));
    return NULL;
}

static const char *check_merge_low_rank(const struct ax_merge_low_rank *a) {
    const enum ax_dtype dtype = a->weight.dtype;
    NEED(same_shape(&a->weight, &a->out) && a->out.dtype == dtype);
    NEED(given(&a->magnitude) == given(&a->squares));
    if (given(&a->squares)) {
        NEED(is_1d(&a->magnitude, dtype, a->weight.shape[0]));
        NEED(is_1d(&a->squares, AX_F64, a->weight.shape[0]));
    }
    return check_low_rank(&a->weight, &a->b, &a->a);
}

static struct ax_op_cost cost_merge_low_rank(const struct ax_merge_low_rank *a) {
    const double each = given(&a->squares) ? 1 : 0;
    return ax_op_per_element(ax_operands_merge_low_rank(), a, 2 * (double)a->b.shape[1] + each,
                             &a->out);
}

static const bool dora = true; /* an option of shapes */

static void build_merge_low_rank(struct ax_case_builder *b, struct ax_merge_low_rank *a) {
    const struct ax_shape *s = b->shape;
    a->weight = ax_case_in2(b, b->real, s->rows, s->cols);
    a->b = ax_case_in2(b, b->real, s->rows, s->inner);
    a->a = ax_case_in2(b, b->real, s->inner, s->cols);
    if (s->options == &dora) {
        a->magnitude = ax_case_in1(b, b->real, s->rows);
        a->squares = ax_case_in1(b, AX_F64, s->rows);
        ax_case_randomize(b, &a->squares, 0.5, 4);
    }
    a->out = ax_case_out2(b, b->real, s->rows, s->cols);
    a->scale = 0.7;
}

static const struct ax_shape shapes_merge_low_rank[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 5, .cols = 37, .inner = 3},
    {"dora", .rows = 5, .cols = 37, .inner = 3, .options = &dora},
    {"strided", .rows = 4, .cols = 80, .inner = 16, .pad = 8},
    {"long rows", .rows = 3, .cols = 2100, .inner = 2},
    {"long rows, dora", .rows = 3, .cols = 2100, .inner = 2, .options = &dora},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 16},
};

AX_OP_INFO(merge_low_rank, IN_ROWS(weight), IN_ROWS(b), IN(a), IN_ROWS(magnitude), IN_ROWS(squares),
           OUT_ROWS(out));

static const char *check_merged_squares(const struct ax_merged_squares *a) {
    NEED(is_1d(&a->out, AX_F64, a->weight.shape[0]));
    return check_low_rank(&a->weight, &a->b, &a->a);
}

static struct ax_op_cost cost_merged_squares(const struct ax_merged_squares *a) {
    return ax_op_per_element(ax_operands_merged_squares(), a, 2 * (double)a->b.shape[1] + 2,
                             &a->weight);
}

static void build_merged_squares(struct ax_case_builder *b, struct ax_merged_squares *a) {
    const struct ax_shape *s = b->shape;
    a->weight = ax_case_in2(b, b->real, s->rows, s->cols);
    a->b = ax_case_in2(b, b->real, s->rows, s->inner);
    a->a = ax_case_in2(b, b->real, s->inner, s->cols);
    a->out = ax_case_out1(b, AX_F64, s->rows);
    a->scale = 0.7;
}

static const struct ax_shape shapes_merged_squares[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 5, .cols = 37, .inner = 3},
    {"strided", .rows = 4, .cols = 80, .inner = 16, .pad = 8},
    {"long rows", .rows = 3, .cols = 2100, .inner = 2},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 16},
};

AX_OP_INFO(merged_squares, IN_ROWS(weight), IN_ROWS(b), IN(a), OUT_ROWS(out));
