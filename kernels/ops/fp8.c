/* Products of 8-bit floats, and the codes that are their operands. */
#include <math.h>

#include "kernels/ops/family.h"
#include "kernels/quant/quant_block.h"

struct fp8_options {
    bool e5m2;          /* fp8_codes: the format; fp8_gemm: of a */
    bool b_e5m2;        /* fp8_gemm: of b */
    bool rows, columns; /* fp8_codes: what is made */
    bool each;          /* a scale for each row, or column that is made */
    bool own;           /* fp8_codes: rows' ranges are not given */
};
#define FP8(...) OPTIONS(fp8_options, __VA_ARGS__)

#define ALIGN 16 /* bytes */

static bool is_fp8(enum ax_quant kind) {
    return kind == AX_QUANT_FP8 || kind == AX_QUANT_E5M2;
}

/* Codes without gaps, or none. */
static bool are_codes(tensor t, int64_t rows, int64_t cols) {
    return !given(t) || is_dense_2d(t, AX_U8, rows, cols);
}

static const char *check_fp8_codes(const struct ax_fp8_codes *a) {
    NEED(given(&a->x) && a->x.ndim == 2 && real(&a->x) && rows_apart(&a->x));
    NEED(is_fp8(a->kind) && given(&a->scale) && is_1d(&a->scale, AX_F32, a->scale.shape[0]));
    NEED(a->x.shape[1] % AX_FP8_STEP == 0 && (given(&a->rows) || given(&a->columns)));
    NEED(a->scale.shape[0] == 1 || ax_fp8_codes_by_row(a) || ax_fp8_codes_by_column(a));
    NEED(given(&a->range) ? is_dense_2d(&a->range, AX_F32, a->scale.shape[0], 2)
                          : ax_fp8_codes_by_row(a));
    NEED(are_codes(&a->rows, a->x.shape[0], a->x.shape[1]));
    NEED(are_codes(&a->columns, a->x.shape[1], ax_fp8_round_up(a->x.shape[0])));
    return NULL;
}

PER_ELEMENT(fp8_codes, 3, x) /* ÷, clamp, round */

/* Numbers of all sizes that have codes, and smaller ones; one NaN, and one infinity. */
static void spread(const struct ax_case_builder *b, const struct ax_tensor *x) {
    const int64_t cols = x->shape[1];
    for (int64_t i = 0; i < ax_tensor_numel(x) && b->memory != NULL; i++) {
        const int64_t at = i / cols * x->row_stride + i % cols;
        const double less = ldexp(ax_load(x->dtype, x->data, at), -(int)(i % 40));
        ax_store(x->dtype, x->data, at, i == 2 ? NAN : i == 3 ? -INFINITY : less);
    }
}

static void build_fp8_codes(struct ax_case_builder *b, struct ax_fp8_codes *a) {
    const struct fp8_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->kind = o->e5m2 ? AX_QUANT_E5M2 : AX_QUANT_FP8;
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    spread(b, &a->x);
    const int64_t scales = !o->each ? 1 : o->rows ? s->rows : s->cols;
    if (!o->own) {
        a->range = ax_case_dense2(b, AX_F32, scales, 2);
        ax_case_randomize(b, &a->range, 0.5, 1); /* some numbers are clamped */
    }
    if (o->rows)
        a->rows = ax_case_dense2(b, AX_U8, s->rows, s->cols);
    if (o->columns)
        a->columns = ax_case_dense2(b, AX_U8, s->cols, ax_fp8_round_up(s->rows));
    a->scale = ax_case_out1(b, AX_F32, scales);
}

