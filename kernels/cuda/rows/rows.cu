/* Rows to other places and back (kernels/ops.h): scatter_rows, combine_forward, combine_backward, and
 * group_rows, which finds the places. Bytes moved: the rows that are named, once. */
#include "kernels/cuda/vector.cuh"

/* ---- scatter_rows: bytes, in pieces of `size` ---- */

struct moved_rows {
    char *dst;
    const char *src;
    int64_t dst_stride, src_stride, bytes; /* all in bytes */
    const int32_t *rows;
    int64_t copies; /* of each row */
};

template <class Piece> __global__ void scatter_rows_kernel(moved_rows m) {
    const int64_t i = blockIdx.x, at = item_number() * (int64_t)sizeof(Piece);
    if (m.rows[i] < 0 || at >= m.bytes)
        return;
    *(Piece *)(m.dst + m.rows[i] * m.dst_stride + at) =
        *(const Piece *)(m.src + i / m.copies * m.src_stride + at);
}

template <class Piece>
static enum ax_status move_rows(struct ax_queue *q, const moved_rows &m, int64_t n) {
    const row_launch l = items_of(n, m.bytes / (int64_t)sizeof(Piece));
    return AX_LAUNCH(q, scatter_rows_kernel<Piece>, l.grid, l.threads, 0, m);
}

extern "C" enum ax_status ax_cuda_scatter_rows(struct ax_queue *q, const struct ax_scatter_rows *a,
                                               void *work) {
    (void)work;
    const int64_t size = (int64_t)ax_dtype_size(a->src.dtype), n = ax_tensor_numel(&a->rows);
    const moved_rows m = {(char *)a->dst.data,
                          (const char *)a->src.data,
                          a->dst.row_stride * size,
                          a->src.row_stride * size,
                          ax_tensor_row_len(&a->src) * size,
                          (const int32_t *)a->rows.data,
                          ax_tensor_row_len(&a->rows)};
    const uint64_t all = (uint64_t)(uintptr_t)m.dst | (uint64_t)(uintptr_t)m.src |
                         (uint64_t)m.dst_stride | (uint64_t)m.src_stride | (uint64_t)m.bytes;
    if (n == 0 || m.bytes == 0)
        return AX_OK;
    return all % 16 == 0 ? move_rows<uint4>(q, m, n)
           : size == 4   ? move_rows<uint32_t>(q, m, n)
           : size == 2   ? move_rows<uint16_t>(q, m, n)
                         : move_rows<uint8_t>(q, m, n);
}

/* ---- combine: rows [t][k] of src make row t ---- */

struct choices {
    const int32_t *rows;
    const float *weights; /* NULL: 1 */
    int64_t k;
};
static choices choices_of(const struct ax_tensor *rows, const struct ax_tensor *weights) {
    return {(const int32_t *)rows->data, (const float *)weights->data, ax_tensor_row_len(rows)};
}

template <class E, class Y>
__global__ void combine_forward_kernel(vector_rows<E> src, choices c, vector_rows<Y> addend,
                                       vector_rows<Y> out) {
    const int64_t t = blockIdx.x, col = item_number() * AX_NEIGHBORS;
    float sum[AX_NEIGHBORS] = {}, x[AX_NEIGHBORS];
    if (col >= out.cols)
        return;
    if (addend.data)
        addend.load(t, col, sum);
    for (int64_t i = t * c.k; i < (t + 1) * c.k; i++) {
        if (c.rows[i] < 0)
            continue;
        const float weight = c.weights ? c.weights[i] : 1;
        src.load(c.rows[i], col, x);
        for (int n = 0; n < AX_NEIGHBORS; n++)
            sum[n] += weight * x[n];
    }
    out.store(t, col, sum);
}

