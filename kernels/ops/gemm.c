/* GEMM, grouped GEMM, and the gradient of the bias. */
#include "kernels/ops/family.h"

static const struct ax_shape_document one_row[] = {{1, 0}};
static const struct ax_shape_document uneven[] = {{3, 0}, {0, 0}, {17, 0}, {1, 0}, {0, 0}};
static const struct ax_shape_document all_in_one[] = {{0, 0}, {33, 0}, {0, 0}};
static const struct ax_shape_document no_rows[] = {{0, 0}, {0, 0}};
static const struct ax_shape_document many[] = {{96, 0},  {160, 0}, {0, 0},   {64, 0},
                                                {300, 0}, {20, 0},  {1, 0},   {127, 0},
                                                {256, 0}, {0, 0},   {511, 0}, {513, 0}};

/* For tiles of 32 and of 128 rows: groups that end in one, or have several. */
static const struct ax_shape_document tiles[] = {{150, 0}, {0, 0}, {20, 0}, {128, 0}, {190, 0}};
#define TEN                                                                                        \
    {1, 0}, {0, 0}, {3, 0}, {0, 0}, {0, 0}, {1, 0}, {2, 0}, {0, 0}, {1, 0}, {                      \
        0, 0                                                                                       \
    }
static const struct ax_shape_document few_each[] = {TEN, TEN, TEN, {0, 0}, {0, 0}, {33, 0}, TEN};
/* 128 experts' rows of 4,096 tokens, 8 for each: 19 to 850. */
#define SIXTEEN                                                                                    \
    {96, 0}, {160, 0}, {240, 0}, {64, 0}, {300, 0}, {19, 0}, {333, 0}, {127, 0}, {256, 0},         \
        {410, 0}, {511, 0}, {85, 0}, {203, 0}, {850, 0}, {272, 0}, {                               \
        170, 0                                                                                     \
    }
static const struct ax_shape_document experts_128[] = {SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN,
                                                       SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN};
/* The same in the decoding of 16 sequences. */
#define OF_ONE                                                                                     \
    {1, 0}, {0, 0}, {2, 0}, {1, 0}, {0, 0}, {1, 0}, {3, 0}, {0, 0}, {1, 0}, {1, 0}, {0, 0},        \
        {2, 0}, {1, 0}, {0, 0}, {2, 0}, {                                                          \
        1, 0                                                                                       \
    }
static const struct ax_shape_document decoding_128[] = {OF_ONE, OF_ONE, OF_ONE, OF_ONE,
                                                        OF_ONE, OF_ONE, OF_ONE, OF_ONE};
static const struct ax_shape_document experts_8[] = {{700, 0},  {1300, 0}, {1024, 0}, {900, 0},
                                                     {1500, 0}, {768, 0},  {1000, 0}, {1000, 0}};

static const char *check_gemm(const struct ax_gemm *g) {
    NEED(g->a.ndim == 2 && real(&g->a));
    int64_t m = g->a.shape[g->trans_a ? 1 : 0];
    int64_t k = g->a.shape[g->trans_a ? 0 : 1];
    const bool product = g->trans_b;
    NEED(product || !g->b.panels); /* panels are read along k */
    NEED(g->b.ndim == 2);
    int64_t n = g->b.shape[g->trans_b ? 0 : 1];
    NEED(given(&g->a) && rows_apart(&g->a));
    NEED(is_2d(&g->b, g->a.dtype, g->trans_b ? n : k, g->trans_b ? k : n));
    NEED(g->c.dtype == g->a.dtype || g->c.dtype == accum(&g->a));
    NEED(is_2d(&g->c, g->c.dtype, m, n));
    NEED(!given(&g->bias) || is_1d(&g->bias, g->a.dtype, n));
    NEED(!given(&g->addend) || is_2d(&g->addend, g->c.dtype, m, n));
    NEED(!given(&g->addend) || !g->accumulate);
    return NULL;
}

static struct ax_op_cost cost_gemm(const struct ax_gemm *a) {
    double k = (double)(a->trans_a ? a->a.shape[0] : a->a.shape[1]);
    struct ax_op_cost cost = ax_op_per_element(ax_operands_gemm(), a, 2 * k, &a->c);
    cost.bytes += a->accumulate ? bytes_of(&a->c) : 0;
    return cost;
}

