/* Quantized folders: matrices as entries whose elements are computed: those whose codes follow rows, and GPTQ's. */
#include "ckpt/hf/compressed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant/quant_block.h"

struct ax_compressed_format ax_compressed_of(const struct ax_scheme *s) {
    const bool four =
        s->form == AX_FORM_NVFP4 || (s->form == AX_FORM_PACKED && s->weight.kind != AX_QUANT_INT8);
    return (struct ax_compressed_format){
        .form = s->form, .kind = s->weight.kind, .bits = four ? 4 : 8, .block = s->weight.block};
}

/* ---- matrices ---- */

struct ax_compressed_matrix {
    char *name;
    struct ax_compressed_format f;
    int64_t rows, cols, block, across; /* across: scales from one row of blocks to the next */
    const struct ax_st_entry *codes, *scale;
    float outer;                     /* nvfp4: the global scale */
    const struct ax_st_entry *zeros; /* of asymmetric codes, and GPTQ's */
    const struct ax_st_entry *order; /* GPTQ; NULL if groups are contiguous */
    struct ax_element_codes kept;    /* `read` is NULL: packed storage has no such codes */
};

/* The entries of a folder by name; `dir` is for messages. */
struct folder {
    const char *dir;
    int n;
    const struct ax_st_entry **sorted;
};

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct ax_st_entry *const *)a)->name,
                  (*(const struct ax_st_entry *const *)b)->name);
}

/* The entry named STEM + `what`, where STEM is the first `stem` characters of `name`; NULL if there
 * is none. */
static const struct ax_st_entry *sibling(const struct folder *in, const char *name, size_t stem,
                                         const char *what) {
    for (int first = 0, end = in->n; first < end;) {
        const int middle = first + (end - first) / 2;
        const struct ax_st_entry *e = in->sorted[middle];
        const int begins = strncmp(name, e->name, stem);
        const int order = begins != 0 ? begins : strcmp(what, e->name + stem);
        if (order == 0)
            return e;
        if (order < 0)
            end = middle;
        else
            first = middle + 1;
    }
    return NULL;
}

/* AX_ERR_DATA: "DIR: TENSOR WHY; quantize the model again". */
static enum ax_status wrong(const char *dir, const struct ax_st_entry *e, const char *why) {
    return ax_error(AX_ERR_DATA, "%s: %s %s; quantize the model again", dir, e->name, why);
}

/* ---- matrices whose codes follow rows ---- */

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
    const unsigned char *bytes = m->scale->data;
    const uint32_t byte = m->scale->dtype == AX_U8 ? bytes[at] : 0;
    const float power = byte == 255 ? NAN : ldexpf(1, (int)byte - 127);
    const float scale =
        m->scale->e8m0 ? power : (float)ax_load(m->scale->dtype, m->scale->data, at);
    return ax_quant_stored(m->f.kind, scale, byte, 0, m->outer);
}

static uint32_t word_of(const struct ax_st_entry *e, int64_t word) {
    uint32_t w;
    memcpy(&w, (const char *)e->data + word * (int64_t)sizeof w, sizeof w);
    return w;
}

/* The zero point of a scale; those that are packed follow outputs, in words of a group each. */
static int zero_of(const struct ax_compressed_matrix *m, int64_t scale) {
    const signed char *bytes = m->zeros->data;
    if (m->f.form != AX_FORM_PACKED)
        return bytes[scale];
    const int64_t per = 32 / m->f.bits, row = scale / m->across, group = scale % m->across;
    const uint32_t word = word_of(m->zeros, row / per * m->across + group);
    const uint32_t code = word >> (unsigned)(row % per * m->f.bits) & ((1U << m->f.bits) - 1);
    return (int)code - (1 << (m->f.bits - 1));
}

static float value_of(const struct ax_compressed_matrix *m, uint32_t code, int zero,
                      const struct ax_quant_block *b) {
    if (m->f.offset)
        return (float)((int)(signed char)code - zero) * b->scale;
    if (ax_quant_is_nan(m->f.kind, code))
        return NAN;
    const float v = ax_quant_of_code(m->f.kind, code);
    return m->f.divides ? v / b->scale : ax_quant_value(m->f.kind, v, b);
}

