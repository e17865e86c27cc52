/* RMSNorm (Zhang & Sennrich 2019) over the n elements of each row:
 *   y = x·rstd·(offset + weight), rstd = 1/√(mean(x²) + eps)
 *   dx (+)= rstd·(g − x̂·mean(g·x̂)), g = dy·(offset + weight), x̂ = x·rstd;  dweight += Σ_rows dy·x̂
 * Bytes moved: x, y once; backward dy, x, dx once, and the sums of dweight's pieces. A thread keeps its
 * first 8 elements of a row between the two passes, which are all it has up to n = 8192.
 * And y (+)= x − mean(x) of each row, which makes it LayerNorm. */
#include "kernels/cuda/ranges.cuh"
#include "kernels/cuda/rows/columns.cuh"

/* Norms of a tensor: [T][D] has one in each row, [T][H][hd] one for each head. */
struct norms {
    int64_t count, heads, n;
};
static norms norms_of(const struct ax_tensor *x) {
    const int64_t n = x->shape[x->ndim - 1], heads = n > 0 ? ax_tensor_row_len(x) / n : 0;
    return {x->shape[0] * heads, heads, n};
}

/* Where norm i is: its row, and the columns [first, end). */
struct norm_place {
    int64_t row, first, end;
};
__device__ static inline norm_place place_of(const norms &s, int64_t i) {
    if (s.heads == 1)
        return {i, 0, s.n};
    const int64_t first = i % s.heads * s.n;
    return {i / s.heads, first, first + s.n};
}

template <class E> static vector_rows<E> as_norms(const struct ax_tensor *t) {
    return as_vectors<E>(t, t->shape[t->ndim - 1]);
}
template <class E>
__device__ static inline void load_norm(const vector_rows<E> &t, const norm_place &p, int64_t col,
                                        float (&x)[AX_NEIGHBORS]) {
    t.load(p.row, p.first + col, p.end, x);
}
template <class E>
__device__ static inline void store_norm(const vector_rows<E> &t, const norm_place &p, int64_t col,
                                         const float (&x)[AX_NEIGHBORS]) {
    t.store(p.row, p.first + col, p.end, x);
}

__device__ static inline float square_sum(const float (&x)[AX_NEIGHBORS]) {
    float sum = 0;
    for (int i = 0; i < AX_NEIGHBORS; i++)
        sum += x[i] * x[i];
    return sum;
}

struct norm_kind {
    float eps, offset;
    bool once;
};

template <class X, class Y>
__device__ static inline void normalize(const norm_place &p, int64_t col, float (&x)[AX_NEIGHBORS],
                                        float rstd, const vector_rows<Y> &y,
                                        const vector_rows<Y> &weight, norm_kind kind) {
    float w[AX_NEIGHBORS];
    weight.load(0, col, w);
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        const float normed = x[i] * rstd;
        x[i] = (kind.once ? normed : (float)X(normed)) * (kind.offset + w[i]);
    }
    store_norm(y, p, col, x);
}

/* Ranged: with the range of y. */
template <class X, class Y, bool Ranged>
__global__ void __launch_bounds__(1024)
    rmsnorm_forward_kernel(norms s, vector_rows<X> x, vector_rows<Y> weight, vector_rows<Y> y,
                           float *rstds, norm_kind kind, range_to range) {
    const int64_t i = team_row(), mine = threadIdx.x * AX_NEIGHBORS;
    const int64_t step = blockDim.x * AX_NEIGHBORS;
    if (i >= s.count)
        return;
    const norm_place p = place_of(s, i);
    const bool ranged = Ranged && p.row < range.rows;
    seen_range all = {};
    float own[AX_NEIGHBORS] = {}, more[AX_NEIGHBORS];
    if (mine < s.n)
        load_norm(x, p, mine, own);
    float sum = square_sum(own);
    for (int64_t col = mine + step; col < s.n; col += step) {
        load_norm(x, p, col, more);
        sum += square_sum(more);
    }
    const float rstd = rsqrtf(team_sum(sum) / (float)s.n + kind.eps);
    if (threadIdx.x == 0)
        rstds[i] = rstd;
    if (mine < s.n)
        normalize<X>(p, mine, own, rstd, y, weight, kind);
    if (ranged)
        all.see(own);
    for (int64_t col = mine + step; col < s.n; col += step) {
        load_norm(x, p, col, more);
        normalize<X>(p, col, more, rstd, y, weight, kind);
        if (ranged)
            all.see(more);
    }
    if (ranged)
        raise_range<Y>(range.at, all);
}

