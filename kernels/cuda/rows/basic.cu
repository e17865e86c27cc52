/* fill, copy, add, scale and the backward op of its softcap: a thread has eight neighbors of a row, or 16
 * bytes of what is only moved. Tensors without gaps are one row, so that no thread divides. Bytes moved:
 * each operand once. */
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/vector.cuh"

extern "C" {
#include "kernels/dtype.h"
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

/* ---- fill, copy: any dtype ---- */

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

/* Of another dtype, element by element. */
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
    if (a->dst.dtype != a->src.dtype) {
        const launch l = launch_of(flat, a->dst.shape[0], cols);
        return AX_LAUNCH(q, convert_kernel, l.grid, l.threads, 0, as_any(&a->dst), as_any(&a->src),
                         cols, flat);
    }
    const launch l = launch_of(flat, a->dst.shape[0], (dst.length + PIECE - 1) / PIECE);
    return AX_LAUNCH(q, copy_kernel, l.grid, l.threads, 0, dst, src, size, flat,
                     is_wide(dst, flat) && is_wide(src, flat));
}

/* ---- arithmetic: F32 or BF16 each ---- */

/* Rows by neighbors; wide where a row's last vector is whole. */
template <class E> static inline vector_rows<E> operand(const struct ax_tensor *t, bool flat) {
    vector_rows<E> r = as_vectors<E>(t, flat ? ax_tensor_numel(t) : ax_tensor_row_len(t));
    r.cols = flat ? ax_tensor_numel(t) : r.cols;
    r.stride = flat ? 0 : r.stride;
    return r;
}

/* y = f(x, y), eight at a time. */
template <class Y, class X, class F>
__device__ static inline void each(const vector_rows<Y> &y, const vector_rows<X> &x, bool reads_y,
                                   bool flat, F f) {
    const piece_number p = piece_of(flat);
    const int64_t col = p.item * AX_NEIGHBORS;
    float a[AX_NEIGHBORS], b[AX_NEIGHBORS] = {};
    if (col >= y.cols)
        return;
    x.load(p.row, col, a);
    if (reads_y)
        y.load(p.row, col, b);
    AX_UNROLL
    for (int i = 0; i < AX_NEIGHBORS; i++)
        b[i] = f(a[i], b[i]);
    y.store(p.row, col, b);
}

template <class D, class S>
__global__ void add_kernel(vector_rows<D> dst, vector_rows<S> src, bool flat, float alpha) {
    each(dst, src, true, flat, [=](float s, float d) { return d + alpha * s; });
}

extern "C" enum ax_status ax_cuda_add(struct ax_queue *q, const struct ax_add *a, void *work) {
    (void)work;
    const bool flat = is_dense(&a->dst) && is_dense(&a->src);
    const int64_t n = ax_tensor_numel(&a->dst);
    if (n == 0)
        return AX_OK;
    const launch l =
        launch_of(flat, a->dst.shape[0], vectors_in(flat ? n : ax_tensor_row_len(&a->dst)));
    return by_real(a->dst.dtype, [&](auto *d) {
        return by_real(a->src.dtype, [&](auto *s) {
            typedef AX_TYPE(d) D;
            typedef AX_TYPE(s) S;
            return AX_LAUNCH(q, (add_kernel<D, S>), l.grid, l.threads, 0, operand<D>(&a->dst, flat),
                             operand<S>(&a->src, flat), flat, (float)a->alpha);
        });
    });
}

template <class Y, class X>
__global__ void scale_kernel(vector_rows<Y> y, vector_rows<X> x, bool flat, float alpha,
                             float softcap) {
    each(y, x, false, flat, [=](float from, float) {
        const float z = alpha * from;
        return softcap > 0 ? softcap * tanhf(z / softcap) : z;
    });
}

extern "C" enum ax_status ax_cuda_scale(struct ax_queue *q, const struct ax_scale *a, void *work) {
    (void)work;
    const bool flat = is_dense(&a->y) && is_dense(&a->x);
    const int64_t n = ax_tensor_numel(&a->x);
    if (n == 0)
        return AX_OK;
    const launch l =
        launch_of(flat, a->x.shape[0], vectors_in(flat ? n : ax_tensor_row_len(&a->x)));
    return by_real(a->y.dtype, [&](auto *y) {
        return by_real(a->x.dtype, [&](auto *x) {
            typedef AX_TYPE(y) Y;
            typedef AX_TYPE(x) X;
            return AX_LAUNCH(q, (scale_kernel<Y, X>), l.grid, l.threads, 0, operand<Y>(&a->y, flat),
                             operand<X>(&a->x, flat), flat, (float)a->alpha, (float)a->softcap);
        });
    });
}

template <class D, class Y>
__global__ void softcap_backward_kernel(vector_rows<D> dx, vector_rows<D> dy, vector_rows<Y> y,
                                        bool flat, float alpha, float softcap) {
    const piece_number p = piece_of(flat);
    const int64_t col = p.item * AX_NEIGHBORS;
    float d[AX_NEIGHBORS], capped[AX_NEIGHBORS];
    if (col >= dx.cols)
        return;
    dy.load(p.row, col, d);
    y.load(p.row, col, capped);
    AX_UNROLL
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        const float part = capped[i] / softcap;
        d[i] = alpha * d[i] * fmaxf(0, 1 - part * part);
    }
    dx.store(p.row, col, d);
}

extern "C" enum ax_status
ax_cuda_softcap_backward(struct ax_queue *q, const struct ax_softcap_backward *a, void *work) {
    (void)work;
    const bool flat = is_dense(&a->dx) && is_dense(&a->dy) && is_dense(&a->y);
    const int64_t n = ax_tensor_numel(&a->dy);
    if (n == 0)
        return AX_OK;
    const launch l =
        launch_of(flat, a->dy.shape[0], vectors_in(flat ? n : ax_tensor_row_len(&a->dy)));
    return by_real(a->dx.dtype, [&](auto *d) {
        return by_real(a->y.dtype, [&](auto *y) {
            typedef AX_TYPE(d) D;
            typedef AX_TYPE(y) Y;
            return AX_LAUNCH(q, (softcap_backward_kernel<D, Y>), l.grid, l.threads, 0,
                             operand<D>(&a->dx, flat), operand<D>(&a->dy, flat),
                             operand<Y>(&a->y, flat), flat, (float)a->alpha, (float)a->softcap);
        });
    });
}
