/* Quantized folders' matrices whose codes follow rows: compressed-tensors', and those of quant_method fp8. */
#include <math.h>
#include <string.h>

#include "ckpt/hf/compressed_matrix.h"
#include "kernels/quant/quant_block.h"

static bool is_packed(const struct ax_compressed_format *f) {
    return f->form == AX_FORM_PACKED || f->form == AX_FORM_NVFP4 || f->form == AX_FORM_MODELOPT4;
}

static bool is_nvfp4(enum ax_quant kind) {
    return kind == AX_QUANT_NVFP4 || kind == AX_QUANT_NVFP4_ONE;
}

static bool is_mx(enum ax_quant kind) {
    return kind == AX_QUANT_MXFP4 || kind == AX_QUANT_MXFP8;
}

int64_t ax_compressed_pack(const struct ax_compressed_format *f, const unsigned char *codes,
                           int64_t n, unsigned char *out) {
    const unsigned half = f->form == AX_FORM_PACKED ? 1U << (f->bits - 1) : 0;
    const unsigned mask = (1U << f->bits) - 1;
    if (f->bits == 8) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (unsigned char)(codes[i] + half);
        return n;
    }
    for (int64_t i = 0; i < n; i += 2) {
        const unsigned low = (codes[i] + half) & mask, high = (codes[i + 1] + half) & mask;
        out[i / 2] = (unsigned char)(low | high << 4);
    }
    return n / 2;
}

static uint32_t code_at(const struct ax_compressed_matrix *m, int64_t element) {
    const unsigned char *bytes = m->codes->data;
    const int64_t i = element / m->cols * m->stride + element % m->cols;
    const unsigned half = m->f.form == AX_FORM_PACKED ? 1U << (m->f.bits - 1) : 0;
    if (m->f.bits == 8)
        return (bytes[i] - half) & 255;
    const unsigned code = (unsigned)bytes[i / 2] >> (i % 2 ? 4 : 0) & 15U;
    return m->f.form == AX_FORM_PACKED ? (code - half) & 255 : code;
}

/* The scale of element i. */
static int64_t scale_of(const struct ax_compressed_matrix *m, int64_t i) {
    const int64_t row = i / m->cols, col = i % m->cols;
    return (m->f.rows > 0 ? row / m->f.rows : row) * m->across + ax_compressed_group(m, col);
}

static struct ax_quant_block block_at(const struct ax_compressed_matrix *m, int64_t block) {
    const int64_t at = m->scale->numel == 1 ? 0 : block;
    const unsigned char *bytes = m->scale->data;
    const uint32_t byte = m->scale->dtype == AX_U8 ? bytes[at] : 0;
    if (is_mx(m->f.kind) || m->scale->e8m0)
        return (struct ax_quant_block){.scale = byte == 255 ? NAN : ldexpf(1, (int)byte - 127)};
    const float scale = (float)ax_load(m->scale->dtype, m->scale->data, at);
    struct ax_quant_block b = ax_quant_stored(m->f.kind, scale, byte, 0, m->outer);
    if (m->f.kind == AX_QUANT_NVFP4_ONE)
        b.scale *= m->outer;
    return b;
}

/* The zero point of a scale; those that are packed follow outputs, in words of a group each. */
static int zero_of(const struct ax_compressed_matrix *m, int64_t scale) {
    const signed char *bytes = m->zeros->data;
    if (m->f.form != AX_FORM_PACKED)
        return bytes[scale];
    const int64_t per = 32 / m->f.bits, row = scale / m->across, group = scale % m->across;
    const uint32_t word = ax_compressed_word(m->zeros, row / per * m->across + group);
    const uint32_t code = word >> (unsigned)(row % per * m->f.bits) & ((1U << m->f.bits) - 1);
    return (int)code - (1 << (m->f.bits - 1));
}

static float value_of(const struct ax_compressed_matrix *m, uint32_t code, int zero,
                      const struct ax_quant_block *b) {
    if (m->f.offset)
        return (float)((int)(signed char)code - zero) * b->scale;
    const float v = m->f.form == AX_FORM_FLOAT ? ax_fp8_value(m->f.kind, code)
                                               : ax_quant_of_code(m->f.kind, code);
    return m->f.divides ? v / b->scale : ax_quant_value(m->f.kind, v, b);
}

