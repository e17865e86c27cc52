/* RMSNorm, and what makes it LayerNorm. */
#include "kernels/ops/family.h"

struct norm_options {
    bool frozen; /* no gradient for the weight */
    bool narrow; /* dx in compute, too */
    double offset;
    bool once;
    bool ranged;
};
#define NORM(...) OPTIONS(norm_options, __VA_ARGS__)

/* rstd has the dimensions of x without the last. */
static bool is_rstd(tensor rstd, tensor x) {
    bool fits = given(rstd) && rstd->dtype == accum(x) && rstd->ndim == x->ndim - 1 &&
                ax_tensor_is_dense(rstd);
    for (int i = 0; i < rstd->ndim && fits; i++)
        fits = rstd->shape[i] == x->shape[i];
    return fits;
}

/* [T][D], or [T][H][hd] with heads (then compute). */
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

static const char *check_rmsnorm_forward(const struct ax_rmsnorm_forward *a) {
    NEED(real(&a->x) && (a->x.ndim == 2 || a->x.ndim == 3));
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->weight.dtype);
    NEED(is_stream(&a->x, a->weight.dtype));
    NEED(is_1d(&a->weight, a->weight.dtype, a->x.shape[a->x.ndim - 1]));
    NEED(is_rstd(&a->rstd, &a->x));
    NEED(fits_range(&a->range, 1) && (!given(&a->range.t) || a->y.ndim == 2));
    return NULL;
}

PER_ELEMENT(rmsnorm_forward, 4, x) /* x², +, ·rstd, ·weight */

static void build_rmsnorm_forward(struct ax_case_builder *b, struct ax_rmsnorm_forward *a) {
    const struct norm_options *o = ax_case_options(b);
    a->x = norm_in(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN));
    a->weight = ax_case_in1(b, b->real, a->x.shape[a->x.ndim - 1]);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : norm_out(b, b->real);
    a->rstd = rstd(b);
    a->eps = 1e-5;
    a->offset = o->offset;
    a->once = o->once;
    if (o->ranged)
        a->range = ax_case_range(b, 1);
}

static const struct ax_shape shapes_rmsnorm_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE},
    {"strided", .rows = 4, .cols = 24, .pad = 8},
    {"heads", .rows = 5, .heads = 3, .head_dim = 16, .pad = 32},
    {"heads in place", .rows = 2, .heads = 2, .head_dim = 33, .flags = AX_SHAPE_IN_PLACE},
    {"accum in", .rows = 9, .cols = 85, .pad = 3, .flags = IN32},
    {"offset, once", .rows = 5, .heads = 3, .head_dim = 21, NORM(.offset = 1, .once = true)},
    {"range", .rows = 9, .cols = 85, .pad = 3, .flags = IN32, NORM(.ranged = true)},
    {"range of long rows", .rows = 4, .cols = 8232, NORM(.ranged = true)},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = IN32},
    {"8B hidden", .huge = true, .rows = 4096, .cols = 4096, .flags = IN32},
};

AX_OP_INFO(rmsnorm_forward, IN_ROWS(x), IN(weight), OUT_ROWS(y), OUT_ROWS(rstd), OUT(range.t));

static const char *check_rmsnorm_backward(const struct ax_rmsnorm_backward *a) {
    NEED(real(&a->x) && (a->x.ndim == 2 || a->x.ndim == 3));
    NEED(same_shape(&a->x, &a->dy));
    NEED(a->dy.dtype == a->weight.dtype || a->dy.dtype == a->x.dtype);
    NEED(same_shape(&a->x, &a->dx) && a->dx.dtype == a->x.dtype);
    NEED(!a->accumulate || a->dx.data != a->dy.data);
    NEED(a->dx.data != a->dy.data || a->dy.dtype == a->dx.dtype);
    NEED(!given(&a->narrow) ||
         (same_shape(&a->x, &a->narrow) && a->narrow.dtype == a->weight.dtype));
    NEED(real(&a->weight));
    NEED(is_stream(&a->x, a->weight.dtype));
    NEED(is_1d(&a->weight, a->weight.dtype, a->x.shape[a->x.ndim - 1]));
    NEED(!given(&a->dweight) || is_1d(&a->dweight, accum(&a->x), a->x.shape[a->x.ndim - 1]));
    NEED(is_rstd(&a->rstd, &a->x));
    return NULL;
}

static struct ax_op_cost cost_rmsnorm_backward(const struct ax_rmsnorm_backward *a) {
    /* x̂, g, Σ g·x̂ (2), x̂·mean, −, ·rstd, dweight (2); += */
    struct ax_op_cost cost =
        ax_op_per_element(ax_operands_rmsnorm_backward(), a, a->accumulate ? 10 : 9, &a->x);
    cost.bytes += a->accumulate ? bytes_of(&a->dx) : 0;
    return cost;
}