static const struct ax_shape shapes_fp8_codes[] = {
    {"rows, one", .rows = 1, .cols = 16, FP8(.rows = true)},
    {"rows", .rows = 7, .cols = 144, .pad = 8, FP8(.rows = true)},
    {"rows, unaligned", .rows = 5, .cols = 80, .pad = 3, FP8(.rows = true)},
    {"columns", .rows = 48, .cols = 32, FP8(.columns = true)},
    {"columns, tiles", .rows = 80, .cols = 208, .pad = 8, FP8(.columns = true)},
    {"columns, odd rows", .rows = 67, .cols = 80, FP8(.columns = true)},
    {"both, one row", .rows = 1, .cols = 16, FP8(.rows = true, .columns = true)},
    {"both", .rows = 144, .cols = 80, .pad = 3, FP8(.rows = true, .columns = true)},
    {"e5m2, rows", .rows = 33, .cols = 96, FP8(.e5m2 = true, .rows = true)},
    {"e5m2, both", .rows = 64, .cols = 128, FP8(.e5m2 = true, .rows = true, .columns = true)},
    {"by row", .rows = 7, .cols = 144, .pad = 8, FP8(.rows = true, .each = true)},
    {"by row, their own", .rows = 5, .cols = 80, .pad = 3,
     FP8(.rows = true, .each = true, .own = true)},
    {"by row, e5m2, long", .rows = 3, .cols = 2064,
     FP8(.e5m2 = true, .rows = true, .each = true, .own = true)},
    {"by row, one", .rows = 1, .cols = 16, FP8(.rows = true, .each = true, .own = true)},
    {"by column", .rows = 67, .cols = 80, .pad = 8, FP8(.columns = true, .each = true)},
    {"by column, e5m2", .rows = 1, .cols = 208, FP8(.e5m2 = true, .columns = true, .each = true)},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, FP8(.rows = true)},
    {"gate_up, both", .big = true, .rows = 3072, .cols = 576, FP8(.rows = true, .columns = true)},
    {"8B down", .huge = true, .rows = 4096, .cols = 14336, FP8(.rows = true)},
    {"8B down, both", .huge = true, .rows = 4096, .cols = 14336,
     FP8(.rows = true, .columns = true)},
    {"8B down, by row", .huge = true, .rows = 4096, .cols = 14336,
     FP8(.rows = true, .each = true, .own = true)},
    {"8B down, by column", .huge = true, .rows = 4096, .cols = 14336,
     FP8(.columns = true, .each = true)},
};

AX_OP_INFO(fp8_codes, IN(x), IN(range), OUT(rows), OUT(columns), OUT(scale));

static bool is_aligned(tensor t) {
    return (uintptr_t)t->data % ALIGN == 0;
}

bool ax_fp8_gemm_aligned(const struct ax_tensor *t) {
    const int64_t row = t->row_stride * (int64_t)ax_dtype_size(t->dtype);
    return !given(t) || ((t->shape[0] <= 1 || row % ALIGN == 0) && is_aligned(t));
}

static const char *check_fp8_gemm(const struct ax_fp8_gemm *g) {
    const int64_t m = g->c.shape[0], n = g->c.shape[1], k = g->a.shape[1];
    const enum ax_dtype dtype = g->c.dtype;
    NEED(is_fp8(g->a_kind) && is_fp8(g->b_kind));
    NEED(g->a_kind == AX_QUANT_FP8 || g->b_kind == AX_QUANT_FP8);
    NEED(k % AX_FP8_STEP == 0 && n % AX_FP8_STEP == 0);
    NEED(is_dense_2d(&g->a, AX_U8, m, k) && is_dense_2d(&g->b, AX_U8, n, k));
    const bool by_rows = ax_fp8_gemm_by_rows(g);
    NEED(is_1d(&g->a_scale, AX_F32, by_rows ? m : 1));
    NEED(is_1d(&g->b_scale, AX_F32, by_rows ? n : 1));
    NEED(!by_rows || (is_aligned(&g->a_scale) && is_aligned(&g->b_scale)));
    NEED(real(&g->c) && is_2d(&g->c, dtype, m, n));
    NEED(!given(&g->bias) || real(&g->bias));
    NEED(!given(&g->bias) || is_1d(&g->bias, g->bias.dtype, n));
    NEED(!given(&g->bias) || is_stream(&g->c, g->bias.dtype));
    NEED(!given(&g->addend) || (is_2d(&g->addend, dtype, m, n) && !g->accumulate));
    NEED(ax_fp8_gemm_aligned(&g->a) && ax_fp8_gemm_aligned(&g->b));
    NEED(ax_fp8_gemm_aligned(&g->c) && ax_fp8_gemm_aligned(&g->addend));
    return NULL;
}

static struct ax_op_cost cost_fp8_gemm(const struct ax_fp8_gemm *a) {
    struct ax_op_cost cost =
        ax_op_per_element(ax_operands_fp8_gemm(), a, 2 * (double)a->a.shape[1], &a->c);
    cost.bytes += a->accumulate ? bytes_of(&a->c) : 0;
    return cost;
}

/* Codes of numbers uniform in [−1, 1], and a scale that makes them such; those of rows are of four sizes. */
static struct ax_tensor build_codes(struct ax_case_builder *b, enum ax_quant kind, int64_t rows,
                                    int64_t cols, struct ax_tensor *scale) {
    const struct ax_quant_block block = ax_quant_block_of(kind, -1, 1, 0);
    const struct fp8_options *o = ax_case_options(b);
    *scale = ax_case_out1(b, AX_F32, o->each ? rows : 1);
    for (int64_t i = 0; i < scale->shape[0] && b->memory != NULL; i++)
        ax_store(AX_F32, scale->data, i, ldexp((double)block.scale, -(int)(i * 5 % 4)));
    struct ax_tensor codes = ax_case_dense2(b, AX_U8, rows, cols);
    for (int64_t i = 0; i < rows * cols && b->memory != NULL; i++)
        ((unsigned char *)codes.data)[i] =
            (unsigned char)ax_fp8_code(kind, (float)ax_case_uniform(b, i, -1, 1), &block);
    return codes;
}