static enum ax_status read_matrix(void *ctx, int64_t first, int64_t n, void *out) {
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

static bool has_shape(const struct ax_st_entry *e, int64_t rows, int64_t cols) {
    return e->ndim == 2 && e->shape[0] == rows && e->shape[1] == cols;
}

static enum ax_status check_shapes(const char *dir, struct ax_compressed_matrix *m) {
    const struct ax_st_entry *c = m->codes, *s = m->scale;
    const enum ax_dtype stored = m->f.form == AX_FORM_PACKED ? AX_I32
                                 : m->f.form == AX_FORM_INT8 ? AX_I8
                                                             : AX_U8;
    if (c->ndim != 2 || c->dtype != stored || c->numel == 0)
        return wrong(dir, c, "is no matrix of codes");
    const int64_t per = is_packed(&m->f) ? (int64_t)ax_dtype_size(c->dtype) * 8 / m->f.bits : 1;
    m->rows = c->shape[0];
    m->cols = c->shape[1] * per;
    m->block = m->f.block > 0 ? m->f.block : m->cols;
    m->across = (m->cols + m->block - 1) / m->block;
    const int64_t down = m->f.rows > 0 ? (c->shape[0] + m->f.rows - 1) / m->f.rows : c->shape[0];
    const int64_t scales = m->f.block == AX_BLOCK_TENSOR ? 1 : down * m->across;
    if (m->cols % m->block != 0 && m->f.rows == 0)
        return wrong(dir, c, "has rows that the group size does not divide");
    if (s->numel != scales)
        return wrong(dir, s, "has another number of scales than the matrix has blocks");
    if (scales > 1 && m->across > 1 && !has_shape(s, down, m->across))
        return wrong(dir, s, "has its scales in another shape than the matrix has blocks");
    if (m->f.form == AX_FORM_NVFP4 ? !s->e4m3 : !s->e8m0 && !ax_dtype_info(s->dtype)->is_float)
        return wrong(dir, s, "is of another type than its format has");
    return AX_OK;
}

/* Writers of symmetric codes may store zero points, which then are 0. */
static enum ax_status check_zeros(const struct folder *in, const struct ax_st_entry *e) {
    const unsigned char *bytes = e ? e->data : NULL;
    for (size_t i = 0; e && i < e->bytes; i++)
        if (bytes[i] != 0)
            return wrong(in->dir, e, "has other zero points than 0, of symmetric weights");
    return AX_OK;
}

static enum ax_status check_offsets(const struct ax_compressed_matrix *m, const char *dir) {
    const bool packed = m->f.form == AX_FORM_PACKED;
    const int64_t per = packed ? 32 / m->f.bits : 1;
    if (!m->zeros)
        return wrong(dir, m->codes, "has no weight_zero_point, which asymmetric codes need");
    return m->zeros->dtype == (packed ? AX_I32 : AX_I8) &&
                   has_shape(m->zeros, (m->rows + per - 1) / per, m->across)
               ? AX_OK
               : wrong(dir, m->zeros, "has no zero for each scale");
}

/* All but GPTQ's: completes a matrix whose f and codes are set. */
static enum ax_status open_matrix(struct ax_compressed_matrix *m, const struct folder *in,
                                  size_t stem) {
    const struct ax_st_entry *codes = m->codes;
    const bool inverse = m->f.inverse;
    m->zeros = sibling(in, codes->name, stem, ".weight_zero_point");
    if (!m->f.offset)
        AX_TRY(check_zeros(in, m->zeros));
    m->scale = sibling(in, codes->name, stem, inverse ? ".weight_scale_inv" : ".weight_scale");
    if (!m->scale)
        return wrong(in->dir, codes, inverse ? "has no weight_scale_inv" : "has no weight_scale");
    AX_TRY(check_shapes(in->dir, m));
    if (m->f.offset)
        AX_TRY(check_offsets(m, in->dir));
    if (m->f.form == AX_FORM_NVFP4) {
        const struct ax_st_entry *g = sibling(in, codes->name, stem, ".weight_global_scale");
        const double global =
            g && g->numel == 1 && g->dtype == AX_F32 ? ax_load(g->dtype, g->data, 0) : 0;
        if (!(global > 0))
            return wrong(in->dir, codes, "has no weight_global_scale above 0");
        m->outer = 1 / (float)global;
    }
    if (has_codes(&m->f))
        m->kept = (struct ax_element_codes){m->f.kind, m->block, read_codes};
    return AX_OK;
}

/* ---- GPTQ: a column of a matrix is contiguous, so rows are gathered while they are read ---- */

static int64_t per_word(const struct ax_compressed_matrix *m) {
    return 32 / m->f.bits;
}

/* Code number `at` of a word. */
static unsigned gptq_field(const struct ax_compressed_matrix *m, uint32_t word, int64_t at) {
    return word >> (unsigned)(at * m->f.bits) & ((1U << m->f.bits) - 1);
}

static unsigned gptq_code(const struct ax_compressed_matrix *m, int64_t row, int64_t col) {
    const int64_t per = per_word(m);
    return gptq_field(m, word_of(m->codes, col / per * m->rows + row), col % per);
}

/* GPTQModel subtracts 1 from all zeros of a word at a time, so a zero of 0 borrows from the next one. */
static unsigned gptq_zero(const struct ax_compressed_matrix *m, int64_t group, int64_t row) {
    const int64_t per = per_word(m);
    const uint32_t ones = UINT32_MAX / ((1U << m->f.bits) - 1);
    const uint32_t stored = word_of(m->zeros, group * (m->rows / per) + row / per);
    return gptq_field(m, stored + m->f.zero_offset * ones, row % per);
}

static float gptq_scale(const struct ax_compressed_matrix *m, int64_t group, int64_t row) {
    return (float)ax_load(m->scale->dtype, m->scale->data, group * m->rows + row);
}

static int64_t gptq_group(const struct ax_compressed_matrix *m, int64_t col) {
    return m->order ? (int64_t)ax_load(AX_I32, m->order->data, col) : col / m->block;
}

/* Elements as float32, ctx is the matrix (`read` of struct ax_st_entry). */
static enum ax_status read_gptq(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    float *values = out, scale = 0;
    int64_t row = -1, group = -1;
    unsigned zero = 0;
    for (int64_t i = first; i < first + n; i++) {
        const int64_t col = i % m->cols, g = gptq_group(m, col);
        if (i / m->cols != row || g != group) {
            row = i / m->cols;
            group = g;
            scale = gptq_scale(m, group, row);
            zero = gptq_zero(m, group, row);
        }
        values[i - first] = (float)((int)gptq_code(m, row, col) - (int)zero) * scale;
    }
    return AX_OK;
}

static enum ax_status read_gptq_codes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                      float *scale) {
    const struct ax_compressed_matrix *m = ctx;
    const unsigned half = 1U << (m->f.bits - 1);
    for (int64_t i = 0; i < n; i++)
        codes[i] =
            (unsigned char)(gptq_code(m, (first + i) / m->cols, (first + i) % m->cols) - half);
    for (int64_t i = 0; i < n; i += m->block)
        scale[i / m->block] =
            gptq_scale(m, (first + i) % m->cols / m->block, (first + i) / m->cols);
    return AX_OK;
}