template <class X, class Y, bool Ranged>
static enum ax_status run_forward(struct ax_queue *q, const struct ax_rmsnorm_forward *a,
                                  const range_to &range) {
    const norms s = norms_of(&a->x);
    const dim3 team = team_of(s.n);
    const norm_kind kind = {(float)a->eps, (float)a->offset, a->once};
    return AX_LAUNCH(q, (rmsnorm_forward_kernel<X, Y, Ranged>), team_blocks(s.count, team), team, 0,
                     s, as_norms<X>(&a->x), as_vector<Y>(&a->weight), as_norms<Y>(&a->y),
                     (float *)a->rstd.data, kind, range);
}

extern "C" enum ax_status ax_cuda_rmsnorm_forward(struct ax_queue *q,
                                                  const struct ax_rmsnorm_forward *a, void *work) {
    (void)work;
    range_to range;
    AX_TRY(begin_range(q, &a->range, &range));
    if (norms_of(&a->x).count == 0)
        return AX_OK;
    return by_types(a->weight.dtype, a->x.dtype, [&](auto *y, auto *x) {
        typedef AX_TYPE(x) X;
        typedef AX_TYPE(y) Y;
        return range.at != nullptr ? run_forward<X, Y, true>(q, a, range)
                                   : run_forward<X, Y, false>(q, a, range);
    });
}

/* ---- backward ---- */

/* Long rows need more registers. */
#define LONG_THREADS 512
static bool is_long(const norms &s) {
    return s.n > 1024 * AX_NEIGHBORS;
}
static dim3 backward_team(const norms &s) {
    return is_long(s) ? dim3(LONG_THREADS) : team_of(s.n);
}

/* The rows of dweight's sums, one for each block: about 1,024 threads for each multiprocessor of the largest
 * GPUs, which hold that many with 64 registers. */
static int64_t norm_pieces(const norms &s, dim3 team) {
    return min((int64_t)team_blocks(s.count, team), (int64_t)132 * 1024 / (team.x * team.y));
}

template <class G, class X, class W> struct norm_gradient {
    norms s;
    vector_rows<G> dy;
    vector_rows<X> x, dx;
    vector_rows<W> narrow, weight; /* narrow.data NULL: not wanted */
    const float *rstd;
    float offset;
    bool accumulate;
};

/* Reads x and g = dy·(offset + weight); dweight += dy·x̂; returns Σ g·x. */
template <class B>
__device__ static inline float weigh(const B &b, const norm_place &p, int64_t col, float rstd,
                                     float (&g)[AX_NEIGHBORS], float (&x)[AX_NEIGHBORS],
                                     float (&dweight)[AX_NEIGHBORS]) {
    float w[AX_NEIGHBORS], dot = 0;
    load_norm(b.dy, p, col, g);
    load_norm(b.x, p, col, x);
    b.weight.load(0, col, w);
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        dweight[i] += g[i] * (x[i] * rstd);
        g[i] *= b.offset + w[i];
        dot += g[i] * x[i];
    }
    return dot;
}

/* What dx is added to. */
template <class B>
__device__ static inline void load_old(const B &b, const norm_place &p, int64_t col,
                                       float (&old)[AX_NEIGHBORS]) {
    for (int i = 0; i < AX_NEIGHBORS; i++)
        old[i] = 0;
    if (b.accumulate)
        load_norm(b.dx, p, col, old);
}

template <class B>
__device__ static inline void store_dx(const B &b, const norm_place &p, int64_t col, float rstd,
                                       float (&g)[AX_NEIGHBORS], const float (&x)[AX_NEIGHBORS],
                                       const float (&old)[AX_NEIGHBORS], float scale) {
    for (int i = 0; i < AX_NEIGHBORS; i++)
        g[i] = old[i] + rstd * (g[i] - x[i] * scale);
    store_norm(b.dx, p, col, g);
    if (b.narrow.data)
        store_norm(b.narrow, p, col, g);
}

