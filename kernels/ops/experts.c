/* Mixture of experts: scattering rows, routing, sorting by expert, combining. */
#include <math.h>

#include "kernels/ops/family.h"

struct experts_options {
    struct ax_routing routing; /* scale 0 = 1 */
    bool ties /* integer logits */, bias, balance /* load or slope is given */;
    bool unweighted, weights_alone /* of gradients */;
    bool sequences; /* slopes are given */
};
#define EXPERTS(...) OPTIONS(experts_options, __VA_ARGS__)

static struct ax_routing routing_of(const struct experts_options *o) {
    struct ax_routing r = o->routing;
    r.scale = r.scale > 0 ? r.scale : 1;
    return r;
}

static int32_t *i32_of(const struct ax_tensor *t) {
    return t->data;
}

static const char *check_scatter_rows(const struct ax_scatter_rows *a) {
    NEED(given(&a->dst) && given(&a->src) && a->dst.dtype == a->src.dtype);
    NEED(rows_apart(&a->dst) && rows_apart(&a->src));
    NEED(ax_tensor_row_len(&a->dst) == ax_tensor_row_len(&a->src));
    NEED(is_index(&a->rows, a->src.shape[0]));
    return NULL;
}

static struct ax_op_cost cost_scatter_rows(const struct ax_scatter_rows *a) {
    double copies = (double)ax_tensor_row_len(&a->rows);
    return (struct ax_op_cost){0, (1 + copies) * bytes_of(&a->src) + bytes_of(&a->rows)};
}

/* Distinct rows of dst, the last first; every fifth is skipped. */
static void build_scatter_rows(struct ax_case_builder *b, struct ax_scatter_rows *a) {
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

static const struct ax_shape shapes_scatter_rows[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 7, .cols = 37, .inner = 20},
    {"strided", .rows = 5, .cols = 16, .inner = 30, .pad = 8},
    {"to three", .rows = 7, .cols = 37, .inner = 30, .choices = 3},
    {"keys", .big = true, .rows = 2048, .cols = 192, .inner = 4096},
};

AX_OP_INFO(scatter_rows, OUT_SOME(dst), IN(src), IN(rows));

/* Padding rows: the last quarter. */
static int64_t tokens(const struct ax_case_builder *b) {
    int64_t rows = b->shape->rows;
    return ax_case_has(b, AX_SHAPE_PADDING) ? rows - rows / 4 : rows;
}

static bool is_routing(const struct ax_routing *r, int64_t experts, int64_t k) {
    if (r->groups == 0)
        return r->scale > 0;
    return r->scale > 0 && r->groups > 0 && r->groups <= AX_ROUTER_GROUPS &&
           experts % r->groups == 0 && r->groups_kept >= 1 && r->groups_kept <= r->groups &&
           (r->group_best == 1 || r->group_best == 2) && experts / r->groups >= r->group_best &&
           k <= experts / r->groups * r->groups_kept;
}

static const char *check_router_forward(const struct ax_router_forward *a) {
    NEED(a->logits.ndim == 2 && sums(&a->logits) && a->weights.ndim == 2);
    enum ax_dtype dtype = a->logits.dtype;
    int64_t rows = a->logits.shape[0], experts = a->logits.shape[1], k = a->weights.shape[1];
    NEED(k >= 1 && k <= experts && is_routing(&a->routing, experts, k));
    NEED(!given(&a->bias) || is_1d(&a->bias, dtype, experts));
    NEED(is_2d(&a->logits, dtype, rows, experts));
    NEED(is_dense_2d(&a->probs, dtype, rows, experts));
    NEED(is_dense_2d(&a->weights, dtype, rows, k) && is_dense_2d(&a->experts, AX_I32, rows, k));
    NEED(!given(&a->valid) || is_1d(&a->valid, AX_I32, 1));
    NEED(!given(&a->load) || is_dense_2d(&a->load, dtype, 2, experts));
    return NULL;
}

PER_ELEMENT(router_forward, 6, logits) /* max, −, exp, +, ·, choice */

