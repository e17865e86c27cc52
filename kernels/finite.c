#include "kernels/finite.h"

#include <math.h>
#include <string.h>

#define PART ((int64_t)1 << 16) /* elements per block */

/* GCC's choice of a clone runs before its thread sanitizer does. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define WITH_AVX2
#endif

/* True if any of n elements has all bits of the exponent, `ones`. */
#define ANY_BAD(name, type, ones)                                                                  \
    WITH_AVX2 static bool name(const char *data, int64_t n) {                                      \
        type bad = 0;                                                                              \
        _Pragma("omp simd reduction(| : bad)") for (int64_t i = 0; i < n; i++) {                   \
            type u;                                                                                \
            memcpy(&u, data + i * (int64_t)sizeof u, sizeof u);                                    \
            bad |= (type)((u & (type)(ones)) == (type)(ones));                                     \
        }                                                                                          \
        return bad != 0;                                                                           \
    }
ANY_BAD(any_f64, uint64_t, 0x7ff0000000000000)
ANY_BAD(any_f32, uint32_t, 0x7f800000)
ANY_BAD(any_f16, uint16_t, 0x7c00)
ANY_BAD(any_bf16, uint16_t, 0x7f80)

int64_t ax_first_nonfinite(enum ax_dtype dtype, const void *data, int64_t n) {
    static bool (*const any[AX_DTYPE_COUNT])(const char *, int64_t) = {
        [AX_F64] = any_f64, [AX_F32] = any_f32, [AX_F16] = any_f16, [AX_BF16] = any_bf16};
    if (!any[dtype] || !any[dtype](data, n))
        return n;
    int64_t i = 0;
    while (isfinite(ax_load(dtype, data, i)))
        i++;
    return i;
}

/* Index of the first of n elements; n if there is none. */
static int64_t search(enum ax_dtype dtype, const void *data, int64_t n) {
    int64_t first = n;
#pragma omp parallel for schedule(static) reduction(min : first) if (n >= 4 * PART)
    for (int64_t part = 0; part < n; part += PART) {
        const int64_t m = part + PART < n ? PART : n - part;
        const char *from = (const char *)data + (size_t)part * ax_dtype_size(dtype);
        const int64_t at = ax_first_nonfinite(dtype, from, m);
        first = at < m && part + at < first ? part + at : first;
    }
    return first;
}

enum ax_status ax_tensor_first_nonfinite(struct ax_queue *q, const struct ax_tensor *t,
                                         struct ax_nonfinite *out) {
    const size_t size = ax_dtype_size(t->dtype);
    const int64_t n = ax_tensor_numel(t), most = (int64_t)(AX_QUEUE_PIECE / size);
    *out = (struct ax_nonfinite){.at = -1};
    for (int64_t first = 0, piece; first < n && out->at < 0; first += piece) {
        const void *data;
        piece = n - first < most ? n - first : most;
        AX_TRY(ax_queue_begin_read(q, (const char *)t->data + (size_t)first * size,
                                   (size_t)piece * size, &data));
        const int64_t at = search(t->dtype, data, piece);
        if (at < piece)
            *out = (struct ax_nonfinite){first + at, ax_load(t->dtype, data, at)};
        ax_queue_end_read(q, data);
    }
    return AX_OK;
}