/* A thread's further columns of long rows: their sums of dweight are in memory. Returns Σ g·x. */
template <class B>
__device__ static inline float weigh_more(const B &b, const norm_place &p, float rstd,
                                          float *piece) {
    float g[AX_NEIGHBORS], x[AX_NEIGHBORS], sum[AX_NEIGHBORS], dot = 0;
    const int64_t step = blockDim.x * AX_NEIGHBORS;
    for (int64_t col = threadIdx.x * AX_NEIGHBORS + step; col < b.s.n; col += step) {
        load_neighbors(piece + col, b.s.n - col, false, sum);
        dot += weigh(b, p, col, rstd, g, x, sum);
        store_neighbors(piece + col, b.s.n - col, false, sum);
    }
    return dot;
}
template <class B>
__device__ static inline void store_more(const B &b, const norm_place &p, float rstd, float scale) {
    float g[AX_NEIGHBORS], x[AX_NEIGHBORS], old[AX_NEIGHBORS], unused[AX_NEIGHBORS] = {};
    const int64_t step = blockDim.x * AX_NEIGHBORS;
    for (int64_t col = threadIdx.x * AX_NEIGHBORS + step; col < b.s.n; col += step) {
        weigh(b, p, col, rstd, g, x, unused);
        load_old(b, p, col, old);
        store_dx(b, p, col, rstd, g, x, old, scale);
    }
}

/* This block's sums of dweight: its teams', in order. */
__device__ static inline void store_piece(const float (&dweight)[AX_NEIGHBORS], int64_t n,
                                          float *piece) {
    AX_SHARED(float, sums, [8][AX_SHORT_ROW]);
    const int64_t mine = threadIdx.x * AX_NEIGHBORS;
    if (blockDim.y == 1) {
        if (mine < n)
            store_neighbors(piece + mine, n - mine, false, dweight);
        return;
    }
    for (int i = 0; i < AX_NEIGHBORS; i++)
        sums[threadIdx.y][mine + i] = dweight[i];
    __syncthreads();
    const int64_t col = threadIdx.y * 32 + threadIdx.x;
    float sum = 0;
    for (int y = 0; y < 8; y++)
        sum += sums[y][col];
    if (col < n)
        piece[col] = sum;
}

template <bool Long, class B>
__global__ void __launch_bounds__(Long ? LONG_THREADS : 1024)
    rmsnorm_backward_kernel(B b, float *pieces, bool frozen) {
    const int64_t n = b.s.n, mine = threadIdx.x * AX_NEIGHBORS, step = blockDim.x * AX_NEIGHBORS;
    float *piece = pieces + blockIdx.x * n;
    float dweight[AX_NEIGHBORS] = {}, g[AX_NEIGHBORS], x[AX_NEIGHBORS], old[AX_NEIGHBORS];
    for (int64_t col = mine + step; Long && col < n; col += step)
        for (int64_t i = col; i < min(n, col + AX_NEIGHBORS); i++)
            piece[i] = 0;
    for (int64_t i = team_row(); i < b.s.count; i += (int64_t)gridDim.x * blockDim.y) {
        const norm_place p = place_of(b.s, i);
        const float rstd = b.rstd[i];
        float dot = 0;
        if (mine < n) {
            dot = weigh(b, p, mine, rstd, g, x, dweight);
            load_old(b, p, mine, old); /* now, so that it comes while the team adds */
        }
        if (Long)
            dot += weigh_more(b, p, rstd, piece);
        const float scale = team_sum(dot) * rstd * rstd / (float)n;
        if (mine < n)
            store_dx(b, p, mine, rstd, g, x, old, scale);
        if (Long)
            store_more(b, p, rstd, scale);
    }
    if (!frozen)
        store_piece(dweight, n, piece);
}

extern "C" size_t ax_cuda_rmsnorm_backward_work(const struct ax_rmsnorm_backward *a) {
    const norms s = norms_of(&a->x);
    return (size_t)(norm_pieces(s, backward_team(s)) * s.n) * sizeof(float);
}

