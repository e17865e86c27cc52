/* Reading: header → checked entries that point into the mapping. */
#include "ckpt/hf/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "base/text/lfs_pointer.h"
#include "ckpt/hf/safetensors_types.h"

#define MAX_HEADER  100000000u /* bytes, the limit of the reference reader */
#define MAX_TENSORS 1000000

bool ax_st_dtype_parse(const char *name, enum ax_dtype *out) {
    for (int d = 0; d < AX_DTYPE_COUNT; d++) {
        if (strcmp(name, ax_dtype_info((enum ax_dtype)d)->safetensors) != 0)
            continue;
        *out = (enum ax_dtype)d;
        return true;
    }
    *out = AX_U8;
    return strcmp(name, "BOOL") == 0 || strcmp(name, AX_ST_E4M3) == 0 ||
           strcmp(name, AX_ST_E8M0) == 0;
}

static enum ax_status read_dtype(struct ax_json v, struct ax_st_entry *e) {
    const char *name;
    AX_TRY(ax_json_str(v, &name));
    if (!ax_st_dtype_parse(name, &e->dtype)) {
        ax_json_error(v, "dtype \"%s\" is not supported", name);
        return AX_ERR_UNSUPPORTED;
    }
    e->e4m3 = strcmp(name, AX_ST_E4M3) == 0;
    e->e8m0 = strcmp(name, AX_ST_E8M0) == 0;
    return AX_OK;
}

/* shape → numel and bytes, both without overflow. */
static enum ax_status read_shape(struct ax_json v, struct ax_st_entry *e) {
    if (!v.v || !json_is_array(v.v))
        return ax_json_error(v, "expected a list of sizes");
    const size_t n = ax_json_size(v);
    if (n > AX_ST_MAX_DIMS)
        return ax_json_error(v, "has %zu dimensions; at most %d are supported", n, AX_ST_MAX_DIMS);
    e->ndim = (int)n;
    for (size_t d = 0; d < n; d++)
        AX_TRY(ax_json_i64(ax_json_at(v, d), 0, INT64_MAX, &e->shape[d]));
    int64_t bytes;
    int64_t with_size[AX_ST_MAX_DIMS + 1];
    memcpy(with_size, e->shape, sizeof e->shape);
    with_size[n] = (int64_t)ax_dtype_size(e->dtype);
    if (ax_product(e->shape, e->ndim, &e->numel) != AX_OK ||
        ax_product(with_size, e->ndim + 1, &bytes) != AX_OK)
        return ax_json_error(v, "the number of bytes overflows");
    e->bytes = (size_t)bytes;
    return AX_OK;
}

static enum ax_status read_range(struct ax_json v, struct ax_st_entry *e, const unsigned char *data,
                                 size_t data_len) {
    if (!v.v || !json_is_array(v.v) || ax_json_size(v) != 2)
        return ax_json_error(v, "expected [begin, end]");
    int64_t begin, end;
    AX_TRY(ax_json_i64(ax_json_at(v, 0), 0, INT64_MAX, &begin));
    AX_TRY(ax_json_i64(ax_json_at(v, 1), 0, INT64_MAX, &end));
    if (begin > end || (uint64_t)end > data_len)
        return ax_json_error(v, "range %lld to %lld is not within the %zu data bytes",
                             (long long)begin, (long long)end, data_len);
    if ((uint64_t)(end - begin) != e->bytes)
        return ax_json_error(v, "range of %lld bytes, but shape and dtype make %zu",
                             (long long)(end - begin), e->bytes);
    e->data = data + begin;
    return AX_OK;
}

static enum ax_status read_entry(struct ax_json v, const char *name, struct ax_st_entry *e,
                                 const unsigned char *data, size_t data_len) {
    AX_TRY(ax_strdup(&e->name, name));
    if (!json_is_object(v.v))
        return ax_json_error(v, "expected {dtype, shape, data_offsets}");
    AX_TRY(read_dtype(ax_json_get(v, "dtype"), e));
    AX_TRY(read_shape(ax_json_get(v, "shape"), e));
    AX_TRY(read_range(ax_json_get(v, "data_offsets"), e, data, data_len));
    if (json_object_size(v.v) != 3)
        return ax_json_error(v, "has keys besides dtype, shape and data_offsets");
    return AX_OK;
}

