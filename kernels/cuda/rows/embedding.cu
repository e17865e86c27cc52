/* Rows of a table (kernels/ops.h): embedding_forward copies them, embedding_backward adds to them, neftune adds
 * noise to the result. Bytes moved: the rows of these tokens, and each other operand once. */
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/vector.cuh"

struct shard {
    const int32_t *tokens;
    int64_t first_row, rows, known;
    /* The row of all the table that is token t's. */
    __device__ int32_t whole_row(int64_t t) const {
        return (int32_t)AX_EMBEDDING_ROW(tokens[t], known);
    }
    /* A row's place in this shard, or −1. */
    __device__ int64_t own_row(int32_t whole) const {
        const int64_t row = whole - first_row;
        return row >= 0 && row < rows ? row : -1;
    }
};

template <class E, class Y>
__global__ void embedding_forward_kernel(vector_rows<E> weight, shard s, vector_rows<Y> out) {
    const int64_t t = blockIdx.x, col = item_number() * AX_NEIGHBORS;
    const int64_t row = s.own_row(s.whole_row(t));
    float x[AX_NEIGHBORS] = {};
    if (col >= out.cols)
        return;
    if (row >= 0)
        weight.load(row, col, x);
    out.store(t, col, x);
}

extern "C" enum ax_status
ax_cuda_embedding_forward(struct ax_queue *q, const struct ax_embedding_forward *a, void *work) {
    (void)work;
    const int64_t n = a->out.shape[0], cols = a->out.shape[1];
    const shard s = {(const int32_t *)a->tokens.data, a->first_row, a->weight.shape[0], a->known};
    const row_launch l = items_of(n, vectors_in(cols));
    if (n == 0 || cols == 0)
        return AX_OK;
    return by_real(a->weight.dtype, [&](auto *w) {
        return by_real(a->out.dtype, [&](auto *y) {
            typedef AX_TYPE(w) E;
            typedef AX_TYPE(y) Y;
            return AX_LAUNCH(q, (embedding_forward_kernel<E, Y>), l.grid, l.threads, 0,
                             as_vectors<E>(&a->weight), s, as_vectors<Y>(&a->out));
        });
    });
}

/* ---- backward ---- */

#define SCANNERS 128            /* threads; each adds up 8 columns */
#define SCANNED  (SCANNERS * 8) /* tokens compared at a time: their bits are 32 words */

/* The bits of those of tokens [first, first + SCANNED) whose row is `whole`, in order. */
__device__ static inline void find_row(const shard &s, int64_t n, int64_t first, int32_t whole,
                                       uint32_t (&found)[SCANNED / 32]) {
    for (int i = 0; i < SCANNED / SCANNERS; i++) {
        const int64_t at = first + i * SCANNERS + threadIdx.x;
        const uint32_t bits = __ballot_sync(0xffffffffu, at < n && s.whole_row(at) == whole);
        if (threadIdx.x % 32 == 0)
            found[i * (SCANNERS / 32) + threadIdx.x / 32] = bits;
    }
    __syncthreads();
}

/* The sum of some rows' 8 columns from `col` on. Four rows are loaded at a time and added in order. */
template <class E> struct row_sum {
    vector_rows<E> rows;
    int64_t col;
    float sum[AX_NEIGHBORS];
    int64_t a, b, c, d; /* the last rows, of which `waiting` are not added yet */
    int waiting;

    __device__ void add(const float (&x)[AX_NEIGHBORS]) {
        for (int i = 0; i < AX_NEIGHBORS; i++)
            sum[i] += x[i];
    }
    __device__ void push(int64_t row) {
        a = b;
        b = c;
        c = d;
        d = row;
        if (++waiting == 4)
            flush();
    }
    __device__ void flush() {
        float x[4][AX_NEIGHBORS];
        const int n = col < rows.cols ? waiting : 0;
        waiting = 0;
        if (n > 3)
            rows.load(a, col, x[0]);
        if (n > 2)
            rows.load(b, col, x[1]);
        if (n > 1)
            rows.load(c, col, x[2]);
        if (n > 0)
            rows.load(d, col, x[3]);
        for (int i = 0; i < 4; i++)
            if (n > 3 - i)
                add(x[i]);
    }
};

/* Blocks in x count tokens: the block of a row's first place adds what is at all its places, in order.
 * Blocks in y share the columns. */
