/* quantize: two passes over the numbers, for the blocks' extremes and for the codes. Formats:
 * kernels/quant/quant_ops.h. */
#include "kernels/cuda/quant/codes.cuh"
#include "kernels/cuda/quant/quant.cuh"

/* ---- quantize ---- */

struct packed {
    uint8_t *codes;
    float *scale;
    uint8_t *scale_byte; /* where scales are bytes */
    float *zero;
};

template <class E>
__global__ void __launch_bounds__(QUANT_THREADS) quantize_kernel(blocked<E> a, packed to) {
    for_four(a, 4 * thread_number(), [&](int64_t i, const ax_quant_block &b, float q) {
        const uint32_t code = ax_quant_code(a.kind, ax_quant_clamped(a.kind, q));
        if (a.kind != AX_QUANT_INT4X2) /* a byte's two codes are one thread's */
            to.codes[i] = (uint8_t)code;
        else
            to.codes[i / 2] = (uint8_t)(i % 2 == 0 ? code << 4 : to.codes[i / 2] | (code & 15));
        if (i % a.block == 0)
            store_scale(to, i / a.block, b);
    });
}

__device__ static inline void store_scale(const packed &to, int64_t b,
                                          const ax_quant_block &block) {
    if (to.scale_byte != nullptr)
        to.scale_byte[b] = (uint8_t)block.byte;
    else
        to.scale[b] = block.scale;
    if (to.zero != nullptr)
        to.zero[b] = block.offset;
}

/* Codes of eight neighbors. */
struct quantize_eight {
    packed to;
    template <class E>
    __device__ void operator()(const blocked<E> &a, int64_t i, int64_t b, const extremes &own,
                               const float (&x)[AX_NEIGHBORS]) const {
        const ax_quant_block block = block_of(a, b, own);
        uint32_t code[AX_NEIGHBORS];
        with_kind(a.kind, [&](auto kind) {
            AX_UNROLL
            for (int k = 0; k < AX_NEIGHBORS; k++)
                code[k] = ax_quant_code(
                    kind, ax_quant_clamped(kind, ax_quant_rounded(kind, x[k], &block)));
        });
        if (i % a.block == 0)
            store_scale(to, b, block);
        if (a.kind == AX_QUANT_INT4X2)
            store_halves(code, to.codes + i / 2);
        else
            *(uint2 *)(to.codes + i) =
                make_uint2(code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24,
                           code[4] | code[5] << 8 | code[6] << 16 | code[7] << 24);
    }
    /* The first of two above the second. */
    __device__ static void store_halves(const uint32_t (&code)[AX_NEIGHBORS], uint8_t *at) {
        uint32_t word = 0;
        AX_UNROLL
        for (int k = 0; k < AX_NEIGHBORS; k++)
            word |= (code[k] & 15) << (4 * (k ^ 1));
        *(uint32_t *)at = word;
    }
};

__global__ void __launch_bounds__(QUANT_THREADS)
    outer_kernel(enum ax_quant kind, const float *range, float *outer, int64_t n) {
    const int64_t i = thread_number();
    if (i < n)
        outer[i] = ax_quant_outer(kind, ax_greater(range[2 * i], range[2 * i + 1]));
}

/* ---- formats that are tables ---- */

struct nf4_table {
    float bounds[15];
};
struct map8_table {
    float values[256];
};

static nf4_table nf4() {
    nf4_table t;
    memcpy(t.bounds, ax_nf4_bounds, sizeof t.bounds);
    return t;
}
static map8_table map8() {
    map8_table t;
    memcpy(t.values, ax_map8_values, sizeof t.values);
    return t;
}

/* ax_nf4_code, ax_map8_code. */
__device__ static inline uint32_t code_in(const nf4_table &t, float v) {
    uint32_t code = 0;
    for (int k = 0; k < 15; k++)
        code += v >= t.bounds[k];
    return code;
}
__device__ static inline uint32_t code_in(const map8_table &t, float v) {
    uint32_t code = 0;
    for (uint32_t step = 128; step > 0; step /= 2)
        code += v >= t.values[code + step] ? step : 0;
    const uint32_t up = code < 255 ? code + 1 : 255;
    const float half = (t.values[up] - t.values[code]) * 0.5f;
    return v - t.values[code] >= half ? up : code;
}

