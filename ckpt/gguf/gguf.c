/* GGUF files, in the file's order: the parts of the header, its keys, tensor infos, the data; then the
 * values of keys, whose bytes were checked when the file was opened. */
#include "ckpt/gguf/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tensor.h"

/* ---- parts of the header, each checked against the remaining bytes ---- */

#define MAX_NAME  65535
#define MAX_DEPTH 8 /* levels of arrays in arrays */

struct cursor {
    const char *name; /* file name for messages */
    const unsigned char *data;
    size_t at, len;
};

/* Bytes per value; 0 if it varies. */
static const unsigned char type_bytes[AX_GGUF_TYPE_COUNT] = {
    [AX_GGUF_U8] = 1,  [AX_GGUF_I8] = 1,  [AX_GGUF_U16] = 2, [AX_GGUF_I16] = 2,
    [AX_GGUF_U32] = 4, [AX_GGUF_I32] = 4, [AX_GGUF_F32] = 4, [AX_GGUF_BOOL] = 1,
    [AX_GGUF_U64] = 8, [AX_GGUF_I64] = 8, [AX_GGUF_F64] = 8,
};

/* Unaligned numbers in the file. */
static uint32_t u32_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64_at(const unsigned char *p) {
    return (uint64_t)u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

static int compare_texts(const struct ax_gguf_text *a, const struct ax_gguf_text *b) {
    const size_t n = a->len < b->len ? a->len : b->len;
    const int cmp = memcmp(a->s, b->s, n);
    return cmp != 0 ? cmp : (a->len > b->len) - (a->len < b->len);
}

static enum ax_status take_bytes(struct cursor *c, const char *what, uint64_t n,
                                 const unsigned char **out) {
    if (n > c->len - c->at)
        return ax_error(AX_ERR_DATA,
                        "%s: %s at byte %zu needs %llu bytes, but only %zu are left; the file is "
                        "truncated or corrupted",
                        c->name, what, c->at, (unsigned long long)n, c->len - c->at);
    *out = c->data + c->at;
    c->at += (size_t)n;
    return AX_OK;
}

/* AX_ERR_DATA if the bytes end first; `what` is for the message. */
static enum ax_status read_u32(struct cursor *c, const char *what, uint32_t *out) {
    const unsigned char *p;
    AX_TRY(take_bytes(c, what, 4, &p));
    *out = u32_at(p);
    return AX_OK;
}

static enum ax_status read_u64(struct cursor *c, const char *what, uint64_t *out) {
    const unsigned char *p;
    AX_TRY(take_bytes(c, what, 8, &p));
    *out = u64_at(p);
    return AX_OK;
}

static enum ax_status read_text(struct cursor *c, const char *what, struct ax_gguf_text *out) {
    const unsigned char *p;
    uint64_t len;
    AX_TRY(read_u64(c, what, &len));
    AX_TRY(take_bytes(c, what, len, &p));
    *out = (struct ax_gguf_text){(const char *)p, (size_t)len};
    return AX_OK;
}

/* The name of a key or tensor: 1 to 65,535 bytes, no control characters. */
static enum ax_status read_name(struct cursor *c, const char *what, struct ax_gguf_text *out) {
    const size_t at = c->at;
    AX_TRY(read_text(c, what, out));
    if (out->len == 0 || out->len > MAX_NAME)
        return ax_error(AX_ERR_DATA, "%s: %s at byte %zu: a name of %zu bytes; 1 to %d are allowed",
                        c->name, what, at, out->len, MAX_NAME);
    for (size_t i = 0; i < out->len; i++)
        if ((unsigned char)out->s[i] < 0x20 || out->s[i] == 0x7f)
            return ax_error(AX_ERR_DATA, "%s: %s at byte %zu contains a control character", c->name,
                            what, at);
    return AX_OK;
}

static enum ax_status read_value_type(struct cursor *c, const struct ax_gguf_key *k,
                                      enum ax_gguf_type *out) {
    const size_t at = c->at;
    uint32_t id;
    AX_TRY(read_u32(c, "a value type", &id));
    if (id >= AX_GGUF_TYPE_COUNT)
        return ax_error(AX_ERR_DATA, "%s: key %.*s: unknown value type %u at byte %zu", c->name,
                        (int)k->name.len, k->name.s, id, at);
    *out = (enum ax_gguf_type)id;
    return AX_OK;
}

static enum ax_status check_bools(const struct cursor *c, const struct ax_gguf_key *k,
                                  const unsigned char *p, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (p[i] > 1)
            return ax_error(AX_ERR_DATA, "%s: key %.*s: byte %zu is neither true nor false",
                            c->name, (int)k->name.len, k->name.s, (size_t)(p + i - c->data));
    return AX_OK;
}

/* Moves past `count` values of one type. Empty arrays in arrays still take 12 bytes each, so the
 * work is bounded by the file. */
static enum ax_status skip_values(struct cursor *c, const struct ax_gguf_key *k,
                                  enum ax_gguf_type type, uint64_t count, int depth) {
    static const char what[] = "a key's value";
    const unsigned char *p;
    const uint64_t size = type_bytes[type];
    if (size > 0) {
        /* if the product overflows, the bytes certainly exceed the file */
        const uint64_t bytes = count > UINT64_MAX / size ? UINT64_MAX : count * size;
        AX_TRY(take_bytes(c, what, bytes, &p));
        return type == AX_GGUF_BOOL ? check_bools(c, k, p, count) : AX_OK;
    }
    if (count > (c->len - c->at) / 8)
        return ax_error(AX_ERR_DATA,
                        "%s: key %.*s: %llu values do not fit in the remaining %zu bytes", c->name,
                        (int)k->name.len, k->name.s, (unsigned long long)count, c->len - c->at);
    if (depth == MAX_DEPTH)
        return ax_error(AX_ERR_DATA, "%s: key %.*s: arrays nested deeper than %d", c->name,
                        (int)k->name.len, k->name.s, MAX_DEPTH);
    for (uint64_t i = 0; i < count; i++) {
        struct ax_gguf_text text;
        enum ax_gguf_type inner;
        uint64_t n;
        if (type == AX_GGUF_STRING) {
            AX_TRY(read_text(c, what, &text));
            continue;
        }
        AX_TRY(read_value_type(c, k, &inner));
        AX_TRY(read_u64(c, "the length of an array", &n));
        AX_TRY(skip_values(c, k, inner, n, depth + 1));
    }
    return AX_OK;
}

/* One key with its value, which is checked completely. */
static enum ax_status read_key(struct cursor *c, struct ax_gguf_key *k) {
    AX_TRY(read_name(c, "a key's name", &k->name));
    AX_TRY(read_value_type(c, k, &k->type));
    k->is_array = k->type == AX_GGUF_ARRAY;
    k->count = 1;
    if (k->is_array) {
        AX_TRY(read_value_type(c, k, &k->type));
        AX_TRY(read_u64(c, "the length of an array", &k->count));
    }
    k->value = c->data + c->at;
    return skip_values(c, k, k->type, k->count, 0);
}

/* ---- the file ---- */

#define MAX_ENTRIES  65536 /* keys, and tensors */
#define MIN_KEY      13    /* bytes: name length, one character, type; the value may be empty */
#define MIN_TENSOR   33    /* bytes: name length, one character, 1 dimension, type, offset */
#define BIG_ENDIAN_3 0x03000000u
#define NO_OFFSET    UINT64_MAX

static enum ax_status read_count(struct cursor *c, const char *what, size_t min_bytes,
                                 size_t *out) {
    uint64_t n;
    AX_TRY(read_u64(c, what, &n));
    if (n > MAX_ENTRIES || n > (c->len - c->at) / min_bytes)
        return ax_error(AX_ERR_DATA,
                        "%s: %s is %llu, more than the remaining %zu bytes can hold or more than "
                        "the limit of %d; the file is truncated or corrupted",
                        c->name, what, (unsigned long long)n, c->len - c->at, MAX_ENTRIES);
    *out = (size_t)n;
    return AX_OK;
}

static enum ax_status read_start(struct ax_gguf *g, struct cursor *c) {
    uint32_t version;
    if (c->len < 8 || memcmp(c->data, "GGUF", 4) != 0)
        return ax_error(AX_ERR_DATA, "%s: does not begin with \"GGUF\": not a GGUF file", c->name);
    c->at = 4;
    AX_TRY(read_u32(c, "the version", &version));
    if (version == BIG_ENDIAN_3)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: a big-endian GGUF file. Use the little-endian one.", c->name);
    if (version != 2 && version != 3)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: GGUF version %u; only versions 2 and 3 are supported. Convert the "
                        "model again with current tools.",
                        c->name, version);
    AX_TRY(read_count(c, "the number of tensors", MIN_TENSOR, &g->n_tensors));
    return read_count(c, "the number of keys", MIN_KEY, &g->n_keys);
}

