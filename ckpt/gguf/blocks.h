/* Element types of GGUF tensors: blocks of elements that share a scale, and their values.
 *
 * All scales are fp16 widened to fp32; products and sums are fp32, each rounded (no fused
 * multiply-add), so that values are bit-identical to the reference implementation. */
#ifndef AX_CKPT_GGUF_BLOCKS_H
#define AX_CKPT_GGUF_BLOCKS_H

#include <stdint.h>

struct ax_block_type {
    const char *name; /* "Q4_K" */
    uint32_t id;      /* type id in the file */
    int elements;     /* per block; 0 if only the type's name is known */
    int bytes;        /* per block */
    /* Dequantizes n complete blocks; NULL for types that cannot be read. */
    void (*dequantize)(const unsigned char *blocks, int64_t n, float *out);
    /* Quantizes finite values to n complete blocks; NULL for types that cannot be written. */
    void (*quantize)(const float *values, int64_t n, unsigned char *blocks);
    float largest; /* largest magnitude accepted by `quantize` */
};

const struct ax_block_type *ax_block_type_find(uint32_t id); /* NULL: no such type */
#define AX_GGUF_BF16 30
#define AX_BLOCK_TYPES_READ                                                                        \
    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, " \
    "MXFP4"

#endif
