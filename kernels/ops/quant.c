/* Number formats: packing, unpacking, and training as if packed. */
#include "kernels/ops/family.h"
#include "kernels/panels.h"
#include "kernels/quant/scheme.h"

struct quant_options {
    enum ax_quant kind; /* `inner` is the block, */
    int64_t block;      /* … of packed_gemm this is; 0 = a row */
    bool range;         /* of all numbers is given */
    bool columns;       /* ranges are of columns */
    bool panels;        /* of codes */
};
#define QUANT(...) OPTIONS(quant_options, __VA_ARGS__)

static int64_t blocks_of(int64_t n, int64_t block) {
    return (n + block - 1) / block;
}

/* Ranges, or outer scales, of blocks: one for all, or one for each row, in which blocks end. */
static bool is_shared(tensor values, int64_t n, int64_t block) {
    return n == 1 || (n == values->shape[0] && ax_tensor_row_len(values) % block == 0);
}

static const char *check_range(tensor values, tensor range, int64_t block, enum ax_quant kind) {
    NEED(given(range) || ax_quant_info(kind)->outer == 1);
    if (!given(range))
        return NULL;
    NEED(ax_quant_info(kind)->fakes);
    NEED(is_dense_2d(range, AX_F32, range->shape[0], 2));
    NEED(is_shared(values, range->shape[0], block));
    return NULL;
}

/* Codes, scales, offsets and the outer scale that belong to these values. */
static const char *check_packed(tensor values, tensor codes, tensor scale, tensor offset,
                                tensor outer, int64_t block, enum ax_quant kind) {
    NEED(given(values) && real(values) && ax_tensor_is_dense(values) && block >= 1);
    const struct ax_quant_info *info = ax_quant_info(kind);
    int64_t n = ax_tensor_numel(values);
    NEED(is_1d(codes, info->codes, ax_quant_code_bytes(kind, n)));
    NEED(is_1d(scale, info->scale, blocks_of(n, block)));
    NEED(given(offset) == info->offset);
    NEED(!given(offset) || is_1d(offset, AX_F32, blocks_of(n, block)));
    NEED(!given(outer) || (info->outer != 1 && is_1d(outer, AX_F32, outer->shape[0])));
    return NULL;
}

static const char *check_quantize(const struct ax_quantize *a) {
    const bool asym = a->kind != AX_QUANT_MAP8;
    const char *rule = check_packed(&a->x, &a->codes, &a->scale, asym ? &a->zero : &a->offset,
                                    &a->outer, a->block, a->kind);
    if (rule != NULL)
        return rule;
    NEED(!given(asym ? &a->offset : &a->zero));
    NEED(!given(&a->outer) || a->outer.shape[0] == a->range.shape[0]);
    return check_range(&a->x, &a->range, a->block, a->kind);
}

PER_ELEMENT(quantize, 4, x) /* max, ÷, compare, pack */

/* The range of numbers in [−1, 1]. */
static struct ax_tensor build_range(struct ax_case_builder *b, bool wanted) {
    struct ax_tensor range = {0};
    if (!wanted)
        return range;
    range = ax_case_dense2(b, AX_F32, 1, 2);
    ax_case_randomize(b, &range, 0.5, 1);
    return range;
}

/* One block of zeros among the numbers. */
static void build_quantize(struct ax_case_builder *b, struct ax_quantize *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_quant_info *info = ax_quant_info(o->kind);
    const struct ax_shape *s = b->shape;
    const int64_t blocks = blocks_of(s->rows * s->cols, s->inner);
    a->x = ax_case_dense2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -1, 1);
    for (int64_t i = s->inner; i < 2 * s->inner && i < s->rows * s->cols && b->memory != NULL; i++)
        ax_store(b->real, a->x.data, i, 0);
    a->codes = ax_case_out1(b, info->codes, ax_quant_code_bytes(o->kind, s->rows * s->cols));
    a->scale = ax_case_out1(b, info->scale, blocks);
    if (o->kind == AX_QUANT_MAP8)
        a->offset = ax_case_in1(b, AX_F32, blocks);
    else if (info->offset)
        a->zero = ax_case_out1(b, AX_F32, blocks);
    a->range = build_range(b, o->range);
    if (info->outer != 1)
        a->outer = ax_case_out1(b, AX_F32, 1);
    a->block = s->inner;
    a->kind = o->kind;
}