/* Keys and tensors both begin with their name. */
static int by_name(const void *a, const void *b) {
    return compare_texts(a, b);
}

/* Sorts entries by name; returns a name that appears twice, or NULL. */
static const struct ax_gguf_text *sort_by_name(void *entries, size_t n, size_t size) {
    _Static_assert(offsetof(struct ax_gguf_key, name) == 0, "by_name");
    _Static_assert(offsetof(struct ax_gguf_tensor, name) == 0, "by_name");
    const char *p = entries;
    qsort(entries, n, size, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(p + (i - 1) * size, p + i * size) == 0)
            return (const struct ax_gguf_text *)(const void *)(p + i * size);
    return NULL;
}

static enum ax_status read_keys(struct ax_gguf *g, struct cursor *c) {
    AX_TRY(ax_alloc(&g->keys, g->n_keys, sizeof *g->keys));
    for (size_t i = 0; i < g->n_keys; i++)
        AX_TRY(read_key(c, &g->keys[i]));
    const struct ax_gguf_text *twice = sort_by_name(g->keys, g->n_keys, sizeof *g->keys);
    if (twice)
        return ax_error(AX_ERR_DATA, "%s: key %.*s appears twice", c->name, (int)twice->len,
                        twice->s);
    return AX_OK;
}

/* ne[] (fastest dimension first) → shape and number of bytes. */
static enum ax_status read_shape(struct cursor *c, struct ax_gguf_tensor *t) {
    uint32_t n_dims;
    const int name_len = (int)t->name.len;
    AX_TRY(read_u32(c, "a number of dimensions", &n_dims));
    if (n_dims < 1 || n_dims > AX_GGUF_MAX_DIMS)
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s has %u dimensions; 1 to %d are allowed",
                        c->name, name_len, t->name.s, n_dims, AX_GGUF_MAX_DIMS);
    t->ndim = (int)n_dims;
    for (int d = t->ndim - 1; d >= 0; d--) {
        uint64_t ne;
        AX_TRY(read_u64(c, "a size", &ne));
        if (ne > INT64_MAX)
            return ax_error(AX_ERR_DATA, "%s: tensor %.*s has a size of %llu", c->name, name_len,
                            t->name.s, (unsigned long long)ne);
        t->shape[d] = (int64_t)ne;
    }
    if (ax_product(t->shape, t->ndim, &t->numel) != AX_OK)
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s: the number of elements overflows", c->name,
                        name_len, t->name.s);
    return AX_OK;
}