enum ax_status ax_compressed_read_rows(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    float *values = out;
    struct ax_quant_block b = {0};
    int64_t current = -1;
    int zero = 0;
    for (int64_t i = first; i < first + n; i++) {
        if (scale_of(m, i) != current) {
            current = scale_of(m, i);
            b = block_at(m, current);
            zero = m->f.offset ? zero_of(m, current) : 0;
        }
        values[i - first] = value_of(m, code_at(m, i), zero, &b);
    }
    return AX_OK;
}

static enum ax_status read_codes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                 float *scale) {
    const struct ax_compressed_matrix *m = ctx;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (unsigned char)code_at(m, first + i);
    for (int64_t i = 0; i < n; i += m->block)
        scale[i / m->block] = block_at(m, scale_of(m, first + i)).scale;
    return AX_OK;
}

/* True if packed storage (parallel/units/packed.h) may have the same codes and scales. */
static bool has_codes(const struct ax_compressed_format *f) {
    const struct ax_quant_info *info = ax_quant_info(f->kind);
    return f->rows == 0 && !f->offset && !f->divides && info->scale == AX_F32 && info->outer == 1 &&
           !info->offset;
}

/* Packed rows begin with a word, so the last one of a row may have fewer codes than it has room for. */
static bool find_cols(struct ax_compressed_matrix *m, const struct ax_compressed_folder *in,
                      size_t stem, int64_t per) {
    const struct ax_st_entry *shape =
        is_packed(&m->f) ? ax_compressed_sibling(in, m->codes->name, stem, ".weight_shape") : NULL;
    m->cols = m->stride;
    if (!shape || shape->numel != 2 || (shape->dtype != AX_I64 && shape->dtype != AX_I32))
        return true;
    m->cols = (int64_t)ax_load(shape->dtype, shape->data, 1);
    return m->cols > 0 && (int64_t)ax_load(shape->dtype, shape->data, 0) == m->rows &&
           m->cols <= m->stride && m->stride - m->cols < per;
}

static enum ax_status check_shapes(struct ax_compressed_matrix *m,
                                   const struct ax_compressed_folder *in, size_t stem) {
    const struct ax_st_entry *c = m->codes, *s = m->scale;
    const enum ax_dtype stored = m->f.form == AX_FORM_PACKED ? AX_I32
                                 : m->f.form == AX_FORM_INT8 ? AX_I8
                                                             : AX_U8;
    if (c->ndim != 2 || c->dtype != stored || c->numel == 0)
        return ax_compressed_wrong(in, c, "is no matrix of codes");
    const int64_t per = is_packed(&m->f) ? (int64_t)ax_dtype_size(c->dtype) * 8 / m->f.bits : 1;
    m->rows = c->shape[0];
    m->stride = c->shape[1] * per;
    if (!find_cols(m, in, stem, per))
        return ax_compressed_wrong(in, c, "has another number of codes than its weight_shape says");
    m->block = m->f.block > 0 ? m->f.block : m->cols;
    m->across = (m->cols + m->block - 1) / m->block;
    const int64_t down = m->f.rows > 0 ? (c->shape[0] + m->f.rows - 1) / m->f.rows : c->shape[0];
    const int64_t scales = m->f.block == AX_BLOCK_TENSOR ? 1 : down * m->across;
    if (m->cols % m->block != 0 && m->f.rows == 0)
        return ax_compressed_wrong(in, c, "has rows that the group size does not divide");
    if (s->numel != scales)
        return ax_compressed_wrong(in, s,
                                   "has another number of scales than the matrix has blocks");
    if (scales > 1 && m->across > 1 && !ax_compressed_has_shape(s, down, m->across))
        return ax_compressed_wrong(in, s,
                                   "has its scales in another shape than the matrix has blocks");
    const bool right = is_mx(m->f.kind)      ? s->dtype == AX_U8 && !s->e4m3
                       : is_nvfp4(m->f.kind) ? s->e4m3
                                             : s->e8m0 || ax_dtype_info(s->dtype)->is_float;
    if (!right)
        return ax_compressed_wrong(in, s, "is of another type than its format has");
    return AX_OK;
}

