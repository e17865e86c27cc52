/* quantize and dequantize. Pieces of a block go through a buffer of floats in the L1 cache; the
 * arithmetic is in kernels/quant_codes.h, so codes are the same on every instruction set. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/quant_codes.h"

#define BUFFER 2048 /* elements of a piece, even */

/* Blocks per task: an even number, so that tasks share no byte of NF4 codes. */
static int64_t blocks_per_task(int64_t block) {
    int64_t n = PIECE / block / 2 * 2;
    return n < 2 ? 2 : n;
}

AX_INLINE void read_vector(enum ax_dtype real, const void *x, float *out, v_float offset,
                           int64_t first, int64_t i, int64_t n) {
    v_store_f32(out + i, n, v_load(real, x, first + i, n) - offset);
}

AX_INLINE void read_floats(enum ax_dtype real, const void *x, int64_t first, int64_t n,
                           float offset, float *out) {
    AX_EACH_VECTOR(n, read_vector, real, x, out, v_set(offset), first);
}

static float largest(const float *x, int64_t n) {
    v_float max = v_set(0);
    int64_t i = 0;
    for (; i + AX_LANES <= n; i += AX_LANES) {
        v_float v = v_load_f32(x + i, AX_LANES);
        max = v_max(max, v_max(v, -v));
    }
    float all = v_max_lane(max);
    for (; i < n; i++)
        all = fabsf(x[i]) > all ? fabsf(x[i]) : all;
    return all;
}

static float scale_of(enum ax_quant kind, float amax) {
    if (kind == AX_QUANT_INT8)
        return amax / 127.5F > 0x1p-126F ? amax / 127.5F : 0x1p-126F;
    return kind == AX_QUANT_FP8 ? (amax > 1e-12F ? amax : 1e-12F) / 448 : amax;
}

/* Codes of n elements from `first` on. */
static void write_nf4(const float *x, float scale, unsigned char *codes, int64_t first, int64_t n) {
    uint32_t code[BUFFER];
    float safe = scale > 0 ? scale : 1;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] / safe;
        uint32_t c = 0;
        for (int k = 0; k < 15; k++)
            c += v >= ax_nf4_bounds[k];
        code[i] = c;
    }
    int64_t i = 0;
    if (first % 2 != 0)
        codes[first / 2] = (unsigned char)(codes[first / 2] | code[i++]);
    for (; i + 1 < n; i += 2)
        codes[(first + i) / 2] = (unsigned char)(code[i] << 4 | code[i + 1]);
    if (i < n)
        codes[(first + i) / 2] = (unsigned char)(code[i] << 4);
}

static void write_codes(enum ax_quant kind, const float *x, float scale, unsigned char *codes,
                        int64_t first, int64_t n) {
    float inverse = 1 / scale, safe = scale > 0 ? scale : 1;
    switch (kind) {
    case AX_QUANT_NF4:
        write_nf4(x, scale, codes, first, n);
        return;
    case AX_QUANT_INT8:
        for (int64_t i = 0; i < n; i++)
            codes[first + i] = (unsigned char)ax_int8_code(x[i] * inverse);
        return;
    case AX_QUANT_FP8:
        for (int64_t i = 0; i < n; i++) {
            float v = x[i] / scale;
            v = v > 448 ? 448 : v;
            codes[first + i] = (unsigned char)ax_e4m3_code(v < -448 ? -448 : v);
        }
        return;
    case AX_QUANT_MAP8:
        for (int64_t i = 0; i < n; i++)
            codes[first + i] = (unsigned char)ax_map8_code(x[i] / safe);
        return;
    }
}

static void quantize_block(const struct ax_quantize *a, int64_t b) {
    int64_t first = b * a->block, len = least(a->block, ax_tensor_numel(&a->x) - first);
    float offset = a->offset.data != NULL ? ((const float *)a->offset.data)[b] : 0;
    float x[BUFFER], amax = 0;
    for (int64_t i = 0; i < len; i += BUFFER) {
        int64_t n = least(BUFFER, len - i);
        AX_BY_DTYPE(a->x.dtype, read_floats, a->x.data, first + i, n, offset, x);
        float most = largest(x, n);
        amax = most > amax ? most : amax;
    }
    float scale = scale_of(a->kind, amax);
    ((float *)a->scale.data)[b] = scale;
    for (int64_t i = 0; i < len; i += BUFFER) {
        int64_t n = least(BUFFER, len - i);
        if (len > BUFFER)
            AX_BY_DTYPE(a->x.dtype, read_floats, a->x.data, first + i, n, offset, x);
        write_codes(a->kind, x, scale, a->codes.data, first + i, n);
    }
}

