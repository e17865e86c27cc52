#include "optim/losses/value.h"

#include <math.h>

#include "optim/losses/rows.h"

enum { OLD, RETURN };
static const struct ax_columns columns = {
    .list =
        {[OLD] = {"old_value", true, AX_OF_LABEL, 0}, [RETURN] = {"return", true, AX_OF_LABEL, 0}},
    .n = 2};

/* TRL's names. */
static const char *const names[] = {
    [AX_VALUE_LOSS] = "loss/value_avg", [AX_VALUE_CLIPPED] = "val/clipfrac_avg", NULL};

struct call {
    struct ax_rows rows;
    const struct ax_value_options *o;
};
/* Its views, after those of the rows. */
enum { OLD_AT = AX_ROWS_VIEWS, RETURN_AT, G_LOGPROB, G_LSE, SCALARS, TOTALS, VIEWS };
_Static_assert(sizeof(struct call) <= AX_QUEUE_ARGS, "too many arguments for a call");

/* A head of one label: its logit is the log-sum-exp, and the label's probability is 1. */
static enum ax_status take_gradients(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *c = args;
    const struct ax_near_rows r = ax_rows_near(&c->rows, at);
    const float *old = at[OLD_AT], *returns = at[RETURN_AT];
    struct ax_step_scalars *scalars = at[SCALARS];
    struct ax_step_measures *measures = at[TOTALS];
    void *const g_lse = at[G_LSE];
    double loss = 0, clipped = 0, n = 0;
    (void)q;
    ax_rows_zero(&r, at[G_LOGPROB]);
    ax_rows_zero(&r, g_lse);
    for (int64_t i = 0; i < r.n && r.labels[i] >= 0; i++, n++) {
        const double v = ax_row_value(&r, r.lse, i), before = (double)old[i];
        const double near = fmin(fmax(v, before - c->o->cliprange), before + c->o->cliprange);
        const double error = v - (double)returns[i], other = near - (double)returns[i];
        const bool clips = other * other > error * error;
        loss += (clips ? other * other : error * error) / 2;
        clipped += clips;
        if (!clips)
            ax_row_set(&r, g_lse, i, c->o->coef * scalars->inv_weight * error);
    }
    scalars->loss += c->o->coef * scalars->inv_weight * loss;
    measures->sum[AX_VALUE_LOSS] += loss;
    measures->sum[AX_VALUE_CLIPPED] += clipped;
    measures->of[AX_VALUE_LOSS] += n;
    measures->of[AX_VALUE_CLIPPED] += n;
    return AX_OK;
}

/* Each rank has rows of its own. */
static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    const struct call call = {.rows = ax_rows_of(p->batch, c), .o = ctx};
    const struct ax_rows *r = &call.rows;
    struct ax_view views[VIEWS] = {[OLD_AT] = ax_view_of(&p->batch->columns[OLD], AX_VIEW_READ),
                                   [RETURN_AT] =
                                       ax_view_of(&p->batch->columns[RETURN], AX_VIEW_READ),
                                   [G_LOGPROB] = ax_rows_value(r, c->g_logprob.data, AX_VIEW_WRITE),
                                   [G_LSE] = ax_rows_value(r, c->g_lse.data, AX_VIEW_WRITE),
                                   [SCALARS] = {p->scalars, sizeof *p->scalars, AX_VIEW_UPDATE},
                                   [TOTALS] = {p->measures, sizeof *p->measures, AX_VIEW_UPDATE}};
    ax_rows_view(r, views);
    return ax_queue_call(p->model->rt->q, take_gradients, &call, sizeof call, views, VIEWS);
}

struct ax_objective ax_objective_value(struct ax_value_options *o) {
    return (struct ax_objective){.name = "value",
                                 .columns = &columns,
                                 .per = AX_PER_TOKEN,
                                 .labels_in_place = true,
                                 .measures = names,
                                 .head = {.needs_lse = true, .token_grad = token_grad, .ctx = o}};
}
