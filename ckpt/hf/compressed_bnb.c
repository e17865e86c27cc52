/* Matrices of bitsandbytes: 4-bit codes in blocks of the flattened matrix, which JSON beside them describes, and int8 by
 * row. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/compressed_matrix.h"
#include "kernels/quant/quant_codes.h"

#define MAX_STATE (1u << 16) /* bytes of the JSON */
#define MAX_DIM   (1LL << 31)
#define MAX_BLOCK 4096
#define MAP       256 /* codes of nested scales */

/* ---- 4 bits ---- */

/* A sign, then 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6 or 1/4. */
static const float fp4_values[16] = {
    0, 0x1.555556p-8F,  0x1.555556p-1F,  1,  0x1.555556p-2F,  0.5F,  0x1.555556p-3F,  0.25F,
    0, -0x1.555556p-8F, -0x1.555556p-1F, -1, -0x1.555556p-2F, -0.5F, -0x1.555556p-3F, -0.25F};

#define STATE ".weight.quant_state.bitsandbytes__"
static const struct {
    const char *state, *name;
    const float *values;
    bool kept; /* packed storage has such codes */
} types[] = {{STATE "nf4", "nf4", ax_nf4_values, true}, {STATE "fp4", "fp4", fp4_values, false}};
#define N_TYPES (sizeof types / sizeof *types)

bool ax_compressed_is_bnb4(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                           size_t stem) {
    bool yes = e->dtype == AX_U8;
    for (size_t i = 0; i < N_TYPES; i++)
        yes = yes || ax_compressed_sibling(in, e->name, stem, types[i].state);
    return yes;
}

static float scale_at(const struct ax_compressed_matrix *m, int64_t block) {
    const struct ax_compressed_nested *n = &m->nested;
    const float stored = (float)ax_load(m->scale->dtype, m->scale->data, block);
    if (!n->map)
        return stored;
    const float value = (float)ax_load(AX_F32, n->map->data, (int64_t)stored);
    return value * (float)ax_load(AX_F32, n->scale->data, block / n->block) + n->offset;
}

/* The even element of a byte is its high half. */
static unsigned code_at(const struct ax_compressed_matrix *m, int64_t i) {
    const unsigned char *bytes = m->codes->data;
    return i % 2 ? bytes[i / 2] & 15U : (unsigned)bytes[i / 2] >> 4;
}

enum ax_status ax_compressed_read_bnb4(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    float scale = 0;
    for (int64_t i = first; i < first + n; i++) {
        if (i == first || i % m->block == 0)
            scale = scale_at(m, i / m->block);
        ax_store(m->dtype, out, i - first, (double)(m->values[code_at(m, i)] * scale));
    }
    return AX_OK;
}

static enum ax_status read_codes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                 float *scale) {
    const struct ax_compressed_matrix *m = ctx;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (unsigned char)code_at(m, first + i);
    for (int64_t i = 0; i < n; i += m->block)
        scale[i / m->block] = scale_at(m, (first + i) / m->block);
    return AX_OK;
}

/* ---- the JSON ---- */

static enum ax_status parse_shape(struct ax_json v, struct ax_compressed_matrix *m) {
    if (ax_json_size(v) != 2)
        return ax_json_error(v, "expected [outputs, inputs]");
    AX_TRY(ax_json_i64(ax_json_at(v, 0), 1, MAX_DIM, &m->rows));
    return ax_json_i64(ax_json_at(v, 1), 1, MAX_DIM, &m->cols);
}

static enum ax_status parse_dtype(struct ax_json v, enum ax_dtype *out) {
    const char *name;
    AX_TRY(ax_json_str(v, &name));
    const bool known = ax_dtype_parse(name, out) == AX_OK;
    return known && (*out == AX_F32 || *out == AX_BF16 || *out == AX_F16)
               ? AX_OK
               : ax_json_error(v, "expected float32, bfloat16 or float16, got \"%s\"", name);
}

