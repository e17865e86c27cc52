/* Divides attention into blocks and tasks: sizes, documents, addresses, visible keys. */
#include "kernels/cpu/vec/attention/attention.h"

#ifdef __AVX512BF16__
#define BF16_PAIRS true
#else
#define BF16_PAIRS false
#endif

bool AX_VEC(ax_attention_supports)(const struct ax_attention *a, int64_t most) {
    return (a->q.dtype == AX_F32 || a->q.dtype == AX_BF16) && a->q.shape[2] <= most &&
           a->v.shape[2] <= most;
}

static struct ax_attention_head head_of(const struct ax_tensor *t, int64_t per_unit) {
    const int64_t size = t->shape[2];
    return (struct ax_attention_head){size, ceil_div(summed(size), per_unit),
                                      round_up(size, AX_LANES)};
}

struct ax_attention_shape AX_VEC(ax_attention_shape)(const struct ax_attention *a, int64_t rows) {
    struct ax_attention_shape s = {
        .dtype = a->q.dtype,
        .pairs = BF16_PAIRS && a->q.dtype == AX_BF16,
        .kv_heads = a->k.shape[1],
        .group = a->q.shape[1] / a->k.shape[1],
    };
    s.per_unit = s.pairs ? 2 : 1;
    s.cap = a->softcap > 0 ? (float)(a->softcap * (double)AX_ATTENTION_LOG2E) : 0;
    s.scale = s.cap > 0 ? (float)(a->scale / a->softcap) : (float)a->scale * AX_ATTENTION_LOG2E;
    s.k = head_of(&a->k, s.per_unit);
    s.v = head_of(&a->v, s.per_unit);
    s.key_units = AX_ATTENTION_KEYS / s.per_unit;
    const int64_t head_dim = s.k.size > s.v.size ? s.k.size : s.v.size;
    const int64_t block = (head_dim > 128 ? rows / 2 : rows) / s.group;
    s.block = block > 0 ? block : 1;
    s.max_rows = summed(round_up(least(s.block, a->max_q) * s.group, s.per_unit));
    return s;
}

int64_t AX_VEC(ax_attention_docs)(const struct ax_attention *a) {
    return a->cu_q.shape[0] - 1;
}

struct ax_attention_doc AX_VEC(ax_attention_doc)(const struct ax_attention *a, int64_t index) {
    const int32_t *q = (const int32_t *)a->cu_q.data + index;
    const int32_t *k = (const int32_t *)a->cu_k.data + index;
    AX_ASSERT(q[1] - q[0] <= a->max_q && k[1] - k[0] <= a->max_k);
    return (struct ax_attention_doc){index, q[0], q[1] - q[0], k[0], k[1] - k[0]};
}

int64_t AX_VEC(ax_attention_count)(const struct ax_attention *a, const struct ax_attention_shape *s,
                                   int64_t (*tasks)(const struct ax_attention_shape *s,
                                                    int64_t n_q),
                                   int64_t *first) {
    int64_t docs = AX_VEC(ax_attention_docs)(a);
    first[0] = 0;
    for (int64_t d = 0; d < docs; d++)
        first[d + 1] = first[d] + tasks(s, AX_VEC(ax_attention_doc)(a, d).n_q);
    return first[docs];
}

int64_t AX_VEC(ax_attention_find)(const int64_t *first, int64_t docs, int64_t task) {
    int64_t low = 0;
    int64_t high = docs; /* first[low] ≤ task < first[high] */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (first[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void AX_VEC(ax_attention_query_rows)(const struct ax_attention_shape *s, const struct ax_tensor *x,
                                     const struct ax_attention_block *b, void **rows) {
    const int64_t size = (int64_t)ax_dtype_size(s->dtype), head_dim = x->shape[2];
    char *heads =
        (char *)x->data +
        ((b->doc.first_q + b->query) * x->row_stride + b->kv_head * s->group * head_dim) * size;
    for (int64_t r = 0; r < b->rows; r += s->group, heads += x->row_stride * size)
        for (int64_t head = 0; head < s->group; head++)
            rows[r + head] = heads + head * head_dim * size;
}

void AX_VEC(ax_attention_key_rows)(const struct ax_attention *a, const struct ax_tensor *x,
                                   const struct ax_attention_block *b, void **rows) {
    const int64_t size = (int64_t)ax_dtype_size(x->dtype);
    const int64_t stride = x->row_stride * size;
    char *head = (char *)x->data + b->kv_head * x->shape[2] * size;
    if (a->block_table.data == NULL) {
        for (int64_t i = 0; i < b->keys; i++)
            rows[i] = head + (b->doc.first_k + b->key + i) * stride;
        return;
    }
    const int32_t *table =
        (const int32_t *)a->block_table.data + b->doc.index * a->block_table.row_stride;
    const uint32_t block = (uint32_t)a->block_size; /* one division per call: they are slow */
    int64_t column = (uint32_t)b->key / block, within = (uint32_t)b->key % block;
    for (int64_t i = 0; i < b->keys; column++, within = 0) {
        int64_t row = table[column] * a->block_size + within;
        int64_t end = least(i + a->block_size - within, b->keys);
        for (; i < end; i++, row++)
            rows[i] = head + row * stride;
    }
}

float *AX_VEC(ax_attention_lse)(const struct ax_attention *a, const struct ax_attention_shape *s,
                                const struct ax_attention_block *b, int64_t r) {
    int64_t row = b->doc.first_q + b->query + r / s->group;
    int64_t head = b->kv_head * s->group + r % s->group;
    return (float *)a->lse.data + row * a->lse.row_stride + head;
}

void AX_VEC(ax_attention_visible)(const struct ax_attention *a, const struct ax_attention_shape *s,
                                  const struct ax_attention_block *b, int64_t *low, int64_t *high) {
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t to_first = a->ahead > 0 ? b->doc.n_k - 1 + a->ahead : b->doc.n_k - b->doc.n_q;
        const int64_t diagonal = b->query + r / s->group + to_first;
        high[r] = a->causal ? least(diagonal + 1, b->doc.n_k) : b->doc.n_k;
        high[r] = high[r] > 0 ? high[r] : 0;
        low[r] = a->window > 0 && a->window <= diagonal ? diagonal - a->window + 1 : 0;
        low[r] = least(low[r], high[r]);
    }
}

bool AX_VEC(ax_attention_any)(const struct ax_attention *a, const struct ax_attention_shape *s,
                              const struct ax_attention_block *b, int64_t first, int64_t n) {
    if (a->chosen.data == NULL)
        return true;
    uint32_t any = 0;
    for (int64_t r = first; r < first + n && any == 0; r++)
        for (int64_t j = 0; j < b->keys; j += AX_LANES)
            any |= chosen_bits(a, s, b, r, j);
    return any != 0;
}

void AX_VEC(ax_attention_clear)(const struct ax_tensor *x, int64_t first) {
    for (int64_t t = first; t < x->shape[0]; t++)
        memset(ax_tensor_row(x, t), 0, (size_t)ax_tensor_row_len(x) * ax_dtype_size(x->dtype));
}