#define PACKED_SHAPES                                                                              \
    {"nf4, one", .rows = 1, .cols = 1, .inner = 64}, {"nf4", .rows = 6, .cols = 128, .inner = 64}, \
        {"nf4, odd rows", .rows = 5, .cols = 37, .inner = 64},                                     \
        {"nf4, short blocks", .rows = 5, .cols = 48, .inner = 3},                                  \
        {"int4, two per byte", .rows = 5, .cols = 192, .inner = 32,                                \
         QUANT(.kind = AX_QUANT_INT4X2)},                                                          \
        {"int4, two per byte, short blocks", .rows = 5, .cols = 48, .inner = 3,                    \
         QUANT(.kind = AX_QUANT_INT4X2)},                                                          \
        {"map8", .rows = 3, .cols = 200, .inner = 256, QUANT(.kind = AX_QUANT_MAP8)}, {            \
        "nf4, gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 64                        \
    }

#define GROUPS(name, kind_, ...)                                                                   \
    { name, .rows = 5, .cols = 192, .inner = 32, QUANT(.kind = AX_QUANT_##kind_, __VA_ARGS__) }
#define FORMAT_SHAPES                                                                              \
    {"int8", .rows = 5, .cols = 70, .inner = 70, QUANT(.kind = AX_QUANT_INT8)},                    \
        {"int8, blocks", .rows = 5, .cols = 70, .inner = 14, QUANT(.kind = AX_QUANT_INT8)},        \
        {"fp8", .rows = 5, .cols = 130, .inner = 130, QUANT(.kind = AX_QUANT_FP8)},                \
        {"int8, long rows", .rows = 2, .cols = 4100, .inner = 4100, QUANT(.kind = AX_QUANT_INT8)}, \
        {"fp8, longer rows", .rows = 3, .cols = 2104, .inner = 2104, QUANT(.kind = AX_QUANT_FP8)}, \
        {"int8, blocks of 264", .rows = 2, .cols = 792, .inner = 264,                              \
         QUANT(.kind = AX_QUANT_INT8)},                                                            \
        {"int8 asymmetric", .rows = 5, .cols = 70, .inner = 70,                                    \
         QUANT(.kind = AX_QUANT_INT8_ASYM)},                                                       \
        {"int8 asymmetric, range", .rows = 5, .cols = 70, .inner = 70,                             \
         QUANT(.kind = AX_QUANT_INT8_ASYM, .range = true)},                                        \
        {"fp8, range", .rows = 5, .cols = 70, .inner = 70,                                         \
         QUANT(.kind = AX_QUANT_FP8, .range = true)},                                              \
        {"nvfp4", .rows = 5, .cols = 48, .inner = 16,                                              \
         QUANT(.kind = AX_QUANT_NVFP4, .range = true)},                                            \
        {"nvfp4, one scale", .rows = 5, .cols = 48, .inner = 16,                                   \
         QUANT(.kind = AX_QUANT_NVFP4_ONE)},                                                       \
        GROUPS("int4", INT4, ), GROUPS("int4 asymmetric", INT4_ASYM, ),                            \
        GROUPS("int4 of fp8", INT4_FP8, .range = true), GROUPS("e5m2", E5M2, ),                    \
        GROUPS("mxfp4", MXFP4, ), GROUPS("mxfp4, up", MXFP4_UP, ), GROUPS("mxfp8", MXFP8, ),       \
        GROUPS("mxfp8, up", MXFP8_UP, ),                                                           \
        {"int4, gate_up", .big = true, .rows = 3072,                                               \
         .cols = 576,     .inner = 32, QUANT(.kind = AX_QUANT_INT4)},                              \
    {                                                                                              \
        "int8 asymmetric, gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 576,          \
                                    QUANT(.kind = AX_QUANT_INT8_ASYM)                              \
    }

#define HUGE(name, block, ...)                                                                     \
    { name, .huge = true, .rows = 4096, .cols = 14336, .inner = block, QUANT(__VA_ARGS__) }
#define HUGE_SHAPES                                                                                \
    HUGE("nf4, 8B down", 64, .kind = AX_QUANT_NF4),                                                \
        HUGE("int4, 8B down", 32, .kind = AX_QUANT_INT4),                                          \
        HUGE("int8, 8B down", 14336, .kind = AX_QUANT_INT8),                                       \
        HUGE("fp8, 8B down", 14336, .kind = AX_QUANT_FP8)

static const struct ax_shape shapes_quantize[] = {PACKED_SHAPES, FORMAT_SHAPES, HUGE_SHAPES};

AX_OP_INFO(quantize, IN(x), OUT(codes), OUT(scale), IN(offset), IN(range), OUT(zero), OUT(outer));

static const char *check_dequantize(const struct ax_dequantize *a) {
    NEED(given(&a->outer) == (a->kind == AX_QUANT_NVFP4));
    return check_packed(&a->out, &a->codes, &a->scale, &a->offset, &a->outer, a->block, a->kind);
}

PER_ELEMENT(dequantize, ax_quant_info(a->kind)->offset ? 2 : 1, out)

#define DRAWN_CODES (4 << 20)

/* Codes of all bits that are numbers: in FP8, 1111111 is none, nor are the last three of E5M2; of
 * four bits there are 16. */
static unsigned code_of_bits(unsigned bits, enum ax_quant kind) {
    switch (kind) {
    case AX_QUANT_FP8:
    case AX_QUANT_MXFP8:
    case AX_QUANT_MXFP8_UP:
        return (bits & 127) == 127 ? bits - 1 : bits;
    case AX_QUANT_E5M2:
        return (bits & 127) > 123 ? bits - 4 : bits;
    case AX_QUANT_INT4_ASYM:
    case AX_QUANT_NVFP4:
    case AX_QUANT_NVFP4_ONE:
    case AX_QUANT_MXFP4:
    case AX_QUANT_MXFP4_UP:
        return bits & 15;
    default:
        return bits;
    }
}

/* Scales that are bytes: numbers near 1 as e4m3, near 2⁰ as a power of two. */
static struct ax_tensor build_scale(struct ax_case_builder *b, enum ax_quant kind, int64_t blocks) {
    if (ax_quant_info(kind)->scale == AX_F32)
        return ax_case_in1(b, AX_F32, blocks);
    struct ax_tensor scale = ax_case_out1(b, AX_U8, blocks);
    const unsigned one = kind == AX_QUANT_NVFP4 || kind == AX_QUANT_NVFP4_ONE ? 0x38 : 127;
    for (int64_t i = 0; i < blocks && b->memory != NULL; i++)
        ((unsigned char *)scale.data)[i] =
            (unsigned char)(one + ax_rng_u32(b->key, (uint64_t)i) % 8 - 7);
    return scale;
}

/* Those of a huge operand repeat, as its numbers do. */
static struct ax_tensor build_codes(struct ax_case_builder *b, enum ax_quant kind, int64_t numel) {
    struct ax_tensor codes =
        ax_case_out1(b, ax_quant_info(kind)->codes, ax_quant_code_bytes(kind, numel));
    unsigned char *to = codes.data;
    for (int64_t i = 0; i < codes.shape[0] && b->memory != NULL; i++)
        to[i] = i < DRAWN_CODES
                    ? (unsigned char)code_of_bits(ax_rng_u32(b->key, (uint64_t)i) % 256, kind)
                    : to[i - DRAWN_CODES];
    return codes;
}

static void build_dequantize(struct ax_case_builder *b, struct ax_dequantize *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_quant_info *info = ax_quant_info(o->kind);
    const struct ax_shape *s = b->shape;
    const int64_t blocks = blocks_of(s->rows * s->cols, s->inner);
    a->out = ax_case_dense2(b, b->real, s->rows, s->cols);
    a->codes = build_codes(b, o->kind, s->rows * s->cols);
    a->scale = build_scale(b, o->kind, blocks);
    if (info->offset)
        a->offset = ax_case_in1(b, AX_F32, blocks);
    if (o->kind == AX_QUANT_NVFP4)
        a->outer = ax_case_in1(b, AX_F32, 1);
    a->block = s->inner;
    a->kind = o->kind;
}

static const struct ax_shape shapes_dequantize[] = {PACKED_SHAPES, FORMAT_SHAPES, HUGE_SHAPES};

AX_OP_INFO(dequantize, OUT(out), IN(codes), IN(scale), IN(offset), IN(outer));

/* W, as if it were where the codes are. */
static struct ax_tensor values_of(const struct ax_packed_gemm *a) {
    return ax_tensor_2d(a->a.dtype, a->codes.data, a->c.shape[1], a->a.shape[1]);
}

static const char *check_packed_gemm(const struct ax_packed_gemm *a) {
    const struct ax_tensor none = {0}, values = values_of(a);
    const int64_t m = a->a.shape[0], n = a->c.shape[1];
    NEED(given(&a->a) && real(&a->a) && a->a.ndim == 2 && rows_apart(&a->a));
    NEED(a->c.dtype == a->a.dtype || a->c.dtype == accum(&a->a));
    NEED(is_2d(&a->c, a->c.dtype, m, n));
    NEED(!given(&a->bias) || is_1d(&a->bias, a->a.dtype, n));
    NEED(!given(&a->addend) || is_2d(&a->addend, a->c.dtype, m, n));
    NEED(!ax_quant_info(a->kind)->offset && ax_quant_info(a->kind)->outer == 1);
    NEED(!a->codes.panels || ax_code_panels_fit(a->kind, n, a->a.shape[1], a->block));
    return check_packed(&values, &a->codes, &a->scale, &none, &none, a->block, a->kind);
}

static struct ax_op_cost cost_packed_gemm(const struct ax_packed_gemm *a) {
    return ax_op_per_element(ax_operands_packed_gemm(), a, 2 * (double)a->a.shape[1], &a->c);
}

static void build_packed_gemm(struct ax_case_builder *b, struct ax_packed_gemm *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    const int64_t numel = s->cols * s->inner;
    a->kind = o->kind;
    a->block = o->block > 0 ? o->block : s->inner;
    a->a = ax_case_in2(b, b->real, s->rows, s->inner);
    a->codes = build_codes(b, o->kind, numel);
    a->codes.panels = o->panels;
    a->scale = ax_case_in1(b, AX_F32, blocks_of(numel, a->block));
    ax_case_randomize(b, &a->scale, 0.001, 0.01);
    a->c = ax_case_out2(b, ax_case_stream(b, AX_SHAPE_ACCUM_OUT), s->rows, s->cols);
    if (ax_case_has(b, AX_SHAPE_BIAS))
        a->bias = ax_case_in1(b, b->real, s->cols);
    if (ax_case_has(b, AX_SHAPE_ADDEND))
        a->addend = ax_case_in2(b, a->c.dtype, s->rows, s->cols);
}

#define HUGE_PRODUCT(name, tokens, ...)                                                            \
    { name, .huge = true, .rows = tokens, .cols = 4096, .inner = 14336, QUANT(__VA_ARGS__) }
static const struct ax_shape shapes_packed_gemm[] = {
    {"nf4, one", .rows = 1, .cols = 1, .inner = 1, QUANT(.block = 64)},
    {"nf4, odd", .rows = 3, .cols = 13, .inner = 31, QUANT(.block = 64)},
    {"nf4, token", .rows = 1, .cols = 48, .inner = 320, QUANT(.block = 64)},
    {"nf4, tokens", .rows = 11, .cols = 32, .inner = 192, .pad = 8,
     .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND, QUANT(.block = 64)},
    {"int8, token", .rows = 1, .cols = 48, .inner = 70, QUANT(.kind = AX_QUANT_INT8)},
    {"int8, tokens", .rows = 9, .cols = 32, .inner = 136, .flags = OUT32 | AX_SHAPE_BIAS,
     QUANT(.kind = AX_QUANT_INT8)},
    {"int8, pieces of rows", .rows = 2, .cols = 16, .inner = 140,
     QUANT(.kind = AX_QUANT_INT8, .block = 14)},
    {"int4, token", .rows = 1, .cols = 32, .inner = 96, QUANT(.kind = AX_QUANT_INT4, .block = 32)},
    {"int4, many tokens", .rows = 40, .cols = 48, .inner = 64,
     QUANT(.kind = AX_QUANT_INT4, .block = 32)},
    {"fp8, token", .rows = 1, .cols = 32, .inner = 96, QUANT(.kind = AX_QUANT_FP8)},
    {"int8, panels", .rows = 3, .cols = 48, .inner = 72,
     QUANT(.kind = AX_QUANT_INT8, .panels = true)},
    {"int4, two per byte", .rows = 3, .cols = 32, .inner = 96,
     QUANT(.kind = AX_QUANT_INT4X2, .block = 32)},
    {"int4, panels", .rows = 2, .cols = 48, .inner = 96,
     QUANT(.kind = AX_QUANT_INT4X2, .block = 32, .panels = true)},
    {"nf4, panels", .rows = 1, .cols = 32, .inner = 192, .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND,
     QUANT(.block = 64, .panels = true)},
    {"nf4, few rows", .rows = 64, .cols = 21, .inner = 1216, .pad = 8, .flags = OUT32,
     QUANT(.block = 64)},
    {"int4, two per byte, few rows", .rows = 3, .cols = 16, .inner = 640, .flags = AX_SHAPE_BIAS,
     QUANT(.kind = AX_QUANT_INT4X2, .block = 32)},
    {"int8, few rows", .rows = 20, .cols = 37, .inner = 1088, .pad = 1,
     .flags = OUT32 | AX_SHAPE_ADDEND, QUANT(.kind = AX_QUANT_INT8)},
    {"fp8, few rows", .rows = 5, .cols = 40, .inner = 192, .flags = AX_SHAPE_BIAS | AX_SHAPE_ADDEND,
     QUANT(.kind = AX_QUANT_FP8)},
    {"int8, gate_up", .big = true, .rows = 2, .cols = 3072, .inner = 576,
     QUANT(.kind = AX_QUANT_INT8)},
    {"nf4, gate_up", .big = true, .rows = 2, .cols = 3072, .inner = 576, QUANT(.block = 64)},
    HUGE_PRODUCT("nf4, 8B down, one token", 1, .block = 64),
    HUGE_PRODUCT("nf4, 8B down, 8 tokens", 8, .block = 64),
    HUGE_PRODUCT("int4, 8B down, one token", 1, .kind = AX_QUANT_INT4X2, .block = 32),
    HUGE_PRODUCT("int8, 8B down, one token", 1, .kind = AX_QUANT_INT8),
    HUGE_PRODUCT("fp8, 8B down, one token", 1, .kind = AX_QUANT_FP8),
    HUGE_PRODUCT("nf4, 8B down, 64 tokens", 64, .block = 64),
    HUGE_PRODUCT("nf4, 8B down, 4,096 tokens", 4096, .block = 64),
};

AX_OP_INFO(packed_gemm, IN_ROWS(a), IN_PANELS(codes), IN(scale), OUT_ROWS(c), IN(bias),
           IN_ROWS(addend));

static const char *check_quant_range(const struct ax_quant_range *a) {
    NEED(given(&a->x) && a->x.ndim == 2 && real(&a->x) && rows_apart(&a->x));
    NEED(is_dense_2d(&a->range, AX_F32, a->range.shape[0], 2));
    NEED(a->columns ? a->range.shape[0] == a->x.shape[1]
                    : a->range.shape[0] == 1 || a->range.shape[0] == a->x.shape[0]);
    return NULL;
}

PER_ELEMENT(quant_range, 2, x)

static void build_quant_range(struct ax_case_builder *b, struct ax_quant_range *a) {
    const struct quant_options *o = ax_case_options(b);
    a->x = ax_case_in2(b, b->real, b->shape->rows, b->shape->cols);
    a->columns = o->columns;
    a->range = ax_case_dense2(b, AX_F32,
                              o->range     ? 1
                              : o->columns ? b->shape->cols
                                           : b->shape->rows,
                              2);
}

static const struct ax_shape shapes_quant_range[] = {
    {"one", .rows = 1, .cols = 1},
    {"rows", .rows = 5, .cols = 37, .pad = 3},
    {"all", .rows = 70, .cols = 37, .pad = 3, QUANT(.range = true)},
    {"all, large", .rows = 300, .cols = 400, QUANT(.range = true)},
    {"columns", .rows = 37, .cols = 70, .pad = 3, QUANT(.columns = true)},
    {"columns, large", .rows = 90, .cols = 2100, QUANT(.columns = true)},
    {"columns, tall", .rows = 600, .cols = 150, .pad = 2, QUANT(.columns = true)},
    {"gate_up", .big = true, .rows = 3072, .cols = 576, QUANT(.range = true)},
    {"gate_up, columns", .big = true, .rows = 3072, .cols = 576, QUANT(.columns = true)},
};

AX_OP_INFO(quant_range, IN(x), OUT(range));

static const char *check_format(tensor x, int64_t block, enum ax_quant kind) {
    NEED(given(x) && x->ndim == 2 && real(x) && rows_apart(x));
    NEED(block >= 1 && x->shape[1] % block == 0);
    NEED(ax_quant_info(kind)->fakes);
    return NULL;
}

static const char *check_fake_quantize(const struct ax_fake_quantize *a) {
    const char *rule = check_format(&a->x, a->block, a->kind);
    if (rule != NULL)
        return rule;
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->x.dtype);
    if (!a->columns)
        return check_range(&a->x, &a->range, a->block, a->kind);
    NEED(a->kind == AX_QUANT_FP8 || a->kind == AX_QUANT_E5M2);
    NEED(is_dense_2d(&a->range, AX_F32, a->x.shape[1], 2));
    return NULL;
}

PER_ELEMENT(fake_quantize, 4, x)

/* Ranges of [−1, 1]'s numbers, by column. */
static struct ax_tensor build_columns(struct ax_case_builder *b, int64_t cols) {
    struct ax_tensor range = ax_case_dense2(b, AX_F32, cols, 2);
    ax_case_randomize(b, &range, 0.5, 1);
    return range;
}

static void build_fake_quantize(struct ax_case_builder *b, struct ax_fake_quantize *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->y = ax_case_out2(b, b->real, s->rows, s->cols);
    a->range = o->columns ? build_columns(b, s->cols) : build_range(b, o->range);
    a->block = s->inner;
    a->kind = o->kind;
    a->columns = o->columns;
}

static const struct ax_shape shapes_fake_quantize[] = {
    FORMAT_SHAPES,
    {"fp8, columns", .rows = 5, .cols = 70, .inner = 70, .pad = 3,
     QUANT(.kind = AX_QUANT_FP8, .columns = true)},
    {"e5m2, columns", .rows = 5, .cols = 2100, .inner = 2100,
     QUANT(.kind = AX_QUANT_E5M2, .columns = true)},
    {"fp8, gate_up, columns", .big = true, .rows = 3072, .cols = 576, .inner = 576,
     QUANT(.kind = AX_QUANT_FP8, .columns = true)},
    {"int8, strided", .rows = 4, .cols = 70, .inner = 35, .pad = 3, QUANT(.kind = AX_QUANT_INT8)},
};

AX_OP_INFO(fake_quantize, IN_ROWS(x), OUT_ROWS(y), IN(range));

static const char *check_fake_quantize_backward(const struct ax_fake_quantize_backward *a) {
    const char *rule = check_format(&a->x, a->block, a->kind);
    if (rule != NULL)
        return rule;
    NEED(same_shape(&a->x, &a->dy) && same_shape(&a->x, &a->dx));
    NEED(a->dy.dtype == a->dx.dtype && is_stream(&a->dy, a->x.dtype));
    NEED(a->kind != AX_QUANT_INT4_ASYM || (a->block <= 1024 && !given(&a->range)));
    return check_range(&a->x, &a->range, a->block, a->kind);
}

PER_ELEMENT(fake_quantize_backward, 4, x)

static void build_fake_quantize_backward(struct ax_case_builder *b,
                                         struct ax_fake_quantize_backward *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    const enum ax_dtype dtype = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->dy = ax_case_in2(b, dtype, s->rows, s->cols);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->dx = a->accumulate ? ax_case_in2(b, dtype, s->rows, s->cols)
                          : ax_case_out2(b, dtype, s->rows, s->cols);
    a->range = build_range(b, o->range);
    a->block = s->inner;
    a->kind = o->kind;
}

static const struct ax_shape shapes_fake_quantize_backward[] = {
    FORMAT_SHAPES,
    {"int4, added", .rows = 4, .cols = 96, .inner = 32, .flags = ACC | OUT32,
     QUANT(.kind = AX_QUANT_INT4)},
    {"int4 asymmetric, added", .rows = 4, .cols = 96, .inner = 32, .flags = ACC | OUT32,
     QUANT(.kind = AX_QUANT_INT4_ASYM)},
    {"int8, strided", .rows = 4, .cols = 70, .inner = 35, .pad = 3, .flags = OUT32,
     QUANT(.kind = AX_QUANT_INT8)},
};

AX_OP_INFO(fake_quantize_backward, IN_ROWS(x), IN_ROWS(dy), OUT_ROWS(dx), IN(range));