static void build_rmsnorm_backward(struct ax_case_builder *b, struct ax_rmsnorm_backward *a) {
    const struct norm_options *o = ax_case_options(b);
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_IN);
    const bool in_place = ax_case_has(b, AX_SHAPE_IN_PLACE);
    a->dy = norm_in(b, in_place ? stream : b->real);
    a->x = norm_in(b, stream);
    a->weight = ax_case_in1(b, b->real, a->x.shape[a->x.ndim - 1]);
    a->rstd = rstd(b);
    ax_case_randomize(b, &a->rstd, 0.5, 2);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->dx = in_place ? a->dy : a->accumulate ? norm_in(b, stream) : norm_out(b, stream);
    if (o->narrow)
        a->narrow = norm_out(b, b->real);
    a->offset = o->offset;
    if (!o->frozen)
        a->dweight = ax_case_in1(b, b->accum, a->weight.shape[0]);
}

static const struct ax_shape shapes_rmsnorm_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE},
    {"adds, strided", .rows = 4, .cols = 24, .pad = 8, .flags = ACC},
    {"tall", .rows = 131, .cols = 20},
    {"heads", .rows = 5, .heads = 3, .head_dim = 16, .pad = 32},
    {"heads, adds", .rows = 3, .heads = 2, .head_dim = 33, .flags = ACC},
    {"frozen", .rows = 3, .cols = 37, NORM(.frozen = true)},
    {"accum in, adds", .rows = 9, .cols = 85, .pad = 3, .flags = IN32 | ACC},
    {"all accum, in place", .rows = 9, .cols = 37, .flags = IN32 | AX_SHAPE_IN_PLACE},
    {"offset", .rows = 9, .cols = 85, .flags = IN32 | ACC, NORM(.offset = 1)},
    {"narrow, adds", .rows = 9, .cols = 85, .pad = 3, .flags = IN32 | ACC, NORM(.narrow = true)},
    {"narrow, long, in place", .rows = 2, .cols = 8200, .flags = IN32 | AX_SHAPE_IN_PLACE,
     NORM(.narrow = true, .frozen = true)},
    {"narrow, heads", .rows = 5, .heads = 3, .head_dim = 16, .pad = 32, NORM(.narrow = true)},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = IN32 | ACC},
    {"8B hidden", .huge = true, .rows = 4096, .cols = 4096, .flags = IN32 | ACC},
    {"8B hidden, narrow", .huge = true, .rows = 4096, .cols = 4096, .flags = IN32 | ACC,
     NORM(.narrow = true)},
};

AX_OP_INFO(rmsnorm_backward, IN_ROWS(dy), IN_ROWS(x), IN(weight), IN_ROWS(rstd), OUT_ROWS(dx),
           OUT_ROWS(narrow), INOUT(dweight));

static const char *check_center(const struct ax_center *a) {
    NEED(real(&a->x) && a->x.ndim == 2 && same_shape(&a->x, &a->y));
    NEED(real_or_accum(&a->y, &a->x) || real_or_accum(&a->x, &a->y));
    NEED(a->x.data != a->y.data || (a->x.dtype == a->y.dtype && !a->accumulate));
    return NULL;
}

static struct ax_op_cost cost_center(const struct ax_center *a) { /* Σ, −; += */
    struct ax_op_cost cost =
        ax_op_per_element(ax_operands_center(), a, a->accumulate ? 3 : 2, &a->x);
    cost.bytes += a->accumulate ? bytes_of(&a->y) : 0;
    return cost;
}

static void build_center(struct ax_case_builder *b, struct ax_center *a) {
    a->x = norm_in(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN));
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    const enum ax_dtype out = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x
           : a->accumulate                   ? norm_in(b, out)
                                             : norm_out(b, out);
}

static const struct ax_shape shapes_center[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE},
    {"strided", .rows = 4, .cols = 24, .pad = 8},
    {"into sums", .rows = 9, .cols = 85, .pad = 3, .flags = OUT32},
    {"sums, adds", .rows = 9, .cols = 85, .flags = IN32 | OUT32 | ACC},
    {"adds", .rows = 4, .cols = 130, .flags = ACC},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = IN32 | OUT32},
    {"8B hidden", .huge = true, .rows = 4096, .cols = 4096, .flags = IN32 | OUT32},
};

AX_OP_INFO(center, IN_ROWS(x), OUT_ROWS(y));
