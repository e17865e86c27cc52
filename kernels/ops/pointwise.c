/* Elementwise ops: fill, copy, add, transpose, scale, softcap_backward, relu2, swiglu. */
#include "kernels/ops/pointwise.h"

#include "kernels/ops/family.h"

struct copy_options {
    const char *to; /* the other dtype, if not the case's */
};
#define COPY(...) OPTIONS(copy_options, __VA_ARGS__)

struct cap_options {
    double softcap;
};
#define CAP(...) OPTIONS(cap_options, __VA_ARGS__)

#define GATING(...) OPTIONS(ax_swiglu_options, .how = {__VA_ARGS__})
#define APART(...)  OPTIONS(ax_swiglu_options, .how = {__VA_ARGS__}, .apart = true)
#define RANGES(n)   OPTIONS(ax_swiglu_options, .ranges = (n))

static const char *check_fill(const struct ax_fill *a) {
    NEED(given(&a->dst) && rows_apart(&a->dst));
    return NULL;
}

PER_ELEMENT(fill, 0, dst)

static void build_fill(struct ax_case_builder *b, struct ax_fill *a) {
    a->dst = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols);
    a->value = 0.3;
}

static const struct ax_shape shapes_fill[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"hidden", .big = true, .rows = 2048, .cols = 576},
};

AX_OP_INFO(fill, OUT_ROWS(dst));

static const char *check_copy(const struct ax_copy *a) {
    NEED(same_shape(&a->dst, &a->src));
    NEED(a->dst.dtype == a->src.dtype ||
         (ax_dtype_info(a->dst.dtype)->is_float && ax_dtype_info(a->src.dtype)->is_float));
    return NULL;
}

PER_ELEMENT(copy, 0, dst)

static void build_copy(struct ax_case_builder *b, struct ax_copy *a) {
    const struct copy_options *o = ax_case_options(b);
    enum ax_dtype to = b->real;
    if (o->to != NULL)
        AX_ASSERT(ax_dtype_parse(o->to, &to) == AX_OK);
    a->src = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->dst = ax_case_out2(b, to, b->shape->rows, b->shape->cols);
}

static const struct ax_shape shapes_copy[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"to float32", .rows = 4, .cols = 33, .pad = 3, COPY(.to = "float32")},
    {"to float32, strided", .rows = 4, .cols = 64, .pad = 8, COPY(.to = "float32")},
    {"to bfloat16", .rows = 4, .cols = 65, COPY(.to = "bfloat16")},
    {"to bfloat16, strided", .rows = 4, .cols = 64, .pad = 8, COPY(.to = "bfloat16")},
    {"to bfloat16, dense", .rows = 5, .cols = 136, COPY(.to = "bfloat16")},
    {"to float16", .rows = 4, .cols = 19, COPY(.to = "float16")},
    {"to float64", .rows = 2, .cols = 19, COPY(.to = "float64")},
    {"hidden", .big = true, .rows = 2048, .cols = 576},
};

AX_OP_INFO(copy, OUT_ROWS(dst), IN_ROWS(src));

static const char *check_add(const struct ax_add *a) {
    NEED(same_shape(&a->dst, &a->src));
    NEED(real_or_accum(&a->dst, &a->src));
    return NULL;
}

PER_ELEMENT(add, 2, dst)

static void build_add(struct ax_case_builder *b, struct ax_add *a) {
    const struct ax_shape *s = b->shape;
    a->dst = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_OUT), s->rows, s->cols);
    a->src = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    a->alpha = 0.7;
}

static const struct ax_shape shapes_add[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"into sums", .rows = 3, .cols = 50, .flags = OUT32},
    {"from sums", .rows = 3, .cols = 50, .flags = IN32},
    {"hidden", .big = true, .rows = 2048, .cols = 576},
};

AX_OP_INFO(add, INOUT_ROWS(dst), IN_ROWS(src));

static const char *check_transpose(const struct ax_transpose *a) {
    NEED(a->src.ndim == 2 && real_or_accum(&a->dst, &a->src));
    NEED(is_2d(&a->src, a->src.dtype, a->src.shape[0], a->src.shape[1]));
    NEED(is_2d(&a->dst, a->dst.dtype, a->src.shape[1], a->src.shape[0]));
    return NULL;
}

