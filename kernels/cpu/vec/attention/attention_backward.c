/* Attention backward in one pass over (query block, key block) pairs, five products each: scores
 * recomputed from q and k, probabilities from lse, dp = dout·vᵀ, ds = p·(dp − δ), then dv +=
 * pᵀ·dout, dk += dsᵀ·q and dq += ds·k (Dao et al. 2022).
 *
 * A task is one KV head of one document: its query blocks in order, so that every sum has a fixed
 * order. A block's dq stays in the thread's memory; dk and dv are summed in floats in the
 * workspace. A long document is divided into parts (every n-th query block) with separate sums,
 * added in order at the end; their number depends only on its length, never on the threads. */
#include "kernels/cpu/vec/attention/attention_gradient.h"
#include "kernels/cpu/vec/entries.h"

#define PART_QUERIES 1024 /* minimum queries per further part */
#define MAX_PARTS    4

static int64_t parts_of(int64_t n_q) {
    int64_t parts = n_q / PART_QUERIES;
    return n_q == 0 ? 0 : parts < 1 ? 1 : least(parts, MAX_PARTS);
}

static int64_t doc_tasks(const struct ax_attention_shape *s, int64_t n_q) {
    return parts_of(n_q) * s->kv_heads;
}

/* What all threads share. */
struct call {
    const struct ax_attention_backward *args;
    struct ax_attention_shape s;
    int64_t *first; /* tasks before each document */
    float *dk, *dv; /* [parts][Hk][Tk] rows of k.columns, v.columns */
};

static struct call carve_call(struct ax_attention_work *work,
                              const struct ax_attention_backward *args) {
    struct call c = {.args = args, .s = AX_VEC(ax_attention_shape)(&args->a)};
    int64_t rows = parts_of(args->a.max_q) * c.s.kv_heads * args->a.k.shape[0];
    c.first = carve(work, AX_VEC(ax_attention_docs)(&args->a) + 1, sizeof(*c.first));
    c.dk = carve(work, rows * c.s.k.columns, sizeof(float));
    c.dv = carve(work, rows * c.s.v.columns, sizeof(float));
    return c;
}

/* Row at which the sums of a document's part and KV head start in dk and dv. */
static int64_t sums_row(const struct call *c, const struct ax_attention_doc *doc, int64_t part,
                        int64_t kv_head) {
    int64_t head = part * c->s.kv_heads + kv_head;
    return head * c->args->a.k.shape[0] + doc->first_k;
}

static void run_task(const struct call *c, const struct ax_attention_worker *w,
                     const struct ax_attention_doc *doc, int64_t task) {
    int64_t part = task / c->s.kv_heads;
    int64_t kv_head = task % c->s.kv_heads;
    int64_t row = sums_row(c, doc, part, kv_head);
    struct ax_attention_sums sums = {c->dk + row * c->s.k.columns, c->dv + row * c->s.v.columns, 0};
    int64_t step = parts_of(doc->n_q) * c->s.block;
    for (int64_t query = part * c->s.block; query < doc->n_q; query += step) {
        struct ax_attention_block b = {
            .doc = *doc,
            .kv_head = kv_head,
            .query = query,
            .rows = least(c->s.block, doc->n_q - query) * c->s.group,
        };
        AX_VEC(ax_attention_block_backward)(w, b, &sums);
    }
    AX_VEC(ax_attention_reach)(w, &sums, doc->n_k);
}

/* dk or dv, and the factor of its parts' sums. */
struct result {
    const struct ax_attention_head *h;
    const float *sums;
    float scale;
    const struct ax_tensor *to;
};

/* Writes its row of one key and KV head: the parts' sums in order. */
static void add_parts(const struct call *c, const struct result *result,
                      const struct ax_attention_doc *doc, int64_t kv_head, int64_t key) {
    const struct ax_attention_head *h = result->h;
    const int64_t parts = parts_of(doc->n_q);
    void *row = ax_tensor_row(result->to, doc->first_k + key);
    for (int64_t i = 0; i < h->size; i += AX_LANES) {
        v_float x = v_set(0.0f);
        for (int64_t part = 0; part < parts; part++) {
            int64_t at = (sums_row(c, doc, part, kv_head) + key) * h->columns + i;
            x += v_load_f32(result->sums + at, AX_LANES);
        }
        v_store(c->s.dtype, row, kv_head * h->size + i, least(h->size - i, AX_LANES),
                x * v_set(result->scale));
    }
}