extern "C" enum ax_status ax_cuda_combine_forward(struct ax_queue *q,
                                                  const struct ax_combine_forward *a, void *work) {
    (void)work;
    const int64_t rows = a->out.shape[0], cols = a->out.shape[1];
    const row_launch l = items_of(rows, vectors_in(cols));
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->src.dtype, [&](auto *x) {
        return by_real(a->out.dtype, [&](auto *y) {
            typedef AX_TYPE(x) E;
            typedef AX_TYPE(y) Y;
            return AX_LAUNCH(q, (combine_forward_kernel<E, Y>), l.grid, l.threads, 0,
                             as_vectors<E>(&a->src), choices_of(&a->rows, &a->weights),
                             as_vectors<Y>(&a->addend), as_vectors<Y>(&a->out));
        });
    });
}

/* A team per choice. */
template <class E>
__global__ void __launch_bounds__(1024, 1)
    combine_backward_kernel(vector_rows<E> dout, vector_rows<E> src, choices c, vector_rows<E> dsrc,
                            float *dweights, int64_t n) {
    const int64_t i = team_row(), t = i / c.k;
    if (i >= n)
        return;
    const int64_t row = c.rows[i];
    float dot = 0, dy[AX_NEIGHBORS], x[AX_NEIGHBORS];
    for (int64_t col = threadIdx.x * AX_NEIGHBORS; col < dout.cols && row >= 0;
         col += blockDim.x * AX_NEIGHBORS) {
        dout.load(t, col, dy);
        src.load(row, col, x);
        for (int j = 0; j < AX_NEIGHBORS; j++) {
            dot += dy[j] * x[j];
            dy[j] *= c.weights[i];
        }
        if (dsrc.data)
            dsrc.store(row, col, dy);
    }
    dot = team_sum(dot);
    if (threadIdx.x == 0)
        dweights[i] = dot;
}

extern "C" enum ax_status
ax_cuda_combine_backward(struct ax_queue *q, const struct ax_combine_backward *a, void *work) {
    (void)work;
    const int64_t n = ax_tensor_numel(&a->rows);
    const dim3 team = team_of(a->dout.shape[1]);
    if (n == 0)
        return AX_OK;
    return by_real(a->dout.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, combine_backward_kernel<E>, team_blocks(n, team), team, 0,
                         as_vectors<E>(&a->dout), as_vectors<E>(&a->src),
                         choices_of(&a->rows, &a->weights), as_vectors<E>(&a->dsrc),
                         (float *)a->dweights.data, n);
    });
}

/* ---- group_rows: keys are counted in pieces, of which each then knows where its groups begin ---- */

#define PIECE 512 /* keys, and threads */

struct sorted_keys {
    const int32_t *keys;
    int64_t n, first, groups, pieces;
    int32_t *counts; /* [pieces][groups] */
};
static sorted_keys sorted_of(const struct ax_group_rows *a, void *work) {
    const int64_t n = ax_tensor_numel(&a->keys);
    return {(const int32_t *)a->keys.data,
            n,
            a->first,
            a->offsets.shape[0] - 1,
            (n + PIECE - 1) / PIECE,
            (int32_t *)work};
}

/* This thread's key as a group, or −1. All threads' are in `room`. */
__device__ static inline int32_t read_group(const sorted_keys &s, int32_t (&room)[PIECE]) {
    const int64_t i = (int64_t)blockIdx.x * PIECE + threadIdx.x;
    const int64_t group = i < s.n ? s.keys[i] - s.first : -1;
    room[threadIdx.x] = group >= 0 && group < s.groups ? (int32_t)group : -1;
    __syncthreads();
    return room[threadIdx.x];
}

/* How many of keys [first, end) of the piece are of a group. */
__device__ static inline int32_t count_group(const int32_t (&room)[PIECE], int32_t group, int first,
                                             int end) {
    int32_t n = 0;
    for (int i = first; i < end; i++)
        n += room[i] == group;
    return n;
}

