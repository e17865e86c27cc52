/* Typed values of keys. The file's bytes were checked when it was opened. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/gguf/cursor.h"

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
        *out = ax_gguf_u32(p);
        return true;
    case AX_GGUF_I32:
        *out = (int32_t)ax_gguf_u32(p);
        return true;
    case AX_GGUF_U64:
        *out = ax_gguf_u64(p) > INT64_MAX ? INT64_MAX : (int64_t)ax_gguf_u64(p);
        return true;
    case AX_GGUF_I64:
        *out = (int64_t)ax_gguf_u64(p);
        return true;
    default:
        return false;
    }
}

static bool to_float(enum ax_gguf_type type, const unsigned char *p, double *out) {
    int64_t i;
    if (type == AX_GGUF_F32) {
        const uint32_t bits = ax_gguf_u32(p);
        float x;
        memcpy(&x, &bits, sizeof x);
        *out = (double)x;
        return true;
    }
    if (type == AX_GGUF_F64) {
        const uint64_t bits = ax_gguf_u64(p);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    if (!to_integer(type, p, &i))
        return false;
    *out = (double)i;
    return true;
}

static enum ax_status integer(const struct ax_gguf *g, const struct ax_gguf_key *k, const char *key,
                              int64_t min, int64_t max, int64_t *out) {
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
    return k ? integer(g, k, key, min, max, out) : missing(g, key);
}

enum ax_status ax_gguf_i64_or(const struct ax_gguf *g, const char *key, int64_t min, int64_t max,
                              int64_t def, int64_t *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    *out = def;
    return k ? integer(g, k, key, min, max, out) : AX_OK;
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

static enum ax_status number(const struct ax_gguf *g, const struct ax_gguf_key *k, const char *key,
                             double *out) {
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
    return k ? number(g, k, key, out) : missing(g, key);
}

enum ax_status ax_gguf_f64_or(const struct ax_gguf *g, const char *key, double def, double *out) {
    const struct ax_gguf_key *k = ax_gguf_key(g, key);
    *out = def;
    return k ? number(g, k, key, out) : AX_OK;
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
    return (struct ax_gguf_text){(const char *)p + 8, (size_t)ax_gguf_u64(p)};
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

/* Bytes per number in an array. */
static size_t stride(enum ax_gguf_type type) {
    switch (type) {
    case AX_GGUF_U8:
    case AX_GGUF_I8:
        return 1;
    case AX_GGUF_U16:
    case AX_GGUF_I16:
        return 2;
    case AX_GGUF_U64:
    case AX_GGUF_I64:
    case AX_GGUF_F64:
        return 8;
    default:
        return 4;
    }
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
        int64_t v = 0;
        const bool ok = to_integer(k->type, k->value + i * stride(k->type), &v);
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
        if (!to_float(k->type, k->value + i * stride(k->type), &v)) {
            ax_free(*out);
            *out = NULL;
            return wrong_type(g, key, expected, k);
        }
        (*out)[i] = (float)v;
    }
    *n = (size_t)k->count;
    return AX_OK;
}
