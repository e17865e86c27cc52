/* A stand-in for libaxtrain-cudnn.so: attention by ref, when the stream gets there. It checks that lists
 * of documents and blocks say what tensors have, leaves rows of no document as they are, and fills rows
 * without keys, of which cuDNN promises nothing, and its workspace with NaNs; where no document has more than one
 * query, also the row where one without queries would begin, which cuDNN computes. A plan is used until then. */
#include "kernels/cuda/attention/cudnn_shim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

extern "C" {
#include "kernels/queue.h"
}
#include "tests/doubles/cuda/libraries.h"
#include "tests/doubles/cuda/machine.h"
#include "tests/doubles/cuda/stream.h"

struct ax_cudnn {
    size_t version;
};
struct ax_cudnn_plan {
    ax_cudnn_shape shape;
    size_t work;
};

namespace {

void must(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "emulated cuDNN: %s\n", what);
    abort();
}

bool is_of_keys(int t) {
    return t == AX_CUDNN_K || t == AX_CUDNN_V || t == AX_CUDNN_DK || t == AX_CUDNN_DV;
}

/* A tensor [blocks · block_size][heads][size]. */
bool is_in_blocks(const ax_cudnn_shape &s, int t) {
    return s.block_size > 0 && is_of_keys(t);
}

/* What the first rows would be, and at last where they would end, without a table. */
std::vector<int32_t> starts_in_table(const ax_cudnn_shape &s, const ax_cudnn_operands &o) {
    const int64_t columns = s.max_k / s.block_size;
    std::vector<int32_t> first = {0};
    must(s.max_k % s.block_size == 0 && s.rows_k % s.block_size == 0, "there is part of a block");
    for (int64_t d = 0; d < s.documents; d++) {
        must(o.lengths_k[d] >= 0 && o.lengths_k[d] <= s.max_k, "a document is longer than planned");
        first.push_back(first.back() + o.lengths_k[d]);
        for (int64_t c = 0; c < columns; c++) {
            const int32_t block = o.table[d * columns + c];
            must(block >= 0 && block < s.rows_k / s.block_size, "there is no such block");
        }
    }
    return first;
}

/* The first rows of documents, and at last where they end. */
std::vector<int32_t> starts(const ax_cudnn_shape &s, const ax_cudnn_operands &o, int t) {
    const int32_t *lengths = is_of_keys(t) ? o.lengths_k : o.lengths_q;
    std::vector<int32_t> first;
    if (is_in_blocks(s, t))
        return starts_in_table(s, o);
    for (int64_t d = 0; d <= s.documents; d++) {
        must(o.offsets[t][d] % s.stride[t] == 0, "an offset is in the middle of a row");
        first.push_back((int32_t)(o.offsets[t][d] / s.stride[t]));
        must(d == 0 || first[d] == first[d - 1] + lengths[d - 1], "documents are not packed");
        must(d == 0 || lengths[d - 1] <= (is_of_keys(t) ? s.max_k : s.max_q),
             "a document is longer than planned");
    }
    must(!s.backward || first.back() - first[0] <= (is_of_keys(t) ? s.rows_k : s.rows_q),
         "there are more rows than planned");
    return first;
}

ax_tensor list(enum ax_dtype dtype, const void *data, int64_t n) {
    ax_tensor t = {};
    t.dtype = dtype;
    t.ndim = 1;
    t.shape[0] = n;
    t.row_stride = 1;
    t.data = (void *)data;
    return t;
}

/* The rows of documents. */
ax_tensor rows(const ax_cudnn_shape &s, const ax_cudnn_operands &o, int t, int32_t first,
               int32_t end) {
    const bool values =
        t == AX_CUDNN_V || t == AX_CUDNN_DV || t == AX_CUDNN_OUT || t == AX_CUDNN_DOUT;
    ax_tensor r = {};
    r.dtype = t == AX_CUDNN_LSE ? AX_F32 : AX_BF16;
    r.ndim = t == AX_CUDNN_LSE ? 2 : 3;
    r.shape[0] = end - first;
    r.shape[1] = is_of_keys(t) ? s.heads_k : s.heads_q;
    r.shape[2] = t == AX_CUDNN_LSE ? 0 : values ? s.size_v : s.size_qk;
    r.row_stride = s.stride[t];
    r.data = (char *)o.data[t] + first * s.stride[t] * (int64_t)ax_dtype_size(r.dtype);
    return r;
}

