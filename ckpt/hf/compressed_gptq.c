/* GPTQ's folders, as AutoGPTQ and GPTQModel write them (the format is in compressed.h). A column of a matrix is
 * contiguous there, so rows are gathered while they are read. */
#include <string.h>

#include "ckpt/hf/compressed_matrix.h"

static int64_t per_word(const struct ax_compressed_matrix *m) {
    return 32 / m->f.bits;
}

/* Code number `at` of a word. */
static unsigned field(const struct ax_compressed_matrix *m, const struct ax_st_entry *e,
                      int64_t word, int64_t at) {
    uint32_t w;
    memcpy(&w, (const char *)e->data + word * (int64_t)sizeof w, sizeof w);
    return w >> (unsigned)(at * m->f.bits) & ((1U << m->f.bits) - 1);
}

static unsigned code_at(const struct ax_compressed_matrix *m, int64_t row, int64_t col) {
    const int64_t per = per_word(m);
    return field(m, m->codes, col / per * m->rows + row, col % per);
}

/* Modulo the number of codes, as their writers pack it. */
static unsigned zero_at(const struct ax_compressed_matrix *m, int64_t group, int64_t row) {
    const int64_t per = per_word(m);
    const unsigned stored = field(m, m->zeros, group * (m->rows / per) + row / per, row % per);
    return (stored + m->f.zero_offset) & ((1U << m->f.bits) - 1);
}

static float scale_at(const struct ax_compressed_matrix *m, int64_t group, int64_t row) {
    return (float)ax_load(m->scale->dtype, m->scale->data, group * m->rows + row);
}

static int64_t group_at(const struct ax_compressed_matrix *m, int64_t col) {
    return m->order ? (int64_t)ax_load(AX_I32, m->order->data, col) : col / m->block;
}

enum ax_status ax_compressed_gptq_read(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    float *values = out, scale = 0;
    int64_t row = -1, group = -1;
    unsigned zero = 0;
    for (int64_t i = first; i < first + n; i++) {
        const int64_t col = i % m->cols, g = group_at(m, col);
        if (i / m->cols != row || g != group) {
            row = i / m->cols;
            group = g;
            scale = scale_at(m, group, row);
            zero = zero_at(m, group, row);
        }
        values[i - first] = (float)((int)code_at(m, row, col) - (int)zero) * scale;
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

/* Checks g_idx, and forgets one that says what no order says. */
static enum ax_status check_order(struct ax_compressed_matrix *m, const char *dir) {
    bool contiguous = true;
    if (m->order->ndim != 1 || m->order->numel != m->cols || m->order->dtype != AX_I32)
        return ax_compressed_wrong(dir, m->order, "has no group for each column");
    for (int64_t col = 0; col < m->cols; col++) {
        const int64_t group = group_at(m, col);
        if (group < 0 || group >= m->across)
            return ax_compressed_wrong(dir, m->order, "names a group that has no scales");
        contiguous = contiguous && group == col / m->block;
    }
    if (contiguous)
        m->order = NULL;
    return AX_OK;
}

static bool has_shape(const struct ax_st_entry *e, int64_t rows, int64_t cols) {
    return e->ndim == 2 && e->shape[0] == rows && e->shape[1] == cols;
}

static enum ax_status check_shapes(struct ax_compressed_matrix *m, const char *dir) {
    const struct ax_st_entry *c = m->codes;
    if (c->ndim != 2 || c->dtype != AX_I32 || c->numel == 0)
        return ax_compressed_wrong(dir, c, "is no matrix of codes");
    m->rows = c->shape[1];
    m->cols = c->shape[0] * per_word(m);
    m->block = m->f.block > 0 ? m->f.block : m->cols;
    m->across = m->cols / m->block;
    if (m->cols % m->block != 0)
        return ax_compressed_wrong(dir, c, "has rows that the group size does not divide");
    if (!has_shape(m->scale, m->across, m->rows))
        return ax_compressed_wrong(dir, m->scale,
                                   "has another number of scales than the matrix has groups");
    if (!ax_dtype_info(m->scale->dtype)->is_float)
        return ax_compressed_wrong(dir, m->scale, "is of another type than its format has");
    if (m->rows % per_word(m) != 0 || m->zeros->dtype != AX_I32 ||
        !has_shape(m->zeros, m->across, m->rows / per_word(m)))
        return ax_compressed_wrong(dir, m->zeros, "has no zero for each group and row");
    return m->order ? check_order(m, dir) : AX_OK;
}

enum ax_status ax_compressed_gptq_open(struct ax_compressed_matrix *m,
                                       const struct ax_compressed_folder *in, size_t stem) {
    const char *const name = m->codes->name;
    m->scale = ax_compressed_sibling(in, name, stem, ".scales");
    m->zeros = ax_compressed_sibling(in, name, stem, ".qzeros");
    m->order = ax_compressed_sibling(in, name, stem, ".g_idx");
    if (!m->scale || !m->zeros)
        return ax_compressed_wrong(in->dir, m->codes, m->scale ? "has no qzeros" : "has no scales");
    if (!m->order && m->f.ordered)
        return ax_compressed_wrong(in->dir, m->codes, "has no g_idx, which desc_act needs");
    AX_TRY(check_shapes(m, in->dir));
    if (!m->order && is_symmetric(m))
        m->kept = (struct ax_element_codes){m->f.kind, m->block, read_codes};
    return AX_OK;
}

/* ---- config.json ---- */

static enum ax_status unsupported(struct ax_json v, const char *what) {
    ax_json_error(v, "%s. Supported: GPTQ of 4 or 8 bits, with checkpoint_format gptq or gptq_v2",
                  what);
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_compressed_gptq_parse(struct ax_json config, struct ax_compressed_format *out) {
    int64_t bits, group;
    const char *format;
    bool ordered, symmetric;
    AX_TRY(ax_json_i64(ax_json_get(config, "bits"), 1, 32, &bits));
    AX_TRY(ax_json_i64_or(ax_json_get(config, "group_size"), -1, 1 << 20, 128, &group));
    AX_TRY(ax_json_bool_or(ax_json_get(config, "desc_act"), false, &ordered));
    AX_TRY(ax_json_bool_or(ax_json_get(config, "sym"), true, &symmetric));
    AX_TRY(ax_json_str_or(ax_json_get(config, "format"), "gptq", &format)); /* its newer name */
    AX_TRY(ax_json_str_or(ax_json_get(config, "checkpoint_format"), format, &format));
    const bool second = strcmp(format, "gptq_v2") == 0;
    if (bits != 4 && bits != 8)
        return unsupported(ax_json_get(config, "bits"), "this number of bits is not supported");
    if (group == 0)
        return ax_json_error(ax_json_get(config, "group_size"),
                             "expected a size, or -1 for one group of each row");
    if (!second && strcmp(format, "gptq") != 0)
        return unsupported(config, "this checkpoint_format is not supported");
    if (ax_json_size(ax_json_get(config, "dynamic")) > 0)
        return unsupported(ax_json_get(config, "dynamic"),
                           "modules with formats of their own are not supported");
    *out = (struct ax_compressed_format){.form = AX_FORM_GPTQ,
                                         .kind = bits == 4 ? AX_QUANT_INT4 : AX_QUANT_INT8,
                                         .bits = (int)bits,
                                         .block = group > 0 ? group : AX_BLOCK_ROW,
                                         .zero_offset = second ? 0 : 1,
                                         .ordered = ordered,
                                         .symmetric = symmetric};
    return AX_OK;
}
