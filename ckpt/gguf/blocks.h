/* The element types of GGUF tensors: blocks of elements that share a scale, and their values.
 *
 * All scales are fp16 widened to fp32; products and sums are fp32, each rounded (no fused
 * multiply-add), so that values are bit-equal to the reference implementation's. */
#ifndef AX_CKPT_GGUF_BLOCKS_H
#define AX_CKPT_GGUF_BLOCKS_H

#include <stdint.h>

struct ax_block_type {
    const char *name; /* "Q4_K" */
    uint32_t id;      /* in the file */
    int elements;     /* per block; 0 where the type is known by name only */
    int bytes;        /* per block */
    /* The values of n whole blocks; NULL for types that are not read. */
    void (*dequantize)(const unsigned char *blocks, int64_t n, float *out);
    /* n whole blocks from their values, which are finite; NULL for types that are not written. */
    void (*quantize)(const float *values, int64_t n, unsigned char *blocks);
    float largest; /* magnitude that `quantize` takes */
};

const struct ax_block_type *ax_block_type_find(uint32_t id); /* NULL: no such type */
#define AX_BLOCK_TYPES_READ "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K"

#endif