template <class G, class X, class W>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_rmsnorm_backward *a,
                                   float *pieces) {
    typedef norm_gradient<G, X, W> B;
    const norms s = norms_of(&a->x);
    const dim3 team = backward_team(s);
    const unsigned blocks = (unsigned)norm_pieces(s, team);
    const bool frozen = a->dweight.data == NULL;
    const B b = {s,
                 as_norms<G>(&a->dy),
                 as_norms<X>(&a->x),
                 as_norms<X>(&a->dx),
                 a->narrow.data ? as_norms<W>(&a->narrow) : vector_rows<W>{},
                 as_vector<W>(&a->weight),
                 (const float *)a->rstd.data,
                 (float)a->offset,
                 a->accumulate};
    if (is_long(s))
        AX_TRY(
            AX_LAUNCH(q, (rmsnorm_backward_kernel<true, B>), blocks, team, 0, b, pieces, frozen));
    else
        AX_TRY(
            AX_LAUNCH(q, (rmsnorm_backward_kernel<false, B>), blocks, team, 0, b, pieces, frozen));
    return frozen ? AX_OK
                  : ax_cuda_add_pieces(q, (float *)a->dweight.data, pieces, (int64_t)blocks, s.n);
}

extern "C" enum ax_status
ax_cuda_rmsnorm_backward(struct ax_queue *q, const struct ax_rmsnorm_backward *a, void *work) {
    if (norms_of(&a->x).count == 0)
        return AX_OK;
    return by_types(a->weight.dtype, a->x.dtype, [&](auto *w, auto *x) {
        typedef AX_TYPE(x) X;
        typedef AX_TYPE(w) W;
        return a->dy.dtype == a->x.dtype ? run_backward<X, X, W>(q, a, (float *)work)
                                         : run_backward<W, X, W>(q, a, (float *)work);
    });
}

/* ---- center ---- */

__device__ static inline float element_sum(const float (&x)[AX_NEIGHBORS]) {
    float sum = 0;
    for (int i = 0; i < AX_NEIGHBORS; i++)
        sum += x[i];
    return sum;
}

template <class X, class Y>
__device__ static inline void center(const norm_place &p, int64_t col, float (&x)[AX_NEIGHBORS],
                                     float mean, const vector_rows<Y> &y, bool accumulate) {
    float old[AX_NEIGHBORS] = {};
    if (accumulate)
        load_norm(y, p, col, old);
    for (int i = 0; i < AX_NEIGHBORS; i++)
        x[i] = x[i] - mean + old[i];
    store_norm(y, p, col, x);
}

template <class X, class Y>
__global__ void __launch_bounds__(1024)
    center_kernel(norms s, vector_rows<X> x, vector_rows<Y> y, bool accumulate) {
    const int64_t i = team_row(), mine = threadIdx.x * AX_NEIGHBORS;
    const int64_t step = blockDim.x * AX_NEIGHBORS;
    if (i >= s.count)
        return;
    const norm_place p = place_of(s, i);
    float own[AX_NEIGHBORS] = {}, more[AX_NEIGHBORS];
    if (mine < s.n)
        load_norm(x, p, mine, own);
    float sum = element_sum(own);
    for (int64_t col = mine + step; col < s.n; col += step) {
        load_norm(x, p, col, more);
        sum += element_sum(more);
    }
    const float mean = team_sum(sum) / (float)s.n;
    if (mine < s.n)
        center<X>(p, mine, own, mean, y, accumulate);
    for (int64_t col = mine + step; col < s.n; col += step) {
        load_norm(x, p, col, more);
        center<X>(p, col, more, mean, y, accumulate);
    }
}

extern "C" enum ax_status ax_cuda_center(struct ax_queue *q, const struct ax_center *a,
                                         void *work) {
    (void)work;
    const norms s = norms_of(&a->x);
    const dim3 team = team_of(s.n);
    if (s.count == 0)
        return AX_OK;
    const auto run = [&](auto *x, auto *y) {
        typedef AX_TYPE(x) X;
        typedef AX_TYPE(y) Y;
        return AX_LAUNCH(q, (center_kernel<X, Y>), team_blocks(s.count, team), team, 0, s,
                         as_norms<X>(&a->x), as_norms<Y>(&a->y), a->accumulate);
    };
    if (a->x.dtype == AX_F32)
        return a->y.dtype == AX_F32 ? run((float *)nullptr, (float *)nullptr)
                                    : run((float *)nullptr, (bf16 *)nullptr);
    return a->y.dtype == AX_F32 ? run((bf16 *)nullptr, (float *)nullptr)
                                : run((bf16 *)nullptr, (bf16 *)nullptr);
}
