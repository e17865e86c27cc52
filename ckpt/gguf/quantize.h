/* Values → blocks, one function per written type. Private to ckpt/.
 *
 * Types of 32 elements are rounded exactly as in llama.cpp's reference, so files are
 * byte-identical. Types of 256 and IQ4_NL search for the scales with the least weighted error, as
 * llama.cpp does without an importance matrix. `values` are finite, n counts blocks. */
#ifndef AX_CKPT_GGUF_QUANTIZE_H
#define AX_CKPT_GGUF_QUANTIZE_H

#include <stdint.h>

void ax_put_f32(const float *values, int64_t n, unsigned char *out);
void ax_put_f16(const float *values, int64_t n, unsigned char *out);
void ax_put_bf16(const float *values, int64_t n, unsigned char *out);
void ax_put_q4_0(const float *values, int64_t n, unsigned char *out);
void ax_put_q4_1(const float *values, int64_t n, unsigned char *out);
void ax_put_q5_0(const float *values, int64_t n, unsigned char *out);
void ax_put_q5_1(const float *values, int64_t n, unsigned char *out);
void ax_put_q8_0(const float *values, int64_t n, unsigned char *out);
void ax_put_q4_k(const float *values, int64_t n, unsigned char *out);
void ax_put_q5_k(const float *values, int64_t n, unsigned char *out);
void ax_put_q3_k(const float *values, int64_t n, unsigned char *out);
void ax_put_q6_k(const float *values, int64_t n, unsigned char *out);
void ax_put_iq4_nl(const float *values, int64_t n, unsigned char *out);

extern const signed char ax_iq4_nl_table[16]; /* values of IQ4_NL's codes */

#endif