static enum ax_status read_tensor_type(struct cursor *c, struct ax_gguf_tensor *t) {
    uint32_t id;
    AX_TRY(read_u32(c, "a tensor type", &id));
    t->type = ax_block_type_find(id);
    if (!t->type)
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s: unknown type %u", c->name, (int)t->name.len,
                        t->name.s, id);
    if (!t->type->dequantize)
        return AX_OK;
    const int64_t row = t->shape[t->ndim - 1];
    if (row % t->type->elements != 0)
        return ax_error(
            AX_ERR_DATA,
            "%s: tensor %.*s: rows of %lld elements are not a multiple of the %s block size %d",
            c->name, (int)t->name.len, t->name.s, (long long)row, t->type->name, t->type->elements);
    const int64_t bytes[] = {t->numel / t->type->elements, t->type->bytes};
    int64_t product;
    if (ax_product(bytes, 2, &product) != AX_OK)
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s: the number of bytes overflows", c->name,
                        (int)t->name.len, t->name.s);
    t->bytes = (size_t)product;
    return AX_OK;
}

/* offsets[i] is the offset of tensors[i] within the data. */
static enum ax_status read_infos(struct ax_gguf *g, struct cursor *c, uint64_t *offsets) {
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct ax_gguf_tensor *t = &g->tensors[i];
        AX_TRY(read_name(c, "a tensor's name", &t->name));
        AX_TRY(read_shape(c, t));
        AX_TRY(read_tensor_type(c, t));
        AX_TRY(read_u64(c, "a tensor's offset", &offsets[i]));
    }
    return AX_OK;
}

