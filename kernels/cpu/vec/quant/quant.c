/* quantize and dequantize: read quant.h first. */
#include "kernels/cpu/vec/quant/quant.h"

#include "kernels/cpu/vec/entries.h"

/* Blocks per task: an even number, so that tasks share no byte of two codes. */
static int64_t blocks_per_task(int64_t block) {
    int64_t n = PIECE / block / 2 * 2;
    return n < 2 ? 2 : n;
}

/* ---- tables ---- */

/* Codes of n elements from `first` on, two in a byte. */
static void write_halves(const unsigned char *code, unsigned char *codes, int64_t first,
                         int64_t n) {
    int64_t i = 0;
    if (first % 2 != 0)
        codes[first / 2] = (unsigned char)(codes[first / 2] | (code[i++] & 15));
    for (; i + 1 < n; i += 2)
        codes[(first + i) / 2] = (unsigned char)(code[i] << 4 | (code[i + 1] & 15));
    if (i < n)
        codes[(first + i) / 2] = (unsigned char)(code[i] << 4);
}

static void write_nf4(const float *x, float scale, unsigned char *codes, int64_t first, int64_t n) {
    unsigned char code[BUFFER];
    float safe = scale > 0 ? scale : 1;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] / safe;
        uint32_t c = 0;
        for (int k = 0; k < 15; k++)
            c += v >= ax_nf4_bounds[k];
        code[i] = (unsigned char)c;
    }
    write_halves(code, codes, first, n);
}

static void write_map8(const float *x, float scale, unsigned char *codes, int64_t n) {
    const float safe = scale > 0 ? scale : 1;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (unsigned char)ax_map8_code(x[i] / safe);
}

static void quantize_by_table(const struct ax_quantize *a, int64_t b, int64_t first, int64_t len) {
    const float offset = a->offset.data != NULL ? ((const float *)a->offset.data)[b] : 0;
    struct extremes e = {-INFINITY, -INFINITY};
    float x[BUFFER];
    for (int64_t i = 0; i < len; i += BUFFER) {
        const int64_t n = least(BUFFER, len - i);
        AX_BY_DTYPE(a->x.dtype, read_floats, a->x.data, first + i, n, x);
        for (int64_t k = 0; k < n; k++)
            x[k] -= offset;
        see(&e, x, n);
    }
    const float scale = ax_greater(ax_greater(e.less, e.more), 0);
    ((float *)a->scale.data)[b] = scale;
    for (int64_t i = 0; i < len; i += BUFFER) {
        const int64_t n = least(BUFFER, len - i);
        AX_BY_DTYPE(a->x.dtype, read_floats, a->x.data, first + i, n, x);
        for (int64_t k = 0; k < n; k++)
            x[k] -= offset;
        if (a->kind == AX_QUANT_NF4)
            write_nf4(x, scale, a->codes.data, first + i, n);
        else
            write_map8(x, scale, (unsigned char *)a->codes.data + first + i, n);
    }
}

/* The values of AX_LANES codes from an even element on. */
AX_INLINE v_float halves_vector(const unsigned char *codes, const float *value) {
#ifdef __AVX512F__
    __m128i bytes = _mm_loadl_epi64((const void *)codes), low4 = _mm_set1_epi8(15);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low4);
    __m128i pairs = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, low4));
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(pairs), _mm512_loadu_ps(value));
#elif !defined(__AVX2__)
    return (v_float){value[codes[0] >> 4], value[codes[0] & 15], value[codes[1] >> 4],
                     value[codes[1] & 15]};
#else
    int word;
    memcpy(&word, codes, sizeof(word));
    __m128i bytes = _mm_cvtsi32_si128(word), low4 = _mm_set1_epi8(15);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low4);
    __m128i pairs = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, low4));
    __m256i index = _mm256_cvtepu8_epi32(pairs);
    __m256 lower = _mm256_permutevar8x32_ps(_mm256_loadu_ps(value), index);
    __m256 upper = _mm256_permutevar8x32_ps(_mm256_loadu_ps(value + 8), index);
    return _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
#endif
}

/* out[first …] of n elements of one block. */
AX_INLINE void read_halves(enum ax_dtype real, const unsigned char *codes, const float *value,
                           float scale, void *out, int64_t first, int64_t n) {
    int64_t i = first, end = first + n;
    if (i % 2 != 0) {
        v_store(real, out, i, 1, v_set(value[codes[i / 2] & 15] * scale));
        i++;
    }
    for (; i + AX_LANES <= end; i += AX_LANES)
        v_store(real, out, i, AX_LANES, halves_vector(codes + i / 2, value) * v_set(scale));
    for (; i < end; i++) {
        unsigned code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15U;
        v_store(real, out, i, 1, v_set(value[code] * scale));
    }
}

AX_INLINE void write_map8_vector(enum ax_dtype real, const float *x, void *out, int64_t first,
                                 v_float scale, v_float offset, int64_t i, int64_t n) {
    v_store(real, out, first + i, n, v_load_f32(x + i, n) * scale + offset);
}

AX_INLINE void read_map8(enum ax_dtype real, const unsigned char *codes, float scale, float offset,
                         void *out, int64_t first, int64_t n) {
    float x[BUFFER];
    for (int64_t i = 0; i < n; i++)
        x[i] = ax_map8_values[codes[i]];
    AX_EACH_VECTOR(n, write_map8_vector, real, x, out, first, v_set(scale), v_set(offset));
}

/* ---- the others ---- */

