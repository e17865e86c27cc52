/* Reads the header's parts in order, each checked against the remaining bytes. */
#include "ckpt/gguf/cursor.h"

#include <string.h>

#define MAX_NAME  65535
#define MAX_DEPTH 8 /* levels of arrays in arrays */

/* Bytes per value; 0 if it varies. */
static const unsigned char type_bytes[AX_GGUF_TYPE_COUNT] = {
    [AX_GGUF_U8] = 1,  [AX_GGUF_I8] = 1,  [AX_GGUF_U16] = 2, [AX_GGUF_I16] = 2,
    [AX_GGUF_U32] = 4, [AX_GGUF_I32] = 4, [AX_GGUF_F32] = 4, [AX_GGUF_BOOL] = 1,
    [AX_GGUF_U64] = 8, [AX_GGUF_I64] = 8, [AX_GGUF_F64] = 8,
};

uint32_t ax_gguf_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t ax_gguf_u64(const unsigned char *p) {
    return (uint64_t)ax_gguf_u32(p) | (uint64_t)ax_gguf_u32(p + 4) << 32;
}

int ax_gguf_text_compare(const struct ax_gguf_text *a, const struct ax_gguf_text *b) {
    const size_t n = a->len < b->len ? a->len : b->len;
    const int cmp = memcmp(a->s, b->s, n);
    return cmp != 0 ? cmp : (a->len > b->len) - (a->len < b->len);
}

static enum ax_status take(struct ax_gguf_cursor *c, const char *what, uint64_t n,
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

enum ax_status ax_gguf_read_u32(struct ax_gguf_cursor *c, const char *what, uint32_t *out) {
    const unsigned char *p;
    AX_TRY(take(c, what, 4, &p));
    *out = ax_gguf_u32(p);
    return AX_OK;
}

enum ax_status ax_gguf_read_u64(struct ax_gguf_cursor *c, const char *what, uint64_t *out) {
    const unsigned char *p;
    AX_TRY(take(c, what, 8, &p));
    *out = ax_gguf_u64(p);
    return AX_OK;
}

enum ax_status ax_gguf_read_text(struct ax_gguf_cursor *c, const char *what,
                                 struct ax_gguf_text *out) {
    const unsigned char *p;
    uint64_t len;
    AX_TRY(ax_gguf_read_u64(c, what, &len));
    AX_TRY(take(c, what, len, &p));
    *out = (struct ax_gguf_text){(const char *)p, (size_t)len};
    return AX_OK;
}

enum ax_status ax_gguf_read_name(struct ax_gguf_cursor *c, const char *what,
                                 struct ax_gguf_text *out) {
    const size_t at = c->at;
    AX_TRY(ax_gguf_read_text(c, what, out));
    if (out->len == 0 || out->len > MAX_NAME)
        return ax_error(AX_ERR_DATA, "%s: %s at byte %zu: a name of %zu bytes; 1 to %d are allowed",
                        c->name, what, at, out->len, MAX_NAME);
    for (size_t i = 0; i < out->len; i++)
        if ((unsigned char)out->s[i] < 0x20 || out->s[i] == 0x7f)
            return ax_error(AX_ERR_DATA, "%s: %s at byte %zu contains a control character", c->name,
                            what, at);
    return AX_OK;
}

static enum ax_status read_type(struct ax_gguf_cursor *c, const struct ax_gguf_key *k,
                                enum ax_gguf_type *out) {
    const size_t at = c->at;
    uint32_t id;
    AX_TRY(ax_gguf_read_u32(c, "a value type", &id));
    if (id >= AX_GGUF_TYPE_COUNT)
        return ax_error(AX_ERR_DATA, "%s: key %.*s: unknown value type %u at byte %zu", c->name,
                        (int)k->name.len, k->name.s, id, at);
    *out = (enum ax_gguf_type)id;
    return AX_OK;
}

static enum ax_status check_bools(const struct ax_gguf_cursor *c, const struct ax_gguf_key *k,
                                  const unsigned char *p, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (p[i] > 1)
            return ax_error(AX_ERR_DATA, "%s: key %.*s: byte %zu is neither true nor false",
                            c->name, (int)k->name.len, k->name.s, (size_t)(p + i - c->data));
    return AX_OK;
}

/* Moves past `count` values of one type. Empty arrays in arrays still take 12 bytes each, so the
 * work is bounded by the file. */
static enum ax_status skip_values(struct ax_gguf_cursor *c, const struct ax_gguf_key *k,
                                  enum ax_gguf_type type, uint64_t count, int depth) {
    static const char what[] = "a key's value";
    const unsigned char *p;
    const uint64_t size = type_bytes[type];
    if (size > 0) {
        /* if the product overflows, the bytes certainly exceed the file */
        const uint64_t bytes = count > UINT64_MAX / size ? UINT64_MAX : count * size;
        AX_TRY(take(c, what, bytes, &p));
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
            AX_TRY(ax_gguf_read_text(c, what, &text));
            continue;
        }
        AX_TRY(read_type(c, k, &inner));
        AX_TRY(ax_gguf_read_u64(c, "the length of an array", &n));
        AX_TRY(skip_values(c, k, inner, n, depth + 1));
    }
    return AX_OK;
}

enum ax_status ax_gguf_read_key(struct ax_gguf_cursor *c, struct ax_gguf_key *k) {
    AX_TRY(ax_gguf_read_name(c, "a key's name", &k->name));
    AX_TRY(read_type(c, k, &k->type));
    k->is_array = k->type == AX_GGUF_ARRAY;
    k->count = 1;
    if (k->is_array) {
        AX_TRY(read_type(c, k, &k->type));
        AX_TRY(ax_gguf_read_u64(c, "the length of an array", &k->count));
    }
    k->value = c->data + c->at;
    return skip_values(c, k, k->type, k->count, 0);
}
