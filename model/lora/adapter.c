/* The arithmetic of one adapter, forward and backward; see adapter.h for the formulas. */
#include "model/lora/adapter.h"

#include "model/parallel/tensor_parallel.h"

static struct ax_tensor take(const struct ax_adapter *a, const char *name, enum ax_dtype dtype,
                             int64_t rows, int64_t cols) {
    return ax_stack_take(&a->run->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

static struct ax_tensor take_column(const struct ax_adapter *a, enum ax_dtype dtype, int64_t n) {
    const struct ax_tensor t = take(a, "dora norms", dtype, n, 1);
    return ax_tensor_1d(dtype, t.data, n);
}

static struct ax_tensor weight_of(const struct ax_adapter *a, const struct ax_param *p) {
    return ax_unit_weight(a->unit, p);
}

static bool drops(const struct ax_adapter *a) {
    return a->run->training && a->dropout > 0;
}

bool ax_adapter_scales(const struct ax_adapter *a) {
    return ax_adapter_is_on(a) && a->magnitude && !drops(a);
}

int64_t ax_adapter_rank(const struct ax_adapter *a) {
    return a->a ? a->a->local_shape[0] : 0;
}

void ax_adapter_share(const struct ax_adapter *a, enum ax_dtype dtype,
                      struct ax_adapter_shared *out) {
    *out = (struct ax_adapter_shared){0};
    if (a->magnitude) {
        const int64_t rows = a->weight->local_shape[0];
        out->scale = take_column(a, ax_dtype_accum(dtype), rows);
        out->inverse = take_column(a, ax_dtype_accum(dtype), rows);
    }
}

/* ‖V‖² per row is a sum over the inputs, so ranks that share them add their parts. */
enum ax_status ax_adapter_measure(const struct ax_adapter *a, const struct ax_tensor *w,
                                  const struct ax_adapter_shared *shared) {
    struct ax_runtime *rt = a->run->rt;
    const struct ax_tensor A = weight_of(a, a->a), B = weight_of(a, a->b);
    const int64_t rows = w->shape[0], r = A.shape[0];
    const enum ax_dtype accum = ax_dtype_accum(w->dtype);
    if (!a->magnitude)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor p = take(a, "dora norms", accum, rows, r);
    const struct ax_tensor aa = take(a, "dora norms", w->dtype, r, r);
    const struct ax_tensor sumsq = take_column(a, accum, rows);
    AX_TRY(ax_run_gemm(
        rt->q, &(struct ax_gemm){.a = *w, .b = A, .c = p, .trans_b = true, .alpha = 2 * a->scale}));
    AX_TRY(ax_run_gemm(rt->q,
                       &(struct ax_gemm){.a = A, .b = A, .c = aa, .trans_b = true, .alpha = 1}));
    AX_TRY(ax_run_gemm(
        rt->q, &(struct ax_gemm){
                   .a = B, .b = aa, .c = p, .accumulate = true, .alpha = a->scale * a->scale}));
    AX_TRY(ax_run_dora_norm(rt->q, &(struct ax_dora_norm){*w, B, p, sumsq}));
    if (a->weight->tp_dim == 1)
        AX_TRY(ax_tp_sum(rt, &sumsq));
    AX_TRY(ax_run_dora_scale(rt->q, &(struct ax_dora_scale){weight_of(a, a->magnitude), sumsq,
                                                            shared->scale, shared->inverse}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* dst (+)= drop(src), with the full activation's element numbers; src are rows from `from` on. */
static enum ax_status drop(const struct ax_adapter *a, int64_t from, const struct ax_tensor *src,
                           const struct ax_tensor *dst, bool accumulate) {
    int64_t run;
    const struct ax_param *A = a->a;
    const struct ax_runtime *rt = a->run->rt;
    const int64_t n = src->shape[0], first = a->own_rows ? ax_tp_first_own(rt, n) : from;
    struct ax_dropout d = {.x = *src,
                           .y = *dst,
                           .p = a->dropout,
                           .tensor = a->stream,
                           .first_row = a->run->first_row + first,
                           .first_col = ax_param_global_index(A, &rt->mesh, 0, &run),
                           .cols = A->shape[1],
                           .accumulate = accumulate,
                           .rows = a->run->rows,
                           .scalars = a->run->scalars};
    if (d.rows.data) {
        d.first_row = a->run->first_row;
        d.rows = ax_tensor_rows(&d.rows, first, n);
    }
    return ax_run_dropout(rt->q, &d);
}

/* x as the adapter sees it. */
static enum ax_status inputs(const struct ax_adapter *a, int64_t first, const struct ax_tensor *x,
                             struct ax_tensor *out) {
    *out = *x;
    if (!drops(a))
        return AX_OK;
    *out = take(a, "adapter input", x->dtype, x->shape[0], x->shape[1]);
    return drop(a, first, x, out, false);
}

/* y (+)= s·low·Bᵀ. */
static enum ax_status expand(const struct ax_adapter *a, const struct ax_tensor *low,
                             const struct ax_tensor *y, bool accumulate) {
    return ax_run_gemm(a->run->rt->q, &(struct ax_gemm){.a = *low,
                                                        .b = weight_of(a, a->b),
                                                        .c = *y,
                                                        .trans_b = true,
                                                        .accumulate = accumulate,
                                                        .alpha = a->scale});
}

/* x·wᵀ in scratch. */
static enum ax_status base_output(const struct ax_adapter *a, const struct ax_tensor *x,
                                  const struct ax_tensor *w, enum ax_dtype dtype,
                                  struct ax_tensor *out) {
    *out = take(a, "adapter base output", dtype, x->shape[0], w->shape[0]);
    return ax_run_gemm(a->run->rt->q,
                       &(struct ax_gemm){.a = *x, .b = *w, .c = *out, .trans_b = true, .alpha = 1});
}

enum ax_status ax_adapter_merge(const struct ax_adapter *a, const struct ax_tensor *w,
                                const struct ax_tensor *out) {
    struct ax_runtime *rt = a->run->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_merge_low_rank m = {.weight = *w,
                                  .b = weight_of(a, a->b),
                                  .a = weight_of(a, a->a),
                                  .out = *out,
                                  .scale = a->scale};
    AX_ASSERT(!drops(a));
    if (a->magnitude) {
        m.magnitude = weight_of(a, a->magnitude);
        m.squares = take_column(a, AX_F64, w->shape[0]);
        AX_TRY(ax_run_merged_squares(
            rt->q, &(struct ax_merged_squares){*w, m.b, m.a, m.squares, a->scale}));
        if (a->weight->tp_dim == 1)
            AX_TRY(ax_tp_sum(rt, &m.squares));
    }
    AX_TRY(ax_run_merge_low_rank(rt->q, &m));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_scale(const struct ax_adapter *a, const struct ax_adapter_shared *shared,
                                const struct ax_tensor *dy, const struct ax_tensor *dv) {
    return ax_run_colscale(a->run->rt->q,
                           &(struct ax_colscale){.x = *dy, .scale = shared->scale, .y = *dv});
}

/* ---- matrices whose products with their input are one ---- */

/* Those of parts [first, end) of a call that have an adapter; their A's are one matrix [r][in]. */
struct group {
    int first, end;
    int64_t r;
};

/* Dropout is drawn for each part, so each has an input of its own. */
static bool joins(const struct ax_adapter *before, const struct ax_adapter *a) {
    return !drops(a) && ax_param_follows(before->a, a->a);
}

/* The first part from i on that has an adapter; c->n if there is none. */
static int next_part(const struct ax_adapter_call *c, int i) {
    while (i < c->n && !c->parts[i].adapter->a)
        i++;
    return i;
}

/* Advances to the group after g, or to the first if g->end = 0; false if there is none. */
static bool next_group(const struct ax_adapter_call *c, struct group *g) {
    const struct ax_adapter *last = NULL;
    int i = next_part(c, g->end);
    *g = (struct group){.first = i};
    for (; i < c->n && (!last || joins(last, c->parts[i].adapter)); i = next_part(c, i + 1)) {
        last = c->parts[i].adapter;
        g->r += ax_adapter_rank(last);
        g->end = i + 1;
    }
    return last != NULL;
}

/* The group's A's, or their gradients, from those of its first part. */
static struct ax_tensor joined_rows(const struct group *g, struct ax_tensor first) {
    first.shape[0] = g->r;
    return first;
}

/* The group's `low` or `up`, from that of its first part: rows [from, from + n). */
static struct ax_tensor joined_columns(const struct group *g, struct ax_tensor first, int64_t from,
                                       int64_t n) {
    first.shape[1] = g->r;
    return ax_tensor_rows(&first, from, n);
}

/* low = x·Aᵀ of all of the group. */
static enum ax_status project(const struct ax_adapter_call *c, const struct group *g,
                              const struct ax_tensor *x) {
    const struct ax_adapter_part *p = &c->parts[g->first];
    const struct ax_adapter *a = p->adapter;
    if (!c->projects)
        return AX_OK;
    return ax_run_gemm(a->run->rt->q, &(struct ax_gemm){.a = *x,
                                                        .b = joined_rows(g, weight_of(a, a->a)),
                                                        .c = joined_columns(g, p->shared->low,
                                                                            c->first, x->shape[0]),
                                                        .trans_b = true,
                                                        .alpha = 1});
}

/* ---- forward ---- */

static enum ax_status part_forward(const struct ax_adapter_part *p, const struct ax_tensor *x,
                                   const struct ax_tensor *low, bool writes) {
    const struct ax_adapter *a = p->adapter;
    struct ax_queue *q = a->run->rt->q;
    const struct ax_tensor *y = &p->y;
    struct ax_tensor z;
    AX_ASSERT(!a->magnitude || !writes);
    if (!a->magnitude)
        return expand(a, low, y, !writes);
    if (!drops(a)) {
        AX_TRY(expand(a, low, y, true));
        return ax_run_colscale(
            q,
            &(struct ax_colscale){
                .x = *y, .scale = p->shared->scale, .bias = p->bias, .addend = p->addend, .y = *y});
    }
    AX_TRY(base_output(a, x, &p->w, y->dtype, &z));
    AX_TRY(ax_run_add(q, &(struct ax_add){*y, z, -1}));
    AX_TRY(expand(a, low, &z, true));
    return ax_run_colscale(
        q, &(struct ax_colscale){.x = z, .scale = p->shared->scale, .addend = *y, .y = *y});
}

enum ax_status ax_adapters_forward(const struct ax_adapter_call *c) {
    for (struct group g = {0}; next_group(c, &g);) {
        const struct ax_adapter *a = c->parts[g.first].adapter;
        struct ax_stack *scratch = &a->run->rt->arena.scratch;
        const size_t mark = ax_stack_mark(scratch);
        struct ax_tensor x;
        AX_TRY(inputs(a, c->first, &c->x, &x));
        AX_TRY(project(c, &g, &x));
        for (int i = g.first; i < g.end; i = next_part(c, i + 1)) {
            const struct ax_tensor low =
                ax_tensor_rows(&c->parts[i].shared->low, c->first, x.shape[0]);
            AX_TRY(part_forward(&c->parts[i], &x, &low, c->writes));
        }
        ax_stack_release(scratch, mark);
    }
    return AX_OK;
}

/* ---- backward ---- */

/* dx (+)= up·A; with dropout, of one part, dx (+)= drop(up·A + (dv − dy)·w), where dv = dy without
 * DoRA. */
static enum ax_status input_gradient(const struct ax_adapter_call *c, const struct group *g,
                                     bool accumulate) {
    const struct ax_adapter_part *p = &c->parts[g->first];
    const struct ax_adapter *a = p->adapter;
    struct ax_queue *q = a->run->rt->q;
    struct ax_gemm product = {.a = joined_columns(g, p->shared->up, c->first, c->dx.shape[0]),
                              .b = joined_rows(g, weight_of(a, a->a)),
                              .c = c->dx,
                              .accumulate = accumulate,
                              .alpha = 1};
    if (!drops(a))
        return ax_run_gemm(q, &product);
    product.c = take(a, "adapter input", c->dx.dtype, c->dx.shape[0], c->dx.shape[1]);
    product.accumulate = false;
    AX_TRY(ax_run_gemm(q, &product));
    if (a->magnitude) {
        const struct ax_tensor d =
            take(a, "adapter gradient", p->dy.dtype, p->dy.shape[0], p->dy.shape[1]);
        AX_TRY(ax_run_copy(q, &(struct ax_copy){d, p->dv}));
        AX_TRY(ax_run_add(q, &(struct ax_add){d, p->dy, -1}));
        AX_TRY(ax_run_gemm(
            q,
            &(struct ax_gemm){.a = d, .b = p->w, .c = product.c, .accumulate = true, .alpha = 1}));
    }
    return drop(a, c->first, &product.c, &c->dx, accumulate);
}

enum ax_status ax_adapters_backward_inputs(const struct ax_adapter_call *c) {
    bool accumulate = !c->writes;
    for (struct group g = {0}; next_group(c, &g); accumulate = true) {
        struct ax_runtime *rt = c->parts[g.first].adapter->run->rt;
        const size_t mark = ax_stack_mark(&rt->arena.scratch);
        for (int i = g.first; i < g.end; i = next_part(c, i + 1)) {
            const struct ax_adapter_part *p = &c->parts[i];
            AX_TRY(ax_run_gemm(
                rt->q,
                &(struct ax_gemm){.a = p->dv,
                                  .b = weight_of(p->adapter, p->adapter->b),
                                  .c = ax_tensor_rows(&p->shared->up, c->first, p->dv.shape[0]),
                                  .alpha = p->adapter->scale}));
        }
        if (c->dx.data)
            AX_TRY(input_gradient(c, &g, accumulate));
        ax_stack_release(&rt->arena.scratch, mark);
    }
    return AX_OK;
}

/* dm += Σ_t dy·(x·Vᵀ)/‖V‖. */
static enum ax_status magnitude_gradient(const struct ax_adapter_part *p,
                                         const struct ax_tensor *x) {
    const struct ax_adapter *a = p->adapter;
    struct ax_queue *q = a->run->rt->q;
    struct ax_stack *scratch = &a->run->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor h;
    AX_TRY(base_output(a, x, &p->w, p->dy.dtype, &h));
    AX_TRY(expand(a, &p->shared->low, &h, true));
    AX_TRY(ax_run_colscale(q, &(struct ax_colscale){.x = h, .scale = p->shared->inverse, .y = h}));
    AX_TRY(ax_run_coldot(q, &(struct ax_coldot){p->dy, h, ax_unit_grad(a->unit, a->magnitude)}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* dB += s·dvᵀ·low, and with DoRA dm. */
static enum ax_status part_gradients(const struct ax_adapter_part *p, const struct ax_tensor *x) {
    const struct ax_adapter *a = p->adapter;
    if (a->magnitude)
        AX_TRY(magnitude_gradient(p, x));
    return ax_run_gemm(a->run->rt->q, &(struct ax_gemm){.a = p->dv,
                                                        .b = p->shared->low,
                                                        .c = ax_unit_grad(a->unit, a->b),
                                                        .trans_a = true,
                                                        .accumulate = true,
                                                        .alpha = a->scale});
}

/* dA += upᵀ·x of all of the group, and what its parts have. */
static enum ax_status group_gradients(const struct ax_adapter_call *c, const struct group *g) {
    const struct ax_adapter_part *p = &c->parts[g->first];
    const struct ax_adapter *a = p->adapter;
    struct ax_tensor x;
    AX_TRY(inputs(a, c->first, &c->x, &x));
    AX_TRY(project(c, g, &x));
    for (int i = g->first; i < g->end; i = next_part(c, i + 1))
        AX_TRY(part_gradients(&c->parts[i], &x));
    return ax_run_gemm(a->run->rt->q,
                       &(struct ax_gemm){.a = joined_columns(g, p->shared->up, 0, x.shape[0]),
                                         .b = x,
                                         .c = joined_rows(g, ax_unit_grad(a->unit, a->a)),
                                         .trans_a = true,
                                         .accumulate = true,
                                         .alpha = 1});
}

enum ax_status ax_adapters_backward_weights(const struct ax_adapter_call *c) {
    for (struct group g = {0}; next_group(c, &g);) {
        struct ax_stack *scratch = &c->parts[g.first].adapter->run->rt->arena.scratch;
        const size_t mark = ax_stack_mark(scratch);
        AX_TRY(group_gradients(c, &g));
        ax_stack_release(scratch, mark);
    }
    return AX_OK;
}