static struct ax_op_cost cost_transpose(const struct ax_transpose *a) {
    struct ax_op_cost cost =
        ax_op_per_element(ax_operands_transpose(), a, a->accumulate ? 2 : 0, &a->dst);
    cost.bytes += a->accumulate ? bytes_of(&a->dst) : 0;
    return cost;
}

/* src [rows][cols] */
static void build_transpose(struct ax_case_builder *b, struct ax_transpose *a) {
    const struct ax_shape *s = b->shape;
    const enum ax_dtype to = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->alpha = a->accumulate ? 0.7 : 1;
    a->src = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    a->dst = a->accumulate ? ax_case_in2(b, to, s->cols, s->rows)
                           : ax_case_out2(b, to, s->cols, s->rows);
}

static const struct ax_shape shapes_transpose[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"a row", .rows = 1, .cols = 70},
    {"a column, strided", .rows = 70, .cols = 1, .pad = 3},
    {"tiles", .rows = 64, .cols = 96},
    {"more than tiles, strided", .rows = 67, .cols = 130, .pad = 5},
    {"adds, strided", .rows = 130, .cols = 67, .pad = 5, .flags = ACC},
    {"adds to sums", .rows = 40, .cols = 50, .flags = ACC | OUT32},
    {"adds sums", .rows = 3, .cols = 50, .flags = ACC | IN32},
    {"to sums", .rows = 33, .cols = 17, .flags = OUT32},
    {"from sums", .rows = 17, .cols = 33, .flags = IN32},
    {"B of 128 experts", .big = true, .rows = 24576, .cols = 128},
    {"B's gradient of 128 experts", .big = true, .rows = 128, .cols = 24576, .flags = ACC},
};

AX_OP_INFO(transpose, IN(src), OUT(dst));

static const char *check_scale(const struct ax_scale *a) {
    NEED(same_shape(&a->y, &a->x));
    NEED(real_or_accum(&a->y, &a->x));
    NEED(a->y.data != a->x.data || a->y.dtype == a->x.dtype);
    NEED(a->softcap >= 0);
    return NULL;
}

static struct ax_op_cost cost_scale(const struct ax_scale *a) {
    return ax_op_per_element(ax_operands_scale(), a, a->softcap > 0 ? 8 : 1, &a->y);
}

static void build_scale(struct ax_case_builder *b, struct ax_scale *a) {
    const struct cap_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->x = ax_case_out2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    ax_case_randomize(b, &a->x, -8, 8);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE)
               ? a->x
               : ax_case_out2(b, ax_case_stream(b, AX_SHAPE_ACCUM_OUT), s->rows, s->cols);
    a->alpha = 0.7;
    a->softcap = o->softcap;
}

static const struct ax_shape shapes_scale[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"in place", .rows = 3, .cols = 50, .flags = AX_SHAPE_IN_PLACE},
    {"into sums", .rows = 3, .cols = 50, .flags = OUT32},
    {"from sums", .rows = 3, .cols = 50, .flags = IN32},
    {"cap", .rows = 4, .cols = 130, .flags = AX_SHAPE_IN_PLACE, CAP(.softcap = 2.5)},
    {"high cap, strided", .rows = 4, .cols = 37, .pad = 5, CAP(.softcap = 50)},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, .flags = AX_SHAPE_IN_PLACE,
     CAP(.softcap = 30)},
};

AX_OP_INFO(scale, IN_ROWS(x), OUT_ROWS(y));

static const char *check_softcap_backward(const struct ax_softcap_backward *a) {
    NEED(same_shape(&a->dx, &a->dy) && same_shape(&a->dx, &a->y));
    NEED(real_or_accum(&a->dx, &a->y) && a->dx.dtype == a->dy.dtype);
    NEED(a->y.data != a->dx.data && a->softcap > 0);
    return NULL;
}

PER_ELEMENT(softcap_backward, 5, dy)

static void build_softcap_backward(struct ax_case_builder *b, struct ax_softcap_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dy = ax_case_in2(b, b->real, s->rows, s->cols);
    a->y = ax_case_out2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    ax_case_randomize(b, &a->y, -2.6, 2.6); /* a few beyond the cap */
    a->dx = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->dy : ax_case_out2(b, b->real, s->rows, s->cols);
    a->alpha = 0.7;
    a->softcap = 2.5;
}

