/* Matrices of GPTQ and AWQ: words of several codes, of inputs (GPTQ) or of outputs (AWQ); a column is contiguous, so rows
 * are gathered while they are read. */
#include "ckpt/hf/compressed_matrix.h"

static int64_t per_word(const struct ax_compressed_matrix *m) {
    return 32 / m->f.bits;
}

/* Code number `at` of a word. */
static unsigned field(const struct ax_compressed_matrix *m, uint32_t word, int64_t at) {
    return word >> (unsigned)(at * m->f.bits) & ((1U << m->f.bits) - 1);
}

/* Where the code of an output is in a word that has several: AWQ's kernels want the even ones first. */
static int64_t place_of(const struct ax_compressed_matrix *m, int64_t row) {
    static const signed char awq[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t at = row % per_word(m);
    return m->f.form == AX_FORM_AWQ ? awq[at] : at;
}

static unsigned code_at(const struct ax_compressed_matrix *m, int64_t row, int64_t col) {
    const int64_t per = per_word(m);
    if (m->f.form == AX_FORM_AWQ)
        return field(m, ax_compressed_word(m->codes, col * (m->rows / per) + row / per),
                     place_of(m, row));
    return field(m, ax_compressed_word(m->codes, col / per * m->rows + row), col % per);
}

/* GPTQModel subtracts 1 from all zeros of a word at a time, so a zero of 0 borrows from the next one. */
static unsigned zero_at(const struct ax_compressed_matrix *m, int64_t group, int64_t row) {
    const int64_t per = per_word(m);
    const uint32_t ones = UINT32_MAX / ((1U << m->f.bits) - 1);
    const uint32_t stored = ax_compressed_word(m->zeros, group * (m->rows / per) + row / per);
    return field(m, stored + m->f.zero_offset * ones, place_of(m, row));
}

static float scale_at(const struct ax_compressed_matrix *m, int64_t group, int64_t row) {
    return (float)ax_load(m->scale->dtype, m->scale->data, group * m->rows + row);
}

enum ax_status ax_compressed_read_words(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    float scale = 0;
    int64_t row = -1, group = -1;
    unsigned zero = 0;
    for (int64_t i = first; i < first + n; i++) {
        const int64_t col = i % m->cols, g = ax_compressed_group(m, col);
        if (i / m->cols != row || g != group) {
            row = i / m->cols;
            group = g;
            scale = scale_at(m, group, row);
            zero = zero_at(m, group, row);
        }
        const float value = (float)((int)code_at(m, row, col) - (int)zero) * scale;
        ax_store(m->dtype, out, i - first, (double)value);
    }
    return AX_OK;
}

static enum ax_status read_codes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                 float *scale) {
    const struct ax_compressed_matrix *m = ctx;
    const unsigned half = 1U << (m->f.bits - 1);
    for (int64_t i = 0; i < n; i++)
        codes[i] = (unsigned char)(code_at(m, (first + i) / m->cols, (first + i) % m->cols) - half);
    for (int64_t i = 0; i < n; i += m->block)
        scale[i / m->block] = scale_at(m, (first + i) % m->cols / m->block, (first + i) / m->cols);
    return AX_OK;
}

/* True if every zero is half the range, as of symmetric rounding. */
static bool is_symmetric(const struct ax_compressed_matrix *m) {
    for (int64_t g = 0; g < m->across; g++)
        for (int64_t row = 0; row < m->rows; row++)
            if (zero_at(m, g, row) != 1U << (m->f.bits - 1))
                return false;
    return true;
}

static enum ax_status check_shapes(struct ax_compressed_matrix *m,
                                   const struct ax_compressed_folder *in) {
    const struct ax_st_entry *c = m->codes;
    if (c->ndim != 2 || c->dtype != AX_I32 || c->numel == 0)
        return ax_compressed_wrong(in, c, "is no matrix of codes");
    const bool awq = m->f.form == AX_FORM_AWQ;
    m->rows = c->shape[1] * (awq ? per_word(m) : 1);
    m->cols = c->shape[0] * (awq ? 1 : per_word(m));
    m->block = m->f.block > 0 ? m->f.block : m->cols;
    m->across = (m->cols + m->block - 1) / m->block;
    if (!ax_compressed_has_shape(m->scale, m->across, m->rows))
        return ax_compressed_wrong(in, m->scale,
                                   "has another number of scales than the matrix has groups");
    if (!ax_dtype_info(m->scale->dtype)->is_float)
        return ax_compressed_wrong(in, m->scale, "is of another type than its format has");
    if (m->rows % per_word(m) != 0 || m->zeros->dtype != AX_I32 ||
        !ax_compressed_has_shape(m->zeros, m->across, m->rows / per_word(m)))
        return ax_compressed_wrong(in, m->zeros, "has no zero for each group and row");
    return m->order ? ax_compressed_check_order(m, in) : AX_OK;
}

enum ax_status ax_compressed_open_words(struct ax_compressed_matrix *m,
                                        const struct ax_compressed_folder *in, size_t stem) {
    const char *const name = m->codes->name;
    m->scale = ax_compressed_sibling(in, name, stem, ".scales");
    m->zeros = ax_compressed_sibling(in, name, stem, ".qzeros");
    m->order = ax_compressed_sibling(in, name, stem, ".g_idx");
    if (!m->scale || !m->zeros)
        return ax_compressed_wrong(in, m->codes, m->scale ? "has no qzeros" : "has no scales");
    if (!m->order && m->f.ordered)
        return ax_compressed_wrong(in, m->codes, "has no g_idx, which desc_act needs");
    AX_TRY(check_shapes(m, in));
    if (m->f.form ==
        AX_FORM_AWQ) /* values in the scales' dtype, so there are no codes of float32's products */
        m->dtype = m->scale->dtype;
    else if (!m->order && m->cols % m->block == 0 && is_symmetric(m))
        m->kept = (struct ax_element_codes){m->f.kind, m->block, read_codes};
    return AX_OK;
}
