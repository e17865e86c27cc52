/* fill, copy, add, scale and the backward op of its softcap: one thread per element, neighbors next to
 * each other. Bytes moved: each operand once. */
#include "kernels/cuda/elements.cuh"

#define THREADS 256

/* ---- fill, copy: any dtype, chosen while running ---- */

__global__ void fill_kernel(any_rows dst, extent e, double value) {
    const int64_t i = thread_number();
    if (i < e.n)
        store_any(dst, i / e.cols, i % e.cols, value);
}

extern "C" enum ax_status ax_cuda_fill(struct ax_queue *q, const struct ax_fill *a, void *work) {
    (void)work;
    const extent e = extent_of(&a->dst);
    return e.n == 0 ? AX_OK
                    : AX_LAUNCH(q, fill_kernel, blocks_of(e.n, THREADS), THREADS, 0,
                                as_any(&a->dst), e, a->value);
}

/* Rows that need no conversion are copied as they are. */
__global__ void copy_kernel(any_rows dst, any_rows src, extent e) {
    const int64_t i = thread_number();
    if (i >= e.n)
        return;
    const int64_t row = i / e.cols, col = i % e.cols;
    if (dst.dtype == src.dtype)
        copy_any(dst, src, row, col);
    else
        store_any(dst, row, col, load_any(src, row, col));
}

extern "C" enum ax_status ax_cuda_copy(struct ax_queue *q, const struct ax_copy *a, void *work) {
    (void)work;
    const extent e = extent_of(&a->dst);
    return e.n == 0 ? AX_OK
                    : AX_LAUNCH(q, copy_kernel, blocks_of(e.n, THREADS), THREADS, 0,
                                as_any(&a->dst), as_any(&a->src), e);
}

/* ---- arithmetic: F32 or BF16 each ---- */

template <class D, class S>
__global__ void add_kernel(rows_of<D> dst, rows_of<S> src, extent e, float alpha) {
    const int64_t i = thread_number();
    if (i >= e.n)
        return;
    D &to = dst.at(i / e.cols, i % e.cols);
    to = D((float)to + alpha * (float)src.at(i / e.cols, i % e.cols));
}

extern "C" enum ax_status ax_cuda_add(struct ax_queue *q, const struct ax_add *a, void *work) {
    (void)work;
    const extent e = extent_of(&a->dst);
    if (e.n == 0)
        return AX_OK;
    return by_real(a->dst.dtype, [&](auto *d) {
        return by_real(a->src.dtype, [&](auto *s) {
            typedef AX_TYPE(d) D;
            typedef AX_TYPE(s) S;
            return AX_LAUNCH(q, (add_kernel<D, S>), blocks_of(e.n, THREADS), THREADS, 0,
                             as_rows<D>(&a->dst), as_rows<S>(&a->src), e, (float)a->alpha);
        });
    });
}

template <class Y, class X>
__global__ void scale_kernel(rows_of<Y> y, rows_of<X> x, extent e, float alpha, float softcap) {
    const int64_t i = thread_number();
    if (i >= e.n)
        return;
    const float z = alpha * (float)x.at(i / e.cols, i % e.cols);
    y.at(i / e.cols, i % e.cols) = Y(softcap > 0 ? softcap * tanhf(z / softcap) : z);
}

extern "C" enum ax_status ax_cuda_scale(struct ax_queue *q, const struct ax_scale *a, void *work) {
    (void)work;
    const extent e = extent_of(&a->x);
    if (e.n == 0)
        return AX_OK;
    return by_real(a->y.dtype, [&](auto *y) {
        return by_real(a->x.dtype, [&](auto *x) {
            typedef AX_TYPE(y) Y;
            typedef AX_TYPE(x) X;
            return AX_LAUNCH(q, (scale_kernel<Y, X>), blocks_of(e.n, THREADS), THREADS, 0,
                             as_rows<Y>(&a->y), as_rows<X>(&a->x), e, (float)a->alpha,
                             (float)a->softcap);
        });
    });
}

template <class D, class Y>
__global__ void softcap_backward_kernel(rows_of<D> dx, rows_of<D> dy, rows_of<Y> y, extent e,
                                        float alpha, float softcap) {
    const int64_t i = thread_number();
    if (i >= e.n)
        return;
    const int64_t row = i / e.cols, col = i % e.cols;
    const float part = (float)y.at(row, col) / softcap;
    dx.at(row, col) = D(alpha * (float)dy.at(row, col) * fmaxf(0, 1 - part * part));
}

extern "C" enum ax_status
ax_cuda_softcap_backward(struct ax_queue *q, const struct ax_softcap_backward *a, void *work) {
    (void)work;
    const extent e = extent_of(&a->dy);
    if (e.n == 0)
        return AX_OK;
    return by_real(a->dx.dtype, [&](auto *d) {
        return by_real(a->y.dtype, [&](auto *y) {
            typedef AX_TYPE(d) D;
            typedef AX_TYPE(y) Y;
            return AX_LAUNCH(q, (softcap_backward_kernel<D, Y>), blocks_of(e.n, THREADS), THREADS,
                             0, as_rows<D>(&a->dx), as_rows<D>(&a->dy), as_rows<Y>(&a->y), e,
                             (float)a->alpha, (float)a->softcap);
        });
    });
}