struct nf4_eight {
    packed to;
    nf4_table table;
    template <class E>
    __device__ void operator()(const blocked<E> &a, int64_t i, int64_t b, const extremes &own,
                               const float (&x)[AX_NEIGHBORS]) const {
        const float amax = ax_greater(ax_greater(-own.low, own.high), 0);
        uint32_t code[AX_NEIGHBORS];
        AX_UNROLL
        for (int k = 0; k < AX_NEIGHBORS; k++)
            code[k] = code_in(table, x[k] / (amax > 0 ? amax : 1));
        if (i % a.block == 0)
            to.scale[b] = amax;
        quantize_eight::store_halves(code, to.codes + i / 2);
    }
};

/* A thread has a byte: one code of MAP8, two of NF4. */
template <class E, class Table>
__global__ void __launch_bounds__(QUANT_THREADS)
    quantize_by_table(blocked<E> a, AX_INDEXED Table parameter, packed to) {
    const Table &table = share(parameter);
    const int per = sizeof(Table) == sizeof(nf4_table) ? 2 : 1;
    const int64_t first = per * thread_number();
    uint32_t byte = 0;
    if (first >= a.n)
        return;
    for (int64_t i = first; i < min(a.n, first + per); i++) {
        const int64_t b = i / a.block;
        const extremes own = extremes_of(a, b);
        const float amax = ax_greater(ax_greater(-own.low, own.high), 0);
        const uint32_t code = code_in(table, a.from_offset(i, b) / (amax > 0 ? amax : 1));
        byte |= per == 2 && i % 2 == 0 ? code << 4 : code;
        if (i % a.block == 0)
            to.scale[b] = amax;
    }
    to.codes[first / per] = (uint8_t)byte;
}

extern "C" size_t ax_cuda_quantize_work(const struct ax_quantize *a) {
    return quant_bytes(ax_tensor_numel(&a->x), a->block);
}

template <class E>
static enum ax_status run_quantize(struct ax_queue *q, const struct ax_quantize *a, void *work) {
    blocked<E> x = blocked_of<E>(&a->x, &a->range, a->block, a->kind);
    const bool bytes = a->scale.dtype == AX_U8;
    const packed to = {(uint8_t *)a->codes.data, bytes ? nullptr : (float *)a->scale.data,
                       bytes ? (uint8_t *)a->scale.data : nullptr, (float *)a->zero.data};
    x.offset = (const float *)a->offset.data;
    if (a->outer.data != NULL)
        AX_TRY(AX_LAUNCH(q, outer_kernel, blocks_of(a->outer.shape[0], QUANT_THREADS),
                         QUANT_THREADS, 0, a->kind, x.range, (float *)a->outer.data,
                         a->outer.shape[0]));
    const bool eights = has_eights(x) && (uintptr_t)to.codes % 8 == 0;
    if (eights && a->kind == AX_QUANT_NF4)
        return run_eights(q, x, nf4_eight{to, nf4()});
    if (eights && a->kind != AX_QUANT_MAP8)
        return run_eights(q, x, quantize_eight{to});
    AX_TRY(find_extremes(q, &x, work));
    if (a->kind == AX_QUANT_NF4)
        return AX_LAUNCH(q, (quantize_by_table<E, nf4_table>), blocks_of(x.n, 2 * QUANT_THREADS),
                         QUANT_THREADS, 0, x, nf4(), to);
    if (a->kind == AX_QUANT_MAP8)
        return AX_LAUNCH(q, (quantize_by_table<E, map8_table>), blocks_of(x.n, QUANT_THREADS),
                         QUANT_THREADS, 0, x, map8(), to);
    return AX_LAUNCH(q, quantize_kernel<E>, blocks_of(x.n, 4 * QUANT_THREADS), QUANT_THREADS, 0, x,
                     to);
}

extern "C" enum ax_status ax_cuda_quantize(struct ax_queue *q, const struct ax_quantize *a,
                                           void *work) {
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *e) { return run_quantize<AX_TYPE(e)>(q, a, work); });
}
