/* Rows by their moments: match_rms makes them as large as others, sparsify keeps what is far above a row's mean. */
#include "kernels/ops/family.h"

#define FLOOR 1e-5

static const char *check_match_rms_forward(const struct ax_match_rms_forward *a) {
    NEED(real(&a->x) && given(&a->x) && a->x.ndim == 2 && rows_apart(&a->x));
    NEED(is_stream(&a->like, a->x.dtype) && same_shape(&a->like, &a->x));
    NEED(a->y.dtype == a->like.dtype && same_shape(&a->y, &a->x));
    NEED(a->floor > 0);
    return NULL;
}

PER_ELEMENT(match_rms_forward, 5, x) /* x², +, like², +, ·s */

static void build_match_rms_forward(struct ax_case_builder *b, struct ax_match_rms_forward *a) {
    const struct ax_shape *s = b->shape;
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->like = ax_case_in2(b, stream, s->rows, s->cols);
    a->y = ax_case_out2(b, stream, s->rows, s->cols);
    a->floor = FLOOR;
}

static const struct ax_shape shapes_match_rms_forward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"strided", .rows = 4, .cols = 24, .pad = 8},
    {"accum out", .rows = 9, .cols = 85, .pad = 3, .flags = OUT32},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = OUT32},
    {"E4B hidden", .huge = true, .rows = 4096, .cols = 2048, .flags = OUT32},
};

AX_OP_INFO(match_rms_forward, IN_ROWS(x), IN_ROWS(like), OUT_ROWS(y));

static const char *check_match_rms_backward(const struct ax_match_rms_backward *a) {
    NEED(real(&a->x) && given(&a->x) && a->x.ndim == 2 && rows_apart(&a->x));
    NEED(is_stream(&a->like, a->x.dtype) && same_shape(&a->like, &a->x));
    NEED(a->dy.dtype == a->like.dtype && same_shape(&a->dy, &a->x));
    NEED(a->dlike.dtype == a->like.dtype && same_shape(&a->dlike, &a->x));
    NEED(a->dx.dtype == a->x.dtype && same_shape(&a->dx, &a->x));
    NEED(a->floor > 0);
    return NULL;
}

PER_ELEMENT(match_rms_backward, 11, x) /* x², like², dy·x, each added; − x·back, ·s; += like·… */

static void build_match_rms_backward(struct ax_case_builder *b, struct ax_match_rms_backward *a) {
    const struct ax_shape *s = b->shape;
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->dy = ax_case_in2(b, stream, s->rows, s->cols);
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->like = ax_case_in2(b, stream, s->rows, s->cols);
    a->dx = ax_case_out2(b, b->real, s->rows, s->cols);
    a->dlike = ax_case_in2(b, stream, s->rows, s->cols);
    a->floor = FLOOR;
}

static const struct ax_shape shapes_match_rms_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"strided", .rows = 4, .cols = 24, .pad = 8},
    {"accum", .rows = 9, .cols = 85, .pad = 3, .flags = OUT32},
    {"hidden", .big = true, .rows = 2048, .cols = 576, .flags = OUT32},
    {"E4B hidden", .huge = true, .rows = 4096, .cols = 2048, .flags = OUT32},
};

AX_OP_INFO(match_rms_backward, IN_ROWS(dy), IN_ROWS(x), IN_ROWS(like), OUT_ROWS(dx),
           INOUT_ROWS(dlike));

struct sparsify_options {
    double z;
};
#define SPARSIFY(...) OPTIONS(sparsify_options, __VA_ARGS__)

static const char *check_sparsify_forward(const struct ax_sparsify_forward *a) {
    NEED(real(&a->x) && given(&a->x) && a->x.ndim == 2 && rows_apart(&a->x));
    NEED(a->y.dtype == a->x.dtype && same_shape(&a->y, &a->x));
    return NULL;
}

PER_ELEMENT(sparsify_forward, 6, x) /* Σ; −, ², Σ; −, max */

static void build_sparsify_forward(struct ax_case_builder *b, struct ax_sparsify_forward *a) {
    const struct ax_shape *s = b->shape;
    const struct sparsify_options *o = ax_case_options(b);
    a->x = ax_case_out2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -1, 2);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : ax_case_out2(b, b->real, s->rows, s->cols);
    a->z = o->z;
}

static const struct ax_shape shapes_sparsify_forward[] = {
    {"one", .rows = 1, .cols = 1, SPARSIFY(.z = 1)},
    {"odd", .rows = 3, .cols = 37, SPARSIFY(.z = 0)},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE, SPARSIFY(.z = 1)},
    {"strided", .rows = 4, .cols = 130, .pad = 8, SPARSIFY(.z = -0.5)},
    {"mlp", .big = true, .rows = 2048, .cols = 1536, SPARSIFY(.z = 1.5)},
    {"E4B gates", .huge = true, .rows = 2048, .cols = 16384, SPARSIFY(.z = 1.6448536269514722)},
};

AX_OP_INFO(sparsify_forward, IN_ROWS(x), OUT_ROWS(y));

static const char *check_sparsify_backward(const struct ax_sparsify_backward *a) {
    NEED(real(&a->x) && given(&a->x) && a->x.ndim == 2 && rows_apart(&a->x));
    NEED(a->dy.dtype == a->x.dtype && same_shape(&a->dy, &a->x));
    NEED(a->dx.dtype == a->x.dtype && same_shape(&a->dx, &a->x));
    return NULL;
}

PER_ELEMENT(sparsify_backward, 9, x) /* Σ; −, ², Σ; Σ g; −, ·slope, ·mean, − */

static void build_sparsify_backward(struct ax_case_builder *b, struct ax_sparsify_backward *a) {
    const struct ax_shape *s = b->shape;
    const struct sparsify_options *o = ax_case_options(b);
    a->dy = ax_case_out2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->dy, -1, 1);
    a->x = ax_case_out2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -1, 2);
    a->dx = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->dy : ax_case_out2(b, b->real, s->rows, s->cols);
    a->z = o->z;
}

static const struct ax_shape shapes_sparsify_backward[] = {
    {"one", .rows = 1, .cols = 1, SPARSIFY(.z = 1)},
    {"odd", .rows = 3, .cols = 37, SPARSIFY(.z = 0)},
    {"in place", .rows = 5, .cols = 64, .flags = AX_SHAPE_IN_PLACE, SPARSIFY(.z = 1)},
    {"strided", .rows = 4, .cols = 130, .pad = 8, SPARSIFY(.z = -0.5)},
    {"mlp", .big = true, .rows = 2048, .cols = 1536, SPARSIFY(.z = 1.5)},
    {"E4B gates", .huge = true, .rows = 2048, .cols = 16384, SPARSIFY(.z = 1.6448536269514722)},
};

AX_OP_INFO(sparsify_backward, IN_ROWS(dy), IN_ROWS(x), OUT_ROWS(dx));