/* What a tile has of lse beside its document's. */
void check_lse_behind(const ax_cudnn_shape &s, const ax_cudnn_operands &o, int32_t first,
                      int32_t end) {
    const ax_tensor lse = rows(s, o, AX_CUDNN_LSE, first, end + 128);
    for (int64_t r = 0; r < lse.shape[0]; r++)
        for (int64_t h = 0; h < s.heads_q; h++)
            must(isfinite(((const float *)ax_tensor_row(&lse, r))[h]), "lse is not a number");
}

/* Weights of 0 are multiplied with rows that no document has. */
void check_blocks(const ax_tensor &t) {
    for (int64_t r = 0; r < t.shape[0]; r++)
        for (int64_t i = 0; i < t.shape[1] * t.shape[2]; i++)
            must((((const uint16_t *)ax_tensor_row(&t, r))[i] & 0x7f80) != 0x7f80,
                 "a block has values that are no numbers");
}

/* Those of cuDNN's results that nobody may read. */
void spoil_rows_without_keys(const ax_attention &a, const std::vector<int32_t> &q,
                             const std::vector<int32_t> &k) {
    for (size_t d = 0; d + 1 < q.size(); d++)
        for (int32_t i = 0; i < q[d + 1] - q[d]; i++) {
            const int32_t nk = k[d + 1] - k[d], diagonal = i + nk - (q[d + 1] - q[d]);
            if (nk > 0 && (!a.causal || diagonal >= 0))
                continue;
            memset(ax_tensor_row(&a.out, q[d] - q[0] + i), 0xff,
                   (size_t)(a.out.shape[1] * a.out.shape[2]) * 2);
            memset(ax_tensor_row(&a.lse, q[d] - q[0] + i), 0xff, (size_t)a.lse.shape[1] * 4);
        }
}

void compute(const ax_cudnn_plan &p, const ax_cudnn_operands &o, char *work) {
    const ax_cudnn_shape &s = p.shape;
    const int tensors = s.backward ? (int)AX_CUDNN_TENSORS : (int)AX_CUDNN_DOUT;
    const std::vector<int32_t> q = starts(s, o, AX_CUDNN_Q), k = starts(s, o, AX_CUDNN_K);
    ax_tensor t[AX_CUDNN_TENSORS] = {};
    for (int i = 0; i < tensors; i++) {
        must(starts(s, o, i) == (is_of_keys(i) ? k : q), "offsets of tensors differ");
        t[i] = is_in_blocks(s, i) ? rows(s, o, i, 0, (int32_t)s.rows_k)
               : is_of_keys(i)    ? rows(s, o, i, k[0], k.back())
                                  : rows(s, o, i, q[0], q.back());
    }
    for (int i : {AX_CUDNN_K, AX_CUDNN_V})
        if (is_in_blocks(s, i))
            check_blocks(t[i]);
    if (s.backward && s.softcap > 0)
        check_lse_behind(s, o, q[0], q.back());
    std::vector<int32_t> cu_q, cu_k;
    for (size_t d = 0; d < q.size(); d++) {
        cu_q.push_back(q[d] - q[0]);
        cu_k.push_back(k[d] - k[0]);
    }
    memset(work, 0xff, p.work);

    ax_queue host = {};
    host.ops = host.model = &ax_ops_ref;
    host.threads = 1;
    ax_attention_backward b = {};
    b.a.q = t[AX_CUDNN_Q];
    b.a.k = t[AX_CUDNN_K];
    b.a.v = t[AX_CUDNN_V];
    b.a.out = t[AX_CUDNN_OUT];
    b.a.lse = t[AX_CUDNN_LSE];
    b.a.cu_q = list(AX_I32, cu_q.data(), s.documents + 1);
    b.a.cu_k = list(AX_I32, cu_k.data(), s.documents + 1);
    b.a.max_q = s.max_q;
    b.a.max_k = s.max_k;
    b.a.window = s.window;
    b.a.scale = s.scale;
    b.a.causal = s.causal;
    b.a.softcap = s.softcap;
    b.a.block_size = s.block_size;
    if (s.block_size > 0) {
        b.a.block_table = list(AX_I32, o.table, s.documents);
        b.a.block_table.ndim = 2;
        b.a.block_table.shape[1] = b.a.block_table.row_stride = s.max_k / s.block_size;
    }
    if (s.sink)
        b.a.sink = list(AX_F32, o.sink, s.heads_q);
    ax_attention_forward f = {b.a};
    b.dout = t[AX_CUDNN_DOUT];
    b.dq = t[AX_CUDNN_DQ];
    b.dk = t[AX_CUDNN_DK];
    b.dv = t[AX_CUDNN_DV];
    const enum ax_op op = s.backward ? AX_OP_attention_backward : AX_OP_attention_forward;
    const void *args = s.backward ? (const void *)&b : (const void *)&f;
    std::vector<char> room(ax_ops_ref.workspace ? ax_ops_ref.workspace(&host, op, args) : 0);
    must((s.backward ? ax_ops_ref.attention_backward(&host, &b, room.data())
                     : ax_ops_ref.attention_forward(&host, &f, room.data())) == AX_OK,
         "ref failed");
    if (!s.backward)
        spoil_rows_without_keys(f.a, q, k);
    for (size_t d = 0; !s.backward && s.max_q == 1 && d + 1 < q.size(); d++)
        if (q[d + 1] == q[d])
            memset(ax_tensor_row(&f.a.lse, q[d] - q[0]), 0xff, (size_t)f.a.lse.shape[1] * 4);
}

