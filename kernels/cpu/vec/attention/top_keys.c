/* top_keys: the keys of sparse attention. A task is a few queries of a document. For each block of its keys,
 * packed once, the scores of all heads are one product per query, of which the weighted sum is one number a
 * key; then the query's numbers are searched for its `top` largest, without sorting, eight bits at a time.
 *
 * A query's bits depend on it and the keys alone, in the order of heads, so that it chooses the same in any
 * batch, and alone in decoding. */
#include "kernels/cpu/vec/attention/attention.h"
#include "kernels/cpu/vec/entries.h"

#define KEYS    AX_ATTENTION_KEYS
#define STRIP   AX_ATTENTION_STRIP
#define QUERIES 8 /* of a task: share packed keys, and their scores fit the L2 cache */

struct worker {
    const struct ax_top_keys *args;
    const struct ax_attention *a;
    const struct ax_attention_shape *s;
    float *q;      /* a  [QUERIES][heads][k.units] */
    float *k;      /* b  [k.units][KEYS] */
    float *scores; /*    [STRIP][KEYS]: of heads */
    float *sums;   /*    [QUERIES][stride]: of keys */
    int64_t stride;
    void **rows, **keys; /* addresses */
};

/* The call as attention to k, whose heads are one group. */
static struct ax_attention as_attention(const struct ax_top_keys *t) {
    return (struct ax_attention){.q = t->q,
                                 .k = t->k,
                                 .v = t->k,
                                 .cu_q = t->cu_q,
                                 .cu_k = t->cu_k,
                                 .block_table = t->block_table,
                                 .block_size = t->block_size,
                                 .max_q = t->max_q,
                                 .max_k = t->max_k,
                                 .scale = t->scale,
                                 .causal = true};
}

static struct ax_attention_shape shape_of(const struct ax_attention *a) {
    struct ax_attention_shape s = AX_VEC(ax_attention_shape)(a, QUERIES);
    s.scale = (float)a->scale; /* not in units of log 2 */
    return s;
}

static struct worker carve_worker(struct ax_attention_work *work, const struct ax_top_keys *args,
                                  const struct ax_attention *a,
                                  const struct ax_attention_shape *s) {
    const int64_t rows = summed(QUERIES * s->group) + AX_ATTENTION_TILE; /* read a tile at a time */
    const int64_t stride = round_up(args->max_k, KEYS);
    return (struct worker){.args = args,
                           .a = a,
                           .s = s,
                           .q = carve(work, rows * s->k.units, sizeof(float)),
                           .k = carve(work, s->k.units * KEYS, sizeof(float)),
                           .scores = carve(work, (int64_t)STRIP * KEYS, sizeof(float)),
                           .sums = carve(work, QUERIES * stride, sizeof(float)),
                           .stride = stride,
                           .rows = carve(work, QUERIES * s->group, sizeof(void *)),
                           .keys = carve(work, KEYS, sizeof(void *))};
}

/* Keys that query i of the block sees. */
static int64_t seen_by(const struct ax_attention_block *b, int64_t i) {
    const int64_t n = b->query + i + b->doc.n_k - b->doc.n_q + 1;
    return n > 0 ? n : 0;
}

/* sums of query i for the block's keys, `width` of them. */
static void add_heads(const struct worker *w, const struct ax_attention_block *b, int64_t i,
                      int64_t width) {
    const struct ax_attention_shape *s = w->s;
    const float *weights = ax_tensor_row(&w->args->w, b->doc.first_q + b->query + i);
    float *sums = w->sums + i * w->stride + b->key;
    for (int64_t j = 0; j < width; j += AX_LANES)
        v_store_f32(sums + j, AX_LANES, v_set(0.0f));
    for (int64_t h = 0; h < s->group; h += STRIP) {
        const int64_t n = least(STRIP, s->group - h);
        const struct ax_attention_gemm g = {.pairs = s->pairs,
                                            .m = n,
                                            .n = width,
                                            .units = s->k.units,
                                            .a = w->q + (i * s->group + h) * s->k.units,
                                            .a_row = s->k.units,
                                            .a_unit = 1,
                                            .b = w->k,
                                            .b_unit = KEYS,
                                            .c = w->scores,
                                            .c_row = KEYS,
                                            .scale = s->scale};
        AX_VEC(ax_attention_gemm)(&g);
        for (int64_t j = 0; j < width; j += AX_LANES) {
            v_float sum = v_load_f32(sums + j, AX_LANES);
            for (int64_t m = 0; m < n; m++) {
                const v_float x = v_load_f32(w->scores + m * KEYS + j, AX_LANES);
                sum = v_fma(v_set(weights[h + m]), v_max(x, v_set(0.0f)), sum);
            }
            v_store_f32(sums + j, AX_LANES, sum);
        }
    }
}

/* ---- choosing ---- */

/* Larger for larger x; 0 for NaN. Sums that began with 0 are no −0. */
static uint32_t order_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The k-th largest of n orders, and how many equal ones are among the k largest. */
static uint32_t kth_largest(const uint32_t *order, int64_t n, int64_t k, int64_t *equal) {
    uint32_t found = 0, known = 0; /* its upper bits, and which those are */
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        uint32_t digit = 255;
        for (int64_t j = 0; j < n; j++)
            if ((order[j] & known) == found)
                count[order[j] >> shift & 255]++;
        for (; count[digit] < k; digit--)
            k -= count[digit];
        found |= digit << shift;
        known |= 255u << shift;
    }
    *equal = k;
    return found;
}