static int by_address(const void *a, const void *b) {
    const struct ax_st_entry *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Ranges in address order must follow each other exactly, from the first data byte to the last. */
static enum ax_status check_cover(struct ax_safetensors *st, const char *name,
                                  const unsigned char *data, size_t data_len) {
    if (st->n > 0)
        qsort(st->entries, (size_t)st->n, sizeof *st->entries, by_address);
    size_t at = 0;
    for (int i = 0; i < st->n; i++) {
        const struct ax_st_entry *e = &st->entries[i];
        const size_t begin = (size_t)((const unsigned char *)e->data - data);
        if (begin != at)
            return ax_error(
                AX_ERR_DATA, "%s: tensor %s begins at data byte %zu, %s byte %zu", name, e->name,
                begin, begin < at ? "inside another that ends at" : "leaving a hole after", at);
        at += e->bytes;
    }
    if (at != data_len)
        return ax_error(AX_ERR_DATA,
                        "%s: the last %zu of %zu data bytes do not belong to any tensor", name,
                        data_len - at, data_len);
    return AX_OK;
}

static enum ax_status check_metadata(struct ax_json v) {
    if (v.v && !json_is_object(v.v))
        return ax_json_error(v, "expected an object of strings");
    const char *key, *text;
    json_t *value;
    json_object_foreach((json_t *)v.v, key, value) {
        AX_TRY(ax_json_str(ax_json_get(v, key), &text));
    }
    return AX_OK;
}

/* Reserves one more entry. Grows with the entries that have been checked, so a large count alone
 * costs no memory. */
static enum ax_status reserve(struct ax_safetensors *st, const char *name, int *cap) {
    if (st->n < *cap)
        return AX_OK;
    if (st->n == MAX_TENSORS)
        return ax_error(AX_ERR_DATA, "%s: more than %d tensors", name, MAX_TENSORS);
    const int grown = *cap ? *cap * 2 : 256;
    AX_TRY(ax_regrow(&st->entries, (size_t)*cap, (size_t)grown, sizeof *st->entries));
    *cap = grown;
    return AX_OK;
}

static enum ax_status read_header(struct ax_safetensors *st, const char *name, struct ax_json root,
                                  const unsigned char *data, size_t data_len) {
    if (!json_is_object(root.v))
        return ax_error(AX_ERR_DATA, "%s: the header is not a JSON object", name);
    const char *key;
    json_t *value;
    int cap = 0;
    json_object_foreach((json_t *)root.v, key, value) {
        const struct ax_json v = ax_json_get(root, key);
        if (strcmp(key, "__metadata__") == 0) {
            AX_TRY(check_metadata(v));
            continue;
        }
        AX_TRY(reserve(st, name, &cap));
        st->n++;
        st->entries[st->n - 1].file = name;
        AX_TRY(read_entry(v, key, &st->entries[st->n - 1], data, data_len));
    }
    AX_TRY(check_cover(st, name, data, data_len));
    ax_st_sort(st->entries, st->n);
    return AX_OK;
}

static enum ax_status parse(struct ax_safetensors *st, const char *name, const unsigned char *p,
                            size_t len) {
    AX_TRY(ax_lfs_refuse(name, p, len));
    if (len < 8)
        return ax_error(AX_ERR_DATA, "%s: %zu bytes is too small for a safetensors file", name,
                        len);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | p[i];
    const unsigned char *json = p + 8;
    if (header > MAX_HEADER || header > len - 8)
        return ax_error(AX_ERR_DATA,
                        "%s: the header claims %llu bytes, %zu follow, and the limit is %u; the "
                        "file is truncated or not safetensors",
                        name, (unsigned long long)header, len - 8, MAX_HEADER);
    if (header == 0 || json[0] != '{')
        return ax_error(AX_ERR_DATA, "%s: the header does not begin with \"{\"", name);
    struct ax_json_doc doc = {0};
    AX_TRY(ax_json_parse(&doc, name, (const char *)json, (size_t)header));
    const enum ax_status status =
        read_header(st, name, ax_json_root(&doc), json + header, len - 8 - (size_t)header);
    ax_json_free(&doc);
    return status;
}

enum ax_status ax_safetensors_parse(struct ax_safetensors *st, const char *name, const void *bytes,
                                    size_t len) {
    *st = (struct ax_safetensors){0};
    const enum ax_status status = parse(st, name, bytes, len);
    if (status != AX_OK)
        ax_safetensors_close(st);
    return status;
}

enum ax_status ax_safetensors_open(struct ax_safetensors *st, const char *path) {
    *st = (struct ax_safetensors){0};
    enum ax_status status;
    AX_TRY_GOTO(ax_strdup(&st->path, path), status, fail);
    AX_TRY_GOTO(ax_map_file(&st->map, path), status, fail);
    AX_TRY_GOTO(parse(st, st->path, st->map.data, st->map.len), status, fail);
    return AX_OK;
fail:
    ax_safetensors_close(st);
    return status;
}

void ax_safetensors_close(struct ax_safetensors *st) {
    for (int i = 0; i < st->n; i++)
        ax_free(st->entries[i].name);
    ax_free(st->entries);
    ax_free(st->path);
    ax_unmap_file(&st->map);
    *st = (struct ax_safetensors){0};
}

const struct ax_st_entry *ax_safetensors_find(const struct ax_safetensors *st, const char *name) {
    return ax_st_find(st->entries, st->n, name);
}