/* dsink −= Σ e^(sink − lse)·δ over the rows of the documents, in order, a thread one head. */
static void sink_gradient(const struct ax_queue *q, const struct ax_attention_backward *args,
                          int64_t rows) {
    const struct ax_attention *a = &args->a;
    const int64_t heads = a->q.shape[1], vd = a->v.shape[2];
    AX_PARALLEL_FOR (team(q, rows * heads * vd), h, heads) {
        const float sink = ((const float *)a->sink.data)[h];
        double sum = 0;
        for (int64_t t = 0; t < rows; t++) {
            const void *out = ax_tensor_row(&a->out, t), *dout = ax_tensor_row(&args->dout, t);
            const float lse = ((const float *)ax_tensor_row(&a->lse, t))[h];
            v_float delta = v_set(0.0f);
            for (int64_t i = 0; i < vd; i += AX_LANES) {
                const int64_t n = least(vd - i, AX_LANES);
                delta = v_fma(v_load(a->q.dtype, out, h * vd + i, n),
                              v_load(a->q.dtype, dout, h * vd + i, n), delta);
            }
            sum += (double)exp_one(sink - lse) * v_sum(delta);
        }
        float *dsink = (float *)args->dsink.data + h;
        *dsink = (float)((double)*dsink - sum);
    }
}

bool AX_VEC(ax_cpu_attention_backward_supports)(const struct ax_queue *q,
                                                const struct ax_attention_backward *args) {
    (void)q;
    return AX_VEC(ax_attention_supports)(&args->a, AX_ATTENTION_HEAD_DIM);
}

size_t AX_VEC(ax_cpu_attention_backward_workspace)(struct ax_queue *q,
                                                   const struct ax_attention_backward *args) {
    struct ax_attention_work count = {0};
    struct call c = carve_call(&count, args);
    for (int i = 0; i < q->threads; i++)
        AX_VEC(ax_attention_worker)(&count, args, &c.s);
    return count.used;
}

enum ax_status AX_VEC(ax_cpu_attention_backward)(struct ax_queue *q,
                                                 const struct ax_attention_backward *args,
                                                 void *work) {
    struct ax_attention_work rest = {.base = work};
    const struct call c = carve_call(&rest, args);
    const int64_t docs = AX_VEC(ax_attention_docs)(&args->a);
    const int64_t tasks = AX_VEC(ax_attention_count)(&args->a, &c.s, doc_tasks, c.first);
    const struct result dk = {&c.s.k, c.dk, (float)args->a.scale, &args->dk};
    const struct result dv = {&c.s.v, c.dv, 1.0f, &args->dv};
    const int threads = tasks > 1 ? q->threads : 1;
    (void)threads; /* a compiler without OpenMP runs all tasks here */
#pragma omp parallel num_threads(threads)
    {
        struct ax_attention_worker w;
#pragma omp critical
        w = AX_VEC(ax_attention_worker)(&rest, args, &c.s);
        ax_tiles_begin();
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) {
            int64_t d = AX_VEC(ax_attention_find)(c.first, docs, task);
            struct ax_attention_doc doc = AX_VEC(ax_attention_doc)(&args->a, d);
            run_task(&c, &w, &doc, task - c.first[d]);
        }
        ax_tiles_end();
        for (int64_t d = 0; d < docs; d++) {
            struct ax_attention_doc doc = AX_VEC(ax_attention_doc)(&args->a, d);
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < doc.n_k * c.s.kv_heads; i++) {
                int64_t head = i % c.s.kv_heads, key = i / c.s.kv_heads;
                add_parts(&c, &dk, &doc, head, key);
                add_parts(&c, &dv, &doc, head, key);
            }
        }
    }
    const int64_t used = ((const int32_t *)args->a.cu_q.data)[docs];
    if (args->dsink.data)
        sink_gradient(q, args, used);
    AX_VEC(ax_attention_clear)(&args->dq, used);
    AX_VEC(ax_attention_clear)(&args->dk, ((const int32_t *)args->a.cu_k.data)[docs]);
    AX_VEC(ax_attention_clear)(&args->dv, ((const int32_t *)args->a.cu_k.data)[docs]);
    return AX_OK;
}