/* The row of k that has key j of the document. */
static int32_t key_row(const struct ax_attention *a, const struct ax_attention_doc *d, int64_t j) {
    if (a->block_table.data == NULL)
        return (int32_t)(d->first_k + j);
    const int32_t *table =
        (const int32_t *)a->block_table.data + d->index * a->block_table.row_stride;
    return (int32_t)(table[j / a->block_size] * a->block_size + j % a->block_size);
}

/* Row t of the result. */
static int32_t *result_row(const struct ax_top_keys *args, int64_t t, int64_t *n, int32_t *none) {
    const struct ax_tensor *out = args->rows.data ? &args->rows : &args->chosen;
    *n = out->shape[1];
    *none = args->rows.data ? -1 : 0;
    return (int32_t *)out->data + t * out->row_stride;
}

static void clear_result(const struct ax_top_keys *args, int64_t t) {
    int64_t n;
    int32_t none;
    int32_t *to = result_row(args, t, &n, &none);
    for (int64_t i = 0; i < n; i++)
        to[i] = none;
}

/* Chooses for query i of the block among the keys that it sees. */
static void choose(const struct worker *w, const struct ax_attention_block *b, int64_t i) {
    const struct ax_top_keys *args = w->args;
    const int64_t t = b->doc.first_q + b->query + i, n = seen_by(b, i);
    float *sums = w->sums + i * w->stride;
    uint32_t *order = (uint32_t *)sums, least_order = 0;
    int64_t equal = n, found = 0, columns;
    int32_t none, *to = result_row(args, t, &columns, &none);
    clear_result(args, t);
    for (int64_t j = 0; j < n && n > args->top; j++) {
        const float x = sums[j];
        const uint32_t as = order_of(x);
        memcpy(&order[j], &as, sizeof as);
    }
    if (n > args->top)
        least_order = kth_largest(order, n, args->top, &equal);
    for (int64_t j = 0; j < n; j++) {
        if (n > args->top && (order[j] < least_order || (order[j] == least_order && equal-- <= 0)))
            continue;
        if (args->rows.data)
            to[found++] = key_row(w->a, &b->doc, j);
        else
            to[j / 32] = (int32_t)((uint32_t)to[j / 32] | 1u << j % 32);
    }
}

/* ---- tasks ---- */

static void run_task(const struct worker *w, struct ax_attention_block b) {
    const int64_t queries = b.rows / w->s->group, most = seen_by(&b, queries - 1);
    AX_VEC(ax_attention_query_rows)(w->s, &w->a->q, &b, w->rows);
    AX_VEC(ax_attention_pack_rows)(w->s, &w->s->k, w->rows, b.rows, w->q);
    /* all keys need no scores */
    for (b.key = 0; b.key < most && most > w->args->top; b.key += KEYS) {
        b.keys = least(KEYS, b.doc.n_k - b.key);
        AX_VEC(ax_attention_key_rows)(w->a, &w->a->k, &b, w->keys);
        AX_VEC(ax_attention_pack_columns)(w->s, &w->s->k, w->keys, b.keys, w->k);
        for (int64_t i = 0; i < queries; i++) {
            const int64_t seen = least(seen_by(&b, i) - b.key, b.keys);
            if (seen > 0 && seen_by(&b, i) > w->args->top)
                add_heads(w, &b, i, round_up(seen, AX_LANES));
        }
    }
    for (int64_t i = 0; i < queries; i++)
        choose(w, &b, i);
}

static int64_t doc_tasks(const struct ax_attention_shape *s, int64_t n_q) {
    (void)s;
    return ceil_div(n_q, QUERIES);
}

bool AX_VEC(ax_cpu_top_keys_supports)(const struct ax_queue *q, const struct ax_top_keys *args) {
    const struct ax_attention a = as_attention(args);
    (void)q;
    return AX_VEC(ax_attention_supports)(&a, AX_ATTENTION_CACHED);
}

size_t AX_VEC(ax_cpu_top_keys_workspace)(struct ax_queue *q, const struct ax_top_keys *args) {
    const struct ax_attention a = as_attention(args);
    const struct ax_attention_shape s = shape_of(&a);
    struct ax_attention_work count = {0};
    carve(&count, AX_VEC(ax_attention_docs)(&a) + 1, sizeof(int64_t));
    for (int i = 0; i < q->threads; i++)
        carve_worker(&count, args, &a, &s);
    return count.used;
}

enum ax_status AX_VEC(ax_cpu_top_keys)(struct ax_queue *q, const struct ax_top_keys *args,
                                       void *work) {
    const struct ax_attention a = as_attention(args);
    const struct ax_attention_shape s = shape_of(&a);
    const int64_t docs = AX_VEC(ax_attention_docs)(&a);
    struct ax_attention_work rest = {.base = work};
    int64_t *first = carve(&rest, docs + 1, sizeof(*first));
    const int64_t tasks = AX_VEC(ax_attention_count)(&a, &s, doc_tasks, first);
    const int threads = tasks > 1 ? q->threads : 1;
    (void)threads; /* a compiler without OpenMP runs all tasks here */
#pragma omp parallel num_threads(threads)
    {
        struct worker w;
#pragma omp critical
        w = carve_worker(&rest, args, &a, &s);
        ax_tiles_begin();
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t d = AX_VEC(ax_attention_find)(first, docs, task);
            const struct ax_attention_doc doc = AX_VEC(ax_attention_doc)(&a, d);
            const int64_t query = (task - first[d]) * QUERIES;
            run_task(
                &w, (struct ax_attention_block){.doc = doc,
                                                .query = query,
                                                .rows = least(QUERIES, doc.n_q - query) * s.group});
        }
        ax_tiles_end();
    }
    for (int64_t t = ((const int32_t *)a.cu_q.data)[docs]; t < a.q.shape[0]; t++)
        clear_result(args, t);
    return AX_OK;
}
