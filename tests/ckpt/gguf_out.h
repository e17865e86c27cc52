/* GGUF files made by hand, for tests: keys and tensors are appended in the order of the calls, and
 * gguf_out_finish puts the parts together. */
#ifndef AX_TESTS_CKPT_GGUF_OUT_H
#define AX_TESTS_CKPT_GGUF_OUT_H

#include <string.h>

#include "base/mem.h"
#include "ckpt/gguf/gguf.h"

struct gguf_out {
    struct ax_buf keys, infos, data, file;
    uint64_t n_keys, n_tensors;
    uint32_t version;   /* 0 = 3 */
    uint64_t alignment; /* 0 = 32; it is not written as a key */
};

static inline void put_bytes(struct ax_buf *b, const void *p, size_t n) {
    AX_ASSERT(ax_buf_append(b, p, n) == AX_OK);
}

/* v in n bytes, little-endian: truncated, or padded with zeros. */
static inline void put_int(struct ax_buf *b, uint64_t v, int n) {
    for (int i = 0; i < n; i++) {
        unsigned char byte = 0;
        if (i < 8)
            byte = (unsigned char)(v >> (8 * i));
        put_bytes(b, &byte, 1);
    }
}

static inline void put_text_n(struct ax_buf *b, const char *s, size_t n) {
    put_int(b, n, 8);
    put_bytes(b, s, n);
}

static inline void put_str(struct ax_buf *b, const char *s) {
    put_text_n(b, s, strlen(s));
}

static inline void put_f32(struct ax_buf *b, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_int(b, bits, 4);
}

static inline void key_start(struct gguf_out *o, const char *name, uint32_t type) {
    o->n_keys++;
    put_str(&o->keys, name);
    put_int(&o->keys, type, 4);
}

static inline void key_u32(struct gguf_out *o, const char *name, uint32_t v) {
    key_start(o, name, AX_GGUF_U32);
    put_int(&o->keys, v, 4);
}

static inline void key_f32(struct gguf_out *o, const char *name, float v) {
    key_start(o, name, AX_GGUF_F32);
    put_f32(&o->keys, v);
}

static inline void key_bool(struct gguf_out *o, const char *name, bool v) {
    key_start(o, name, AX_GGUF_BOOL);
    put_int(&o->keys, v, 1);
}

static inline void key_text(struct gguf_out *o, const char *name, const char *v) {
    key_start(o, name, AX_GGUF_STRING);
    put_str(&o->keys, v);
}

/* The head of an array; its elements follow with put_…(&o->keys, …). */
static inline void key_array(struct gguf_out *o, const char *name, uint32_t type, uint64_t count) {
    key_start(o, name, AX_GGUF_ARRAY);
    put_int(&o->keys, type, 4);
    put_int(&o->keys, count, 8);
}

static inline void key_texts(struct gguf_out *o, const char *name, size_t n,
                             const char *const *values) {
    key_array(o, name, AX_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_str(&o->keys, values[i]);
}

/* shape: slowest dimension first, as in ax_gguf_tensor. */
static inline void tensor_info(struct gguf_out *o, const char *name, uint32_t type, int ndim,
                               const int64_t *shape, uint64_t offset) {
    o->n_tensors++;
    put_str(&o->infos, name);
    put_int(&o->infos, (uint64_t)ndim, 4);
    for (int d = ndim - 1; d >= 0; d--)
        put_int(&o->infos, (uint64_t)shape[d], 8);
    put_int(&o->infos, type, 4);
    put_int(&o->infos, offset, 8);
}

static inline void pad_to(struct ax_buf *b, uint64_t alignment) {
    while (b->len % (alignment ? alignment : 32) != 0)
        put_int(b, 0, 1);
}

static inline void tensor(struct gguf_out *o, const char *name, uint32_t type, int ndim,
                          const int64_t *shape, const void *bytes, size_t len) {
    pad_to(&o->data, o->alignment);
    tensor_info(o, name, type, ndim, shape, o->data.len);
    put_bytes(&o->data, bytes, len);
}

/* The whole file, in o->file. */
static inline void gguf_out_finish(struct gguf_out *o) {
    put_bytes(&o->file, "GGUF", 4);
    put_int(&o->file, o->version ? o->version : 3, 4);
    put_int(&o->file, o->n_tensors, 8);
    put_int(&o->file, o->n_keys, 8);
    put_bytes(&o->file, o->keys.data, o->keys.len);
    put_bytes(&o->file, o->infos.data, o->infos.len);
    if (o->n_tensors > 0)
        pad_to(&o->file, o->alignment);
    put_bytes(&o->file, o->data.data, o->data.len);
}

static inline void gguf_out_free(struct gguf_out *o) {
    ax_buf_free(&o->keys);
    ax_buf_free(&o->infos);
    ax_buf_free(&o->data);
    ax_buf_free(&o->file);
    *o = (struct gguf_out){0};
}

#endif