static void build_gemm(struct ax_case_builder *b, struct ax_gemm *a) {
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
    if (ax_case_has(b, AX_SHAPE_BIAS))
        a->bias = ax_case_in1(b, b->real, s->cols);
    if (ax_case_has(b, AX_SHAPE_ADDEND))
        a->addend = ax_case_in2(b, to, s->rows, s->cols);
}

static const struct ax_shape shapes_gemm[] = {
    {"one", .rows = 1, .cols = 1, .inner = 1, .flags = TB},
    {"y, one row", .rows = 1, .cols = 33, .inner = 17, .flags = TB},
    {"y, odd", .rows = 7, .cols = 13, .inner = 31, .flags = TB},
    {"y, tiles", .rows = 70, .cols = 96, .inner = 129, .flags = TB},
    {"y, strided, bias", .rows = 9, .cols = 40, .inner = 24, .pad = 8, .flags = TB | AX_SHAPE_BIAS},
    {"y, residual", .rows = 9, .cols = 40, .inner = 24, .flags = TB | AX_SHAPE_ADDEND},
    {"y, bias, residual", .rows = 5, .cols = 11, .inner = 70,
     .flags = TB | AX_SHAPE_BIAS | AX_SHAPE_ADDEND | OUT32},
    {"logits", .rows = 6, .cols = 101, .inner = 48, .flags = TB | OUT32},
    {"dx, odd", .rows = 7, .cols = 31, .inner = 13},
    {"dx, tiles", .rows = 33, .cols = 200, .inner = 72, .pad = 16},
    {"dx, adds", .rows = 7, .cols = 32, .inner = 16, .flags = ACC},
    {"dW, odd", .rows = 13, .cols = 31, .inner = 7, .flags = TA | ACC | OUT32},
    {"dW, one token", .rows = 24, .cols = 16, .inner = 1, .flags = TA | ACC | OUT32},
    {"dW, long", .rows = 48, .cols = 40, .inner = 300, .pad = 8, .flags = TA | ACC | OUT32},
    {"dW, first", .rows = 16, .cols = 24, .inner = 33, .flags = TA | OUT32},
    {"both transposed", .rows = 5, .cols = 9, .inner = 12, .flags = TA | TB},
    {"qkv", .big = true, .rows = 2048, .cols = 960, .inner = 576, .flags = TB},
    {"attention out", .big = true, .rows = 2048, .cols = 576, .inner = 576, .flags = TB},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072, .inner = 576, .flags = TB},
    {"down", .big = true, .rows = 2048, .cols = 576, .inner = 1536, .flags = TB},
    {"dx of gate_up", .big = true, .rows = 2048, .cols = 576, .inner = 3072},
    {"dW of gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 2048,
     .flags = TA | ACC | OUT32},
    {"head", .big = true, .rows = 256, .cols = 49152, .inner = 576, .flags = TB},
    {"8B down", .huge = true, .rows = 4096, .cols = 4096, .inner = 14336, .flags = TB},
    {"8B dW of down", .huge = true, .rows = 4096, .cols = 14336, .inner = 4096,
     .flags = TA | ACC | OUT32},
};

AX_OP_INFO(gemm, IN_ROWS(a), IN_PANELS(b), OUT_ROWS(c), IN(bias), IN_ROWS(addend));

static const char *check_colsum(const struct ax_colsum *a) {
    NEED(a->x.ndim == 2 && real(&a->x) && given(&a->x) && rows_apart(&a->x));
    NEED(is_1d(&a->out, accum(&a->x), a->x.shape[1]));
    return NULL;
}

PER_ELEMENT(colsum, 1, x)

static void build_colsum(struct ax_case_builder *b, struct ax_colsum *a) {
    a->x =
        ax_case_in2(b, ax_case_has(b, IN32) ? b->accum : b->real, b->shape->rows, b->shape->cols);
    a->out = ax_case_in1(b, b->accum, b->shape->cols);
}

static const struct ax_shape shapes_colsum[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 7, .cols = 37},
    {"tall, strided", .rows = 300, .cols = 9, .pad = 3},
    {"accumulation", .rows = 70, .cols = 21, .pad = 3, .flags = IN32},
    {"qkv", .big = true, .rows = 2048, .cols = 960},
};

AX_OP_INFO(colsum, IN(x), INOUT(out));

