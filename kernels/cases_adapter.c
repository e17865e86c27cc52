/* Cases of the ops that packed weights and adapters need. */
#include "kernels/cases_builder.h"

static int64_t codes_of(const struct ax_shape *s) {
    int64_t n = s->rows * s->cols;
    return s->quant == AX_QUANT_NF4 ? (n + 1) / 2 : n;
}

static int64_t blocks_of(const struct ax_shape *s) {
    return (s->rows * s->cols + s->inner - 1) / s->inner;
}

static enum ax_dtype code_dtype(const struct ax_shape *s) {
    return s->quant == AX_QUANT_INT8 ? AX_I8 : AX_U8;
}

/* One block of zeros among the numbers. */
void ax_case_build_quantize(struct ax_case_builder *b, struct ax_quantize *a) {
    const struct ax_shape *s = b->shape;
    a->x = ax_case_dense2(b, b->real, s->rows, s->cols);
    ax_case_randomize(b, &a->x, -1, 1);
    for (int64_t i = s->inner; i < 2 * s->inner && i < s->rows * s->cols && b->memory != NULL;
         i++) {
        ax_store(b->real, a->x.data, i, 0);
    }
    a->codes = ax_case_out1(b, code_dtype(s), codes_of(s));
    a->scale = ax_case_out1(b, AX_F32, blocks_of(s));
    if (s->quant == AX_QUANT_MAP8) {
        a->offset = ax_case_in1(b, AX_F32, blocks_of(s));
    }
    a->block = s->inner;
    a->kind = s->quant;
}

void ax_case_build_dequantize(struct ax_case_builder *b, struct ax_dequantize *a) {
    const struct ax_shape *s = b->shape;
    a->out = ax_case_dense2(b, b->real, s->rows, s->cols);
    a->codes = ax_case_out1(b, code_dtype(s), codes_of(s));
    for (int64_t i = 0; i < codes_of(s) && b->memory != NULL; i++) {
        unsigned code = ax_rng_u32(b->key, (uint64_t)i) % 256;
        code -= s->quant == AX_QUANT_FP8 && (code & 127) == 127 ? 1 : 0; /* no NaN */
        ((unsigned char *)a->codes.data)[i] = (unsigned char)code;
    }
    a->scale = ax_case_in1(b, AX_F32, blocks_of(s));
    if (s->quant == AX_QUANT_MAP8) {
        a->offset = ax_case_in1(b, AX_F32, blocks_of(s));
    }
    a->block = s->inner;
    a->kind = s->quant;
}

/* Rows and columns in the middle of a wider tensor where the shape is a shard. */
void ax_case_build_dropout(struct ax_case_builder *b, struct ax_dropout *a) {
    const struct ax_shape *s = b->shape;
    a->x = ax_case_in2(b, b->real, s->rows, s->cols);
    a->accumulate = ax_case_has(b, AX_SHAPE_ACCUMULATE);
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x
           : a->accumulate                   ? ax_case_in2(b, b->real, s->rows, s->cols)
                                             : ax_case_out2(b, b->real, s->rows, s->cols);
    a->p = s->dropout;
    a->tensor = 77;
    a->first_row = 5 * s->first;
    a->first_col = s->first;
    a->cols = s->cols + 2 * s->first;
    a->scalars = b->scalars;
    if (s->inner > 0) {
        a->rows = ax_case_ids(b, s->rows, 0, s->inner);
    }
}

void ax_case_build_colscale(struct ax_case_builder *b, struct ax_colscale *a) {
    const struct ax_shape *s = b->shape;
    const enum ax_dtype stream = ax_case_stream(b, AX_SHAPE_ACCUM_OUT);
    a->x = ax_case_in2(b, stream, s->rows, s->cols);
    if (!ax_case_has(b, AX_SHAPE_SKIP)) {
        a->scale = ax_case_in1(b, b->accum, s->cols);
    }
    if (ax_case_has(b, AX_SHAPE_BIAS)) {
        a->bias = ax_case_in1(b, b->real, s->cols);
    }
    if (ax_case_has(b, AX_SHAPE_ADDEND)) {
        a->addend = ax_case_in2(b, stream, s->rows, s->cols);
    }
    a->y = ax_case_has(b, AX_SHAPE_IN_PLACE) ? a->x : ax_case_out2(b, stream, s->rows, s->cols);
}

void ax_case_build_coldot(struct ax_case_builder *b, struct ax_coldot *a) {
    const struct ax_shape *s = b->shape;
    a->a = ax_case_in2(b, b->real, s->rows, s->cols);
    a->b = ax_case_in2(b, b->real, s->rows, s->cols);
    a->out = ax_case_in1(b, b->accum, s->cols);
}

void ax_case_build_dora_norm(struct ax_case_builder *b, struct ax_dora_norm *a) {
    const struct ax_shape *s = b->shape;
    a->weight = ax_case_in2(b, b->real, s->rows, s->cols);
    a->b = ax_case_in2(b, b->real, s->rows, s->inner);
    a->p = ax_case_in2(b, b->accum, s->rows, s->inner);
    a->out = ax_case_out1(b, b->accum, s->rows);
}

void ax_case_build_dora_scale(struct ax_case_builder *b, struct ax_dora_scale *a) {
    int64_t n = b->shape->cols;
    a->magnitude = ax_case_in1(b, b->real, n);
    a->sumsq = ax_case_in1(b, b->accum, n);
    ax_case_randomize(b, &a->sumsq, 0.5, 4);
    a->scale = ax_case_out1(b, b->accum, n);
    a->inverse = ax_case_out1(b, b->accum, n);
}