static enum ax_status parse_nested(struct ax_json state, struct ax_compressed_nested *n) {
    double offset;
    enum ax_dtype dtype;
    AX_TRY(ax_json_i64(ax_json_get(state, "nested_blocksize"), 1, MAX_BLOCK, &n->block));
    AX_TRY(ax_json_f64(ax_json_get(state, "nested_offset"), &offset));
    AX_TRY(parse_dtype(ax_json_get(state, "nested_dtype"), &dtype));
    n->offset = (float)offset;
    return dtype == AX_F32 ? AX_OK
                           : ax_json_error(ax_json_get(state, "nested_dtype"), "expected float32");
}

static enum ax_status parse_state(struct ax_json state, const char *type,
                                  struct ax_compressed_matrix *m) {
    const char *named;
    const struct ax_json block = ax_json_get(state, "blocksize");
    AX_TRY(ax_json_str(ax_json_get(state, "quant_type"), &named));
    if (strcmp(named, type) != 0)
        return ax_json_error(ax_json_get(state, "quant_type"), "expected %s, got \"%s\"", type,
                             named);
    AX_TRY(ax_json_i64(block, 32, MAX_BLOCK, &m->block));
    if ((m->block & (m->block - 1)) != 0)
        return ax_json_error(block, "expected a power of two");
    AX_TRY(parse_dtype(ax_json_get(state, "dtype"), &m->dtype));
    AX_TRY(parse_shape(ax_json_get(state, "shape"), m));
    return m->nested.map ? parse_nested(state, &m->nested) : AX_OK;
}

static enum ax_status read_state(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                                 const char *type, struct ax_compressed_matrix *m) {
    struct ax_json_doc doc = {0};
    char *name;
    if (e->dtype != AX_U8 || e->bytes > MAX_STATE)
        return ax_compressed_wrong(in, e, "is no JSON");
    AX_TRY(ax_sprintf(&name, "%s: %s", in->dir, e->name));
    enum ax_status st = ax_json_parse(&doc, name, e->data, e->bytes);
    if (st == AX_OK)
        st = parse_state(ax_json_root(&doc), type, m);
    ax_json_free(&doc);
    ax_free(name);
    return st;
}

/* ---- opening ---- */

static bool is_list(const struct ax_st_entry *e, enum ax_dtype dtype, int64_t n) {
    return e->dtype == dtype && e->numel == n;
}

/* bitsandbytes has the values itself, and compares them as loosely. */
static bool has_values(const struct ax_st_entry *map, const float *values) {
    bool same = is_list(map, AX_F32, 16);
    for (int64_t i = 0; same && i < 16; i++)
        same = fabs(ax_load(AX_F32, map->data, i) - (double)values[i]) < 1e-6;
    return same;
}

static enum ax_status find_nested(struct ax_compressed_matrix *m,
                                  const struct ax_compressed_folder *in, size_t stem) {
    const char *const name = m->codes->name;
    m->nested.map = ax_compressed_sibling(in, name, stem, ".weight.nested_quant_map");
    m->nested.scale = ax_compressed_sibling(in, name, stem, ".weight.nested_absmax");
    if (!m->nested.map != !m->nested.scale)
        return ax_compressed_wrong(in, m->codes,
                                   m->nested.map ? "has no weight.nested_absmax"
                                                 : "has no weight.nested_quant_map");
    return AX_OK;
}

static enum ax_status check_sizes(const struct ax_compressed_matrix *m,
                                  const struct ax_compressed_folder *in) {
    const int64_t numel = m->rows * m->cols, blocks = (numel + m->block - 1) / m->block;
    const struct ax_compressed_nested *n = &m->nested;
    if ((uint64_t)(numel + 1) / 2 != m->codes->bytes)
        return ax_compressed_wrong(in, m->codes, "has another number of codes than its shape");
    if (!is_list(m->scale, n->map ? AX_U8 : AX_F32, blocks))
        return ax_compressed_wrong(in, m->scale,
                                   "has another number or type of scales than its blocks need");
    if (!n->map)
        return AX_OK;
    if (!is_list(n->map, AX_F32, MAP))
        return ax_compressed_wrong(in, n->map, "has not 256 numbers in float32");
    return is_list(n->scale, AX_F32, (blocks + n->block - 1) / n->block)
               ? AX_OK
               : ax_compressed_wrong(in, n->scale,
                                     "has another number or type of scales than its blocks need");
}

