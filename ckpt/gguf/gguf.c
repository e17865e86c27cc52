/* The full file: header, then keys, then tensor infos, then tensor data. */
#include "ckpt/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/gguf/cursor.h"
#include "kernels/tensor.h"

#define MAX_ENTRIES  65536 /* keys, and tensors */
#define MIN_KEY      13    /* bytes: name length, one character, type; the value may be empty */
#define MIN_TENSOR   33    /* bytes: name length, one character, 1 dimension, type, offset */
#define BIG_ENDIAN_3 0x03000000u
#define NO_OFFSET    UINT64_MAX

static enum ax_status read_count(struct ax_gguf_cursor *c, const char *what, size_t min_bytes,
                                 size_t *out) {
    uint64_t n;
    AX_TRY(ax_gguf_read_u64(c, what, &n));
    if (n > MAX_ENTRIES || n > (c->len - c->at) / min_bytes)
        return ax_error(AX_ERR_DATA,
                        "%s: %s is %llu, more than the remaining %zu bytes can hold or more than "
                        "the limit of %d; the file is truncated or corrupted",
                        c->name, what, (unsigned long long)n, c->len - c->at, MAX_ENTRIES);
    *out = (size_t)n;
    return AX_OK;
}

static enum ax_status read_start(struct ax_gguf *g, struct ax_gguf_cursor *c) {
    uint32_t version;
    if (c->len < 8 || memcmp(c->data, "GGUF", 4) != 0)
        return ax_error(AX_ERR_DATA, "%s: does not begin with \"GGUF\": not a GGUF file", c->name);
    c->at = 4;
    AX_TRY(ax_gguf_read_u32(c, "the version", &version));
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
    return ax_gguf_text_compare(a, b);
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

static enum ax_status read_keys(struct ax_gguf *g, struct ax_gguf_cursor *c) {
    AX_TRY(ax_alloc(&g->keys, g->n_keys, sizeof *g->keys));
    for (size_t i = 0; i < g->n_keys; i++)
        AX_TRY(ax_gguf_read_key(c, &g->keys[i]));
    const struct ax_gguf_text *twice = sort_by_name(g->keys, g->n_keys, sizeof *g->keys);
    if (twice)
        return ax_error(AX_ERR_DATA, "%s: key %.*s appears twice", c->name, (int)twice->len,
                        twice->s);
    return AX_OK;
}

/* ne[] (fastest dimension first) → shape and number of bytes. */
static enum ax_status read_shape(struct ax_gguf_cursor *c, struct ax_gguf_tensor *t) {
    uint32_t n_dims;
    const int name_len = (int)t->name.len;
    AX_TRY(ax_gguf_read_u32(c, "a number of dimensions", &n_dims));
    if (n_dims < 1 || n_dims > AX_GGUF_MAX_DIMS)
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s has %u dimensions; 1 to %d are allowed",
                        c->name, name_len, t->name.s, n_dims, AX_GGUF_MAX_DIMS);
    t->ndim = (int)n_dims;
    for (int d = t->ndim - 1; d >= 0; d--) {
        uint64_t ne;
        AX_TRY(ax_gguf_read_u64(c, "a size", &ne));
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

static enum ax_status read_type(struct ax_gguf_cursor *c, struct ax_gguf_tensor *t) {
    uint32_t id;
    AX_TRY(ax_gguf_read_u32(c, "a tensor type", &id));
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
static enum ax_status read_infos(struct ax_gguf *g, struct ax_gguf_cursor *c, uint64_t *offsets) {
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct ax_gguf_tensor *t = &g->tensors[i];
        AX_TRY(ax_gguf_read_name(c, "a tensor's name", &t->name));
        AX_TRY(read_shape(c, t));
        AX_TRY(read_type(c, t));
        AX_TRY(ax_gguf_read_u64(c, "a tensor's offset", &offsets[i]));
    }
    return AX_OK;
}

/* The data starts at the end of the header, rounded up to the alignment. */
static enum ax_status data_start(const struct ax_gguf *g, const struct ax_gguf_cursor *c,
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

static enum ax_status place(struct ax_gguf *g, const struct ax_gguf_cursor *c,
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

static enum ax_status read_tensors(struct ax_gguf *g, struct ax_gguf_cursor *c) {
    uint64_t *offsets = NULL;
    enum ax_status st;
    AX_TRY(ax_alloc(&g->tensors, g->n_tensors, sizeof *g->tensors));
    AX_TRY_GOTO(ax_alloc(&offsets, g->n_tensors, sizeof *offsets), st, done);
    AX_TRY_GOTO(read_infos(g, c, offsets), st, done);
    AX_TRY_GOTO(place(g, c, offsets), st, done);
    AX_TRY_GOTO(check_overlap(g, c->name), st, done);
    const struct ax_gguf_text *twice = sort_by_name(g->tensors, g->n_tensors, sizeof *g->tensors);
    if (twice)
        st = ax_error(AX_ERR_DATA, "%s: tensor %.*s appears twice", c->name, (int)twice->len,
                      twice->s);
done:
    ax_free(offsets);
    return st;
}

static enum ax_status parse(struct ax_gguf *g, const char *name, const void *bytes, size_t len) {
    struct ax_gguf_cursor c = {.name = name, .data = bytes, .len = len};
    AX_TRY(ax_strdup(&g->path, name));
    AX_TRY(read_start(g, &c));
    AX_TRY(read_keys(g, &c));
    return read_tensors(g, &c);
}

enum ax_status ax_gguf_parse(struct ax_gguf *g, const char *name, const void *bytes, size_t len) {
    *g = (struct ax_gguf){0};
    const enum ax_status st = parse(g, name, bytes, len);
    if (st != AX_OK)
        ax_gguf_close(g);
    return st;
}

enum ax_status ax_gguf_open(struct ax_gguf *g, const char *path) {
    *g = (struct ax_gguf){0};
    enum ax_status st;
    AX_TRY_GOTO(ax_map_file(&g->map, path), st, fail);
    AX_TRY_GOTO(parse(g, path, g->map.data, g->map.len), st, fail);
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

static const void *find(const void *entries, size_t n, size_t size, const char *name) {
    const struct ax_gguf_text key = {name, strlen(name)};
    return n > 0 ? bsearch(&key, entries, n, size, by_name) : NULL;
}

const struct ax_gguf_key *ax_gguf_key(const struct ax_gguf *g, const char *name) {
    return find(g->keys, g->n_keys, sizeof *g->keys, name);
}

const struct ax_gguf_tensor *ax_gguf_tensor(const struct ax_gguf *g, const char *name) {
    return find(g->tensors, g->n_tensors, sizeof *g->tensors, name);
}
