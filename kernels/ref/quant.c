/* quantize, dequantize: block after block, exactly as the formulas of kernels/ops.h. Arithmetic is
 * in float, so that codes and scales are the same in every backend. */
#include "kernels/quant_codes.h"
#include "kernels/ref/ref.h"

static float load(const struct ax_tensor *t, int64_t i) {
    return (float)ax_load(t->dtype, t->data, i);
}

static void put_code(enum ax_quant kind, void *codes, int64_t i, uint32_t code) {
    unsigned char *c = codes;
    if (kind != AX_QUANT_NF4)
        c[i] = (unsigned char)code;
    else if (i % 2 == 0)
        c[i / 2] = (unsigned char)(code << 4);
    else
        c[i / 2] = (unsigned char)(c[i / 2] | code);
}

static float scale_of(enum ax_quant kind, float amax) {
    switch (kind) {
    case AX_QUANT_INT8:
        return fmaxf(amax / 127.5F, 0x1p-126F);
    case AX_QUANT_FP8:
        return fmaxf(amax, 1e-12F) / 448;
    case AX_QUANT_NF4:
    case AX_QUANT_MAP8:
        break;
    }
    return amax;
}

static uint32_t code_of(enum ax_quant kind, float x, float scale) {
    const float safe = scale > 0 ? scale : 1;
    switch (kind) {
    case AX_QUANT_NF4:
        return ax_nf4_code(x / safe);
    case AX_QUANT_INT8:
        return (uint32_t)ax_int8_code(x * (1 / scale));
    case AX_QUANT_FP8:
        return ax_e4m3_code(fminf(fmaxf(x / scale, -448), 448));
    case AX_QUANT_MAP8:
        break;
    }
    return ax_map8_code(x / safe);
}

enum ax_status ax_ref_quantize(struct ax_queue *q, const struct ax_quantize *a, void *work) {
    (void)q;
    (void)work;
    const int64_t n = ax_tensor_numel(&a->x);
    for (int64_t b = 0; b * a->block < n; b++) {
        const int64_t first = b * a->block, end = first + a->block < n ? first + a->block : n;
        const float offset = ax_ref_given(&a->offset) ? load(&a->offset, b) : 0;
        float amax = 0;
        for (int64_t i = first; i < end; i++)
            amax = fmaxf(amax, fabsf(load(&a->x, i) - offset));
        const float scale = scale_of(a->kind, amax);
        ax_store(AX_F32, a->scale.data, b, (double)scale);
        for (int64_t i = first; i < end; i++)
            put_code(a->kind, a->codes.data, i, code_of(a->kind, load(&a->x, i) - offset, scale));
    }
    return AX_OK;
}

static float value_of(enum ax_quant kind, const void *codes, int64_t i) {
    const unsigned char *c = codes;
    switch (kind) {
    case AX_QUANT_NF4:
        return ax_nf4_values[i % 2 == 0 ? c[i / 2] >> 4 : c[i / 2] & 15];
    case AX_QUANT_INT8:
        return (float)((const signed char *)codes)[i];
    case AX_QUANT_FP8:
        return ax_e4m3_value(c[i]);
    case AX_QUANT_MAP8:
        break;
    }
    return ax_map8_values[c[i]];
}

enum ax_status ax_ref_dequantize(struct ax_queue *q, const struct ax_dequantize *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t i = 0; i < ax_tensor_numel(&a->out); i++) {
        float v = value_of(a->kind, a->codes.data, i) * load(&a->scale, i / a->block);
        if (ax_ref_given(&a->offset))
            v += load(&a->offset, i / a->block);
        ax_store(a->out.dtype, a->out.data, i, (double)v);
    }
    return AX_OK;
}
