/* Reading: each matrix is an entry whose elements are computed. compressed_config.c knows
 * config.json. */
#include "ckpt/hf/compressed_matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant/quant_block.h"

static bool is_packed(const struct ax_compressed_format *f) {
    return f->form == AX_FORM_PACKED || f->form == AX_FORM_NVFP4;
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

static uint32_t code_at(const struct ax_compressed_matrix *m, int64_t i) {
    const unsigned char *bytes = m->codes->data;
    const unsigned half = m->f.form == AX_FORM_PACKED ? 1U << (m->f.bits - 1) : 0;
    if (m->f.bits == 8)
        return (bytes[i] - half) & 255;
    const unsigned code = (unsigned)bytes[i / 2] >> (i % 2 ? 4 : 0) & 15U;
    return m->f.form == AX_FORM_PACKED ? (code - half) & 255 : code;
}

/* The scale of element i. */
static int64_t scale_of(const struct ax_compressed_matrix *m, int64_t i) {
    const int64_t row = i / m->cols, col = i % m->cols;
    return (m->f.rows > 0 ? row / m->f.rows : row) * m->across + col / m->block;
}

static struct ax_quant_block block_at(const struct ax_compressed_matrix *m, int64_t block) {
    const int64_t at = m->scale->numel == 1 ? 0 : block;
    const float scale = (float)ax_load(m->scale->dtype, m->scale->data, at);
    const unsigned char *bytes = m->scale->data;
    const uint32_t byte = m->scale->dtype == AX_U8 ? bytes[at] : 0;
    return ax_quant_stored(m->f.kind, scale, byte, 0, m->outer);
}

static enum ax_status read_matrix(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    float *values = out;
    struct ax_quant_block b = {0};
    int64_t current = -1;
    for (int64_t i = first; i < first + n; i++) {
        if (scale_of(m, i) != current) {
            current = scale_of(m, i);
            b = block_at(m, current);
        }
        const uint32_t code = code_at(m, i);
        values[i - first] = ax_quant_is_nan(m->f.kind, code)
                                ? NAN
                                : ax_quant_value(m->f.kind, ax_quant_of_code(m->f.kind, code), &b);
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
    return f->rows == 0 && info->scale == AX_F32 && info->outer == 1 && !info->offset;
}

/* ---- finding ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct ax_st_entry *)a)->name, ((const struct ax_st_entry *)b)->name);
}

const struct ax_st_entry *ax_compressed_sibling(const struct ax_compressed_folder *in,
                                                const char *name, size_t stem, const char *what) {
    for (int i = 0; i < in->n; i++)
        if (strncmp(in->entries[i]->name, name, stem) == 0 &&
            strcmp(in->entries[i]->name + stem, what) == 0)
            return in->entries[i];
    return NULL;
}

/* Length of what comes before `suffix`, or 0. */
static size_t stem_of(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0 ? n - m : 0;
}

enum ax_status ax_compressed_wrong(const char *dir, const struct ax_st_entry *e, const char *why) {
    return ax_error(AX_ERR_DATA, "%s: %s %s; quantize the model again", dir, e->name, why);
}

static enum ax_status check_shapes(const char *dir, struct ax_compressed_matrix *m) {
    const struct ax_st_entry *c = m->codes, *s = m->scale;
    const enum ax_dtype stored = m->f.form == AX_FORM_PACKED ? AX_I32
                                 : m->f.form == AX_FORM_INT8 ? AX_I8
                                                             : AX_U8;
    if (c->ndim != 2 || c->dtype != stored || c->numel == 0)
        return ax_compressed_wrong(dir, c, "is no matrix of codes");
    const int64_t per = is_packed(&m->f) ? (int64_t)ax_dtype_size(c->dtype) * 8 / m->f.bits : 1;
    m->rows = c->shape[0];
    m->cols = c->shape[1] * per;
    m->block = m->f.block > 0 ? m->f.block : m->cols;
    m->across = (m->cols + m->block - 1) / m->block;
    const int64_t down = m->f.rows > 0 ? (c->shape[0] + m->f.rows - 1) / m->f.rows : c->shape[0];
    const int64_t scales = m->f.block == AX_BLOCK_TENSOR ? 1 : down * m->across;
    if (m->cols % m->block != 0 && m->f.rows == 0)
        return ax_compressed_wrong(dir, c, "has rows that the group size does not divide");
    if (s->numel != scales)
        return ax_compressed_wrong(dir, s,
                                   "has another number of scales than the matrix has blocks");
    if (m->f.form == AX_FORM_NVFP4 ? s->dtype != AX_U8 : !ax_dtype_info(s->dtype)->is_float)
        return ax_compressed_wrong(dir, s, "is of another type than its format has");
    return AX_OK;
}

/* All but GPTQ's: completes a matrix whose f and codes are set. */
static enum ax_status open_matrix(struct ax_compressed_matrix *m,
                                  const struct ax_compressed_folder *in, size_t stem) {
    const struct ax_st_entry *codes = m->codes;
    const bool inverse = m->f.rows > 0;
    m->scale = ax_compressed_sibling(in, codes->name, stem,
                                     inverse ? ".weight_scale_inv" : ".weight_scale");
    if (!m->scale)
        return ax_compressed_wrong(in->dir, codes,
                                   inverse ? "has no weight_scale_inv" : "has no weight_scale");
    AX_TRY(check_shapes(in->dir, m));
    if (m->f.form == AX_FORM_NVFP4) {
        const struct ax_st_entry *g =
            ax_compressed_sibling(in, codes->name, stem, ".weight_global_scale");
        const double global =
            g && g->numel == 1 && g->dtype == AX_F32 ? ax_load(g->dtype, g->data, 0) : 0;
        if (!(global > 0))
            return ax_compressed_wrong(in->dir, codes, "has no weight_global_scale above 0");
        m->outer = 1 / (float)global;
    }
    if (has_codes(&m->f))
        m->kept = (struct ax_element_codes){m->f.kind, m->block, read_codes};
    return AX_OK;
}

static enum ax_status add_matrix(struct ax_compressed *c, const struct ax_compressed_format *f,
                                 const struct ax_compressed_folder *in,
                                 const struct ax_st_entry *codes, size_t stem) {
    struct ax_compressed_matrix *m = &c->matrices[c->n_matrices];
    const bool gptq = f->form == AX_FORM_GPTQ;
    *m = (struct ax_compressed_matrix){.f = *f, .codes = codes};
    AX_TRY(gptq ? ax_compressed_gptq_open(m, in, stem) : open_matrix(m, in, stem));
    AX_TRY(ax_sprintf(&m->name, "%.*s.weight", (int)stem, codes->name));
    c->n_matrices++;
    struct ax_st_entry *e = &c->entries[c->n++];
    *e = (struct ax_st_entry){.name = m->name,
                              .file = codes->file,
                              .dtype = AX_F32,
                              .ndim = 2,
                              .shape = {m->rows, m->cols},
                              .numel = m->rows * m->cols,
                              .read = gptq ? ax_compressed_gptq_read : read_matrix,
                              .ctx = m,
                              .codes = m->kept.read ? &m->kept : NULL,
                              .stored = codes->data,
                              .stored_bytes = codes->bytes};
    e->bytes = (size_t)e->numel * sizeof(float);
    return AX_OK;
}

static bool is_codes(const struct ax_compressed_format *f, const struct ax_st_entry *e,
                     size_t *stem) {
    const bool gptq = f->form == AX_FORM_GPTQ;
    *stem = stem_of(e->name, gptq ? ".qweight" : is_packed(f) ? ".weight_packed" : ".weight");
    if (gptq)
        return *stem > 0;
    return *stem > 0 && (is_packed(f) || e->dtype == (f->form == AX_FORM_INT8 ? AX_I8 : AX_U8));
}

static bool is_side(const struct ax_compressed_format *f, const struct ax_st_entry *e) {
    static const char *const usual[] = {".weight_scale", ".weight_scale_inv", ".weight_shape",
                                        ".weight_global_scale", ".input_global_scale"},
                             *const gptq[] = {".scales", ".qzeros", ".g_idx"};
    const bool other = f->form == AX_FORM_GPTQ;
    const size_t n = other ? sizeof gptq / sizeof *gptq : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < n; i++)
        if (stem_of(e->name, (other ? gptq : usual)[i]))
            return true;
    return false;
}

enum ax_status ax_compressed_open(struct ax_compressed *c, const char *dir,
                                  const struct ax_compressed_format *f, int n,
                                  const struct ax_st_entry *const *entries) {
    const struct ax_compressed_folder in = {dir, n, entries};
    *c = (struct ax_compressed){0};
    enum ax_status st;
    AX_TRY(ax_alloc(&c->entries, (size_t)n, sizeof *c->entries));
    AX_TRY_GOTO(ax_alloc(&c->matrices, (size_t)n, sizeof *c->matrices), st, fail);
    for (int i = 0; i < n; i++) {
        size_t stem;
        if (is_codes(f, entries[i], &stem))
            AX_TRY_GOTO(add_matrix(c, f, &in, entries[i], stem), st, fail);
        else if (!is_side(f, entries[i]))
            c->entries[c->n++] = *entries[i];
    }
    qsort(c->entries, (size_t)c->n, sizeof *c->entries, by_name);
    return AX_OK;
fail:
    ax_compressed_close(c);
    return st;
}

void ax_compressed_close(struct ax_compressed *c) {
    for (int i = 0; i < c->n_matrices; i++)
        ax_free(c->matrices[i].name);
    ax_free(c->matrices);
    ax_free(c->entries);
    *c = (struct ax_compressed){0};
}