/* ---- the functions ---- */

size_t library_version() {
    return ax_emulated_setting("AXTRAIN_EMULATED_CUDNN", 92801);
}
ax_cudnn_result open(ax_cudnn **out, void *, const char *, char *) {
    *out = new ax_cudnn{library_version()};
    return AX_CUDNN_DONE;
}
void close(ax_cudnn *c) {
    delete c;
}

bool is_power_of_two(int32_t n) {
    return (n & (n - 1)) == 0;
}

/* Before 9.25, backward on Hopper has all products in memory, of the longest documents, to have the same bits
 * each time. */
size_t work_of(const ax_cudnn &c, const ax_cudnn_shape &s) {
    const int64_t pairs = (s.max_q + 63) / 64 * 64 * ((s.max_k + 127) / 128 * 128);
    const bool products = s.backward == AX_CUDNN_FIXED && c.version < 92500;
    return 4096 + (products ? (size_t)(s.documents * s.heads_q * pairs) * 2 : 0);
}

/* Refuses what cuDNN refuses on Hopper. */
ax_cudnn_result plan(ax_cudnn *c, const ax_cudnn_shape *s, ax_cudnn_plan **out, size_t *work,
                     char *text) {
    must(!s->backward || s->block_size == 0, "backward has no block table");
    if (s->size_qk % 8 || s->size_v % 8 || s->size_qk > 256 || s->size_v > 256 ||
        !is_power_of_two(s->block_size) || (s->sink && s->max_q == 1)) {
        snprintf(text, AX_CUDNN_TEXT, "the stand-in does not take this shape");
        return AX_CUDNN_REFUSED;
    }
    *out = new ax_cudnn_plan{*s, work_of(*c, *s)};
    *work = (*out)->work;
    return AX_CUDNN_DONE;
}
void forget(ax_cudnn_plan *p) {
    delete p;
}

ax_cudnn_result run(ax_cudnn *, ax_cudnn_plan *p, const ax_cudnn_operands *o, void *work,
                    void *stream, char *text) {
    const ax_cudnn_operands operands = *o;
    for (int t = 0; t < AX_CUDNN_TENSORS; t++)
        if ((uintptr_t)o->data[t] % 16) {
            snprintf(text, AX_CUDNN_TEXT, "an address is not a multiple of 16");
            return AX_CUDNN_FAILED;
        }
    must((uintptr_t)work % 256 == 0, "the workspace is not aligned");
    ax_emulated_add((cudaStream_t)stream, [=] { compute(*p, operands, (char *)work); });
    return AX_CUDNN_DONE;
}

const ax_cudnn_calls *get() {
    static const ax_cudnn_calls calls = {AX_VERSION, open, close, plan, forget, run};
    return &calls;
}
int runtime_version(int *version) {
    *version = 13000;
    return 0;
}
} // namespace

const struct ax_standin ax_standin_cudnn[] = {
    {"ax_cudnn_get", (void *)get},
    {"cudnnGetVersion", (void *)library_version},
    {"cudaRuntimeGetVersion", (void *)runtime_version},
    {nullptr, nullptr},
};
