#include "model/parts/convolve.h"

/* With cp, each run is computed behind its halo, the last rows of the runs before it: rows whose outputs
 * nobody reads, and whose gradients go back to whose they are. Ranks gather the last AX_BATCH_HALO rows of
 * every run, or all of shorter ones. */

/* The taps of its channels, of those of the parameter or of its gradient; no data of none. */
static struct ax_tensor taps_of(const struct ax_convolution *c, const struct ax_tensor *t) {
    if (!t->data)
        return *t;
    const struct ax_tensor all = ax_tensor_2d(t->dtype, t->data, t->shape[0], t->shape[2]);
    return ax_tensor_rows(&all, c->first, c->n);
}
static struct ax_tensor bias_of(const struct ax_convolution *c, const struct ax_tensor *t) {
    return t->data ? ax_tensor_rows(t, c->first, c->n) : *t;
}

static struct ax_conv describe(const struct ax_layer *l, const struct ax_convolution *c) {
    const struct ax_tensor taps = ax_unit_weight(l->unit, c->taps);
    struct ax_conv a = {.w = taps_of(c, &taps), .silu = c->silu};
    if (c->bias) {
        const struct ax_tensor bias = ax_unit_weight(l->unit, c->bias);
        a.bias = bias_of(c, &bias);
    }
    return a;
}

/* ---- with cp: runs and their halos ---- */

struct halos {
    struct ax_runtime *rt;
    const struct ax_batch *batch;
    int64_t length, each; /* rows of a run, and those of its end that are gathered */
};

static struct halos halos_of(const struct ax_pass *p) {
    const int64_t length = p->batch->T / p->batch->n_runs;
    return (struct halos){p->model->rt, p->batch, length,
                          length < AX_BATCH_HALO ? length : AX_BATCH_HALO};
}

static struct ax_tensor take(const struct halos *h, const struct ax_tensor *like, int64_t rows) {
    return ax_stack_take(&h->rt->arena.scratch, "convolution of a run",
                         ax_tensor_2d(like->dtype, NULL, rows, like->shape[1]));
}

static struct ax_tensor as_heads(const struct ax_tensor *t) {
    return ax_tensor_heads(t, 1, t->shape[1]);
}

/* The end of run i among x [T][C]. */
static struct ax_tensor end_of(const struct halos *h, const struct ax_tensor *x, int i) {
    return ax_tensor_rows(x, (i + 1) * h->length - h->each, h->each);
}

/* The ends of this rank's runs, one after the other. */
static enum ax_status copy_ends(const struct halos *h, const struct ax_tensor *x,
                                struct ax_tensor *ends) {
    *ends = take(h, x, 2 * h->each);
    for (int i = 0; i < 2; i++)
        AX_TRY(ax_run_copy(h->rt->q, &(struct ax_copy){ax_tensor_rows(ends, i * h->each, h->each),
                                                       end_of(h, x, i)}));
    return AX_OK;
}

/* Rows of all runs' ends that are run i's halo, the last of its AX_BATCH_HALO rows; of the first run none. */
static struct ax_tensor halo_in(const struct halos *h, const struct ax_tensor *ends, int i) {
    const int64_t end = h->batch->runs[i].first / h->length * h->each;
    const int64_t n = end < AX_BATCH_HALO ? end : AX_BATCH_HALO;
    struct ax_tensor rows = *ends;
    if (ends->ndim == 3)
        rows = ax_tensor_2d(ends->dtype, ends->data, ends->shape[0], ends->shape[2]);
    return ax_tensor_rows(&rows, end - n, n);
}

/* A halo's rows in a run behind it. */
static struct ax_tensor halo_of(const struct ax_tensor *run, int64_t n) {
    return ax_tensor_rows(run, AX_BATCH_HALO - n, n);
}

static struct ax_tensor own_of(const struct halos *h, const struct ax_tensor *run) {
    return ax_tensor_rows(run, AX_BATCH_HALO, h->length);
}

/* run = run i of x behind its halo. */
static enum ax_status put_run(const struct halos *h, const struct ax_tensor *x,
                              const struct ax_tensor *ends, int i, const struct ax_tensor *run) {
    const struct ax_tensor from = halo_in(h, ends, i);
    if (from.shape[0] > 0)
        AX_TRY(ax_run_copy(h->rt->q, &(struct ax_copy){halo_of(run, from.shape[0]), from}));
    return ax_run_copy(
        h->rt->q, &(struct ax_copy){own_of(h, run), ax_tensor_rows(x, i * h->length, h->length)});
}

static enum ax_status forward_of_runs(struct ax_pass *p, const struct ax_conv *all) {
    const struct halos h = halos_of(p);
    const size_t mark = ax_stack_mark(&h.rt->arena.scratch);
    struct ax_tensor ends, every;
    AX_TRY(copy_ends(&h, &all->x, &ends));
    const struct ax_tensor mine = as_heads(&ends);
    AX_TRY(ax_cp_gather(h.rt, &mine, &every));
    struct ax_conv a = *all;
    a.x = take(&h, &all->x, AX_BATCH_HALO + h.length);
    a.y = take(&h, &all->y, AX_BATCH_HALO + h.length);
    for (int i = 0; i < 2; i++) {
        AX_TRY(put_run(&h, &all->x, &every, i, &a.x));
        a.cu_q = p->batch->runs[i].cu_halo;
        AX_TRY(ax_run_conv_forward(h.rt->q, &(struct ax_conv_forward){a}));
        AX_TRY(
            ax_run_copy(h.rt->q, &(struct ax_copy){ax_tensor_rows(&all->y, i * h.length, h.length),
                                                   own_of(&h, &a.y)}));
    }
    ax_stack_release(&h.rt->arena.scratch, mark);
    return AX_OK;
}