enum ax_status ax_compressed_open_bnb4(struct ax_compressed_matrix *m,
                                       const struct ax_compressed_folder *in, size_t stem) {
    const char *const name = m->codes->name;
    const struct ax_st_entry *state = NULL;
    size_t type = 0;
    for (size_t i = 0; i < N_TYPES && !state; i++) {
        type = i;
        state = ax_compressed_sibling(in, name, stem, types[i].state);
    }
    if (!state)
        return ax_compressed_wrong(in, m->codes, "has no quant_state of nf4 or fp4");
    m->values = types[type].values;
    m->scale = ax_compressed_sibling(in, name, stem, ".weight.absmax");
    const struct ax_st_entry *map = ax_compressed_sibling(in, name, stem, ".weight.quant_map");
    if (!m->scale || !map)
        return ax_compressed_wrong(in, m->codes,
                                   m->scale ? "has no weight.quant_map" : "has no weight.absmax");
    AX_TRY(find_nested(m, in, stem));
    AX_TRY(read_state(in, state, types[type].name, m));
    AX_TRY(check_sizes(m, in));
    if (!has_values(map, m->values))
        return ax_compressed_wrong(in, map, "has other values than the type of the quant_state");
    if (types[type].kept && m->rows * m->cols % m->block == 0)
        m->kept = (struct ax_element_codes){AX_QUANT_NF4, m->block, read_codes};
    return AX_OK;
}

/* ---- int8 by row ---- */

#define PER_CODE 7.874015718698502e-3F /* 1/127, as bitsandbytes has it */

enum ax_status ax_compressed_read_bnb8(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_matrix *m = ctx;
    const signed char *codes = m->codes->data;
    float *values = out;
    for (int64_t i = first; i < first + n; i++) {
        const float row = (float)ax_load(AX_F32, m->scale->data, i / m->cols);
        values[i - first] = (float)codes[i] * row * PER_CODE;
    }
    return AX_OK;
}

static enum ax_status read_bytes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                 float *scale) {
    const struct ax_compressed_matrix *m = ctx;
    const unsigned char *bytes = m->codes->data;
    memcpy(codes, bytes + first, (size_t)n);
    for (int64_t i = 0; i < n; i += m->cols)
        scale[i / m->cols] =
            (float)ax_load(AX_F32, m->scale->data, (first + i) / m->cols) * PER_CODE;
    return AX_OK;
}

enum ax_status ax_compressed_open_bnb8(struct ax_compressed_matrix *m,
                                       const struct ax_compressed_folder *in, size_t stem) {
    const struct ax_st_entry *c = m->codes;
    const struct ax_st_entry *order = ax_compressed_sibling(in, c->name, stem, ".weight_format");
    m->scale = ax_compressed_sibling(in, c->name, stem, ".SCB");
    if (!m->scale)
        return ax_compressed_wrong(in, c, "has no SCB");
    if (c->ndim != 2 || c->numel == 0)
        return ax_compressed_wrong(in, c, "is no matrix of codes");
    m->rows = c->shape[0];
    m->cols = c->shape[1];
    if (!is_list(m->scale, AX_F32, m->rows))
        return ax_compressed_wrong(in, m->scale, "has not one scale in float32 for each row");
    if (order && (order->numel != 1 || ax_load(order->dtype, order->data, 0) != 0))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: %s says that codes are in an order of old GPU kernels. Save the model "
                        "with bitsandbytes 0.45 or newer, or use the original weights.",
                        in->dir, order->name);
    m->kept = (struct ax_element_codes){AX_QUANT_INT8, m->cols, read_bytes};
    return AX_OK;
}