static void build_router_forward(struct ax_case_builder *b, struct ax_router_forward *a) {
    const struct experts_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->logits = ax_case_out2(b, b->accum, s->rows, s->groups);
    ax_case_randomize(b, &a->logits, -4, 4);
    for (int64_t i = 0; i < s->rows * s->groups && b->memory && o->ties; i++) {
        int64_t at = i / s->groups * a->logits.row_stride + i % s->groups;
        ax_store(b->accum, a->logits.data, at, floor(ax_load(b->accum, a->logits.data, at)));
    }
    a->probs = ax_case_dense2(b, b->accum, s->rows, s->groups);
    a->weights = ax_case_dense2(b, b->accum, s->rows, s->choices);
    a->experts = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    if (ax_case_has(b, AX_SHAPE_PADDING)) {
        a->valid = ax_case_out1(b, AX_I32, 1);
        if (b->memory != NULL)
            i32_of(&a->valid)[0] = (int32_t)(s->first + tokens(b));
    }
    if (o->balance)
        a->load = ax_case_dense_in2(b, b->accum, 2, s->groups);
    if (o->bias) {
        a->bias = ax_case_out1(b, b->accum, s->groups);
        ax_case_randomize(b, &a->bias, -0.5, 0.5);
    }
    a->first = s->first;
    a->routing = routing_of(o);
}

static const struct ax_shape shapes_router_forward[] = {
    {"one", .rows = 1, .groups = 1, .choices = 1},
    {"odd", .rows = 7, .groups = 5, .choices = 2, EXPERTS(.routing.renormalize = true)},
    {"all", .rows = 6, .groups = 19, .choices = 19, EXPERTS(.routing.renormalize = true)},
    {"scaled sigmoid", .rows = 40, .groups = 37, .choices = 3,
     EXPERTS(.routing = {.sigmoid = true, .scale = 2.5})},
    {"biased", .rows = 33, .groups = 24, .choices = 4, .first = 5, .flags = AX_SHAPE_PADDING,
     EXPERTS(.bias = true, .balance = true, .routing = {.sigmoid = true, .renormalize = true})},
    {"groups, their best", .rows = 20, .groups = 12, .choices = 3,
     EXPERTS(.routing = {.groups = 4, .groups_kept = 2, .group_best = 1})},
    {"biased groups, their best two", .rows = 30, .groups = 40, .choices = 6,
     EXPERTS(.bias = true, .routing = {.sigmoid = true,
                                       .renormalize = true,
                                       .groups = 8,
                                       .groups_kept = 3,
                                       .group_best = 2,
                                       .scale = 2.5})},
    {"ties", .rows = 40, .groups = 37, .choices = 3, EXPERTS(.ties = true)},
    {"strided, padding", .rows = 9, .groups = 8, .choices = 2, .pad = 8, .first = 30,
     .flags = AX_SHAPE_PADDING, EXPERTS(.routing.renormalize = true)},
    {"load", .rows = 150, .groups = 24, .choices = 4, EXPERTS(.balance = true)},
    {"load, padding", .rows = 33, .groups = 16, .choices = 2, .first = 5, .flags = AX_SHAPE_PADDING,
     EXPERTS(.routing.renormalize = true, .balance = true)},
    {"128 experts", .big = true, .rows = 2048, .groups = 128, .choices = 8,
     EXPERTS(.routing.renormalize = true, .balance = true)},
    {"256 experts in groups", .big = true, .rows = 2048, .groups = 256, .choices = 8,
     EXPERTS(.bias = true, .routing = {.sigmoid = true,
                                       .renormalize = true,
                                       .groups = 8,
                                       .groups_kept = 4,
                                       .group_best = 2,
                                       .scale = 2.5})},
    {"128 experts, 16,384 tokens", .huge = true, .rows = 16384, .groups = 128, .choices = 8,
     EXPERTS(.routing.renormalize = true, .balance = true)},
};

AX_OP_INFO(router_forward, IN_ROWS(logits), IN(bias), OUT_ROWS(probs), OUT_ROWS(weights),
           OUT_ROWS(experts), IN(valid), INOUT(load));