/* Adds the ends' gradients from the runs behind them. */
static enum ax_status add_ends(const struct halos *h, const struct ax_cp_gradient *g,
                               const struct ax_tensor *ends, const struct ax_tensor *dx) {
    AX_TRY(ax_cp_reduce(h->rt, g));
    for (int i = 0; i < 2; i++)
        AX_TRY(
            ax_run_add(h->rt->q, &(struct ax_add){end_of(h, dx, i),
                                                  ax_tensor_rows(ends, i * h->each, h->each), 1}));
    return AX_OK;
}

static enum ax_status backward_of_runs(struct ax_pass *p, const struct ax_conv_backward *all) {
    const struct halos h = halos_of(p);
    struct ax_queue *q = h.rt->q;
    const size_t mark = ax_stack_mark(&h.rt->arena.scratch);
    struct ax_tensor ends, every;
    AX_TRY(copy_ends(&h, &all->a.x, &ends));
    const struct ax_tensor mine = as_heads(&ends);
    AX_TRY(ax_cp_gather(h.rt, &mine, &every));
    const struct ax_cp_gradient g = ax_cp_gradient(h.rt, &mine); /* over the ends themselves */
    struct ax_conv_backward b = *all;
    b.a.x = take(&h, &all->a.x, AX_BATCH_HALO + h.length);
    b.dy = take(&h, &all->dy, AX_BATCH_HALO + h.length);
    b.dx = take(&h, &all->dx, AX_BATCH_HALO + h.length);
    for (int i = 0; i < 2; i++) {
        const struct ax_tensor rows = ax_tensor_rows(&all->dy, i * h.length, h.length);
        AX_TRY(put_run(&h, &all->a.x, &every, i, &b.a.x));
        AX_TRY(ax_run_fill(q, &(struct ax_fill){ax_tensor_rows(&b.dy, 0, AX_BATCH_HALO), 0}));
        AX_TRY(ax_run_copy(q, &(struct ax_copy){own_of(&h, &b.dy), rows}));
        b.a.cu_q = p->batch->runs[i].cu_halo;
        AX_TRY(ax_run_conv_backward(q, &b));
        AX_TRY(ax_run_copy(q, &(struct ax_copy){ax_tensor_rows(&all->dx, i * h.length, h.length),
                                                own_of(&h, &b.dx)}));
        const struct ax_tensor to = halo_in(&h, &g.run, i);
        AX_TRY(ax_run_fill(q, &(struct ax_fill){g.run, 0}));
        if (to.shape[0] > 0)
            AX_TRY(ax_run_copy(q, &(struct ax_copy){to, halo_of(&b.dx, to.shape[0])}));
        AX_TRY(ax_cp_add(h.rt, &g, i == 0));
    }
    AX_TRY(add_ends(&h, &g, &ends, &all->dx));
    ax_stack_release(&h.rt->arena.scratch, mark);
    return AX_OK;
}

/* ---- of a batch ---- */

/* The convolution of new tokens behind those whose inputs the states have. */
static enum ax_status forward_with_states(struct ax_pass *p, int layer, int64_t at,
                                          struct ax_conv *a) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_states *s = &p->cache->states;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    a->before = ax_states_rows(s, &rt->arena.scratch, a->x.shape[1]);
    a->cu_k = p->cache->cu_k;
    AX_TRY(ax_states_read(s, rt->q, layer, at, &a->before));
    AX_TRY(ax_run_conv_forward(rt->q, &(struct ax_conv_forward){*a}));
    AX_TRY(ax_states_write(s, rt->q, layer, at, &a->x));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_convolve_forward(struct ax_pass *p, const struct ax_layer *l,
                                   const struct ax_convolution *c, const struct ax_tensor *x,
                                   const struct ax_tensor *y) {
    struct ax_conv a = describe(l, c);
    a.x = *x;
    a.y = *y;
    if (p->batch->n_runs > 1)
        return forward_of_runs(p, &a);
    a.cu_q = p->batch->runs[0].cu_q;
    if (p->cache)
        return forward_with_states(p, l->nth_state, c->at, &a);
    return ax_run_conv_forward(p->model->rt->q, &(struct ax_conv_forward){a});
}

enum ax_status ax_convolve_backward(struct ax_pass *p, const struct ax_layer *l,
                                    const struct ax_convolution *c, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx) {
    const struct ax_tensor d_taps = ax_unit_grad(l->unit, c->taps);
    struct ax_conv_backward b = {
        .a = describe(l, c), .dy = *dy, .dx = *dx, .dw = taps_of(c, &d_taps)};
    if (c->bias) {
        const struct ax_tensor d_bias = ax_unit_grad(l->unit, c->bias);
        b.dbias = bias_of(c, &d_bias);
    }
    b.a.x = *x;
    if (p->batch->n_runs > 1)
        return backward_of_runs(p, &b);
    b.a.cu_q = p->batch->runs[0].cu_q;
    return ax_run_conv_backward(p->model->rt->q, &b);
}
