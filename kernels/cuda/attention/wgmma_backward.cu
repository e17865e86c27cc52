/* attention_backward in bf16 by wgmma, for heads of up to 128 elements: as tensor_backward.cu, dq by one kernel and dk
 * and dv by another, no result of which two threads add to. A block has two or three groups of four warps, with 64 rows
 * each, and goes through tiles of 64 or 128 rows of the other side. These come to one of three buffers: one is read,
 * the last product that reads another one may still run, and copies fill the third.
 *
 * Executed are 7 products where 5 would do, without any sum in memory. Per 64 × 64 scores of 128 elements a
 * product takes 256 cycles of the tensor cores; from shared memory, 128 bytes a cycle, dk and dv read for
 * 4 of them 96 KiB, 768 cycles, dq for 3 of them with its left sides in registers 48 KiB, 384 cycles. */
#include "kernels/cuda/attention/tensor_backward.cuh"
#include "kernels/cuda/wgmma.cuh"

constexpr int GROUP_ROWS = 64;
constexpr int STEP = 64,
              BUFFERS = 3; /* rows of the other side that scores are computed of at a time */
/* The rows of a tile of it: with fewer elements threads meet at every second step only. */
template <int D> constexpr int TILE = D <= 64 ? 2 * STEP : STEP;
constexpr int SWIZZLE = 1024; /* bytes that a tile begins at a multiple of */

#ifdef AX_WGMMA

/* ---- what both kernels do ---- */

/* A row of a head, which is there whether or not it `exists`. */
struct head_row {
    int row, head;
    bool exists;
};

/* Starts copies of two tensors' rows, which row_at gives, to panels: zeros of rows that do not exist, and of what is
 * right of a head's elements. */
template <int Block, int Rows, int Cols, class RowAt>
__device__ static inline void
start_panels(panels<Rows, Cols> to_a, const short_heads<const bf16> &a, panels<Rows, Cols> to_b,
             const short_heads<const bf16> &b, RowAt row_at) {
    constexpr int CHUNKS = Cols / 8, AT_ONCE = Block / CHUNKS;
    static_assert(Block % CHUNKS == 0, "each thread has one column of chunks");
    const int first = (int)threadIdx.x / CHUNKS, c = (int)threadIdx.x % CHUNKS;
    const bool a_there = 8 * c < a.size, b_there = 8 * c < b.size;
    const int a_from = a_there ? 8 * c : 0, b_from = b_there ? 8 * c : 0;
    const auto at = [](const short_heads<const bf16> &t, const head_row &from, int column) {
        return t.data + ((int64_t)from.row * t.stride + (from.head * t.size + column));
    };
    AX_UNROLL
    for (int i = 0; i < (Rows + AT_ONCE - 1) / AT_ONCE; i++) {
        const int row = first + i * AT_ONCE;
        if (Rows % AT_ONCE != 0 && row >= Rows)
            break;
        const head_row from = row_at(row);
        copy_16(to_a.chunk(row, c), at(a, from, a_from), from.exists && a_there);
        copy_16(to_b.chunk(row, c), at(b, from, b_from), from.exists && b_there);
    }
}

/* Copies that have been started are there, for all threads and for wgmma. */
__device__ static inline void await_tile() {
    copy_wait();
    shared_for_wgmma();
    __syncthreads();
}

/* A group's rows of a tile, as left sides: from there each time, or loaded once. */
template <int Rows, int D> struct left_tile {
    panels<Rows, D> from;
    int row;
    __device__ left_tile(panels<Rows, D> tile)
        : from(tile), row((int)threadIdx.x / GROUP_THREADS * GROUP_ROWS) {
    }
    __device__ wgmma_tile block(int k) const {
        return from.rows(row, k);
    }
};
template <int Rows, int D> struct left_held {
    uint32_t x[D / 16][4];
    __device__ left_held(panels<Rows, D> from) {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane % 16;
        AX_UNROLL
        for (int k = 0; k < D / 16; k++)
            load_matrices(x[k], from.chunk(row, 2 * k + lane / 16));
    }
    __device__ const uint32_t (&block(int k) const)[4] {
        return x[k];
    }
};

/* Starts s = left · rightᵀ, over rows of D elements. */
template <int D, class Left, int N, int Rows>
__device__ static inline void start_scores(sums<1, N> &s, const Left &left, panels<Rows, D> right) {
    wgmma<false, false>(s.x[0], left.block(0), right.rows(0, 0));
    AX_UNROLL
    for (int k = 1; k < D / 16; k++)
        wgmma<false, true>(s.x[0], left.block(k), right.rows(0, k));
    wgmma_commit();
}