/* True if every zero is half the range, as of symmetric rounding. */
static bool is_symmetric(const struct ax_compressed_matrix *m) {
    for (int64_t g = 0; g < m->across; g++)
        for (int64_t row = 0; row < m->rows; row++)
            if (gptq_zero(m, g, row) != 1U << (m->f.bits - 1))
                return false;
    return true;
}

/* Checks g_idx, and forgets one that says what no order says. */
static enum ax_status check_order(struct ax_compressed_matrix *m, const char *dir) {
    bool contiguous = true;
    if (m->order->ndim != 1 || m->order->numel != m->cols || m->order->dtype != AX_I32)
        return wrong(dir, m->order, "has no group for each column");
    for (int64_t col = 0; col < m->cols; col++) {
        const int64_t group = gptq_group(m, col);
        if (group < 0 || group >= m->across)
            return wrong(dir, m->order, "names a group that has no scales");
        contiguous = contiguous && group == col / m->block;
    }
    if (contiguous)
        m->order = NULL;
    return AX_OK;
}

static enum ax_status check_gptq(struct ax_compressed_matrix *m, const char *dir) {
    const struct ax_st_entry *c = m->codes;
    if (c->ndim != 2 || c->dtype != AX_I32 || c->numel == 0)
        return wrong(dir, c, "is no matrix of codes");
    m->rows = c->shape[1];
    m->cols = c->shape[0] * per_word(m);
    m->block = m->f.block > 0 ? m->f.block : m->cols;
    m->across = (m->cols + m->block - 1) / m->block;
    if (!has_shape(m->scale, m->across, m->rows))
        return wrong(dir, m->scale, "has another number of scales than the matrix has groups");
    if (!ax_dtype_info(m->scale->dtype)->is_float)
        return wrong(dir, m->scale, "is of another type than its format has");
    if (m->rows % per_word(m) != 0 || m->zeros->dtype != AX_I32 ||
        !has_shape(m->zeros, m->across, m->rows / per_word(m)))
        return wrong(dir, m->zeros, "has no zero for each group and row");
    return m->order ? check_order(m, dir) : AX_OK;
}