enum ax_status AX_VEC(ax_cpu_quantize)(struct ax_queue *q, const struct ax_quantize *a,
                                       void *work) {
    (void)work;
    int64_t numel = ax_tensor_numel(&a->x), blocks = ceil_div(numel, a->block);
    int64_t each = blocks_per_task(a->block), tasks = ceil_div(blocks, each);
    AX_PARALLEL_FOR (team(q, numel), t, tasks)
        for (int64_t b = t * each; b < least(blocks, (t + 1) * each); b++)
            quantize_block(a, b);
    return AX_OK;
}

/* The values of AX_LANES NF4 codes from an even element on. */
AX_INLINE v_float nf4_vector(const unsigned char *codes) {
#ifdef __AVX512F__
    __m128i bytes = _mm_loadl_epi64((const void *)codes), low4 = _mm_set1_epi8(15);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low4);
    __m128i pairs = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, low4));
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(pairs), _mm512_loadu_ps(ax_nf4_values));
#elif !defined(__AVX2__)
    const float *value = ax_nf4_values;
    return (v_float){value[codes[0] >> 4], value[codes[0] & 15], value[codes[1] >> 4],
                     value[codes[1] & 15]};
#else
    int word;
    memcpy(&word, codes, sizeof(word));
    __m128i bytes = _mm_cvtsi32_si128(word), low4 = _mm_set1_epi8(15);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low4);
    __m128i pairs = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, low4));
    __m256i index = _mm256_cvtepu8_epi32(pairs);
    __m256 lower = _mm256_permutevar8x32_ps(_mm256_loadu_ps(ax_nf4_values), index);
    __m256 upper = _mm256_permutevar8x32_ps(_mm256_loadu_ps(ax_nf4_values + 8), index);
    return _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
#endif
}

/* out[first …] of n elements of one block. */
AX_INLINE void read_nf4(enum ax_dtype real, const unsigned char *codes, float scale, void *out,
                        int64_t first, int64_t n) {
    int64_t i = first, end = first + n;
    if (i % 2 != 0) {
        v_store(real, out, i, 1, v_set(ax_nf4_values[codes[i / 2] & 15] * scale));
        i++;
    }
    for (; i + AX_LANES <= end; i += AX_LANES)
        v_store(real, out, i, AX_LANES, nf4_vector(codes + i / 2) * v_set(scale));
    for (; i < end; i++) {
        unsigned code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15U;
        v_store(real, out, i, 1, v_set(ax_nf4_values[code] * scale));
    }
}

AX_INLINE void write_vector(enum ax_dtype real, const float *x, void *out, int64_t first,
                            v_float scale, v_float offset, int64_t i, int64_t n) {
    v_store(real, out, first + i, n, v_load_f32(x + i, n) * scale + offset);
}

AX_INLINE void write_floats(enum ax_dtype real, const float *x, float scale, float offset,
                            void *out, int64_t first, int64_t n) {
    AX_EACH_VECTOR(n, write_vector, real, x, out, first, v_set(scale), v_set(offset));
}

static void read_codes(enum ax_quant kind, const unsigned char *codes, int64_t n, float *x) {
    switch (kind) {
    case AX_QUANT_INT8:
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(signed char)codes[i];
        return;
    case AX_QUANT_FP8:
        for (int64_t i = 0; i < n; i++)
            x[i] = ax_e4m3_value(codes[i]);
        return;
    case AX_QUANT_MAP8:
    case AX_QUANT_NF4: /* not read here: see read_nf4 */
        for (int64_t i = 0; i < n; i++)
            x[i] = ax_map8_values[codes[i]];
        return;
    }
}

static void dequantize_block(const struct ax_dequantize *a, int64_t b) {
    static const float none = -0.0F; /* x + none = x for every x, including −0 */
    int64_t first = b * a->block, len = least(a->block, ax_tensor_numel(&a->out) - first);
    float scale = ((const float *)a->scale.data)[b], x[BUFFER];
    float offset = a->offset.data != NULL ? ((const float *)a->offset.data)[b] : none;
    const unsigned char *codes = a->codes.data;
    if (a->kind == AX_QUANT_NF4) {
        AX_BY_DTYPE(a->out.dtype, read_nf4, codes, scale, a->out.data, first, len);
        return;
    }
    for (int64_t i = 0; i < len; i += BUFFER) {
        int64_t n = least(BUFFER, len - i);
        read_codes(a->kind, codes + first + i, n, x);
        AX_BY_DTYPE(a->out.dtype, write_floats, x, scale, offset, a->out.data, first + i, n);
    }
}

enum ax_status AX_VEC(ax_cpu_dequantize)(struct ax_queue *q, const struct ax_dequantize *a,
                                         void *work) {
    (void)work;
    int64_t numel = ax_tensor_numel(&a->out), blocks = ceil_div(numel, a->block);
    int64_t each = blocks_per_task(a->block), tasks = ceil_div(blocks, each);
    AX_PARALLEL_FOR (team(q, numel), t, tasks)
        for (int64_t b = t * each; b < least(blocks, (t + 1) * each); b++)
            dequantize_block(a, b);
    return AX_OK;
}