/* Weights of K rows, rounded, as left sides. */
template <int K> struct weights {
    uint32_t x[K / 16][4];
    __device__ weights(const sums<1, K> &w) {
        AX_UNROLL
        for (int i = 0; i < K / 4; i++) {
            const float *pair = w.x[0][i / 2] + 2 * (i % 2);
            x[i / 4][i % 4] = round_pair(pair[0], pair[1]);
        }
    }
};

/* Starts r += w · rows, the first K of them. */
template <int D, int K, int Rows>
__device__ static inline void start_weighted(sums<1, D> &r, const weights<K> &w,
                                             panels<Rows, D> rows) {
    wgmma_begin();
    AX_UNROLL
    for (int k = 0; k < K / 16; k++)
        wgmma<true, true>(r.x[0], w.x[k], rows.columns(k));
    wgmma_commit();
}

/* Waits until at most Pending batches are not done; `s` is. */
template <int Pending, int N> __device__ static inline void await_sums(sums<1, N> &s) {
    wgmma_wait<Pending>();
    wgmma_done(s.x[0]);
}

/* Makes 0 of the weights of keys, from `first` on, that a row does not see. */
__device__ static inline void hide_weights(sums<1, STEP> &s, const view &sees, const int (&to)[2],
                                           int first) {
    const int t = threadIdx.x % 4;
    AX_UNROLL
    for (int i = 0; i < STEP / 2; i++)
        if (!sees.shows(to[s.row(i)], first + s.column(i) + 2 * t))
            s.at(i) = 0;
}

/* Whether all of a step's queries see all of a warp's keys. */
__device__ static inline bool all_see(const view &sees, const int *to, int first) {
    const int lane = threadIdx.x % 32;
    return __all_sync(0xffffffffu, sees.shows_all(to[lane], first, 16) &&
                                       sees.shows_all(to[lane + 32], first, 16)) != 0;
}

#endif

/* ---- dq ---- */

template <int D> struct dq_shared {
    static constexpr int GROUPS = D <= 64 ? 3 : 2, BLOCK = GROUPS * GROUP_THREADS;
    static constexpr int ROWS = GROUPS * GROUP_ROWS;
    panels<ROWS, D> queries, gradients;
    shared_at buffers;
    static constexpr int OWN = 2 * panels<ROWS, D>::BYTES, OTHER = 2 * panels<TILE<D>, D>::BYTES;
    static constexpr size_t BYTES = OWN + BUFFERS * OTHER + SWIZZLE;
    __device__ dq_shared(shared_at at)
        : queries{at}, gradients{at + queries.BYTES}, buffers(at + OWN) {
    }
    __device__ panels<TILE<D>, D> keys(int b, int row = 0) const {
        return {buffers + b * OTHER + row * 128};
    }
    __device__ panels<TILE<D>, D> values(int b, int row = 0) const {
        return {buffers + b * OTHER + OTHER / 2 + row * 128};
    }
};

