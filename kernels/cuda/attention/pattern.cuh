/* What all attention kernels of ours know: their operands, which queries see which keys, and the rows of
 * queries. */
#ifndef AX_KERNELS_CUDA_ATTENTION_PATTERN_CUH
#define AX_KERNELS_CUDA_ATTENTION_PATTERN_CUH

#include "kernels/cuda/kernel.cuh"

/* A tensor [rows][heads][size]. */
template <class E> struct heads_of {
    E *data;
    int64_t stride;
    int size;
    __device__ E *at(int64_t row, int64_t head) const {
        return data + row * stride + head * size;
    }
};
template <class E> static inline heads_of<E> as_heads(const struct ax_tensor *t) {
    return {(E *)t->data, t->row_stride, (int)t->shape[2]};
}

/* Which queries see which keys. */
struct pattern {
    const int32_t *cu_q, *cu_k, *table, *chosen;
    int64_t documents, queries, keys, table_stride, chosen_stride, block_size, window, ahead;
    int kv_heads, group; /* group: query heads per KV head */
    bool causal;
    float scale, softcap;
};
static inline pattern pattern_of(const struct ax_attention *a) {
    return {(const int32_t *)a->cu_q.data,
            (const int32_t *)a->cu_k.data,
            (const int32_t *)a->block_table.data,
            (const int32_t *)a->chosen.data,
            a->cu_q.shape[0] - 1,
            a->q.shape[0],
            a->k.shape[0],
            a->block_table.row_stride,
            a->chosen.row_stride,
            a->block_size,
            a->window,
            a->ahead,
            (int)a->k.shape[1],
            (int)(a->q.shape[1] / a->k.shape[1]),
            a->causal,
            (float)a->scale,
            (float)a->softcap};
}

struct document {
    int64_t index, q_first, nq, k_first, nk;
};
__device__ static inline document document_of(const pattern &p, int64_t d) {
    return {d, p.cu_q[d], p.cu_q[d + 1] - p.cu_q[d], p.cu_k[d], p.cu_k[d + 1] - p.cu_k[d]};
}

/* The first document that ends after this row of cu, or their number. */
__device__ static inline int64_t first_document(const int32_t *cu, int64_t documents, int64_t row) {
    int64_t low = 0, high = documents;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (cu[middle + 1] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The last key that query i of a document sees, if it is causal, less i. */
__device__ static inline int64_t shift_of(const pattern &p, const document &d) {
    return p.ahead > 0 ? d.nk - 1 + p.ahead : d.nk - d.nq;
}

/* True if query i of a document sees its key j; both must be in the document. */
__device__ static inline bool is_visible(const pattern &p, const document &d, int64_t i,
                                         int64_t j) {
    const int64_t diagonal = i + shift_of(p, d);
    if (p.causal && (j > diagonal || (p.window > 0 && j <= diagonal - p.window)))
        return false;
    return p.chosen == nullptr ||
           ((uint32_t)p.chosen[(d.q_first + i) * p.chosen_stride + j / 32] >> j % 32 & 1) != 0;
}

__device__ static inline int64_t key_row(const pattern &p, const document &d, int64_t j) {
    if (p.table == nullptr)
        return d.k_first + j;
    return p.table[d.index * p.table_stride + j / p.block_size] * p.block_size + j % p.block_size;
}

__device__ static inline float logit_of(const pattern &p, float product) {
    const float s = p.scale * product;
    return p.softcap > 0 ? p.softcap * tanhf(s / p.softcap) : s;
}

/* The rows of queries: row r of all is query r / group and head kv_head·group + r % group. */
struct query_row {
    int64_t query, head;
};
__device__ static inline query_row query_row_of(const pattern &p, int kv_head, int64_t row) {
    return {row / p.group, kv_head * (int64_t)p.group + row % p.group};
}

/* Rows or keys [from, to). */
struct span {
    int64_t from, to;
};

/* The keys that queries [from, to] of a document see some of, from a multiple of `tile` on. */
__device__ static inline span keys_seen(const pattern &p, const document &d, int64_t from,
                                        int64_t to, int tile) {
    const int64_t shift = shift_of(p, d);
    const int64_t end = p.causal ? min(d.nk, to + shift + 1) : d.nk;
    const int64_t begin = p.window > 0 ? from + shift - p.window + 1 : 0;
    return {max((int64_t)0, begin) / tile * tile, end};
}

/* The queries of a document that see some of keys [from, to], in rows of all heads, from a multiple of
 * `tile` on. */
__device__ static inline span rows_seeing(const pattern &p, const document &d, int64_t from,
                                          int64_t to, int tile) {
    const int64_t shift = shift_of(p, d);
    const int64_t begin = p.causal ? max((int64_t)0, from - shift) : 0;
    const int64_t end = p.window > 0 ? min(d.nq, to + p.window - shift) : d.nq;
    return {begin * p.group / tile * tile, end * p.group};
}

#endif