static void build_fp8_gemm(struct ax_case_builder *b, struct ax_fp8_gemm *a) {
    const struct fp8_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    const enum ax_dtype to = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->a_kind = o->e5m2 ? AX_QUANT_E5M2 : AX_QUANT_FP8;
    a->b_kind = o->b_e5m2 ? AX_QUANT_E5M2 : AX_QUANT_FP8;
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->a = build_codes(b, a->a_kind, s->rows, s->inner, &a->a_scale);
    a->b = build_codes(b, a->b_kind, s->cols, s->inner, &a->b_scale);
    a->c = a->accumulate ? ax_case_in2(b, to, s->rows, s->cols)
                         : ax_case_out2(b, to, s->rows, s->cols);
    if (ax_case_has(b, AX_SHAPE_BIAS))
        a->bias = ax_case_in1(b, b->real, s->cols);
    if (ax_case_has(b, AX_SHAPE_ADDEND))
        a->addend = ax_case_in2(b, to, s->rows, s->cols);
}

static const struct ax_shape shapes_fp8_gemm[] = {
    {"y, one row", .rows = 1, .cols = 16, .inner = 16},
    {"y, odd rows", .rows = 7, .cols = 48, .inner = 80},
    {"y, strided, bias", .rows = 16, .cols = 80, .inner = 32, .pad = 8, .flags = AX_SHAPE_BIAS},
    {"y, residual", .rows = 32, .cols = 64, .inner = 144, .flags = AX_SHAPE_ADDEND},
    {"y, bias, residual", .rows = 16, .cols = 96, .inner = 64,
     .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND | OUT32},
    {"dx", .rows = 32, .cols = 48, .inner = 96, FP8(.e5m2 = true)},
    {"dx, adds", .rows = 16, .cols = 64, .inner = 32, .flags = ACC, FP8(.e5m2 = true)},
    {"e5m2 of b", .rows = 16, .cols = 64, .inner = 32, FP8(.b_e5m2 = true)},
    {"dW", .rows = 48, .cols = 32, .inner = 304, .pad = 4, .flags = ACC | OUT32, FP8(.e5m2 = true)},
    {"dW, first", .rows = 48, .cols = 32, .inner = 64, .flags = OUT32, FP8(.e5m2 = true)},
    {"by rows, y, one row", .rows = 1, .cols = 16, .inner = 16, FP8(.each = true)},
    {"by rows, y", .rows = 7, .cols = 80, .inner = 48, .pad = 8, .flags = AX_SHAPE_BIAS,
     FP8(.each = true)},
    {"by rows, y, residual", .rows = 16, .cols = 96, .inner = 64,
     .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND | OUT32, FP8(.each = true)},
    {"by rows, dx, adds", .rows = 37, .cols = 64, .inner = 32, .flags = ACC,
     FP8(.e5m2 = true, .each = true)},
    {"by rows, dW", .rows = 48, .cols = 32, .inner = 304, .pad = 4, .flags = ACC | OUT32,
     FP8(.e5m2 = true, .each = true)},
    {"gate_up", .big = true, .rows = 2048, .cols = 3072, .inner = 576},
    {"dx of gate_up", .big = true, .rows = 2048, .cols = 576, .inner = 3072, FP8(.e5m2 = true)},
    {"dW of gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 2048, .flags = ACC | OUT32,
     FP8(.e5m2 = true)},
    {"8B down", .huge = true, .rows = 4096, .cols = 4096, .inner = 14336},
    {"8B dW of down", .huge = true, .rows = 4096, .cols = 14336, .inner = 4096,
     .flags = ACC | OUT32, FP8(.e5m2 = true)},
    {"8B down, by rows", .huge = true, .rows = 4096, .cols = 4096, .inner = 14336,
     FP8(.each = true)},
    {"8B dW of down, by rows", .huge = true, .rows = 4096, .cols = 14336, .inner = 4096,
     .flags = ACC | OUT32, FP8(.e5m2 = true, .each = true)},
};

AX_OP_INFO(fp8_gemm, OUT_ROWS(c), IN_ROWS(a), IN(b), IN(a_scale), IN(b_scale), IN(bias),
           IN_ROWS(addend));
