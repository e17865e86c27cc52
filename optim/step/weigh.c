#include "optim/step/weigh.h"

static double weight_of(const struct ax_batch *b, enum ax_per per) {
    const int64_t pairs = b->n_docs / 2;
    return per == AX_PER_TOKEN      ? b->weight_total
           : per == AX_PER_DOCUMENT ? (double)b->n_docs
                                    : (double)pairs;
}

/* Documents without any token to train on are no step. */
static enum ax_status need_tokens(struct ax_queue *q, const void *args, void *const *at) {
    struct ax_step_scalars *scalars = at[0];
    const struct ax_step_measures *measures = at[1];
    (void)q;
    (void)args;
    if (measures->tokens == 0)
        scalars->weight = 0;
    return AX_OK;
}

/* Over the data ranks, of doubles in device memory. */
static enum ax_status sum(struct ax_step *s, double AX_DEVICE *value, int64_t n) {
    return ax_comm_sum(&s->rt->comms[AX_ROLE_BATCH], s->rt->q, AX_F64, value, n);
}

enum ax_status ax_step_weigh(struct ax_step *s) {
    const enum ax_per per = s->o.objective->per;
    struct ax_step_measures none = {.kl = s->kl,
                                    .entropy_cut = s->entropy_cut,
                                    .entropy_tokens =
                                        s->entropy_cut > 0 ? (double)s->entropy_tokens : 0};
    const struct ax_view views[] = {{s->scalars, sizeof *s->scalars, AX_VIEW_UPDATE},
                                    {s->measures, sizeof *s->measures, AX_VIEW_READ}};
    /* weight and documents of the step */
    const int64_t counts = s->o.sequence_coef > 0 ? 2 : 1;
    double count[] = {s->absent, 0};
    for (int m = 0; m < s->o.n_microbatches; m++) {
        const struct ax_batch *b = &s->batches[m];
        s->batches[m].loss_weight = weight_of(b, per);
        count[0] += b->loss_weight;
        count[1] += (double)b->n_docs;
        none.tokens += (double)(per == AX_PER_PAIR ? b->side_trained[0] : b->trained);
        none.entropy_tokens += s->entropy_cut > 0 ? 0 : (double)b->trained;
    }
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->weight, count, (size_t)counts * sizeof *count));
    AX_TRY(sum(s, &s->scalars->weight, counts));
    if (!s->o.objective->measures)
        return AX_OK;
    AX_TRY(ax_queue_write(s->rt->q, s->measures, &none, sizeof none));
    AX_TRY(sum(s, &s->measures->tokens, 2));
    return per == AX_PER_DOCUMENT ? ax_queue_call(s->rt->q, need_tokens, NULL, 0, views, 2) : AX_OK;
}