template <int D>
__global__ void __launch_bounds__(dq_shared<D>::BLOCK, 1) attention_dq_wgmma(backward_args a) {
#ifdef AX_WGMMA
    constexpr int ROWS = dq_shared<D>::ROWS, BLOCK = dq_shared<D>::BLOCK;
    const pattern &p = a.p;
    AX_DYNAMIC_SHARED(bf16, memory);
    const dq_shared<D> tiles(shared_aligned(shared_of(memory), SWIZZLE));
    const place at = last_first(p.kv_heads, ROWS);
    const int warp_row = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4;
    const query_rows own = query_rows_at(p, a.group, at);
    const int first = own.query(0), last = own.last_query(ROWS);
    start_panels<BLOCK>(tiles.queries, a.q, tiles.gradients, a.dout, [&](int row) {
        const bool exists = own.exists(row);
        const int r = exists ? row : 0;
        return head_row{own.query(r), own.head(r), exists};
    });
    float lse[2], delta[2];
    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const int row = warp_row + 8 * i + g;
        const bool exists = own.exists(row);
        const int query = own.query(row), head = own.head(row);
        lse[i] = exists ? base_of(a.lse.at(query, head)) : 0;
        delta[i] = exists ? a.delta[(int64_t)query * a.heads + head] : 0;
    }
    int64_t n = first_document(p.cu_q, p.documents, first);
    await_tile();
    /* In registers they do not keep shared memory busy all the time. With fewer elements it is not, and ptxas of CUDA 13.0
     * puts weights into registers that hold them, which its PTX does not say (tools/check-kernels looks). */
    typedef std::conditional_t<(D > 64), left_held<ROWS, D>, left_tile<ROWS, D>> left;
    const left q(tiles.queries), dout(tiles.gradients);

    sums<1, D> dq = {};
    int b = 0;
    for (; n < p.documents && p.cu_q[n] <= last; n++) {
        const document d = document_of(p, n);
        const view sees = view_of(p, d);
        int to[2];
        AX_UNROLL
        for (int i = 0; i < 2; i++)
            to[i] = sight_of(p, d, own.query(warp_row + 8 * i + g) - (int)d.q_first);
        const span seen = keys_seen(p, d, max(first - d.q_first, (int64_t)0),
                                    min(last - d.q_first, d.nq - 1), TILE<D>);
        const int first_key = (int)d.k_first, end = (int)seen.to;
        const auto start = [&](int into, int k) {
            start_panels<BLOCK>(tiles.keys(into), a.k, tiles.values(into), a.v, [&](int row) {
                const int key = k + row;
                return head_row{first_key + min(key, sees.nk - 1), at.kv_head, key < sees.nk};
            });
        };
        if (seen.from < seen.to)
            start(b, (int)seen.from);
        int next = b, row = 0; /* of the tile, where the step begins */
        for (int k = (int)seen.from; k < end; k += STEP, row = (row + STEP) % TILE<D>) {
            if (row == 0) {
                b = next;
                next = b == BUFFERS - 1 ? 0 : b + 1;
                await_tile();
            }
            sums<1, STEP> s, dp;
            wgmma_begin();
            start_scores(s, q, tiles.keys(b, row));
            start_scores(dp, dout, tiles.values(b, row));
            if (row == 0 && k + TILE<D> < end)
                start(next, k + TILE<D>);
            const sight seen_here = warp_sight(sees, to, k, STEP);
            await_sums<1>(s);
            AX_UNROLL
            for (int i = 0; i < STEP / 2; i++)
                s.at(i) = power_of_two(s.at(i) * a.by.factor - lse[s.row(i)]);
            if (!seen_here.all)
                hide_weights(s, sees, to, k);
            await_sums<0>(dp);
            AX_UNROLL
            for (int i = 0; i < STEP / 2; i++)
                s.at(i) *= dp.at(i) - delta[s.row(i)];
            start_weighted(dq, weights<STEP>(s), tiles.keys(b, row));
        }
        b = next;
        await_sums<0>(dq);
        __syncthreads(); /* all buffers have been read */
    }

    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const int row = warp_row + 8 * i + g;
        if (own.exists(row))
            store_row(dq, i, p.scale, a.dq.at(own.query(row), own.head(row)), a.q.size);
    }
#endif
}

/* ---- dk and dv ---- */

/* What a tile's rows of queries have: sight_of each. */
template <int Rows> struct columns {
    float lse[Rows], delta[Rows];
    int to[Rows];
};

template <int D> struct dkv_shared {
    static constexpr int GROUPS = 2, BLOCK = GROUPS * GROUP_THREADS;
    static constexpr int ROWS = GROUPS * GROUP_ROWS;
    typedef columns<TILE<D>> tile_columns;
    tile_columns *of; /* BUFFERS of them */
    panels<ROWS, D> keys, values;
    shared_at buffers;
    static constexpr int OWN = 2 * panels<ROWS, D>::BYTES, OTHER = 2 * panels<TILE<D>, D>::BYTES;
    static constexpr size_t BYTES = BUFFERS * (sizeof(tile_columns) + OTHER) + OWN + SWIZZLE;
    __device__ dkv_shared(void *memory)
        : of((tile_columns *)memory), keys{shared_aligned(shared_of(of + BUFFERS), SWIZZLE)},
          values{keys.at + keys.BYTES}, buffers(keys.at + OWN) {
    }
    __device__ panels<TILE<D>, D> queries(int b, int row = 0) const {
        return {buffers + b * OTHER + row * 128};
    }
    __device__ panels<TILE<D>, D> gradients(int b, int row = 0) const {
        return {buffers + b * OTHER + OTHER / 2 + row * 128};
    }
};

