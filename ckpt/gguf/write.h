/* Writes GGUF files, version 3: first keys into a buffer, then the file, tensor by tensor.
 *
 * A key is written by one call; an array by one for its head and one per element. Memory is bounded
 * by a few rows of the widest tensor, not by the model. */
#ifndef AX_CKPT_GGUF_WRITE_H
#define AX_CKPT_GGUF_WRITE_H

#include "ckpt/gguf/gguf.h"

#define AX_GGUF_ALIGNMENT                                                                          \
    32 /* alignment of tensor data; the format's default, so not stored as a
                                key */

/* Keys to write. Zero-initialize; free with ax_buf_free(&k.bytes). */
struct ax_gguf_keys {
    struct ax_buf bytes;
    uint64_t n;
};
enum ax_status ax_gguf_put_u32(struct ax_gguf_keys *k, const char *name, uint32_t v);
enum ax_status ax_gguf_put_f32(struct ax_gguf_keys *k, const char *name, float v);
enum ax_status ax_gguf_put_bool(struct ax_gguf_keys *k, const char *name, bool v);
enum ax_status ax_gguf_put_string(struct ax_gguf_keys *k, const char *name, const char *s,
                                  size_t len);
/* The head of an array; its n elements follow. */
enum ax_status ax_gguf_put_array(struct ax_gguf_keys *k, const char *name, enum ax_gguf_type type,
                                 uint64_t n);
enum ax_status ax_gguf_add_i32(struct ax_gguf_keys *k, int32_t v);
enum ax_status ax_gguf_add_f32(struct ax_gguf_keys *k, float v);
enum ax_status ax_gguf_add_bool(struct ax_gguf_keys *k, bool v);
enum ax_status ax_gguf_add_string(struct ax_gguf_keys *k, const char *s, size_t len);

/* A tensor to write; rows are those of the last dimension, counted over all others. */
struct ax_gguf_output {
    const char *name;
    const struct ax_block_type *type;
    int ndim;
    int64_t shape[AX_GGUF_MAX_DIMS]; /* slowest first */
    int64_t run;                     /* rows are requested in multiples of it, which divides them */
    /* Writes rows [first, first + n) to out [n][shape[ndim − 1]]; called with ascending ranges. */
    enum ax_status (*fill)(void *ctx, int64_t first, int64_t n, float *out);
    void *ctx;
};

struct ax_gguf_save {
    const char *path; /* appears complete or not at all, replacing an existing file */
    const struct ax_gguf_keys *keys;
    int n;
    const struct ax_gguf_output *tensors;
    int threads;
};
/* AX_ERR_IO before anything is written if there is not enough disk space; AX_ERR_DATA for a value
 * that is not finite or too large for the tensor's type. */
enum ax_status ax_gguf_write(const struct ax_gguf_save *save);
/* Size of the file; AX_ERR_DATA on overflow. */
enum ax_status ax_gguf_file_bytes(const struct ax_gguf_save *save, uint64_t *bytes);

#endif