/* The data starts at the end of the header, rounded up to the alignment. */
static enum ax_status data_start(const struct ax_gguf *g, const struct cursor *c,
                                 uint64_t *alignment, uint64_t *start) {
    int64_t a;
    AX_TRY(ax_gguf_i64_or(g, "general.alignment", 1, INT32_MAX, 32, &a));
    *alignment = (uint64_t)a;
    if ((*alignment & (*alignment - 1)) != 0)
        return ax_error(AX_ERR_DATA, "%s: general.alignment: %lld is not a power of two", c->name,
                        (long long)a);
    *start = ((uint64_t)c->at + *alignment - 1) / *alignment * *alignment;
    return AX_OK;
}

static enum ax_status place_tensors(struct ax_gguf *g, const struct cursor *c,
                                    const uint64_t *offsets) {
    uint64_t alignment, start;
    AX_TRY(data_start(g, c, &alignment, &start));
    const uint64_t data_len = start < c->len ? c->len - start : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct ax_gguf_tensor *t = &g->tensors[i];
        const int name_len = (int)t->name.len;
        if (offsets[i] % alignment != 0)
            return ax_error(AX_ERR_DATA,
                            "%s: tensor %.*s: offset %llu is not a multiple of the alignment %llu",
                            c->name, name_len, t->name.s, (unsigned long long)offsets[i],
                            (unsigned long long)alignment);
        if (offsets[i] > data_len || t->bytes > data_len - offsets[i])
            return ax_error(AX_ERR_DATA,
                            "%s: tensor %.*s has %zu bytes starting at data byte %llu, but the "
                            "file has only %llu data bytes; it is truncated or corrupted",
                            c->name, name_len, t->name.s, t->bytes, (unsigned long long)offsets[i],
                            (unsigned long long)data_len);
        if (t->type->dequantize)
            t->data = c->data + start + offsets[i];
    }
    return AX_OK;
}

static int by_address(const void *a, const void *b) {
    const struct ax_gguf_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static enum ax_status check_overlap(struct ax_gguf *g, const char *name) {
    const struct ax_gguf_tensor *before = NULL;
    qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_address);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct ax_gguf_tensor *t = &g->tensors[i];
        if (t->bytes == 0)
            continue;
        if (before && before->data + before->bytes > t->data)
            return ax_error(AX_ERR_DATA, "%s: tensors %.*s and %.*s share bytes", name,
                            (int)before->name.len, before->name.s, (int)t->name.len, t->name.s);
        before = t;
    }
    return AX_OK;
}

static enum ax_status read_tensors(struct ax_gguf *g, struct cursor *c) {
    uint64_t *offsets = NULL;
    enum ax_status st;
    AX_TRY(ax_alloc(&g->tensors, g->n_tensors, sizeof *g->tensors));
    AX_TRY_GOTO(ax_alloc(&offsets, g->n_tensors, sizeof *offsets), st, done);
    AX_TRY_GOTO(read_infos(g, c, offsets), st, done);
    AX_TRY_GOTO(place_tensors(g, c, offsets), st, done);
    AX_TRY_GOTO(check_overlap(g, c->name), st, done);
    const struct ax_gguf_text *twice = sort_by_name(g->tensors, g->n_tensors, sizeof *g->tensors);
    if (twice)
        st = ax_error(AX_ERR_DATA, "%s: tensor %.*s appears twice", c->name, (int)twice->len,
                      twice->s);
done:
    ax_free(offsets);
    return st;
}