AX_INLINE void write_codes(enum ax_quant kind, const float *x, int64_t n,
                           const struct ax_quant_block *b, unsigned char *codes) {
    for (int64_t i = 0; i < n; i++) {
        const float q = ax_quant_clamped(kind, ax_quant_rounded(kind, x[i], b));
        codes[i] = (unsigned char)ax_quant_code(kind, q);
    }
}

static void quantize_block(const struct ax_quantize *a, int64_t b, int64_t first, int64_t len) {
    unsigned char *codes = a->codes.data, code[BUFFER];
    float x[BUFFER];
    const struct extremes e = extremes_of(a->x.dtype, a->x.data, first, len, x);
    const int64_t row = first / ax_tensor_row_len(&a->x);
    const struct ax_quant_block block = block_of(a->kind, e, &a->range, row);
    if (a->scale.dtype == AX_U8)
        ((unsigned char *)a->scale.data)[b] = (unsigned char)block.byte;
    else
        ((float *)a->scale.data)[b] = block.scale;
    if (a->zero.data != NULL)
        ((float *)a->zero.data)[b] = block.offset;
    for (int64_t i = 0; i < len; i += BUFFER) {
        const int64_t n = least(BUFFER, len - i);
        if (len > BUFFER)
            AX_BY_DTYPE(a->x.dtype, read_floats, a->x.data, first + i, n, x);
        if (a->kind == AX_QUANT_INT4X2) {
            write_codes(AX_QUANT_INT4, x, n, &block, code);
            write_halves(code, codes, first + i, n);
        } else {
            AX_BY_KIND(a->kind, write_codes, x, n, &block, codes + first + i);
        }
    }
}

static void write_outer(const struct ax_quantize *a) {
    const float *range = a->range.data;
    for (int64_t i = 0; a->outer.data != NULL && i < a->outer.shape[0]; i++)
        ((float *)a->outer.data)[i] =
            ax_quant_outer(a->kind, ax_greater(range[2 * i], range[2 * i + 1]));
}

enum ax_status AX_VEC(ax_cpu_quantize)(struct ax_queue *q, const struct ax_quantize *a,
                                       void *work) {
    (void)work;
    const int64_t numel = ax_tensor_numel(&a->x), blocks = ceil_div(numel, a->block);
    const int64_t each = blocks_per_task(a->block), tasks = ceil_div(blocks, each);
    const bool table = a->kind == AX_QUANT_NF4 || a->kind == AX_QUANT_MAP8;
    write_outer(a);
    AX_PARALLEL_FOR (team(q, numel), t, tasks)
        for (int64_t b = t * each; b < least(blocks, (t + 1) * each); b++) {
            const int64_t first = b * a->block, len = least(a->block, numel - first);
            if (table)
                quantize_by_table(a, b, first, len);
            else
                quantize_block(a, b, first, len);
        }
    return AX_OK;
}

AX_INLINE void read_codes(enum ax_quant kind, const unsigned char *codes, int64_t n,
                          const struct ax_quant_block *b, float *x) {
    for (int64_t i = 0; i < n; i++)
        x[i] = ax_quant_value(kind, ax_quant_of_code(kind, codes[i]), b);
}

static struct ax_quant_block stored_block(const struct ax_dequantize *a, int64_t b) {
    const bool bytes = a->scale.dtype == AX_U8;
    const float scale = bytes ? 0 : ((const float *)a->scale.data)[b];
    const uint32_t byte = bytes ? ((const unsigned char *)a->scale.data)[b] : 0;
    const float offset = a->offset.data != NULL ? ((const float *)a->offset.data)[b] : 0;
    const float outer = a->outer.data != NULL ? ((const float *)a->outer.data)[0] : 0;
    return ax_quant_stored(a->kind, scale, byte, offset, outer);
}

/* Elements [first, first + len) of block b. */
static void dequantize_block(const struct ax_dequantize *a, int64_t b, int64_t first, int64_t len) {
    const struct ax_quant_block block = stored_block(a, b);
    const unsigned char *codes = a->codes.data;
    float x[BUFFER];
    const float *values = ax_quant_info(a->kind)->values;
    if (values) {
        AX_BY_DTYPE(a->out.dtype, read_halves, codes, values, block.scale, a->out.data, first, len);
        return;
    }
    for (int64_t i = 0; i < len; i += BUFFER) {
        const int64_t n = least(BUFFER, len - i), at = first + i;
        if (a->kind == AX_QUANT_MAP8) {
            AX_BY_DTYPE(a->out.dtype, read_map8, codes + at, block.scale, block.offset, a->out.data,
                        at, n);
            continue;
        }
        AX_BY_KIND(a->kind, read_codes, codes + at, n, &block, x);
        AX_BY_DTYPE(a->out.dtype, write_floats, x, a->out.data, at, n);
    }
}

enum ax_status AX_VEC(ax_cpu_dequantize)(struct ax_queue *q, const struct ax_dequantize *a,
                                         void *work) {
    (void)work;
    const int64_t numel = ax_tensor_numel(&a->out);
    const int64_t task = a->block > PIECE ? PIECE : blocks_per_task(a->block) * a->block;
    AX_PARALLEL_FOR (team(q, numel), t, ceil_div(numel, task)) {
        const int64_t end = least(numel, (t + 1) * task);
        for (int64_t i = t * task, n; i < end; i += n) {
            n = least(a->block - i % a->block, end - i);
            dequantize_block(a, i / a->block, i, n);
        }
    }
    return AX_OK;
}
