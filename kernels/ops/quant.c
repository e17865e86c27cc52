/* Packs and unpacks numbers. */
#include "kernels/ops/family.h"

struct quant_options {
    enum ax_quant kind; /* `inner` is the block */
};
#define QUANT(...) OPTIONS(quant_options, __VA_ARGS__)

static int64_t blocks_of(int64_t n, int64_t block) {
    return (n + block - 1) / block;
}

static int64_t codes_of(int64_t n, enum ax_quant kind) {
    return kind == AX_QUANT_NF4 ? (n + 1) / 2 : n;
}

static enum ax_dtype code_dtype(enum ax_quant kind) {
    return kind == AX_QUANT_INT8 ? AX_I8 : AX_U8;
}

/* Codes, scales and offsets that belong to these values. */
static const char *check_packed(tensor values, tensor codes, tensor scale, tensor offset,
                                int64_t block, enum ax_quant kind) {
    NEED(given(values) && real(values) && ax_tensor_is_dense(values) && block >= 1);
    int64_t n = ax_tensor_numel(values);
    NEED(is_1d(codes, code_dtype(kind), codes_of(n, kind)));
    NEED(is_1d(scale, AX_F32, blocks_of(n, block)));
    NEED(given(offset) == (kind == AX_QUANT_MAP8));
    NEED(!given(offset) || is_1d(offset, AX_F32, blocks_of(n, block)));
    return NULL;
}

static const char *check_quantize(const struct ax_quantize *a) {
    return check_packed(&a->x, &a->codes, &a->scale, &a->offset, a->block, a->kind);
}

PER_ELEMENT(quantize, 4, x) /* max, ÷, compare, pack */

/* One block of zeros among the numbers. */
static void build_quantize(struct ax_case_builder *b, struct ax_quantize *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    const int64_t blocks = blocks_of(s->rows * s->cols, s->inner);
    a->x = ax_case_dense2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -1, 1);
    for (int64_t i = s->inner; i < 2 * s->inner && i < s->rows * s->cols && b->memory != NULL; i++)
        ax_store(b->real, a->x.data, i, 0);
    a->codes = ax_case_out1(b, code_dtype(o->kind), codes_of(s->rows * s->cols, o->kind));
    a->scale = ax_case_out1(b, AX_F32, blocks);
    if (o->kind == AX_QUANT_MAP8)
        a->offset = ax_case_in1(b, AX_F32, blocks);
    a->block = s->inner;
    a->kind = o->kind;
}

#define PACKED_SHAPES                                                                              \
    {"nf4, one", .rows = 1, .cols = 1, .inner = 64}, {"nf4", .rows = 6, .cols = 128, .inner = 64}, \
        {"nf4, odd rows", .rows = 5, .cols = 37, .inner = 64},                                     \
        {"nf4, short blocks", .rows = 5, .cols = 48, .inner = 3},                                  \
        {"int8", .rows = 5, .cols = 70, .inner = 70, QUANT(.kind = AX_QUANT_INT8)},                \
        {"int8, blocks", .rows = 5, .cols = 70, .inner = 14, QUANT(.kind = AX_QUANT_INT8)},        \
        {"fp8", .rows = 5, .cols = 130, .inner = 130, QUANT(.kind = AX_QUANT_FP8)},                \
        {"map8", .rows = 3, .cols = 200, .inner = 256, QUANT(.kind = AX_QUANT_MAP8)},              \
        {"nf4, gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 64}, {                   \
        "int8, gate_up", .big = true, .rows = 3072, .cols = 576, .inner = 576,                     \
                         QUANT(.kind = AX_QUANT_INT8)                                              \
    }

static const struct ax_shape shapes_quantize[] = {PACKED_SHAPES};

AX_OP_INFO(quantize, IN(x), OUT(codes), OUT(scale), IN(offset));

static const char *check_dequantize(const struct ax_dequantize *a) {
    return check_packed(&a->out, &a->codes, &a->scale, &a->offset, a->block, a->kind);
}

PER_ELEMENT(dequantize, a->kind == AX_QUANT_MAP8 ? 2 : 1, out)

static void build_dequantize(struct ax_case_builder *b, struct ax_dequantize *a) {
    const struct quant_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    const int64_t blocks = blocks_of(s->rows * s->cols, s->inner);
    a->out = ax_case_dense2(b, b->real, s->rows, s->cols);
    a->codes = ax_case_out1(b, code_dtype(o->kind), codes_of(s->rows * s->cols, o->kind));
    for (int64_t i = 0; i < a->codes.shape[0] && b->memory != NULL; i++) {
        unsigned code = ax_rng_u32(b->key, (uint64_t)i) % 256;
        code -= o->kind == AX_QUANT_FP8 && (code & 127) == 127 ? 1 : 0; /* no NaN */
        ((unsigned char *)a->codes.data)[i] = (unsigned char)code;
    }
    a->scale = ax_case_in1(b, AX_F32, blocks);
    if (o->kind == AX_QUANT_MAP8)
        a->offset = ax_case_in1(b, AX_F32, blocks);
    a->block = s->inner;
    a->kind = o->kind;
}

static const struct ax_shape shapes_dequantize[] = {PACKED_SHAPES};

AX_OP_INFO(dequantize, OUT(out), IN(codes), IN(scale), IN(offset));