/* [groups][rows][cols], `pad` elements between the matrices. */
static struct ax_tensor matrices(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                 int64_t cols) {
    const struct ax_shape *s = b->shape;
    struct ax_tensor t =
        ax_case_place(b, dtype, s->pad, 3, (const int64_t[]){s->n_documents, rows, cols});
    ax_case_randomize(b, &t, -1, 1);
    return t;
}

static const char *check_grouped_gemm(const struct ax_grouped_gemm *a) {
    NEED(a->a.ndim == 2 && real(&a->a) && !(a->trans_a && a->trans_b) && a->alpha != 0);
    int64_t rows = a->a.shape[0], width = a->a.shape[1], groups = a->offsets.shape[0] - 1;
    enum ax_dtype dtype = a->a.dtype;
    tensor b = &a->b, c = &a->c;
    NEED(is_2d(&a->a, dtype, rows, width));
    NEED(groups >= 1 && is_1d(&a->offsets, AX_I32, groups + 1));
    NEED(!given(&a->bias) || !a->trans_a);
    NEED(!given(&a->bias) || is_2d(&a->bias, dtype, groups, c->shape[1]));
    if (a->trans_a) {
        NEED(b->ndim == 2 && is_2d(b, dtype, rows, b->shape[1]));
        NEED(is_3d(c, accum(&a->a), groups, width, b->shape[1]));
        return NULL;
    }
    NEED(b->ndim == 3 && b->shape[a->trans_b ? 2 : 1] == width);
    NEED(is_3d(b, dtype, groups, b->shape[1], b->shape[2]));
    NEED(is_2d(c, dtype, rows, b->shape[a->trans_b ? 1 : 2]));
    return NULL;
}

/* The expected rows, and the matrices of all groups once. */
static struct ax_op_cost cost_grouped_gemm(const struct ax_grouped_gemm *a) {
    const struct ax_tensor *weights = a->trans_a ? &a->c : &a->b;
    const struct ax_tensor *other = a->trans_a ? &a->b : &a->c;
    double rows = (double)a->expected_rows;
    double widths = (double)a->a.shape[1] + (a->accumulate ? 2 : 1) * (double)other->shape[1];
    return (struct ax_op_cost){2 * rows * (double)weights->shape[1] * (double)weights->shape[2],
                               rows * widths * (double)ax_dtype_size(a->a.dtype) +
                                   (a->trans_a ? 2 : 1) * bytes_of(weights) +
                                   bytes_of(&a->offsets)};
}

/* a [rows][inner], c [rows][cols]; with trans_a b [rows][cols]. */
static void build_grouped_gemm(struct ax_case_builder *b, struct ax_grouped_gemm *a) {
    const struct ax_shape *s = b->shape;
    a->trans_a = ax_case_has(b, AX_SHAPE_TRANS_A);
    a->trans_b = ax_case_has(b, AX_SHAPE_TRANS_B);
    a->accumulate = !a->trans_a && ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->alpha = ax_case_has(b, AX_SHAPE_ACCUMULATE) ? 0.75 : 1;
    a->a = ax_case_in2(b, b->real, s->rows, s->inner);
    if (a->trans_a) {
        a->b = ax_case_in2(b, b->real, s->rows, s->cols);
        a->c = matrices(b, b->accum, s->inner, s->cols);
    } else {
        a->b = a->trans_b ? matrices(b, b->real, s->cols, s->inner)
                          : matrices(b, b->real, s->inner, s->cols);
        a->c = a->accumulate ? ax_case_in2(b, b->real, s->rows, s->cols)
                             : ax_case_out2(b, b->real, s->rows, s->cols);
    }
    a->offsets = ax_case_cumulative(b, false);
    a->expected_rows = s->rows;
    if (ax_case_has(b, AX_SHAPE_BIAS))
        a->bias = ax_case_in2(b, b->real, a->offsets.shape[0] - 1, s->cols);
}