static enum ax_status parse_file(struct ax_gguf *g, const char *name, const void *bytes,
                                 size_t len) {
    struct cursor c = {.name = name, .data = bytes, .len = len};
    AX_TRY(ax_strdup(&g->path, name));
    AX_TRY(read_start(g, &c));
    AX_TRY(read_keys(g, &c));
    return read_tensors(g, &c);
}

enum ax_status ax_gguf_parse(struct ax_gguf *g, const char *name, const void *bytes, size_t len) {
    *g = (struct ax_gguf){0};
    const enum ax_status st = parse_file(g, name, bytes, len);
    if (st != AX_OK)
        ax_gguf_close(g);
    return st;
}

enum ax_status ax_gguf_open(struct ax_gguf *g, const char *path) {
    *g = (struct ax_gguf){0};
    enum ax_status st;
    AX_TRY_GOTO(ax_map_file(&g->map, path), st, fail);
    AX_TRY_GOTO(parse_file(g, path, g->map.data, g->map.len), st, fail);
    return AX_OK;
fail:
    ax_gguf_close(g);
    return st;
}

void ax_gguf_close(struct ax_gguf *g) {
    ax_free(g->keys);
    ax_free(g->tensors);
    ax_free(g->path);
    ax_unmap_file(&g->map);
    *g = (struct ax_gguf){0};
}

bool ax_gguf_is(const char *path) {
    struct ax_mapping m;
    if (ax_map_file(&m, path) != AX_OK) {
        ax_error_clear();
        return false;
    }
    const bool is = m.len >= 4 && memcmp(m.data, "GGUF", 4) == 0;
    ax_unmap_file(&m);
    return is;
}

static const void *find_entry(const void *entries, size_t n, size_t size, const char *name) {
    const struct ax_gguf_text key = {name, strlen(name)};
    return n > 0 ? bsearch(&key, entries, n, size, by_name) : NULL;
}

const struct ax_gguf_key *ax_gguf_key(const struct ax_gguf *g, const char *name) {
    return find_entry(g->keys, g->n_keys, sizeof *g->keys, name);
}

const struct ax_gguf_tensor *ax_gguf_tensor(const struct ax_gguf *g, const char *name) {
    return find_entry(g->tensors, g->n_tensors, sizeof *g->tensors, name);
}

/* ---- values of keys ---- */

#define MAX_ARRAY ((uint64_t)16 << 20) /* maximum number of elements */

static const char *const type_names[AX_GGUF_TYPE_COUNT] = {
    [AX_GGUF_U8] = "an integer",  [AX_GGUF_I8] = "an integer",   [AX_GGUF_U16] = "an integer",
    [AX_GGUF_I16] = "an integer", [AX_GGUF_U32] = "an integer",  [AX_GGUF_I32] = "an integer",
    [AX_GGUF_U64] = "an integer", [AX_GGUF_I64] = "an integer",  [AX_GGUF_F32] = "a float",
    [AX_GGUF_F64] = "a float",    [AX_GGUF_BOOL] = "true/false", [AX_GGUF_STRING] = "a string",
    [AX_GGUF_ARRAY] = "an array",
};

static enum ax_status missing(const struct ax_gguf *g, const char *key) {
    return ax_error(AX_ERR_DATA, "%s: key %s is missing", g->path, key);
}

static enum ax_status wrong_type(const struct ax_gguf *g, const char *key, const char *expected,
                                 const struct ax_gguf_key *k) {
    return ax_error(AX_ERR_DATA, "%s: key %s: expected %s, but it is %s%s", g->path, key, expected,
                    k->is_array ? "a list, each element " : "", type_names[k->type]);
}