template <class E>
__global__ void __launch_bounds__(SCANNERS)
    embedding_backward_kernel(vector_rows<E> dout, shard s, int64_t n, int32_t skip,
                              vector_rows<float> dweight) {
    AX_SHARED(uint32_t, found, [2][SCANNED / 32]); /* in turn, so that one barrier is enough */
    const int64_t t = blockIdx.x, col = item_number() * AX_NEIGHBORS;
    const int32_t whole = s.whole_row(t);
    const int64_t row = s.own_row(whole);
    row_sum<E> sum = {dout, col, {}, 0, 0, 0, 0, 0};
    if (row < 0 || whole == skip)
        return;
    if (col < dout.cols)
        dweight.load(row, col, sum.sum);
    int turn = 0;
    for (int64_t first = 0; first < n; first += SCANNED, turn = !turn) {
        find_row(s, n, first, whole, found[turn]);
        for (int w = 0; w < SCANNED / 32; w++)
            for (uint32_t bits = found[turn][w]; bits != 0; bits &= bits - 1) {
                const int64_t at = first + w * 32 + __ffs((int)bits) - 1;
                if (at < t)
                    return; /* all threads of the block */
                sum.push(at);
            }
    }
    sum.flush();
    if (col < dout.cols)
        dweight.store(row, col, sum.sum);
}

extern "C" enum ax_status
ax_cuda_embedding_backward(struct ax_queue *q, const struct ax_embedding_backward *a, void *work) {
    (void)work;
    const int64_t n = a->dout.shape[0], cols = a->dout.shape[1];
    const shard s = {(const int32_t *)a->tokens.data, a->first_row, a->dweight.shape[0], a->known};
    if (n == 0 || cols == 0)
        return AX_OK;
    return by_real(a->dout.dtype, [&](auto *d) {
        typedef AX_TYPE(d) E;
        return AX_LAUNCH(q, embedding_backward_kernel<E>,
                         dim3((unsigned)n, blocks_of(vectors_in(cols), SCANNERS)), SCANNERS, 0,
                         as_vectors<E>(&a->dout), s, n, (int32_t)a->skip_token,
                         as_vectors<float>(&a->dweight));
    });
}

/* ---- neftune ---- */

struct documents {
    const int32_t *cu;
    int64_t n; /* entries of cu */
};

/* The number of tokens in the document of token t, 0 if it has none. */
__device__ static inline int64_t document_length(const documents &d, int64_t t) {
    int64_t low = 0, high = d.n; /* entries before `low` are ≤ t, from `high` on larger */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (d.cu[middle] <= t)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && low < d.n ? d.cu[low] - d.cu[low - 1] : 0;
}

struct noise {
    double alpha;
    uint32_t stream;
    int64_t first, first_token;
    const struct ax_step_scalars *scalars;
};

/* A thread has the four numbers of a random block, as many of them as the row has. */
template <class E> __global__ void neftune_kernel(vector_rows<E> x, documents d, noise how) {
    const int64_t row = blockIdx.x, t = how.first + row, length = document_length(d, t);
    const int64_t number = (how.first_token + t) * x.cols;
    const uint64_t block = (uint64_t)(number / 4 + item_number());
    const int64_t col = (int64_t)(4 * block) - number;
    const struct ax_rng_key key = {how.scalars->seed, (uint32_t)how.scalars->step, how.stream};
    if (length == 0 || col >= x.cols)
        return;
    const float bound = (float)(how.alpha / sqrt((double)(length * x.cols)));
    const random_block words = random_block_of(key, block);
    for (int i = 0; i < 4; i++) {
        const float unit = 2 * ((float)(words.word((uint64_t)i) >> 8) * 0x1p-24f) - 1;
        E *at = x.data + row * x.stride + col + i;
        if (col + i >= 0 && col + i < x.cols)
            *at = E((float)*at + bound * unit);
    }
}

extern "C" enum ax_status ax_cuda_neftune(struct ax_queue *q, const struct ax_neftune *a,
                                          void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    const documents d = {(const int32_t *)a->cu.data, a->cu.shape[0]};
    const noise how = {a->alpha, a->stream, a->first, a->first_token, a->scalars};
    const row_launch l = items_of(rows, cols / 4 + 2); /* blocks that have numbers of a row */
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *x) {
        typedef AX_TYPE(x) E;
        return AX_LAUNCH(q, neftune_kernel<E>, l.grid, l.threads, 0, as_vectors<E>(&a->x), d, how);
    });
}
