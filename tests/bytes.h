/* What a tensor's elements are copied from when a test writes it: `fill` of struct ax_st_output, whose ctx is a struct
 * bytes, or begins with one. */
#ifndef AX_TESTS_BYTES_H
#define AX_TESTS_BYTES_H

#include <string.h>

#include "ckpt/hf/hf.h"

struct bytes {
    const void *data;
    enum ax_dtype dtype;
};

static inline enum ax_status copy_bytes(void *ctx, int64_t first, int64_t n, void *out) {
    const struct bytes *b = ctx;
    const size_t size = ax_dtype_size(b->dtype);
    memcpy(out, (const char *)b->data + (size_t)first * size, (size_t)n * size);
    return AX_OK;
}

#endif