/* The element at p as an integer; false if it is not of an integer type or exceeds int64_t. */
static bool to_integer(enum ax_gguf_type type, const unsigned char *p, int64_t *out) {
    switch (type) {
    case AX_GGUF_U8:
        *out = p[0];
        return true;
    case AX_GGUF_I8:
        *out = p[0] < 128 ? p[0] : p[0] - 256;
        return true;
    case AX_GGUF_U16:
        *out = p[0] | p[1] << 8;
        return true;
    case AX_GGUF_I16:
        *out = (int16_t)(p[0] | p[1] << 8);
        return true;
    case AX_GGUF_U32:
        *out = u32_at(p);
        return true;
    case AX_GGUF_I32:
        *out = (int32_t)u32_at(p);
        return true;
    case AX_GGUF_U64:
        *out = u64_at(p) > INT64_MAX ? INT64_MAX : (int64_t)u64_at(p);
        return true;
    case AX_GGUF_I64:
        *out = (int64_t)u64_at(p);
        return true;
    default:
        return false;
    }
}

static bool to_float(enum ax_gguf_type type, const unsigned char *p, double *out) {
    int64_t i;
    if (type == AX_GGUF_F32) {
        const uint32_t bits = u32_at(p);
        float x;
        memcpy(&x, &bits, sizeof x);
        *out = (double)x;
        return true;
    }
    if (type == AX_GGUF_F64) {
        const uint64_t bits = u64_at(p);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    if (!to_integer(type, p, &i))
        return false;
    *out = (double)i;
    return true;
}

static enum ax_status integer_of(const struct ax_gguf *g, const struct ax_gguf_key *k,
                                 const char *key, int64_t min, int64_t max, int64_t *out) {
    int64_t v;
    if (k->is_array || !to_integer(k->type, k->value, &v))
        return wrong_type(g, key, "an integer", k);
    if (v < min || v > max)
        return ax_error(AX_ERR_DATA, "%s: key %s: %lld is not between %lld and %lld", g->path, key,
                        (long long)v, (long long)min, (long long)max);
    *out = v;
    return AX_OK;
}

enum ax_status ax_gguf_i64(const struct ax_gguf *g, const char *key, int64_t min, int64_t max,
                           int64_t *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    return k ? integer_of(g, k, key, min, max, out) : missing(g, key);
}

enum ax_status ax_gguf_i64_or(const struct ax_gguf *g, const char *key, int64_t min, int64_t max,
                              int64_t def, int64_t *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    *out = def;
    return k ? integer_of(g, k, key, min, max, out) : AX_OK;
}

/* The shortest decimal number that reads back as this float. */
static double shortest(double stored) {
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, stored);
        if (strtof(text, NULL) == (float)stored)
            return strtod(text, NULL);
    }
    return stored;
}

static enum ax_status number_of(const struct ax_gguf *g, const struct ax_gguf_key *k,
                                const char *key, double *out) {
    double v;
    if (k->is_array || !to_float(k->type, k->value, &v))
        return wrong_type(g, key, "a number", k);
    if (!isfinite(v))
        return ax_error(AX_ERR_DATA, "%s: key %s: %g is not a finite number", g->path, key, v);
    *out = k->type == AX_GGUF_F32 ? shortest(v) : v;
    return AX_OK;
}

enum ax_status ax_gguf_f64(const struct ax_gguf *g, const char *key, double *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    return k ? number_of(g, k, key, out) : missing(g, key);
}

enum ax_status ax_gguf_f64_or(const struct ax_gguf *g, const char *key, double def, double *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    *out = def;
    return k ? number_of(g, k, key, out) : AX_OK;
}

enum ax_status ax_gguf_bool_or(const struct ax_gguf *g, const char *key, bool def, bool *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    *out = def;
    if (!k)
        return AX_OK;
    if (k->is_array || k->type != AX_GGUF_BOOL)
        return wrong_type(g, key, "true or false", k);
    *out = k->value[0] != 0;
    return AX_OK;
}

