#include "model/core/norm.h"

/* Memory for centered rows, in scratch. */
static struct ax_tensor take_centered(const struct ax_pass *p, const struct ax_tensor *x) {
    return ax_stack_take(&p->model->rt->arena.scratch, "centered rows",
                         ax_tensor_2d(p->model->accum, NULL, x->shape[0], x->shape[1]));
}

/* The weights of n columns; those that are 1 in scratch. */
static enum ax_status weights_of(const struct ax_pass *p, const struct ax_unit *unit,
                                 const struct ax_param *w, int64_t n, struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    if (w) {
        *out = ax_unit_weight(unit, w);
        return AX_OK;
    }
    *out = ax_stack_take(&m->rt->arena.scratch, "norm weights", ax_tensor_1d(m->dtype, NULL, n));
    return ax_run_fill(m->rt->q, &(struct ax_fill){*out, 1 - m->arch.norm.offset});
}

/* Where the range of y goes, which has this rank's rows: nowhere if nobody has asked. */
static struct ax_range_of of_own_rows(const struct ax_pass *p, const struct ax_tensor *y) {
    const struct ax_fake_part rows = {AX_FAKE_ROWS, 0};
    return ax_fake_quant_range(p->model->rt, &p->model->quant, rows, 1, y);
}

static enum ax_status rms_forward(struct ax_pass *p, const struct ax_unit *unit,
                                  const struct ax_param *w, const struct ax_tensor *x,
                                  const struct ax_tensor *y, const struct ax_tensor *rstd) {
    const struct ax_arch *a = &p->model->arch;
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_rmsnorm_forward norm = {.x = *x,
                                      .y = *y,
                                      .rstd = *rstd,
                                      .eps = a->norm_eps,
                                      .offset = a->norm.offset,
                                      .once = a->norm.once,
                                      .range = of_own_rows(p, y)};
    AX_TRY(weights_of(p, unit, w, x->shape[x->ndim - 1], &norm.weight));
    AX_TRY(ax_run_rmsnorm_forward(p->model->rt->q, &norm));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_norm_forward(struct ax_pass *p, const struct ax_unit *unit,
                               const struct ax_param *w, const struct ax_tensor *x,
                               const struct ax_tensor *y, const struct ax_tensor *rstd) {
    struct ax_runtime *rt = p->model->rt;
    if (!p->model->arch.norm.centers)
        return rms_forward(p, unit, w, x, y, rstd);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor centered = take_centered(p, x);
    AX_TRY(ax_run_center(rt->q, &(struct ax_center){.x = *x, .y = centered}));
    AX_TRY(rms_forward(p, unit, w, &centered, y, rstd));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status rms_backward(struct ax_pass *p, const struct ax_unit *unit,
                                   const struct ax_param *w, const struct ax_tensor *dy,
                                   const struct ax_tensor *x, const struct ax_tensor *rstd,
                                   const struct ax_tensor *dx, const struct ax_tensor *narrow,
                                   bool accumulate) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_rmsnorm_backward norm = {.dy = *dy,
                                       .x = *x,
                                       .rstd = *rstd,
                                       .dx = *dx,
                                       .accumulate = accumulate,
                                       .offset = p->model->arch.norm.offset};
    if (narrow)
        norm.narrow = *narrow;
    if (w)
        norm.dweight = ax_unit_grad(unit, w);
    AX_TRY(weights_of(p, unit, w, x->shape[x->ndim - 1], &norm.weight));
    AX_TRY(ax_run_rmsnorm_backward(p->model->rt->q, &norm));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                const struct ax_param *w, const struct ax_tensor *dy,
                                const struct ax_tensor *x, const struct ax_tensor *rstd,
                                const struct ax_tensor *dx, bool accumulate) {
    struct ax_runtime *rt = p->model->rt;
    if (!p->model->arch.norm.centers)
        return rms_backward(p, unit, w, dy, x, rstd, dx, NULL, accumulate);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor centered = take_centered(p, x), d_centered = take_centered(p, x);
    AX_TRY(ax_run_center(rt->q, &(struct ax_center){.x = *x, .y = centered}));
    AX_TRY(rms_backward(p, unit, w, dy, &centered, rstd, &d_centered, NULL, false));
    AX_TRY(ax_run_center(rt->q,
                         &(struct ax_center){.x = d_centered, .y = *dx, .accumulate = accumulate}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_residual_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                         const struct ax_param *w, const struct ax_tensor *dy,
                                         const struct ax_tensor *x, const struct ax_tensor *rstd,
                                         const struct ax_tensor *d, bool accumulate, bool narrow) {
    struct ax_slot *s = p->slot;
    if (!narrow || p->model->arch.norm.centers || !s->narrow.data)
        return ax_norm_backward(p, unit, w, dy, x, rstd, d, accumulate);
    AX_TRY(rms_backward(p, unit, w, dy, x, rstd, d, &s->narrow, accumulate));
    s->narrowed = d->data;
    return AX_OK;
}

bool ax_residual_narrows(const struct ax_pass *p, int unit) {
    const struct ax_model *m = p->model;
    if (unit < 1 || unit < m->lowest_unit || unit < m->chunks.list[p->chunk].first ||
        m->arch.streams.n > 0 || m->arch.residual_scale != 1)
        return false;
    const struct ax_layer *l = &m->layers[unit - 1];
    return !l->scale && !l->spec.predicts;
}

enum ax_status ax_residual_narrow(const struct ax_pass *p, const struct ax_tensor *d,
                                  struct ax_tensor *dy) {
    struct ax_slot *s = p->slot;
    const bool done = !s->narrow.data || s->narrowed == d->data;
    *dy = s->narrow.data ? s->narrow : *d;
    s->narrowed = NULL;
    if (!done)
        AX_TRY(ax_run_copy(p->model->rt->q, &(struct ax_copy){*dy, *d}));
    if (p->tap) {
        p->tap(p->tap_ctx, "gradient", 0, d);
        p->tap(p->tap_ctx, "narrow gradient", 0, dy);
    }
    return AX_OK;
}
