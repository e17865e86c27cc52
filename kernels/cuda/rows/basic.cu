/* fill, copy, and the ops that are formulas of elements: a thread has eight neighbors of a row, or 16
 * bytes of what is only moved. Tensors without gaps are one row, so that no thread divides. Bytes moved:
 * each operand once. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/vector.cuh"

extern "C" {
#include "kernels/dtype.h"
#include "kernels/pointwise.h"
}

#define THREADS 256

/* ---- who has what ---- */

struct launch {
    dim3 grid;
    unsigned threads;
    bool flat; /* one row, of any length; else blocks in x count rows */
};
static inline bool is_dense(const struct ax_tensor *t) {
    return t->shape[0] <= 1 || t->row_stride == ax_tensor_row_len(t);
}
static inline launch launch_of(bool flat, int64_t rows, int64_t items) {
    if (flat)
        return {dim3(blocks_of(items, THREADS)), THREADS, true};
    const row_launch l = items_of(rows, items);
    return {l.grid, l.threads, false};
}
struct piece_number {
    int64_t row, item;
};
__device__ static inline piece_number piece_of(bool flat) {
    if (flat)
        return {0, (int64_t)blockIdx.x * blockDim.x + threadIdx.x};
    return {blockIdx.x, item_number()};
}

/* ---- fill, copy_kernel: any dtype ---- */

#define PIECE 16 /* bytes */

struct byte_rows {
    char *data;
    int64_t stride, length; /* bytes from a row to the next, and of a row */
};
static inline byte_rows as_bytes(const struct ax_tensor *t, bool flat) {
    const int64_t size = (int64_t)ax_dtype_size(t->dtype);
    return {(char *)t->data, t->row_stride * size,
            (flat ? ax_tensor_numel(t) : ax_tensor_row_len(t)) * size};
}
static inline bool is_wide(const byte_rows &r, bool flat) {
    return (uintptr_t)r.data % PIECE == 0 && (flat || r.stride % PIECE == 0);
}

/* Elements of `size` bytes within the piece at `from`, of which n bytes are in the row. */
template <class T> __device__ static inline void move_elements(char *to, const char *from, int n) {
    for (int i = 0; i < n / (int)sizeof(T); i++)
        ((T *)to)[i] = ((const T *)from)[i];
}
__device__ static inline void move_piece(char *to, const char *from, int64_t left, int size,
                                         bool wide) {
    const int n = (int)min(left, (int64_t)PIECE);
    if (wide && n == PIECE)
        *(uint4 *)to = *(const uint4 *)from;
    else if (size == 8)
        move_elements<uint64_t>(to, from, n);
    else if (size == 4)
        move_elements<uint32_t>(to, from, n);
    else if (size == 2)
        move_elements<uint16_t>(to, from, n);
    else
        move_elements<uint8_t>(to, from, n);
}

struct pattern16 {
    alignas(PIECE) char bytes[PIECE];
};
__global__ void fill_kernel(byte_rows dst, pattern16 value, int size, bool flat, bool wide) {
    const piece_number p = piece_of(flat);
    const int64_t at = p.item * PIECE;
    if (at < dst.length)
        move_piece(dst.data + p.row * dst.stride + at, value.bytes, dst.length - at, size, wide);
}

extern "C" enum ax_status ax_cuda_fill(struct ax_queue *q, const struct ax_fill *a, void *work) {
    (void)work;
    const bool flat = is_dense(&a->dst);
    const byte_rows dst = as_bytes(&a->dst, flat);
    const int size = (int)ax_dtype_size(a->dst.dtype);
    pattern16 value;
    if (ax_tensor_numel(&a->dst) == 0)
        return AX_OK;
    for (int i = 0; i < PIECE / size; i++)
        ax_store(a->dst.dtype, value.bytes, i, a->value);
    const launch l = launch_of(flat, a->dst.shape[0], (dst.length + PIECE - 1) / PIECE);
    return AX_LAUNCH(q, fill_kernel, l.grid, l.threads, 0, dst, value, size, flat,
                     is_wide(dst, flat));
}

__global__ void copy_kernel(byte_rows dst, byte_rows src, int size, bool flat, bool wide) {
    const piece_number p = piece_of(flat);
    const int64_t at = p.item * PIECE;
    if (at < dst.length)
        move_piece(dst.data + p.row * dst.stride + at, src.data + p.row * src.stride + at,
                   dst.length - at, size, wide);
}

/* ---- formulas: F32 or BF16 each ---- */

/* Rows by neighbors; wide where a row's last vector is whole. */
template <class E> static inline vector_rows<E> operand(const struct ax_tensor *t, bool flat) {
    const int64_t n = ax_tensor_numel(t);
    if (!flat)
        return as_vectors<E>(t);
    return {(E *)t->data, 0, n, (uintptr_t)t->data % 16 == 0 && n % AX_NEIGHBORS == 0};
}

