/* Rows by their moments (kernels/ops.h): match_rms and sparsify. A team has a row, and reads it again for each
 * sum: then it is in cache. Bytes moved: every operand once. */
#include "kernels/cuda/vector.cuh"

/* Calls f(col) for the vectors of this thread in a row of n. */
template <class F> __device__ static inline void own_vectors(int64_t n, F f) {
    for (int64_t col = threadIdx.x * AX_NEIGHBORS; col < n; col += blockDim.x * AX_NEIGHBORS)
        f(col);
}

/* The mean of a[i]·b[i] over row t. */
template <class A, class B>
__device__ static inline float mean_product(const vector_rows<A> &a, const vector_rows<B> &b,
                                            int64_t t) {
    float sum = 0, x[AX_NEIGHBORS], y[AX_NEIGHBORS];
    own_vectors(a.cols, [&](int64_t col) {
        a.load(t, col, x);
        b.load(t, col, y);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            sum += x[i] * y[i];
    });
    return team_sum(sum) / (float)a.cols;
}

/* ---- match_rms ---- */

template <class E, class Y>
__global__ void __launch_bounds__(1024)
    match_rms_forward_kernel(vector_rows<E> x, vector_rows<Y> like, vector_rows<Y> y, float floor,
                             int64_t rows) {
    const int64_t t = team_row();
    if (t >= rows)
        return;
    const float of_x = fmaxf(mean_product(x, x, t), floor);
    const float s = sqrtf(mean_product(like, like, t) / of_x);
    own_vectors(x.cols, [&](int64_t col) {
        float own[AX_NEIGHBORS];
        x.load(t, col, own);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            own[i] *= s;
        y.store(t, col, own);
    });
}

extern "C" enum ax_status
ax_cuda_match_rms_forward(struct ax_queue *q, const struct ax_match_rms_forward *a, void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0];
    const dim3 team = team_of(a->x.shape[1]);
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_types(a->x.dtype, a->like.dtype, [&](auto *x, auto *y) {
        typedef AX_TYPE(x) E;
        typedef AX_TYPE(y) Y;
        return AX_LAUNCH(q, (match_rms_forward_kernel<E, Y>), team_blocks(rows, team), team, 0,
                         as_vectors<E>(&a->x), as_vectors<Y>(&a->like), as_vectors<Y>(&a->y),
                         (float)a->floor, rows);
    });
}

template <class E, class Y> struct match_gradient {
    vector_rows<Y> dy, like, dlike;
    vector_rows<E> x, dx;
    float floor;
    int64_t rows;
};

template <class E, class Y>
__global__ void __launch_bounds__(1024) match_rms_backward_kernel(match_gradient<E, Y> m) {
    const int64_t t = team_row();
    if (t >= m.rows)
        return;
    const float squares = mean_product(m.x, m.x, t), of_x = fmaxf(squares, m.floor);
    const float of_like = mean_product(m.like, m.like, t), mean = mean_product(m.dy, m.x, t);
    const float s = sqrtf(of_like / of_x), back = squares > m.floor ? mean / of_x : 0;
    const float to_like = of_like > 0 ? mean / sqrtf(of_x * of_like) : 0;
    own_vectors(m.x.cols, [&](int64_t col) {
        float d[AX_NEIGHBORS], other[AX_NEIGHBORS];
        m.dy.load(t, col, d);
        m.x.load(t, col, other);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            d[i] = s * (d[i] - back * other[i]);
        m.dx.store(t, col, d);
        m.dlike.load(t, col, d);
        m.like.load(t, col, other);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            d[i] += to_like * other[i];
        m.dlike.store(t, col, d);
    });
}

extern "C" enum ax_status
ax_cuda_match_rms_backward(struct ax_queue *q, const struct ax_match_rms_backward *a, void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0];
    const dim3 team = team_of(a->x.shape[1]);
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_types(a->x.dtype, a->like.dtype, [&](auto *x, auto *y) {
        typedef AX_TYPE(x) E;
        typedef AX_TYPE(y) Y;
        const match_gradient<E, Y> m = {as_vectors<Y>(&a->dy),
                                        as_vectors<Y>(&a->like),
                                        as_vectors<Y>(&a->dlike),
                                        as_vectors<E>(&a->x),
                                        as_vectors<E>(&a->dx),
                                        (float)a->floor,
                                        rows};
        return AX_LAUNCH(q, (match_rms_backward_kernel<E, Y>), team_blocks(rows, team), team, 0, m);
    });
}

