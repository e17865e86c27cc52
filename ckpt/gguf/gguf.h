/* GGUF files: [header][keys][tensor infos][padding][data], little-endian, versions 2 and 3.
 *
 * Reading maps the file and checks every bound before use: counts and lengths against the remaining
 * bytes, types, unique names, the alignment (a power of two), shape × type without overflow, rows
 * of complete blocks, tensors inside the data without overlap. Each error names file, key or
 * tensor, and byte. Tensors of a known but unsupported type are listed without data, so that the
 * vocabulary of such a file is still usable.
 *
 * Strings and data point into the mapping. Reading order: gguf.c (the file); types.c, blocks.c,
 * quantize_k.c, quantize_signed.c (its types); kinds.c, model.c, names.c, rope.c, weights.c (reading a
 * model); outputs.c, write.c (writing one). */
#ifndef AX_CKPT_GGUF_GGUF_H
#define AX_CKPT_GGUF_GGUF_H

#include "base/io.h"
#include "ckpt/gguf/blocks.h"

#define AX_GGUF_MAX_DIMS 4

struct ax_gguf_text {
    const char *s; /* any bytes; not NUL-terminated */
    size_t len;
};

enum ax_gguf_type {
    AX_GGUF_U8,
    AX_GGUF_I8,
    AX_GGUF_U16,
    AX_GGUF_I16,
    AX_GGUF_U32,
    AX_GGUF_I32,
    AX_GGUF_F32,
    AX_GGUF_BOOL,
    AX_GGUF_STRING,
    AX_GGUF_ARRAY,
    AX_GGUF_U64,
    AX_GGUF_I64,
    AX_GGUF_F64,
    AX_GGUF_TYPE_COUNT
};

struct ax_gguf_key {
    struct ax_gguf_text name; /* no NUL inside */
    enum ax_gguf_type type;   /* type of the value, or of an array's elements if is_array */
    bool is_array;
    uint64_t count;             /* elements; 1 if not an array */
    const unsigned char *value; /* the (first) element as stored in the file */
};

struct ax_gguf_tensor {
    struct ax_gguf_text name; /* no NUL inside */
    const struct ax_block_type *type;
    int ndim;
    int64_t shape[AX_GGUF_MAX_DIMS]; /* usual order, slowest first: [out][in] */
    int64_t numel;
    const unsigned char *data; /* unaligned; NULL if type->dequantize is NULL */
    size_t bytes;
};

struct ax_gguf {
    char *path; /* file name for messages */
    struct ax_mapping map;
    size_t n_keys, n_tensors;
    struct ax_gguf_key *keys;       /* sorted by name */
    struct ax_gguf_tensor *tensors; /* sorted by name */
};

enum ax_status ax_gguf_open(struct ax_gguf *g, const char *path);
/* The same checks on bytes in memory (borrowed); `name` for messages. */
enum ax_status ax_gguf_parse(struct ax_gguf *g, const char *name, const void *bytes, size_t len);
void ax_gguf_close(struct ax_gguf *g);
/* True if the file begins like GGUF; false for an unreadable file. */
bool ax_gguf_is(const char *path);

const struct ax_gguf_key *ax_gguf_key(const struct ax_gguf *g, const char *name); /* or NULL */
const struct ax_gguf_tensor *ax_gguf_tensor(const struct ax_gguf *g, const char *name);

/* Values by key; integers of any type. AX_ERR_DATA names a key that is missing (without a default),
 * of another type, or out of range. */
enum ax_status ax_gguf_i64(const struct ax_gguf *g, const char *key, int64_t min, int64_t max,
                           int64_t *out);
enum ax_status ax_gguf_i64_or(const struct ax_gguf *g, const char *key, int64_t min, int64_t max,
                              int64_t def, int64_t *out);
/* A float stored in 32 bits is returned as the shortest decimal that reads back to it: 1e-5, not
 * 9.999999747e-06. Finite. */
enum ax_status ax_gguf_f64(const struct ax_gguf *g, const char *key, double *out);
enum ax_status ax_gguf_f64_or(const struct ax_gguf *g, const char *key, double def, double *out);
enum ax_status ax_gguf_bool_or(const struct ax_gguf *g, const char *key, bool def, bool *out);
/* out is {NULL, 0} if missing. */
enum ax_status ax_gguf_string_or_null(const struct ax_gguf *g, const char *key,
                                      struct ax_gguf_text *out);

/* Arrays, copied to *out [*n] (ax_free); a missing one is NULL and 0. At most 16 Mi elements. */
enum ax_status ax_gguf_strings(const struct ax_gguf *g, const char *key, struct ax_gguf_text **out,
                               size_t *n);
/* Flags count as 1 and 0. */
enum ax_status ax_gguf_i32s(const struct ax_gguf *g, const char *key, int32_t **out, size_t *n);
enum ax_status ax_gguf_f32s(const struct ax_gguf *g, const char *key, float **out, size_t *n);

#endif
