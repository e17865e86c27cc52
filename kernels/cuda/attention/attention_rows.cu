/* What cuDNN's attention is given beside its tensors, and what it leaves open: lists of documents and blocks,
 * one thread per entry, and rows without keys, one block each. Moves little. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/cudnn.h"

/* ---- lists ---- */

struct list_args {
    const int32_t *cu_q, *cu_k;
    int64_t documents, capacity;
    int64_t stride[AX_CUDNN_TENSORS];
    int64_t *offsets; /* [AX_CUDNN_TENSORS][capacity + 1] */
    int32_t *lengths; /* [2][capacity] */
    const int32_t *table;
    int64_t table_stride, block_size, columns; /* 0: there is no table */
    int32_t *blocks;                           /* [capacity][columns] */
};

__host__ __device__ static inline bool is_of_keys(int t) {
    return t == AX_CUDNN_K || t == AX_CUDNN_V || t == AX_CUDNN_DK || t == AX_CUDNN_DV;
}

/* The block of a column of the table; any block where the document has no keys. */
__device__ static inline int32_t block_of(const list_args &a, int64_t d, int64_t column) {
    return d < a.documents && column * a.block_size < a.cu_k[d + 1] - a.cu_k[d]
               ? a.table[d * a.table_stride + column]
               : 0;
}

/* Documents beyond the last one are empty, and begin where it ends. */
__global__ void list_kernel(list_args a) {
    const int64_t entry = thread_number(), d = entry;
    if (entry < a.capacity * a.columns)
        a.blocks[entry] = block_of(a, entry / a.columns, entry % a.columns);
    if (d > a.capacity)
        return;
    const int64_t first = min(d, a.documents), next = min(d + 1, a.documents);
    for (int t = 0; t < AX_CUDNN_TENSORS; t++)
        a.offsets[t * (a.capacity + 1) + d] =
            a.stride[t] * (is_of_keys(t) ? a.cu_k[first] : a.cu_q[first]);
    if (d == a.capacity)
        return;
    a.lengths[d] = a.cu_q[next] - a.cu_q[first];
    a.lengths[a.capacity + d] = a.cu_k[next] - a.cu_k[first];
}

static size_t offset_bytes(const struct ax_cudnn_shape *s) {
    return (size_t)(AX_CUDNN_TENSORS * (s->documents + 1)) * sizeof(int64_t);
}

static int64_t columns_of(const struct ax_cudnn_shape *s) {
    return s->block_size > 0 ? s->max_k / s->block_size : 0;
}

extern "C" size_t ax_dnn_list_bytes(const struct ax_cudnn_shape *s) {
    return offset_bytes(s) + (size_t)(s->documents * (2 + columns_of(s))) * sizeof(int32_t);
}

extern "C" enum ax_status ax_dnn_list(struct ax_queue *q, const struct ax_attention *a,
                                      const struct ax_cudnn_shape *s, void *lists,
                                      struct ax_cudnn_operands *o) {
    int32_t *lengths = (int32_t *)((char *)lists + offset_bytes(s));
    list_args args = {(const int32_t *)a->cu_q.data,
                      (const int32_t *)a->cu_k.data,
                      a->cu_q.shape[0] - 1,
                      s->documents,
                      {},
                      (int64_t *)lists,
                      lengths,
                      (const int32_t *)a->block_table.data,
                      a->block_table.row_stride,
                      a->block_size,
                      columns_of(s),
                      lengths + 2 * s->documents};
    for (int t = 0; t < AX_CUDNN_TENSORS; t++) {
        args.stride[t] = s->stride[t];
        o->offsets[t] = args.offsets + t * (s->documents + 1);
    }
    o->lengths_q = lengths;
    o->lengths_k = lengths + s->documents;
    o->table = args.blocks;
    const int64_t entries = s->documents * args.columns;
    return AX_LAUNCH(q, list_kernel, blocks_of(max(s->documents + 1, entries), THREADS), THREADS, 0,
                     args);
}

/* ---- rows without keys ---- */

struct finish_args {
    pattern p;
    heads_of<bf16> out;
    rows_of<float> lse;
    const float *sink;
    int heads;
};

__device__ static inline bool sees_a_key(const pattern &p, const document &d, int64_t i) {
    const int64_t diagonal = i + shift_of(p, d);
    return d.nk > 0 && (!p.causal || diagonal >= 0);
}

__global__ void finish_forward_kernel(finish_args a) {
    const int64_t row = blockIdx.x, n = first_document(a.p.cu_q, a.p.documents, row);
    const bool in_one = n < a.p.documents && row >= a.p.cu_q[n];
    if (in_one && sees_a_key(a.p, document_of(a.p, n), row - a.p.cu_q[n]))
        return;
    for (int i = threadIdx.x; i < a.heads * a.out.size; i += THREADS)
        a.out.at(row, i / a.out.size)[i % a.out.size] = bf16(0.0f);
    for (int h = threadIdx.x; h < a.heads; h += THREADS)
        a.lse.at(row, h) = in_one && a.sink != nullptr ? a.sink[h] : -INFINITY;
}

extern "C" enum ax_status ax_dnn_finish_forward(struct ax_queue *q, const struct ax_attention *a) {
    const finish_args args = {pattern_of(a), as_heads<bf16>(&a->out), as_rows<float>(&a->lse),
                              (const float *)a->sink.data, (int)a->q.shape[1]};
    return AX_LAUNCH(q, finish_forward_kernel, (unsigned)a->q.shape[0], THREADS, 0, args);
}

struct outside_args {
    const int32_t *cu;
    int64_t documents;
    rows_of<bf16> to;
    int64_t cols;
};

__global__ void finish_backward_kernel(outside_args a) {
    const int64_t row = blockIdx.x;
    if (row >= a.cu[0] && row < a.cu[a.documents])
        return;
    for (int64_t i = threadIdx.x; i < a.cols; i += THREADS)
        a.to.at(row, i) = bf16(0.0f);
}

struct finite_args {
    const int32_t *cu;
    int64_t documents;
    rows_of<const float> lse;
    rows_of<float> to;
    int heads;
};

__global__ void finite_lse_kernel(finite_args a) {
    const int64_t row = blockIdx.x;
    const bool in_one = row >= a.cu[0] && row < a.cu[a.documents];
    for (int h = threadIdx.x; h < a.heads; h += THREADS)
        a.to.at(row, h) = in_one ? a.lse.at(row, h) : 0;
}

extern "C" enum ax_status ax_dnn_finite_lse(struct ax_queue *q, const struct ax_attention *a,
                                            const struct ax_tensor *to) {
    const finite_args args = {(const int32_t *)a->cu_q.data, a->cu_q.shape[0] - 1,
                              as_rows<const float>(&a->lse), as_rows<float>(to),
                              (int)a->lse.shape[1]};
    return AX_LAUNCH(q, finite_lse_kernel, (unsigned)to->shape[0], THREADS, 0, args);
}

extern "C" enum ax_status ax_dnn_finish_backward(struct ax_queue *q, const struct ax_tensor *t,
                                                 const struct ax_tensor *cu) {
    const outside_args args = {(const int32_t *)cu->data, cu->shape[0] - 1, as_rows<bf16>(t),
                               t->shape[1] * t->shape[2]};
    return AX_LAUNCH(q, finish_backward_kernel, (unsigned)t->shape[0], THREADS, 0, args);
}