static const char *check_router_balance(const struct ax_router_balance *a) {
    NEED(a->load.ndim == 2 && sums(&a->load) && a->k >= 1);
    NEED(is_dense_2d(&a->load, a->load.dtype, 2, a->load.shape[1]));
    NEED(is_1d(&a->slope, a->load.dtype, a->load.shape[1]));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(router_balance, 4, slope)

static void build_router_balance(struct ax_case_builder *b, struct ax_router_balance *a) {
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

static const struct ax_shape shapes_router_balance[] = {
    {"one", .groups = 1, .choices = 1},
    {"odd", .groups = 37, .choices = 3},
    {"nobody", .groups = 8, .choices = 2, .flags = AX_SHAPE_SKIP},
};

AX_OP_INFO(router_balance, IN(load), OUT(slope));

static const char *check_router_backward(const struct ax_router_backward *a) {
    NEED(a->probs.ndim == 2 && a->dweights.ndim == 2 && real(&a->dlogits));
    enum ax_dtype dtype = accum(&a->dlogits);
    int64_t rows = a->probs.shape[0], experts = a->probs.shape[1], k = a->dweights.shape[1];
    NEED(is_dense_2d(&a->probs, dtype, rows, experts));
    NEED(is_dense_2d(&a->experts, AX_I32, rows, k) && is_dense_2d(&a->dweights, dtype, rows, k));
    NEED(!given(&a->slope) || is_1d(&a->slope, dtype, experts));
    NEED(!given(&a->slopes) || is_dense_2d(&a->slopes, dtype, rows, experts));
    NEED(is_2d(&a->dlogits, a->dlogits.dtype, rows, experts));
    return NULL;
}

PER_ELEMENT(router_backward, 5, probs) /* + slope, ·, Σ, −, · */

/* Chosen experts are neighbors; probabilities are positive but do not sum to one. */
static void build_router_backward(struct ax_case_builder *b, struct ax_router_backward *a) {
    const struct experts_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->probs = ax_case_dense2(b, b->accum, s->rows, s->groups);
    ax_case_randomize(b, &a->probs, 0.01, 0.4);
    a->experts = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    for (int64_t i = 0; i < s->rows * s->choices && b->memory != NULL; i++) {
        int64_t t = i / s->choices, expert = (3 * t + i % s->choices) % s->groups;
        i32_of(&a->experts)[i] = t < tokens(b) ? (int32_t)expert : -1;
    }
    a->dweights = ax_case_dense_in2(b, b->accum, s->rows, s->choices);
    if (o->balance)
        a->slope = ax_case_in1(b, b->accum, s->groups);
    if (o->sequences)
        a->slopes = ax_case_dense_in2(b, b->accum, s->rows, s->groups);
    a->dlogits = ax_case_out2(b, b->real, s->rows, s->groups);
    a->routing = routing_of(o);
}

static const struct ax_shape shapes_router_backward[] = {
    {"one", .rows = 1, .groups = 1, .choices = 1},
    {"odd", .rows = 7, .groups = 5, .choices = 2, EXPERTS(.routing.renormalize = true)},
    {"all", .rows = 6, .groups = 19, .choices = 19, EXPERTS(.routing.renormalize = true)},
    {"slope", .rows = 5, .groups = 37, .choices = 3, EXPERTS(.balance = true)},
    {"strided, padding", .rows = 9, .groups = 16, .choices = 2, .pad = 8, .flags = AX_SHAPE_PADDING,
     EXPERTS(.routing.renormalize = true, .balance = true)},
    {"scaled sigmoid", .rows = 5, .groups = 37, .choices = 3,
     EXPERTS(.balance = true, .routing = {.sigmoid = true, .scale = 2.5})},
    {"slopes", .rows = 7, .groups = 37, .choices = 3, EXPERTS(.sequences = true)},
    {"both, sigmoid, padding", .rows = 9, .groups = 19, .choices = 2, .flags = AX_SHAPE_PADDING,
     EXPERTS(.sequences = true, .balance = true, .routing = {.sigmoid = true, .scale = 2})},
    {"renormalized sigmoid", .rows = 9, .groups = 16, .choices = 4, .flags = AX_SHAPE_PADDING,
     EXPERTS(.routing = {.sigmoid = true, .renormalize = true, .scale = 1.5})},
    {"128 experts", .big = true, .rows = 2048, .groups = 128, .choices = 8,
     EXPERTS(.routing.renormalize = true, .balance = true)},
};

AX_OP_INFO(router_backward, IN_ROWS(probs), IN_ROWS(experts), IN_ROWS(dweights), IN(slope),
           IN_ROWS(slopes), OUT_ROWS(dlogits));

static const char *check_group_rows(const struct ax_group_rows *a) {
    NEED(is_index(&a->keys, a->keys.shape[0]) && is_index(&a->places, a->keys.shape[0]));
    NEED(same_shape(&a->keys, &a->places));
    NEED(a->offsets.shape[0] >= 2 && is_1d(&a->offsets, AX_I32, a->offsets.shape[0]));
    NEED(!given(&a->counts) || is_1d(&a->counts, AX_I32, a->offsets.shape[0] - 1));
    return NULL;
}

PER_ELEMENT(group_rows, 0, keys)

/* Keys extend two beyond the groups if some belong to none. */
static void build_group_rows(struct ax_case_builder *b, struct ax_group_rows *a) {
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

static const struct ax_shape shapes_group_rows[] = {
    {"one", .rows = 1, .groups = 1, .choices = 1},
    {"odd", .rows = 37, .groups = 5, .choices = 2},
    {"more groups than rows", .rows = 9, .groups = 40, .choices = 1},
    {"some in none", .rows = 30, .groups = 4, .choices = 3, .first = 6, .flags = AX_SHAPE_PADDING},
    {"128 experts", .big = true, .rows = 2048, .groups = 128, .choices = 8},
};

AX_OP_INFO(group_rows, IN(keys), OUT(places), OUT(offsets), OUT(counts));

/* Distinct rows, the last first; every fifth is missing if the shape has missing rows. */
static struct ax_tensor rows_of(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    struct ax_tensor rows = ax_case_dense2(b, AX_I32, s->rows, s->choices);
    for (int64_t i = 0; i < s->rows * s->choices && b->memory != NULL; i++) {
        bool none = ax_case_has(b, AX_SHAPE_PADDING) && i % 5 == 4;
        i32_of(&rows)[i] = none ? -1 : (int32_t)(s->inner - 1 - i);
    }
    return rows;
}

static const char *check_combine_forward(const struct ax_combine_forward *a) {
    NEED(a->src.ndim == 2 && real(&a->src) && given(&a->src) && rows_apart(&a->src));
    enum ax_dtype dtype = a->out.dtype;
    int64_t rows = a->out.shape[0], cols = a->src.shape[1];
    NEED(is_stream(&a->out, a->src.dtype));
    NEED(is_2d(&a->out, dtype, rows, cols));
    NEED(!given(&a->addend) || is_2d(&a->addend, dtype, rows, cols));
    NEED(is_index(&a->rows, rows));
    NEED(!given(&a->weights) ||
         is_dense_2d(&a->weights, accum(&a->src), rows, ax_tensor_row_len(&a->rows)));
    return NULL;
}

/* Of src (and dsrc), counts only the rows that are named. */
static struct ax_op_cost cost_combine_forward(const struct ax_combine_forward *a) {
    double k = (double)ax_tensor_row_len(&a->rows);
    return (struct ax_op_cost){2 * k * elements(&a->out),
                               (1 + k) * bytes_of(&a->out) + bytes_of(&a->addend) +
                                   bytes_of(&a->rows) + bytes_of(&a->weights)};
}

static void build_combine_forward(struct ax_case_builder *b, struct ax_combine_forward *a) {
    const struct experts_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->src = ax_case_in2(b, b->real, s->inner, s->cols);
    a->rows = rows_of(b);
    if (!o->unweighted)
        a->weights = ax_case_dense_in2(b, b->accum, s->rows, s->choices);
    if (ax_case_has(b, AX_SHAPE_ADDEND))
        a->addend = ax_case_in2(b, stream, s->rows, s->cols);
    a->out = ax_case_out2(b, stream, s->rows, s->cols);
}

static const struct ax_shape shapes_combine_forward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1, .choices = 1},
    {"odd", .rows = 7, .cols = 37, .inner = 20, .choices = 2, .flags = AX_SHAPE_ADDEND},
    {"strided, some none", .rows = 6, .cols = 24, .inner = 30, .choices = 4, .pad = 8,
     .flags = AX_SHAPE_PADDING | AX_SHAPE_ADDEND},
    {"sum", .rows = 5, .cols = 16, .inner = 15, .choices = 3, EXPERTS(.unweighted = true)},
    {"gather", .rows = 5, .cols = 50, .inner = 9, .choices = 1, EXPERTS(.unweighted = true)},
    {"accum out", .rows = 7, .cols = 37, .inner = 20, .choices = 2,
     .flags = OUT32 | AX_SHAPE_ADDEND},
    {"8 experts' rows", .big = true, .rows = 1024, .cols = 1024, .inner = 8192, .choices = 8,
     .flags = AX_SHAPE_ADDEND},
    {"8 experts' rows of 4096", .huge = true, .rows = 4096, .cols = 4096, .inner = 32768,
     .choices = 8, .flags = OUT32 | AX_SHAPE_ADDEND},
};

AX_OP_INFO(combine_forward, IN(src), IN_ROWS(rows), IN_ROWS(weights), IN_ROWS(addend),
           OUT_ROWS(out));

static const char *check_combine_backward(const struct ax_combine_backward *a) {
    NEED(a->dout.ndim == 2 && real(&a->dout));
    enum ax_dtype dtype = a->dout.dtype;
    int64_t rows = a->dout.shape[0], cols = a->dout.shape[1], k = ax_tensor_row_len(&a->rows);
    NEED(is_2d(&a->dout, dtype, rows, cols));
    NEED(is_2d(&a->src, dtype, a->src.shape[0], cols));
    NEED(!given(&a->dsrc) || is_2d(&a->dsrc, dtype, a->src.shape[0], cols));
    NEED(is_index(&a->rows, rows));
    NEED(is_dense_2d(&a->weights, accum(&a->dout), rows, k));
    NEED(is_dense_2d(&a->dweights, accum(&a->dout), rows, k));
    return NULL;
}

static struct ax_op_cost cost_combine_backward(const struct ax_combine_backward *a) {
    const double k = (double)ax_tensor_row_len(&a->rows), kinds = given(&a->dsrc) ? 2 : 1;
    return (struct ax_op_cost){(1 + kinds) * k * elements(&a->dout),
                               (1 + kinds * k) * bytes_of(&a->dout) + bytes_of(&a->rows) +
                                   2 * bytes_of(&a->weights)};
}

static void build_combine_backward(struct ax_case_builder *b, struct ax_combine_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dout = ax_case_in2(b, b->real, s->rows, s->cols);
    a->src = ax_case_in2(b, b->real, s->inner, s->cols);
    a->rows = rows_of(b);
    a->weights = ax_case_dense_in2(b, b->accum, s->rows, s->choices);
    if (!((const struct experts_options *)ax_case_options(b))->weights_alone)
        a->dsrc = ax_case_out2(b, b->real, s->inner, s->cols);
    a->dweights = ax_case_dense2(b, b->accum, s->rows, s->choices);
}

static const struct ax_shape shapes_combine_backward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1, .choices = 1},
    {"odd", .rows = 7, .cols = 37, .inner = 14, .choices = 2},
    {"strided, some none", .rows = 6, .cols = 24, .inner = 30, .choices = 4, .pad = 8,
     .flags = AX_SHAPE_PADDING},
    {"weights alone", .rows = 6, .cols = 24, .inner = 30, .choices = 4, .pad = 8,
     EXPERTS(.weights_alone = true)},
    {"8 experts' rows", .big = true, .rows = 1024, .cols = 1024, .inner = 8192, .choices = 8},
};

AX_OP_INFO(combine_backward, IN_ROWS(dout), IN(src), IN_ROWS(rows), IN_ROWS(weights),
           OUT_SOME(dsrc), OUT_ROWS(dweights));
