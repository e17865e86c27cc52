#include "model/core/own_columns.h"

static bool exchanged(const struct ax_runtime *rt, const struct ax_linear *lin) {
    return lin->split == AX_SPLIT_NONE && rt->mesh.size[AX_ROLE_TP] > 1;
}

/* Copies this rank's columns of all [T][out] to, or from, `own` [T][Σ n]. */
static enum ax_status copy_own(struct ax_runtime *rt, const struct ax_own_columns *c,
                               const struct ax_tensor *all, const struct ax_tensor *own, bool to) {
    int64_t at = 0;
    for (int i = 0; i < c->n; at += c->of[i++].n) {
        const struct ax_tensor there = ax_tensor_cols(all, c->of[i].from, c->of[i].n);
        const struct ax_tensor here = ax_tensor_cols(own, at, c->of[i].n);
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){to ? there : here, to ? here : there}));
    }
    return AX_OK;
}

/* Memory for all columns of this rank's rows, of T. */
static struct ax_tensor take_rows(struct ax_runtime *rt, const struct ax_linear *lin,
                                  const struct ax_tensor *like) {
    return ax_stack_take(
        &rt->arena.scratch, "outputs of own rows",
        ax_tensor_2d(like->dtype, NULL, ax_tp_rows(rt, like->shape[0]), ax_linear_out(lin)));
}

enum ax_status ax_own_columns_forward(struct ax_runtime *rt, const struct ax_linear *lin,
                                      const struct ax_own_columns *own, const struct ax_tensor *h,
                                      const struct ax_tensor *y) {
    if (!exchanged(rt, lin))
        return ax_linear_forward(rt, lin, h, NULL, y);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor rows = take_rows(rt, lin, y);
    struct ax_tensor all;
    AX_TRY(ax_linear_forward(rt, lin, h, NULL, &rows));
    AX_TRY(ax_tp_gather(rt, &rows, &all));
    AX_TRY(copy_own(rt, own, &all, y, false));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_own_columns_backward(struct ax_runtime *rt, const struct ax_linear *lin,
                                       const struct ax_own_columns *own, const struct ax_tensor *h,
                                       const struct ax_tensor *dy, const struct ax_tensor *dh) {
    if (!exchanged(rt, lin))
        return ax_linear_backward(rt, lin, h, dy, dh);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor rows = take_rows(rt, lin, dy), all = ax_tp_partial(rt, &rows);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){all, 0}));
    AX_TRY(copy_own(rt, own, &all, dy, true));
    AX_TRY(ax_tp_reduce(rt, &all, NULL, &rows));
    AX_TRY(ax_linear_backward(rt, lin, h, &rows, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_own_columns_scale(struct ax_runtime *rt, const struct ax_own_columns *own,
                                    const double *factor, const struct ax_tensor *y) {
    int64_t at = 0;
    for (int i = 0; i < own->n; at += own->of[i++].n) {
        const struct ax_tensor output = ax_tensor_cols(y, at, own->of[i].n);
        if (factor[i] != 1)
            AX_TRY(ax_run_scale(rt->q,
                                &(struct ax_scale){.y = output, .x = output, .alpha = factor[i]}));
    }
    return AX_OK;
}