static struct ax_gguf_text text_at(const unsigned char *p) {
    return (struct ax_gguf_text){(const char *)p + 8, (size_t)u64_at(p)};
}

enum ax_status ax_gguf_string_or_null(const struct ax_gguf *g, const char *key,
                                      struct ax_gguf_text *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    *out = (struct ax_gguf_text){0};
    if (!k)
        return AX_OK;
    if (k->is_array || k->type != AX_GGUF_STRING)
        return wrong_type(g, key, "a string", k);
    *out = text_at(k->value);
    return AX_OK;
}

/* *k is NULL if the key is absent. */
static enum ax_status find_array(const struct ax_gguf *g, const char *key, const char *expected,
                                 const struct ax_gguf_key **k) {
    *k = ax_gguf_key(g, key);
    if (!*k)
        return AX_OK;
    if (!(*k)->is_array)
        return wrong_type(g, key, expected, *k);
    if ((*k)->count > MAX_ARRAY)
        return ax_error(AX_ERR_DATA, "%s: key %s: %llu elements; the maximum is %llu", g->path, key,
                        (unsigned long long)(*k)->count, (unsigned long long)MAX_ARRAY);
    return AX_OK;
}

enum ax_status ax_gguf_strings(const struct ax_gguf *g, const char *key, struct ax_gguf_text **out,
                               size_t *n) {
    static const char expected[] = "a list of strings";
    const struct ax_gguf_key *k;
    *out = NULL;
    *n = 0;
    AX_TRY(find_array(g, key, expected, &k));
    if (!k)
        return AX_OK;
    if (k->type != AX_GGUF_STRING)
        return wrong_type(g, key, expected, k);
    AX_TRY(ax_alloc(out, (size_t)k->count, sizeof **out));
    const unsigned char *p = k->value;
    for (uint64_t i = 0; i < k->count; i++) {
        (*out)[i] = text_at(p);
        p += 8 + (*out)[i].len;
    }
    *n = (size_t)k->count;
    return AX_OK;
}

enum ax_status ax_gguf_i32s(const struct ax_gguf *g, const char *key, int32_t **out, size_t *n) {
    static const char expected[] = "a list of integers";
    const struct ax_gguf_key *k;
    *out = NULL;
    *n = 0;
    AX_TRY(find_array(g, key, expected, &k));
    if (!k)
        return AX_OK;
    AX_TRY(ax_alloc(out, (size_t)k->count, sizeof **out));
    for (uint64_t i = 0; i < k->count; i++) {
        const unsigned char *at = k->value + i * type_bytes[k->type];
        int64_t v = k->type == AX_GGUF_BOOL ? *at != 0 : 0;
        const bool ok = k->type == AX_GGUF_BOOL || to_integer(k->type, at, &v);
        if (ok && v >= INT32_MIN && v <= INT32_MAX) {
            (*out)[i] = (int32_t)v;
            continue;
        }
        ax_free(*out);
        *out = NULL;
        if (!ok)
            return wrong_type(g, key, expected, k);
        return ax_error(AX_ERR_DATA, "%s: key %s: element %llu is %lld", g->path, key,
                        (unsigned long long)i, (long long)v);
    }
    *n = (size_t)k->count;
    return AX_OK;
}

enum ax_status ax_gguf_f32s(const struct ax_gguf *g, const char *key, float **out, size_t *n) {
    static const char expected[] = "a list of numbers";
    const struct ax_gguf_key *k;
    double v;
    *out = NULL;
    *n = 0;
    AX_TRY(find_array(g, key, expected, &k));
    if (!k)
        return AX_OK;
    AX_TRY(ax_alloc(out, (size_t)k->count, sizeof **out));
    for (uint64_t i = 0; i < k->count; i++) {
        if (!to_float(k->type, k->value + i * type_bytes[k->type], &v)) {
            ax_free(*out);
            *out = NULL;
            return wrong_type(g, key, expected, k);
        }
        (*out)[i] = (float)v;
    }
    *n = (size_t)k->count;
    return AX_OK;
}