static const struct ax_shape shapes_grouped_gemm[] = {
    {"one", DOCUMENTS(one_row), .rows = 1, .cols = 1, .inner = 1, .flags = TB},
    {"y", DOCUMENTS(uneven), .rows = 21, .cols = 13, .inner = 31, .flags = TB},
    {"y, apart", DOCUMENTS(uneven), .rows = 40, .cols = 24, .inner = 16, .pad = 8,
     .flags = TB | AX_SHAPE_PADDING},
    {"y, one expert", DOCUMENTS(all_in_one), .rows = 33, .cols = 50, .inner = 24, .flags = TB},
    {"y, nothing", DOCUMENTS(no_rows), .rows = 8, .cols = 16, .inner = 16,
     .flags = TB | AX_SHAPE_PADDING},
    {"y, bias", DOCUMENTS(uneven), .rows = 21, .cols = 13, .inner = 31, .flags = AX_SHAPE_BIAS},
    {"dx", DOCUMENTS(uneven), .rows = 21, .cols = 31, .inner = 13},
    {"dx, apart", DOCUMENTS(uneven), .rows = 25, .cols = 16, .inner = 40, .pad = 8,
     .flags = AX_SHAPE_PADDING},
    {"dW", DOCUMENTS(uneven), .rows = 21, .cols = 31, .inner = 13, .flags = TA},
    {"y, adds", DOCUMENTS(uneven), .rows = 21, .cols = 13, .inner = 31, .flags = TB | ACC},
    {"dx, adds, apart", DOCUMENTS(uneven), .rows = 25, .cols = 16, .inner = 40, .pad = 8,
     .flags = ACC | AX_SHAPE_PADDING},
    {"dW, scaled", DOCUMENTS(uneven), .rows = 21, .cols = 31, .inner = 13, .flags = TA | ACC},
    {"dW, apart", DOCUMENTS(all_in_one), .rows = 40, .cols = 16, .inner = 24, .pad = 8,
     .flags = TA},
    {"y, tiles", DOCUMENTS(tiles), .rows = 498, .cols = 272, .inner = 168, .pad = 8,
     .flags = TB | AX_SHAPE_PADDING},
    {"y, tiles, few columns, bias", DOCUMENTS(tiles), .rows = 488, .cols = 56, .inner = 40,
     .flags = TB | AX_SHAPE_BIAS},
    {"y, few rows, bias", DOCUMENTS(few_each), .rows = 65, .cols = 136, .inner = 200,
     .flags = TB | AX_SHAPE_BIAS},
    {"dx, tiles, bias", DOCUMENTS(tiles), .rows = 498, .cols = 272, .inner = 168, .pad = 8,
     .flags = AX_SHAPE_PADDING | AX_SHAPE_BIAS},
    {"dx, tiles, few columns", DOCUMENTS(tiles), .rows = 488, .cols = 56, .inner = 40},
    {"dx, few rows", DOCUMENTS(few_each), .rows = 65, .cols = 136, .inner = 200},
    {"y, tiles, adds", DOCUMENTS(tiles), .rows = 498, .cols = 272, .inner = 24, .pad = 8,
     .flags = TB | ACC | AX_SHAPE_PADDING},
    {"dx, tiles, adds, bias", DOCUMENTS(tiles), .rows = 498, .cols = 272, .inner = 168,
     .flags = ACC | AX_SHAPE_BIAS},
    {"y, few columns, adds", DOCUMENTS(tiles), .rows = 488, .cols = 56, .inner = 40,
     .flags = TB | ACC},
    {"dx, few rows, adds", DOCUMENTS(few_each), .rows = 65, .cols = 136, .inner = 200,
     .flags = ACC},
    {"dW, tiles, scaled", DOCUMENTS(tiles), .rows = 488, .cols = 56, .inner = 40,
     .flags = TA | ACC},
    {"dW, tiles", DOCUMENTS(tiles), .rows = 498, .cols = 144, .inner = 136, .pad = 8,
     .flags = TA | AX_SHAPE_PADDING},
    {"y, small groups, bias", DOCUMENTS(decoding_128), .rows = 128, .cols = 56, .inner = 40,
     .flags = TB | AX_SHAPE_BIAS},
    {"dx, small groups", DOCUMENTS(decoding_128), .rows = 128, .cols = 40, .inner = 56},
    {"dW, small groups", DOCUMENTS(decoding_128), .rows = 128, .cols = 40, .inner = 56,
     .flags = TA},
    {"gate_up", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1536, .inner = 1024,
     .flags = TB},
    {"dx of gate_up", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1024, .inner = 1536},
    {"dW of gate_up", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1024, .inner = 1536,
     .flags = TA},
    {"30B-A3B gate_up", .huge = true, DOCUMENTS(experts_128), .rows = 32768, .cols = 1536,
     .inner = 2048, .flags = TB},
    {"30B-A3B down", .huge = true, DOCUMENTS(experts_128), .rows = 32768, .cols = 2048,
     .inner = 768, .flags = TB},
    {"30B-A3B dx of gate_up", .huge = true, DOCUMENTS(experts_128), .rows = 32768, .cols = 2048,
     .inner = 1536},
    {"30B-A3B dW of down", .huge = true, DOCUMENTS(experts_128), .rows = 32768, .cols = 768,
     .inner = 2048, .flags = TA},
    {"30B-A3B gate_up, adapter", .huge = true, DOCUMENTS(experts_128), .rows = 32768, .cols = 16,
     .inner = 2048, .flags = TB},
    {"30B-A3B gate_up, decoding", .huge = true, DOCUMENTS(decoding_128), .rows = 128, .cols = 1536,
     .inner = 2048, .flags = TB},
    {"8x7B gate_up", .huge = true, DOCUMENTS(experts_8), .rows = 8192, .cols = 28672, .inner = 4096,
     .flags = TB},
};