/* GPTQ: completes a matrix whose members f and codes (STEM.qweight) are set. */
static enum ax_status open_gptq(struct ax_compressed_matrix *m, const struct folder *in,
                                size_t stem) {
    const char *const name = m->codes->name;
    m->scale = sibling(in, name, stem, ".scales");
    m->zeros = sibling(in, name, stem, ".qzeros");
    m->order = sibling(in, name, stem, ".g_idx");
    if (!m->scale || !m->zeros)
        return wrong(in->dir, m->codes, m->scale ? "has no qzeros" : "has no scales");
    if (!m->order && m->f.ordered)
        return wrong(in->dir, m->codes, "has no g_idx, which desc_act needs");
    AX_TRY(check_gptq(m, in->dir));
    if (!m->order && m->cols % m->block == 0 && is_symmetric(m))
        m->kept = (struct ax_element_codes){m->f.kind, m->block, read_gptq_codes};
    return AX_OK;
}

/* ---- the folder ---- */

/* Length of what comes before `suffix`, or 0. */
static size_t stem_of(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0 ? n - m : 0;
}

static enum ax_status add_matrix(struct ax_compressed *c, const struct ax_compressed_format *f,
                                 const struct folder *in, const struct ax_st_entry *codes,
                                 size_t stem) {
    struct ax_compressed_matrix *m = &c->matrices[c->n_matrices];
    const bool gptq = f->form == AX_FORM_GPTQ;
    *m = (struct ax_compressed_matrix){.f = *f, .codes = codes};
    AX_TRY(gptq ? open_gptq(m, in, stem) : open_matrix(m, in, stem));
    AX_TRY(ax_sprintf(&m->name, "%.*s.weight", (int)stem, codes->name));
    c->n_matrices++;
    struct ax_st_entry *e = &c->entries[c->n++];
    *e = (struct ax_st_entry){.name = m->name,
                              .file = codes->file,
                              .dtype = AX_F32,
                              .quantized = true,
                              .ndim = 2,
                              .shape = {m->rows, m->cols},
                              .numel = m->rows * m->cols,
                              .read = gptq ? read_gptq : read_matrix,
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

/* Scales of activations and of the KV cache, too, which stay as they are. */
static bool is_side(const struct ax_compressed_format *f, const struct ax_st_entry *e) {
    static const char *const usual[] = {".weight_scale",
                                        ".weight_scale_inv",
                                        ".weight_shape",
                                        ".weight_zero_point",
                                        ".weight_global_scale",
                                        ".input_global_scale",
                                        ".input_scale",
                                        ".input_zero_point",
                                        ".activation_scale",
                                        ".output_scale",
                                        ".output_zero_point",
                                        ".q_scale",
                                        ".k_scale",
                                        ".v_scale"},
                             *const gptq[] = {".scales", ".qzeros", ".g_idx"};
    const bool other = f->form == AX_FORM_GPTQ;
    const size_t n = other ? sizeof gptq / sizeof *gptq : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < n; i++)
        if (stem_of(e->name, (other ? gptq : usual)[i]))
            return true;
    return false;
}

/* Scales beside numbers, of which they make codes only while the model runs. */
static enum ax_status check_side(const struct folder *in, const struct ax_st_entry *e) {
    const size_t stem = stem_of(e->name, ".weight_scale");
    const struct ax_st_entry *w = stem > 0 ? sibling(in, e->name, stem, ".weight") : NULL;
    if (!w || !ax_dtype_info(w->dtype)->is_float)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: %s has scales, but its numbers are not quantized: they are rounded while "
                    "the model runs (quantization_status: frozen). Save the model compressed "
                    "(llm-compressor: save_compressed=True), or use the original weights.",
                    in->dir, w->name);
}

enum ax_status ax_compressed_open(struct ax_compressed *c, const char *dir,
                                  const struct ax_compressed_format *f, int n,
                                  const struct ax_st_entry *const *entries) {
    struct folder in = {.dir = dir, .n = n};
    *c = (struct ax_compressed){0};
    enum ax_status st;
    AX_TRY(ax_alloc(&c->entries, (size_t)n, sizeof *c->entries));
    AX_TRY_GOTO(ax_alloc(&c->matrices, (size_t)n, sizeof *c->matrices), st, fail);
    AX_TRY_GOTO(ax_alloc(&in.sorted, (size_t)n, sizeof *in.sorted), st, fail);
    for (int i = 0; i < n; i++)
        in.sorted[i] = entries[i];
    if (n > 0)
        qsort(in.sorted, (size_t)n, sizeof *in.sorted, by_name);
    for (int i = 0; i < n; i++) {
        size_t stem;
        if (is_codes(f, entries[i], &stem))
            AX_TRY_GOTO(add_matrix(c, f, &in, entries[i], stem), st, fail);
        else if (is_side(f, entries[i]))
            AX_TRY_GOTO(check_side(&in, entries[i]), st, fail);
        else
            c->entries[c->n++] = *entries[i];
    }
    ax_st_sort(c->entries, c->n);
    ax_free(in.sorted);
    return AX_OK;
fail:
    ax_free(in.sorted);
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