/* z = f(x, y), eight at a time. */
template <class Z, class X, class F>
__global__ void pointwise_kernel(vector_rows<Z> z, vector_rows<X> x, vector_rows<Z> y, bool flat,
                                 F f) {
    const piece_number p = piece_of(flat);
    const int64_t col = p.item * AX_NEIGHBORS;
    float a[AX_NEIGHBORS], b[AX_NEIGHBORS] = {};
    if (col >= z.cols)
        return;
    x.load(p.row, col, a);
    if (F::inputs > 1)
        y.load(p.row, col, b);
    AX_UNROLL
    for (int i = 0; i < AX_NEIGHBORS; i++)
        b[i] = f(a[i], b[i]);
    z.store(p.row, col, b);
}

template <class F>
static enum ax_status run_pointwise(struct ax_queue *q, const struct ax_tensor *z,
                                    const struct ax_tensor *x, const struct ax_tensor *y, F f) {
    const bool flat = is_dense(z) && is_dense(x) && is_dense(y);
    const int64_t n = ax_tensor_numel(z);
    if (n == 0)
        return AX_OK;
    const launch l = launch_of(flat, z->shape[0], vectors_in(flat ? n : ax_tensor_row_len(z)));
    return by_real(z->dtype, [&](auto *to) {
        return by_real(x->dtype, [&](auto *from) {
            typedef AX_TYPE(to) Z;
            typedef AX_TYPE(from) X;
            return AX_LAUNCH(q, (pointwise_kernel<Z, X, F>), l.grid, l.threads, 0,
                             operand<Z>(z, flat), operand<X>(x, flat), operand<Z>(y, flat), flat,
                             f);
        });
    });
}

/* ---- copy to another dtype ---- */

static inline bool is_real(const struct ax_tensor *t) {
    return t->dtype == AX_F32 || t->dtype == AX_BF16;
}

/* Between F32 and BF16. */
struct convert_formula {
    static const int inputs = 1;
    __device__ float operator()(float x, float) const {
        return x;
    }
};

/* Between any, element by element. */
__global__ void convert_kernel(any_rows dst, any_rows src, int64_t cols, bool flat) {
    const piece_number p = piece_of(flat);
    if (p.item < cols)
        store_any(dst, p.row, p.item, load_any(src, p.row, p.item));
}

extern "C" enum ax_status ax_cuda_copy(struct ax_queue *q, const struct ax_copy *a, void *work) {
    (void)work;
    const bool flat = is_dense(&a->dst) && is_dense(&a->src);
    const byte_rows dst = as_bytes(&a->dst, flat), src = as_bytes(&a->src, flat);
    const int size = (int)ax_dtype_size(a->dst.dtype);
    const int64_t cols = dst.length / size;
    if (ax_tensor_numel(&a->dst) == 0)
        return AX_OK;
    if (a->dst.dtype != a->src.dtype && is_real(&a->dst) && is_real(&a->src))
        return run_pointwise(q, &a->dst, &a->src, &a->dst, convert_formula{});
    if (a->dst.dtype != a->src.dtype) {
        const launch l = launch_of(flat, a->dst.shape[0], cols);
        return AX_LAUNCH(q, convert_kernel, l.grid, l.threads, 0, as_any(&a->dst), as_any(&a->src),
                         cols, flat);
    }
    const launch l = launch_of(flat, a->dst.shape[0], (dst.length + PIECE - 1) / PIECE);
    return AX_LAUNCH(q, copy_kernel, l.grid, l.threads, 0, dst, src, size, flat,
                     is_wide(dst, flat) && is_wide(src, flat));
}

#define AX_EACH(p)       (p)
#define AX_FMA(a, b, c)  ((a) * (b) + (c))
#define AX_FNMA(a, b, c) ((c) - (a) * (b))
#define AX_OVER_R(x)     ((x) / r)
#define AX_CAP(x)        (r * tanhf(p * (x) / r))
#define AX_POSITIVE(x)   fmaxf(0, x)

#define DEFINE_POINTWISE(op, Z, X, Y, INPUTS, P, R, FORMULA)                                       \
    struct op##_formula {                                                                          \
        static const int inputs = INPUTS;                                                          \
        float p, r;                                                                                \
        __device__ float operator()(float x, float y) const {                                      \
            (void)y;                                                                               \
            return FORMULA;                                                                        \
        }                                                                                          \
    };                                                                                             \
    extern "C" enum ax_status ax_cuda_##op(struct ax_queue *q, const struct ax_##op *a,            \
                                           void *work) {                                           \
        (void)work;                                                                                \
        return run_pointwise(q, &a->Z, &a->X, &a->Y, op##_formula{(float)(P), (float)(R)});        \
    }
AX_POINTWISE(DEFINE_POINTWISE)