static const struct ax_shape shapes_softcap_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"sums, in place", .rows = 4, .cols = 130, .flags = IN32 | AX_SHAPE_IN_PLACE},
    {"vocabulary", .big = true, .rows = 256, .cols = 49152, .flags = AX_SHAPE_IN_PLACE},
};

AX_OP_INFO(softcap_backward, IN_ROWS(dy), IN_ROWS(y), OUT_ROWS(dx));

static const char *check_relu2_forward(const struct ax_relu2_forward *a) {
    NEED(same_shape(&a->y, &a->x) && real(&a->y) && a->x.dtype == a->y.dtype);
    return NULL;
}

PER_ELEMENT(relu2_forward, 2, y)

static void build_relu2_forward(struct ax_case_builder *b, struct ax_relu2_forward *a) {
    const struct ax_shape *s = b->shape;
    a->x = ax_case_out2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -2, 2);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : ax_case_out2(b, b->real, s->rows, s->cols);
}

static const struct ax_shape shapes_relu2_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"in place", .rows = 3, .cols = 50, .flags = AX_SHAPE_IN_PLACE},
    {"mlp", .big = true, .rows = 2048, .cols = 1536},
};

AX_OP_INFO(relu2_forward, IN_ROWS(x), OUT_ROWS(y));

static const char *check_relu2_backward(const struct ax_relu2_backward *a) {
    NEED(same_shape(&a->dx, &a->x) && same_shape(&a->dx, &a->dy) && real(&a->dx));
    NEED(a->x.dtype == a->dx.dtype && a->dy.dtype == a->dx.dtype);
    return NULL;
}

PER_ELEMENT(relu2_backward, 3, dx)

static void build_relu2_backward(struct ax_case_builder *b, struct ax_relu2_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dy = ax_case_in2(b, b->real, s->rows, s->cols);
    a->x = ax_case_out2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -2, 2);
    a->dx = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : ax_case_out2(b, b->real, s->rows, s->cols);
}

static const struct ax_shape shapes_relu2_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 7, .pad = 5},
    {"in place", .rows = 3, .cols = 50, .flags = AX_SHAPE_IN_PLACE},
    {"mlp", .big = true, .rows = 2048, .cols = 1536},
};

AX_OP_INFO(relu2_backward, IN_ROWS(dy), IN_ROWS(x), OUT_ROWS(dx));

/* Gates and ups, together or apart, shaped for y [T][F]. */
static const char *check_pair(tensor y, const struct ax_gating *how, tensor gate_up, tensor up) {
    const int64_t rows = y->shape[0], cols = y->shape[1];
    NEED(is_2d(gate_up, y->dtype, rows, given(up) ? cols : 2 * cols));
    NEED(!given(up) || (is_2d(up, y->dtype, rows, cols) && !how->interleaved));
    return NULL;
}

/* Gates and ups of a case: numbers, or room for their gradients. */
static void build_pair(struct ax_case_builder *b, bool filled, struct ax_tensor *gate_up,
                       struct ax_tensor *up) {
    const struct ax_swiglu_options *o = ax_case_options(b);
    const int64_t rows = b->shape->rows, cols = b->shape->cols;
    *gate_up = ax_case_out2(b, b->real, rows, o->apart ? cols : 2 * cols);
    if (filled)
        ax_case_randomize(b, gate_up, -4, 4);
    if (!o->apart)
        return;
    *up = ax_case_out2(b, b->real, rows, cols);
    if (filled)
        ax_case_randomize(b, up, -4, 4);
}

static const char *check_swiglu_forward(const struct ax_swiglu_forward *a) {
    NEED(a->y.ndim == 2 && real(&a->y));
    NEED(is_2d(&a->y, a->y.dtype, a->y.shape[0], a->y.shape[1]));
    NEED(fits_range(&a->range, 1) && (!given(&a->range.t) || !a->how.interleaved));
    return check_pair(&a->y, &a->how, &a->gate_up, &a->up);
}

PER_ELEMENT(swiglu_forward, 5, y) /* −, exp, 1+, ÷, · */

static void build_swiglu_forward(struct ax_case_builder *b, struct ax_swiglu_forward *a) {
    const struct ax_swiglu_options *o = ax_case_options(b);
    build_pair(b, true, &a->gate_up, &a->up);
    a->y = ax_case_out2(b, b->real, b->shape->rows, b->shape->cols);
    a->how = o->how;
    if (o->ranges > 0)
        a->range = ax_case_range(b, o->ranges);
}