/* The first key of a group writes its count; the others' counts are 0. */
__global__ void __launch_bounds__(PIECE) count_keys_kernel(sorted_keys s) {
    AX_SHARED(int32_t, room, [PIECE]);
    int32_t *counts = s.counts + blockIdx.x * s.groups;
    const int mine = (int)threadIdx.x;
    for (int64_t g = mine; g < s.groups; g += PIECE)
        counts[g] = 0;
    const int32_t group = read_group(s, room); /* with a barrier */
    if (group >= 0 && count_group(room, group, 0, mine) == 0)
        counts[group] = count_group(room, group, mine, PIECE);
}

/* The sum over this lane and those before it. */
__device__ static inline int32_t lanes_sum(int32_t x) {
    for (int step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffffu, x, step);
        x += (int)threadIdx.x >= step ? other : 0;
    }
    return x;
}

#define GROUPS 8 /* of a block: a warp each */

/* Each count becomes the sum of the group's counts in earlier pieces, and an offset the group's size. */
__global__ void __launch_bounds__(32 * GROUPS) scan_pieces_kernel(sorted_keys s, int32_t *offsets) {
    const int64_t g = (int64_t)blockIdx.x * GROUPS + threadIdx.y;
    int32_t before = 0;
    if (g >= s.groups)
        return;
    for (int64_t first = 0; first < s.pieces; first += 32) {
        const int64_t p = first + threadIdx.x;
        const int32_t count = p < s.pieces ? s.counts[p * s.groups + g] : 0;
        const int32_t sum = lanes_sum(count);
        if (p < s.pieces)
            s.counts[p * s.groups + g] = before + sum - count;
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (threadIdx.x == 0)
        offsets[g] = before;
}

/* One warp: sizes become offsets. */
__global__ void scan_groups_kernel(int64_t groups, int32_t *offsets, int32_t *sizes) {
    int32_t before = 0;
    for (int64_t first = 0; first < groups; first += 32) {
        const int64_t g = first + threadIdx.x;
        const int32_t size = g < groups ? offsets[g] : 0, sum = lanes_sum(size);
        if (g < groups) {
            offsets[g] = before + sum - size;
            if (sizes)
                sizes[g] = size;
        }
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (threadIdx.x == 0)
        offsets[groups] = before;
}

__global__ void __launch_bounds__(PIECE)
    place_keys_kernel(sorted_keys s, const int32_t *offsets, int32_t *places) {
    AX_SHARED(int32_t, room, [PIECE]);
    const int64_t i = (int64_t)blockIdx.x * PIECE + threadIdx.x;
    const int32_t group = read_group(s, room);
    int32_t place = -1;
    if (group >= 0)
        place = offsets[group] + s.counts[blockIdx.x * s.groups + group] +
                count_group(room, group, 0, (int)threadIdx.x);
    if (i < s.n)
        places[i] = place;
}

extern "C" size_t ax_cuda_group_rows_work(const struct ax_group_rows *a) {
    const sorted_keys s = sorted_of(a, NULL);
    return (size_t)(s.pieces * s.groups) * sizeof(int32_t);
}

extern "C" enum ax_status ax_cuda_group_rows(struct ax_queue *q, const struct ax_group_rows *a,
                                             void *work) {
    const sorted_keys s = sorted_of(a, work);
    int32_t *offsets = (int32_t *)a->offsets.data;
    if (s.n > 0)
        AX_TRY(AX_LAUNCH(q, count_keys_kernel, (unsigned)s.pieces, PIECE, 0, s));
    AX_TRY(AX_LAUNCH(q, scan_pieces_kernel, blocks_of(s.groups, GROUPS), dim3(32, GROUPS), 0, s,
                     offsets));
    AX_TRY(
        AX_LAUNCH(q, scan_groups_kernel, 1, 32, 0, s.groups, offsets, (int32_t *)a->counts.data));
    return s.n == 0 ? AX_OK
                    : AX_LAUNCH(q, place_keys_kernel, (unsigned)s.pieces, PIECE, 0, s,
                                (const int32_t *)offsets, (int32_t *)a->places.data);
}