template <int D>
__global__ void __launch_bounds__(dkv_shared<D>::BLOCK, 1) attention_dkv_wgmma(backward_args a) {
#ifdef AX_WGMMA
    constexpr int ROWS = dkv_shared<D>::ROWS, BLOCK = dkv_shared<D>::BLOCK;
    const pattern &p = a.p;
    AX_DYNAMIC_SHARED(bf16, memory);
    const dkv_shared<D> tiles(memory);
    const place at = first_first(p.kv_heads, ROWS);
    const int warp_row = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int first = (int)at.first, last = min((int)p.keys, first + ROWS) - 1;
    const int first_head = at.kv_head * p.group;
    start_panels<BLOCK>(tiles.keys, a.k, tiles.values, a.v, [&](int row) {
        return head_row{min(first + row, last), at.kv_head, first + row <= last};
    });
    const left_tile<ROWS, D> k_rows(tiles.keys), v_rows(tiles.values);

    sums<1, D> dk = {}, dv = {};
    int b = 0;
    for (int64_t n = first_document(p.cu_k, p.documents, first);
         n < p.documents && p.cu_k[n] <= last; n++) {
        const document d = document_of(p, n);
        const view sees = view_of(p, d);
        const int own = (int)(first + warp_row - d.k_first); /* the warp's first key */
        const int first_query = (int)d.q_first, queries = (int)d.nq;
        const span seen = rows_seeing(p, d, max(first - d.k_first, (int64_t)0),
                                      min(last - d.k_first, d.nk - 1), TILE<D>);
        const auto start = [&](int into, int c) {
            const auto row_at = [&](int row) {
                const int query = a.group.of(c + row);
                return head_row{first_query + min(query, queries - 1),
                                first_head + (c + row - query * p.group), query < queries};
            };
            start_panels<BLOCK>(tiles.queries(into), a.q, tiles.gradients(into), a.dout, row_at);
            if (threadIdx.x >= TILE<D>)
                return;
            columns<TILE<D>> *of = tiles.of + into;
            const head_row from = row_at((int)threadIdx.x);
            copy_4(shared_of(of->lse + threadIdx.x), &a.lse.at(from.row, from.head), from.exists);
            copy_4(shared_of(of->delta + threadIdx.x),
                   a.delta + (int64_t)from.row * a.heads + from.head, from.exists);
            of->to[threadIdx.x] = from.exists ? sight_of(p, d, from.row - first_query) : -FAR;
        };
        if (seen.from < seen.to)
            start(b, (int)seen.from);
        int next = b, row = 0; /* of the tile, where the step begins */
        for (int c = (int)seen.from; c < seen.to; c += STEP, row = (row + STEP) % TILE<D>) {
            if (row == 0) {
                b = next;
                next = b == BUFFERS - 1 ? 0 : b + 1;
                await_tile();
            }
            sums<1, STEP> s, dp;
            wgmma_begin();
            start_scores(s, k_rows, tiles.queries(b, row));
            start_scores(dp, v_rows, tiles.gradients(b, row));
            if (row == 0 && c + TILE<D> < seen.to)
                start(next, c + TILE<D>);
            const float *lse = tiles.of[b].lse + row, *delta = tiles.of[b].delta + row;
            const int *to = tiles.of[b].to + row;
            const bool all = all_see(sees, to, own);
            await_sums<1>(s);
            AX_UNROLL
            for (int i = 0; i < STEP / 2; i++)
                s.at(i) = power_of_two(s.at(i) * a.by.factor - lse[s.column(i) + 2 * t] * LOG2E);
            if (!all) {
                AX_UNROLL
                for (int i = 0; i < STEP / 2; i++)
                    if (!sees.shows(to[s.column(i) + 2 * t], own + 8 * s.row(i) + g))
                        s.at(i) = 0;
            }
            start_weighted(dv, weights<STEP>(s), tiles.gradients(b, row));
            await_sums<1>(dp);
            AX_UNROLL
            for (int i = 0; i < STEP / 2; i++)
                s.at(i) *= dp.at(i) - delta[s.column(i) + 2 * t];
            start_weighted(dk, weights<STEP>(s), tiles.queries(b, row));
            wgmma_wait<1>(); /* dv, whose weights take registers */
        }
        b = next;
        await_sums<0>(dv);
        await_sums<0>(dk);
        __syncthreads(); /* all buffers have been read */
    }
    copy_wait(); /* without queries, the keys are still on their way */

    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const int row = first + warp_row + 8 * i + g;
        if (row > last)
            continue;
        store_row(dk, i, p.scale, a.dk.at(row, at.kv_head), a.k.size);
        store_row(dv, i, 1, a.dv.at(row, at.kv_head), a.v.size);
    }
#endif
}

/* ---- launches ---- */

bool ax_wgmma_attention_suits(const struct ax_queue *q, const struct ax_attention *a) {
    return ax_cuda_has_wgmma(q) && a->softcap == 0 && a->q.shape[2] <= 128 && a->v.shape[2] <= 128;
}

template <int D> static enum ax_status run(struct ax_queue *q, const backward_args &args) {
    typedef dq_shared<D> dq;
    typedef dkv_shared<D> dkv;
    const pattern &p = args.p;
    if (p.queries > 0)
        AX_TRY(AX_LAUNCH(q, attention_dq_wgmma<D>,
                         blocks_in(p.queries * p.group, p.kv_heads, dq::ROWS), dq::BLOCK, dq::BYTES,
                         args));
    return p.keys == 0
               ? AX_OK
               : AX_LAUNCH(q, attention_dkv_wgmma<D>, blocks_in(p.keys, p.kv_heads, dkv::ROWS),
                           dkv::BLOCK, dkv::BYTES, args);
}

enum ax_status ax_wgmma_attention_backward(struct ax_queue *q, const struct ax_attention *a,
                                           const backward_args &args) {
    return a->q.shape[2] <= 64 && a->v.shape[2] <= 64 ? run<64>(q, args) : run<128>(q, args);
}