static const struct ax_shape shapes_swiglu_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 24, .pad = 8},
    {"gelu", .rows = 5, .cols = 37, GATING(.gate = AX_GATE_GELU)},
    {"interleaved", .rows = 5, .cols = 37, GATING(.interleaved = true)},
    {"clamped, interleaved", .rows = 4, .cols = 70, .pad = 3,
     GATING(.gate = AX_GATE_CLAMPED, .interleaved = true, .alpha = 1.702, .limit = 3)},
    {"apart", .rows = 5, .cols = 37, .pad = 3, APART(.gate = AX_GATE_SILU)},
    {"product", .rows = 5, .cols = 37, APART(.gate = AX_GATE_LINEAR)},
    {"sigmoid", .rows = 3, .cols = 24, .pad = 8, APART(.gate = AX_GATE_SIGMOID)},
    {"range", .rows = 9, .cols = 37, RANGES(1)},
    {"feed-forward", .big = true, .rows = 2048, .cols = 1536},
    {"8B feed-forward", .huge = true, .rows = 4096, .cols = 14336},
};

AX_OP_INFO(swiglu_forward, IN_ROWS(gate_up), IN_ROWS(up), OUT_ROWS(y), OUT(range.t));

static const char *check_swiglu_backward(const struct ax_swiglu_backward *a) {
    NEED(a->dy.ndim == 2 && real(&a->dy));
    NEED(is_2d(&a->dy, a->dy.dtype, a->dy.shape[0], a->dy.shape[1]));
    NEED(given(&a->up) == given(&a->dup));
    NEED(fits_range(&a->range, 2));
    NEED(!given(&a->range.t) || (!given(&a->up) && !a->how.interleaved));
    const char *broken = check_pair(&a->dy, &a->how, &a->gate_up, &a->up);
    return broken ? broken : check_pair(&a->dy, &a->how, &a->dgate_up, &a->dup);
}

PER_ELEMENT(swiglu_backward, 11, dy)

static void build_swiglu_backward(struct ax_case_builder *b, struct ax_swiglu_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dy = ax_case_in2(b, b->real, s->rows, s->cols);
    const struct ax_swiglu_options *o = ax_case_options(b);
    build_pair(b, true, &a->gate_up, &a->up);
    if (ax_case_has(b, AX_SHAPE_IN_PLACE)) {
        a->dgate_up = a->gate_up;
        a->dup = a->up;
    } else {
        build_pair(b, false, &a->dgate_up, &a->dup);
    }
    a->how = o->how;
    if (o->ranges > 0)
        a->range = ax_case_range(b, o->ranges);
}

static const struct ax_shape shapes_swiglu_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 5, .cols = 37},
    {"strided", .rows = 3, .cols = 24, .pad = 8},
    {"in place", .rows = 4, .cols = 21, .flags = AX_SHAPE_IN_PLACE},
    {"gelu", .rows = 5, .cols = 37, GATING(.gate = AX_GATE_GELU)},
    {"interleaved", .rows = 5, .cols = 37, GATING(.interleaved = true)},
    {"clamped, interleaved, in place", .rows = 4, .cols = 70, .pad = 3, .flags = AX_SHAPE_IN_PLACE,
     GATING(.gate = AX_GATE_CLAMPED, .interleaved = true, .alpha = 1.702, .limit = 3)},
    {"apart, in place", .rows = 5, .cols = 37, .pad = 3, .flags = AX_SHAPE_IN_PLACE,
     APART(.gate = AX_GATE_SILU)},
    {"product", .rows = 5, .cols = 37, APART(.gate = AX_GATE_LINEAR)},
    {"sigmoid", .rows = 3, .cols = 24, .pad = 8, APART(.gate = AX_GATE_SIGMOID)},
    {"range of both", .rows = 9, .cols = 37, RANGES(1)},
    {"ranges, in place", .rows = 9, .cols = 2104, .pad = 8, .flags = AX_SHAPE_IN_PLACE, RANGES(2)},
    {"feed-forward", .big = true, .rows = 2048, .cols = 1536},
    {"8B feed-forward", .huge = true, .rows = 4096, .cols = 14336},
};

AX_OP_INFO(swiglu_backward, IN_ROWS(dy), IN_ROWS(gate_up), IN_ROWS(up), OUT_ROWS(dgate_up),
           OUT_ROWS(dup), OUT(range.t));