/* Writers of symmetric codes may store zero points, which then are 0. */
static enum ax_status check_zeros(const struct ax_compressed_folder *in,
                                  const struct ax_st_entry *e) {
    const unsigned char *bytes = e ? e->data : NULL;
    for (size_t i = 0; e && i < e->bytes; i++)
        if (bytes[i] != 0)
            return ax_compressed_wrong(in, e, "has other zero points than 0, of symmetric weights");
    return AX_OK;
}

static enum ax_status check_offsets(const struct ax_compressed_matrix *m,
                                    const struct ax_compressed_folder *in) {
    const bool packed = m->f.form == AX_FORM_PACKED;
    const int64_t per = packed ? 32 / m->f.bits : 1;
    if (!m->zeros)
        return ax_compressed_wrong(in, m->codes,
                                   "has no weight_zero_point, which asymmetric codes need");
    return m->zeros->dtype == (packed ? AX_I32 : AX_I8) &&
                   ax_compressed_has_shape(m->zeros, (m->rows + per - 1) / per, m->across)
               ? AX_OK
               : ax_compressed_wrong(in, m->zeros, "has no zero for each scale");
}

/* AutoFP8's matrices have one scale under another name, whatever the config says of blocks. */
static void find_autofp8(struct ax_compressed_matrix *m, const struct ax_compressed_folder *in,
                         size_t stem) {
    const struct ax_st_entry *e = ax_compressed_sibling(in, m->codes->name, stem, ".weight_scale");
    if (!e || e->numel != 1)
        return;
    m->scale = e;
    m->f.rows = 0;
    m->f.block = AX_BLOCK_TENSOR;
}

/* Writers that found no order may store -1 for each column. */
static bool is_unset(const struct ax_st_entry *order) {
    return order->dtype == AX_I32 && order->numel > 0 && ax_load(AX_I32, order->data, 0) == -1;
}

/* NVFP4's scale of a matrix, by which compressed-tensors divides and Model Optimizer multiplies. */
static enum ax_status find_outer(struct ax_compressed_matrix *m,
                                 const struct ax_compressed_folder *in, size_t stem) {
    const bool divides = m->f.kind == AX_QUANT_NVFP4;
    const char *name = m->codes->name;
    const struct ax_st_entry *g =
        ax_compressed_sibling(in, name, stem, divides ? ".weight_global_scale" : ".weight_scale_2");
    const double outer =
        g && g->numel == 1 && g->dtype == AX_F32 ? ax_load(g->dtype, g->data, 0) : 0;
    if (!(outer > 0))
        return ax_compressed_wrong(in, m->codes,
                                   divides ? "has no weight_global_scale above 0"
                                           : "has no weight_scale_2 above 0");
    m->outer = divides ? 1 / (float)outer : (float)outer;
    return AX_OK;
}

enum ax_status ax_compressed_open_rows(struct ax_compressed_matrix *m,
                                       const struct ax_compressed_folder *in, size_t stem) {
    const struct ax_st_entry *codes = m->codes;
    const bool inverse = m->f.inverse;
    m->zeros = ax_compressed_sibling(in, codes->name, stem, ".weight_zero_point");
    if (!m->f.offset)
        AX_TRY(check_zeros(in, m->zeros));
    m->order = ax_compressed_sibling(in, codes->name, stem, ".weight_g_idx");
    m->scale = ax_compressed_sibling(in, codes->name, stem,
                                     inverse ? ".weight_scale_inv" : ".weight_scale");
    if (!m->scale && inverse && !m->f.divides)
        find_autofp8(m, in, stem);
    if (!m->scale)
        return ax_compressed_wrong(in, codes,
                                   inverse ? "has no weight_scale_inv" : "has no weight_scale");
    AX_TRY(check_shapes(m, in, stem));
    if (m->f.offset)
        AX_TRY(check_offsets(m, in));
    if (is_nvfp4(m->f.kind))
        AX_TRY(find_outer(m, in, stem));
    if (m->order && is_unset(m->order))
        m->order = NULL;
    if (m->order)
        AX_TRY(ax_compressed_check_order(m, in));
    if (has_codes(&m->f) && !m->order)
        m->kept = (struct ax_element_codes){m->f.kind, m->block, read_codes};
    return AX_OK;
}