/* c is overwritten in full, except dW, which accumulates. */
AX_OP_INFO(grouped_gemm, IN(a), IN(b), OUT(c), IN(offsets), IN(bias));

static struct ax_tensor matrix(const struct ax_tensor *t, int64_t group) {
    return ax_tensor_2d(t->dtype, ax_tensor_row(t, group), t->shape[1], t->shape[2]);
}

struct ax_gemm ax_grouped_gemm_of(const struct ax_grouped_gemm *a, int64_t group) {
    const int32_t *offsets = a->offsets.data;
    int64_t first = offsets[group], n = offsets[group + 1] - first;
    AX_ASSERT(first >= 0 && n >= 0 && first + n <= a->a.shape[0]);
    struct ax_tensor bias = {0};
    if (a->bias.data)
        bias = ax_tensor_1d(a->bias.dtype, ax_tensor_row(&a->bias, group), a->bias.shape[1]);
    return (struct ax_gemm){
        .a = ax_tensor_rows(&a->a, first, n),
        .b = a->trans_a ? ax_tensor_rows(&a->b, first, n) : matrix(&a->b, group),
        .c = a->trans_a ? matrix(&a->c, group) : ax_tensor_rows(&a->c, first, n),
        .trans_a = a->trans_a,
        .trans_b = a->trans_b,
        .accumulate = a->trans_a || a->accumulate,
        .bias = bias,
        .alpha = a->alpha};
}

#define LARGE_GROUP ((double)(1 << 22)) /* 128 tiles */

bool ax_grouped_gemm_is_large(const struct ax_grouped_gemm *a) {
    const struct ax_tensor *matrices = a->trans_a ? &a->c : &a->b;
    const int64_t narrower =
        matrices->shape[1] < matrices->shape[2] ? matrices->shape[1] : matrices->shape[2];
    return (double)a->expected_rows * (double)narrower >= LARGE_GROUP * (double)matrices->shape[0];
}

static const char *check_grouped_colsum(const struct ax_grouped_colsum *a) {
    const int64_t groups = a->offsets.shape[0] - 1;
    NEED(real(&a->x) && is_2d(&a->x, a->x.dtype, a->x.shape[0], a->x.shape[1]));
    NEED(groups >= 1 && is_1d(&a->offsets, AX_I32, groups + 1));
    NEED(is_dense_2d(&a->out, accum(&a->x), groups, a->x.shape[1]));
    return NULL;
}

PER_ELEMENT(grouped_colsum, 1, x)

static void build_grouped_colsum(struct ax_case_builder *b, struct ax_grouped_colsum *a) {
    a->x = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->offsets = ax_case_cumulative(b, false);
    a->out = ax_case_dense_in2(b, b->accum, a->offsets.shape[0] - 1, b->shape->cols);
}

static const struct ax_shape shapes_grouped_colsum[] = {
    {"one", DOCUMENTS(one_row), .rows = 1, .cols = 1},
    {"uneven", DOCUMENTS(uneven), .rows = 21, .cols = 37},
    {"strided", DOCUMENTS(all_in_one), .rows = 40, .cols = 24, .pad = 8},
    {"nothing", DOCUMENTS(no_rows), .rows = 8, .cols = 16},
    {"experts", .big = true, DOCUMENTS(many), .rows = 2048, .cols = 1536},
};

AX_OP_INFO(grouped_colsum, IN(x), IN(offsets), INOUT(out));