/* ---- sparsify ---- */

/* A row's mean, its standard deviation, and what its elements must exceed. */
struct moments {
    float mean, std, cut;
};
template <class E>
__device__ static inline moments moments_of(const vector_rows<E> &x, int64_t t, float z) {
    float sum = 0, squares = 0, own[AX_NEIGHBORS];
    own_vectors(x.cols, [&](int64_t col) {
        x.load(t, col, own);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            sum += own[i];
    });
    const float mean = team_sum(sum) / (float)x.cols;
    own_vectors(x.cols, [&](int64_t col) {
        x.load(t, col, own);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            squares += col + i < x.cols ? (own[i] - mean) * (own[i] - mean) : 0;
    });
    const float std = sqrtf(team_sum(squares) / (float)x.cols);
    return {mean, std, mean + z * std};
}

template <class E>
__global__ void __launch_bounds__(1024)
    sparsify_forward_kernel(vector_rows<E> x, vector_rows<E> y, float z, int64_t rows) {
    const int64_t t = team_row();
    if (t >= rows)
        return;
    const moments m = moments_of(x, t, z);
    own_vectors(x.cols, [&](int64_t col) {
        float own[AX_NEIGHBORS];
        x.load(t, col, own);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            own[i] = own[i] <= m.cut ? 0 : own[i] - m.cut; /* NaN stays NaN */
        y.store(t, col, own);
    });
}

extern "C" enum ax_status
ax_cuda_sparsify_forward(struct ax_queue *q, const struct ax_sparsify_forward *a, void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0];
    const dim3 team = team_of(a->x.shape[1]);
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *x) {
        typedef AX_TYPE(x) E;
        return AX_LAUNCH(q, sparsify_forward_kernel<E>, team_blocks(rows, team), team, 0,
                         as_vectors<E>(&a->x), as_vectors<E>(&a->y), (float)a->z, rows);
    });
}

/* Reads x, and g = dy where x is above the cut, else 0. */
template <class E>
__device__ static inline void load_passed(const vector_rows<E> &dy, const vector_rows<E> &x,
                                          int64_t t, int64_t col, float cut,
                                          float (&own)[AX_NEIGHBORS], float (&g)[AX_NEIGHBORS]) {
    x.load(t, col, own);
    dy.load(t, col, g);
    for (int i = 0; i < AX_NEIGHBORS; i++)
        g[i] = own[i] > cut ? g[i] : 0;
}

template <class E>
__global__ void __launch_bounds__(1024)
    sparsify_backward_kernel(vector_rows<E> dy, vector_rows<E> x, vector_rows<E> dx, float z,
                             int64_t rows) {
    const int64_t t = team_row();
    if (t >= rows)
        return;
    const moments m = moments_of(x, t, z);
    float sum = 0, own[AX_NEIGHBORS], g[AX_NEIGHBORS];
    own_vectors(x.cols, [&](int64_t col) {
        load_passed(dy, x, t, col, m.cut, own, g);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            sum += g[i];
    });
    const float mean = team_sum(sum) / (float)x.cols, slope = m.std > 0 ? z / m.std : 0;
    own_vectors(x.cols, [&](int64_t col) {
        load_passed(dy, x, t, col, m.cut, own, g);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            g[i] -= mean * (1 + slope * (own[i] - m.mean));
        dx.store(t, col, g);
    });
}

extern "C" enum ax_status
ax_cuda_sparsify_backward(struct ax_queue *q, const struct ax_sparsify_backward *a, void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0];
    const dim3 team = team_of(a->x.shape[1]);
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *x) {
        typedef AX_TYPE(x) E;
        return AX_LAUNCH(q, sparsify_backward_kernel<E>, team_blocks(rows, team), team, 0,
                         as_vectors<E>(&a->dy), as_vectors<E>(&a->x), as_vectors<E>(&a->dx),
                         (float)a->z, rows);
    });
}
