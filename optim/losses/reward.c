#include "optim/losses/reward.h"

#include <math.h>

enum { MARGIN_COLUMN };
const struct ax_columns ax_reward_columns = {
    .list = {[MARGIN_COLUMN] = {"margin", true, AX_OF_EXAMPLE, 0}}, .n = 1};

/* TRL's names; the least and the largest are means over micro-batches, as there. */
enum { LEAST, MEAN, LARGEST, ACCURACY, MARGIN, MEASURES };
static const char *const names[MEASURES + 1] = {[LEAST] = "min_reward",
                                                [MEAN] = "mean_reward",
                                                [LARGEST] = "max_reward",
                                                [ACCURACY] = "accuracy",
                                                [MARGIN] = "margin"};
_Static_assert(MEASURES <= AX_MEASURES, "too many measures");

static void note(struct ax_documents_loss *out, int measure, double value) {
    out->sum[measure] += value;
    out->of[measure] += 1;
}

static void measure(const struct ax_documents *d, struct ax_documents_loss *out) {
    double least = INFINITY, largest = -INFINITY;
    for (int i = 0; i < d->n; i++) {
        const double score = d->sums[i].lse;
        least = fmin(least, score);
        largest = fmax(largest, score);
        note(out, MEAN, score);
    }
    if (d->n == 0)
        return;
    note(out, LEAST, least);
    note(out, LARGEST, largest);
}

static void loss(const void *options, const struct ax_documents *d, struct ax_documents_loss *out) {
    const struct ax_reward *o = options;
    const float *margin = d->columns[MARGIN_COLUMN];
    for (int i = 0; i + 1 < d->n; i += 2) {
        const double c = d->sums[i].lse, r = d->sums[i + 1].lse;
        const double by = c - r - (double)margin[i];
        const double log_sigma = by < 0 ? by - log1p(exp(by)) : -log1p(exp(-by));
        const double wrong = -expm1(log_sigma); /* 1 − σ(by) */
        out->loss += d->inv_weight * (o->center * (c + r) * (c + r) - log_sigma);
        out->gradient[i].lse = d->inv_weight * (2 * o->center * (c + r) - wrong);
        out->gradient[i + 1].lse = d->inv_weight * (2 * o->center * (c + r) + wrong);
        note(out, ACCURACY, c > r);
        out->right += c > r;
        out->pairs++;
        note(out, MARGIN, c - r);
    }
    measure(d, out);
}

struct ax_objective ax_objective_reward(struct ax_reward *r, double center) {
    *r = (struct ax_reward){.center = center,
                            .documents = {.loss = loss,
                                          .options = r,
                                          .columns = &ax_reward_columns,
                                          .share = -1,
                                          .reference = -1,
                                          .per = AX_PER_PAIR}};
    return (struct ax_objective){
        .name = "reward",
        .columns = &ax_reward_columns,
        .per = AX_PER_PAIR,
        .labels_in_place = true,
        .measures = names,
        .documents = &r->documents,
        .head = {.needs_lse = true, .token_grad = ax_documents_token_grad, .ctx = &r->documents}};
}
