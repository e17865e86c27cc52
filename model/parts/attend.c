#include "model/parts/attend.h"

#include "model/parallel/context_parallel.h"
#include "model/parts/ring.h"

/* The attention of one run of the batch's rows. */
static struct ax_attention of_run(const struct ax_pass *p, const struct ax_attention *all,
                                  int run) {
    const struct ax_batch *b = p->batch;
    const int64_t length = b->T / b->n_runs, first = run * length;
    struct ax_attention a = *all;
    a.q = ax_tensor_rows(&all->q, first, length);
    a.out = ax_tensor_rows(&all->out, first, length);
    a.lse = ax_tensor_rows(&all->lse, first, length);
    a.cu_q = b->runs[run].cu_q;
    if (p->cache)
        return a;
    a.cu_k = b->runs[run].cu_k;
    const int64_t keys = b->runs[run].first + length;
    if (b->parts > 1 && keys < a.max_k)
        a.max_k = keys;
    return a;
}

/* Those of other ranks, and of documents that begin with this rank's rows; in scratch. */
static enum ax_status gather_keys(const struct ax_pass *p, const struct ax_tensor *own,
                                  struct ax_tensor *all) {
    struct ax_tensor keys;
    AX_TRY(ax_shared_prefix_gather(&p->batch->prefix, p->model->rt, own, &keys));
    return ax_cp_gather(p->model->rt, &keys, all);
}

/* The attention of all rows, with all keys and values. */
static enum ax_status describe(const struct ax_pass *p, int layer, const struct ax_attention *own,
                               struct ax_attention *all) {
    *all = *own;
    all->max_q = p->batch->max_queries;
    all->max_k = p->batch->max_len;
    all->causal = true;
    AX_TRY(gather_keys(p, &own->k, &all->k));
    AX_TRY(gather_keys(p, &own->v, &all->v));
    if (p->cache)
        ax_kvcache_describe(p->cache, layer, all);
    return AX_OK;
}

static bool in_a_ring(const struct ax_pass *p) {
    return p->batch->parts > 1 && p->model->cp_method == AX_CP_RING;
}

enum ax_status ax_attend_forward(struct ax_pass *p, int layer, const struct ax_attention *a) {
    if (in_a_ring(p))
        return ax_ring_forward(p, a);
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_attention all;
    if (p->cache)
        AX_TRY(ax_kvcache_write(p->cache, rt->q, layer, &a->k, &a->v));
    AX_TRY(describe(p, layer, a, &all));
    for (int run = 0; run < p->batch->n_runs; run++)
        AX_TRY(
            ax_run_attention_forward(rt->q, &(struct ax_attention_forward){of_run(p, &all, run)}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_attend_backward(struct ax_pass *p, int layer,
                                  const struct ax_attention_backward *b) {
    if (in_a_ring(p))
        return ax_ring_backward(p, b);
    struct ax_runtime *rt = p->model->rt;
    const struct ax_shared_prefix *prefix = &p->batch->prefix;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor d_keys = ax_shared_prefix_gradient(prefix, rt, &b->dk);
    const struct ax_tensor d_values = ax_shared_prefix_gradient(prefix, rt, &b->dv);
    const struct ax_cp_gradient dk = ax_cp_gradient(rt, &d_keys),
                                dv = ax_cp_gradient(rt, &d_values);
    struct ax_attention all;
    AX_TRY(describe(p, layer, &b->a, &all));
    for (int run = 0; run < p->batch->n_runs; run++) {
        const struct ax_attention one = of_run(p, &all, run);
        const int64_t length = one.q.shape[0], first = run * length;
        const struct ax_attention_backward back = {.a = one,
                                                   .dout = ax_tensor_rows(&b->dout, first, length),
                                                   .dq = ax_tensor_rows(&b->dq, first, length),
                                                   .dk = dk.run,
                                                   .dv = dv.run,
                                                   .dsink = b->dsink};
        AX_TRY(ax_run_attention_backward(rt->q, &back));
        AX_TRY(ax_cp_add(rt, &dk, run == 0));
        AX_TRY(ax_cp_add(rt, &dv, run == 0));
    }
    AX_TRY(ax_cp_reduce(rt, &dk));
    AX_TRY(ax_cp_reduce(rt, &dv));
    AX_TRY(ax_shared_prefix_sum(prefix, rt, &d_keys, &b->dk));
    AX_TRY(ax_shared_prefix_sum(prefix, rt, &d_values, &b->dv));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
