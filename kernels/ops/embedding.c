/* Embedding lookup, its gradient, and NEFTune noise on the result. */
#include "kernels/ops/family.h"

struct neftune_options {
    int64_t first; /* of the sequence's tokens */
};
#define NEFTUNE(...) OPTIONS(neftune_options, __VA_ARGS__)

struct table_options {
    int64_t beyond; /* tokens without a row of their own */
};
#define TABLE(...) OPTIONS(table_options, __VA_ARGS__)

static const struct ax_shape_document one_key[] = {{1, 1}};
static const struct ax_shape_document row_of_2048[] = {{2048, 2048}};
static const struct ax_shape_document noised[] = {{5, 0}, {0, 0}, {1, 0}, {17, 0}, {0, 0}};

static int64_t beyond(const struct ax_case_builder *b) {
    const struct table_options *o = ax_case_options(b);
    return o->beyond;
}

/* Tokens extend one beyond the shard on either side, or beyond the table. */
static struct ax_tensor tokens(struct ax_case_builder *b) {
    const struct ax_shape *s = b->shape;
    int64_t around = s->first > 0 ? 1 : 0;
    return ax_case_ids(b, s->rows, s->first - around, s->first + s->inner + around + beyond(b));
}

static int64_t known(const struct ax_case_builder *b) {
    return beyond(b) > 0 ? b->shape->inner : 0;
}

static const char *check_embedding_forward(const struct ax_embedding_forward *a) {
    NEED(a->weight.ndim == 2 && real(&a->weight) && given(&a->weight));
    NEED(is_1d(&a->tokens, AX_I32, a->out.shape[0]));
    NEED(is_stream(&a->out, a->weight.dtype));
    NEED(is_2d(&a->out, a->out.dtype, a->out.shape[0], a->weight.shape[1]));
    return NULL;
}

/* Of the table, counts only the rows of these tokens. */
static struct ax_op_cost cost_embedding_forward(const struct ax_embedding_forward *a) {
    return (struct ax_op_cost){0, 2 * bytes_of(&a->out) + bytes_of(&a->tokens)};
}

static void build_embedding_forward(struct ax_case_builder *b, struct ax_embedding_forward *a) {
    const struct ax_shape *s = b->shape;
    a->weight = ax_case_dense2(b, b->real, s->inner, s->cols);
    ax_case_randomize(b, &a->weight, -1, 1);
    a->tokens = tokens(b);
    a->out = ax_case_out2(b, ax_case_stream(b, AX_SHAPE_ACCUM_OUT), s->rows, s->cols);
    a->first_row = s->first;
    a->known = known(b);
}

static const struct ax_shape shapes_embedding_forward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"odd", .rows = 11, .cols = 37, .inner = 13},
    {"shard", .rows = 40, .cols = 24, .inner = 10, .first = 7},
    {"strided", .rows = 5, .cols = 16, .inner = 9, .pad = 4},
    {"beyond the table", .rows = 12, .cols = 37, .inner = 5, TABLE(.beyond = 4)},
    {"accum out", .rows = 6, .cols = 37, .inner = 9, .pad = 2, .flags = OUT32},
    {"vocabulary", .big = true, .rows = 2048, .cols = 576, .inner = 49152},
};

AX_OP_INFO(embedding_forward, IN_PANELS(weight), IN_ROWS(tokens), OUT_ROWS(out));

static const char *check_embedding_backward(const struct ax_embedding_backward *a) {
    NEED(a->dweight.ndim == 2 && a->dout.ndim == 2 && real(&a->dout));
    NEED(is_2d(&a->dout, a->dout.dtype, a->dout.shape[0], a->dweight.shape[1]));
    NEED(is_1d(&a->tokens, AX_I32, a->dout.shape[0]));
    NEED(given(&a->dweight) && a->dweight.dtype == accum(&a->dout));
    return NULL;
}

static struct ax_op_cost cost_embedding_backward(const struct ax_embedding_backward *a) {
    double rows = elements(&a->dout) * (double)ax_dtype_size(a->dweight.dtype);
    return (struct ax_op_cost){elements(&a->dout),
                               bytes_of(&a->dout) + bytes_of(&a->tokens) + 2 * rows};
}

static void build_embedding_backward(struct ax_case_builder *b, struct ax_embedding_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dout = ax_case_in2(b, ax_case_stream(b, AX_SHAPE_ACCUM_IN), s->rows, s->cols);
    a->tokens = tokens(b);
    a->dweight = ax_case_dense2(b, b->accum, s->inner, s->cols);
    ax_case_randomize(b, &a->dweight, -1, 1);
    a->first_row = s->first;
    a->skip_token = s->first + 1;
    a->known = known(b);
}

static const struct ax_shape shapes_embedding_backward[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1},
    {"repeats", .rows = 50, .cols = 37, .inner = 4},
    {"shard", .rows = 40, .cols = 24, .inner = 10, .first = 7},
    {"strided", .rows = 5, .cols = 16, .inner = 9, .pad = 4},
    {"beyond the table", .rows = 40, .cols = 37, .inner = 5, TABLE(.beyond = 4)},
    {"accum in", .rows = 6, .cols = 37, .inner = 4, .pad = 2, .flags = IN32},
    {"vocabulary", .big = true, .rows = 2048, .cols = 576, .inner = 49152},
    {"8B vocabulary", .huge = true, .rows = 4096, .cols = 4096, .inner = 128256, .flags = IN32},
};

AX_OP_INFO(embedding_backward, IN(dout), IN(tokens), INOUT(dweight));

static const char *check_neftune(const struct ax_neftune *a) {
    NEED(a->x.ndim == 2 && real(&a->x));
    NEED(is_2d(&a->x, a->x.dtype, a->x.shape[0], a->x.shape[1]));
    NEED(a->cu.shape[0] >= 1 && is_1d(&a->cu, AX_I32, a->cu.shape[0]));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(neftune, 2, x)

static void build_neftune(struct ax_case_builder *b, struct ax_neftune *a) {
    const struct neftune_options *o = ax_case_options(b);
    a->x = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->cu = ax_case_cumulative(b, false);
    a->alpha = 5;
    a->stream = 9;
    a->first = o->first;
    a->first_token = b->shape->first;
    a->scalars = b->scalars;
}

static const struct ax_shape shapes_neftune[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .cols = 1},
    {"odd", DOCUMENTS(noised), .rows = 26, .cols = 37, .first = 3},
    {"strided", DOCUMENTS(noised), .rows = 23, .cols = 7, .pad = 5, .first = 1000003},
    {"part", DOCUMENTS(noised), .rows = 9, .cols = 19, .first = 5, NEFTUNE(.first = 3)},
    {"beyond", DOCUMENTS(noised), .rows = 9, .cols = 19, .first = 5, NEFTUNE(.first = 20)},
    {"hidden", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, .cols = 576},
};

AX_OP_INFO(neftune, INOUT(x), IN(cu));
