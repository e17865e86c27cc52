/* dequantize: a thread has groups of eight neighbors, of one block where its length allows. Moves codes, scales and
 * values once. */
#include "kernels/cuda/quant/codes.cuh"

#define THREADS 256
#define GROUPS  4 /* of a thread, whose codes are on their way at the same time */

/* What is stored beside the codes, and where a group or an element finds it. */
struct unpacked {
    const uint8_t *codes;
    const float *scale, *offset, *outer; /* offset, outer: NULL = none */
    const uint8_t *scale_byte;
    int64_t n, block;
    uint32_t block_groups;
    int shift; /* of block_groups, a power of two; −1: it is none */
    enum ax_quant kind;
    bool wide; /* groups are within blocks, and at addresses for one access */
    __device__ int64_t block_of_group(int64_t g) const {
        return shift >= 0 ? g >> shift : (int64_t)((uint32_t)g / block_groups);
    }
};

static inline unpacked unpacked_of(const struct ax_dequantize *a) {
    const bool bytes = a->scale.dtype == AX_U8;
    const int64_t n = ax_tensor_numel(&a->out), each = a->block / AX_NEIGHBORS;
    const uint64_t at = (uint64_t)(uintptr_t)a->codes.data | (uint64_t)(uintptr_t)a->out.data;
    unpacked u = {(const uint8_t *)a->codes.data,
                  bytes ? nullptr : (const float *)a->scale.data,
                  (const float *)a->offset.data,
                  (const float *)a->outer.data,
                  bytes ? (const uint8_t *)a->scale.data : nullptr,
                  n,
                  a->block,
                  (uint32_t)each,
                  -1,
                  a->kind,
                  a->block % AX_NEIGHBORS == 0 && n % AX_NEIGHBORS == 0 && at % 16 == 0 &&
                      n / AX_NEIGHBORS < (int64_t)1 << 32};
    if ((each & (each - 1)) == 0)
        for (u.shift = 0; each >> u.shift > 1;)
            u.shift++;
    return u;
}

/* What makes values of a block's numbers. */
template <class Codes> struct scaling {
    float scale;
    __device__ float operator()(float q) const {
        return q * scale;
    }
};
template <class Codes>
__device__ static inline scaling<Codes> scaling_of(const Codes &, const unpacked &a, int64_t b) {
    return {a.scale[b]};
}
template <> struct scaling<map8_codes> {
    float scale, offset;
    __device__ float operator()(float q) const {
        return q * scale + offset;
    }
};
__device__ static inline scaling<map8_codes> scaling_of(const map8_codes &, const unpacked &a,
                                                        int64_t b) {
    return {a.scale[b], a.offset != nullptr ? a.offset[b] : 0};
}
template <> struct scaling<any_codes> {
    enum ax_quant kind;
    ax_quant_block block;
    __device__ float operator()(float q) const {
        return ax_quant_value(kind, q, &block);
    }
};
__device__ static inline scaling<any_codes> scaling_of(const any_codes &, const unpacked &a,
                                                       int64_t b) {
    return {a.kind, ax_quant_stored(a.kind, a.scale != nullptr ? a.scale[b] : 0,
                                    a.scale_byte != nullptr ? a.scale_byte[b] : 0,
                                    a.offset != nullptr ? a.offset[b] : 0,
                                    a.outer != nullptr ? a.outer[0] : 0)};
}

template <class E, class Codes>
__global__ void __launch_bounds__(THREADS, 4)
    dequantize_kernel(unpacked a, AX_INDEXED Codes parameter, E *out) {
    const Codes &codes = share(parameter);
    const int64_t first = blockIdx.x * (int64_t)(GROUPS * THREADS) + threadIdx.x;
    if (!a.wide) {
        for (int u = 0; u < GROUPS; u++) {
            const int64_t from = AX_NEIGHBORS * (first + u * THREADS);
            for (int64_t i = from; i < min(a.n, from + AX_NEIGHBORS); i++)
                out[i] = E(scaling_of(codes, a, i / a.block)(codes.value_at(a.codes, i)));
        }
        return;
    }
    const int64_t last = a.n / AX_NEIGHBORS - 1;
    typename Codes::group group[GROUPS];
    scaling<Codes> scale[GROUPS];
    AX_UNROLL
    for (int u = 0; u < GROUPS; u++) {
        const int64_t g = min(last, first + u * THREADS);
        group[u] = Codes::load(a.codes, g);
        scale[u] = scaling_of(codes, a, a.block_of_group(g));
    }
    AX_UNROLL
    for (int u = 0; u < GROUPS; u++) {
        float v[AX_NEIGHBORS];
        codes.values(group[u], v);
        AX_UNROLL
        for (int i = 0; i < AX_NEIGHBORS; i++)
            v[i] = scale[u](v[i]);
        if (first + u * THREADS <= last)
            store_wide(out + AX_NEIGHBORS * (first + u * THREADS), v);
    }
}

template <class E, class Codes>
static enum ax_status launch(struct ax_queue *q, const struct ax_dequantize *a,
                             const Codes &codes) {
    return AX_LAUNCH(q, (dequantize_kernel<E, Codes>),
                     blocks_of(ax_tensor_numel(&a->out), AX_NEIGHBORS * GROUPS * THREADS), THREADS,
                     0, unpacked_of(a), codes, (E *)a->out.data);
}

template <class E>
static enum ax_status run_dequantize(struct ax_queue *q, const struct ax_dequantize *a) {
    map8_codes map8;
    any_codes any;
    switch (a->kind) {
    case AX_QUANT_NF4:
    case AX_QUANT_INT4X2:
        return launch<E>(q, a, half_codes_of(a->kind));
    case AX_QUANT_INT8:
    case AX_QUANT_INT4:
        return launch<E>(q, a, integer_codes());
    case AX_QUANT_FP8:
        return launch<E>(q, a, e4m3_codes());
    case AX_QUANT_MAP8:
        memcpy(map8.table, ax_map8_values, sizeof map8.table);
        return launch<E>(q, a, map8);
    default:
        any.kind = a->kind;
        return launch<E>(q, a, any);
    }
}

extern "C" enum ax_status ax_cuda_dequantize(struct ax_queue *q, const struct ax_dequantize *a,
                                             void *work) {
    (void)work;
    if (ax_tensor_numel(&a->out) == 0)
        return AX_OK;
    return by_real(a->out.dtype, [&](auto *e) { return run_dequantize<AX_TYPE(e)>(q, a); });
}
