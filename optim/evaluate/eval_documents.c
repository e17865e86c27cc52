#include "optim/evaluate/eval_documents.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static enum ax_status grow(struct ax_eval_documents *e) {
    const size_t from = (size_t)e->cap, to = 2 * from + 64;
    AX_TRY(ax_regrow(&e->sums, from, to, sizeof *e->sums));
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        AX_TRY(ax_regrow(&e->columns[c], from, to, sizeof *e->columns[c]));
    e->cap = (int)to;
    return AX_OK;
}

enum ax_status ax_eval_documents_add(struct ax_eval_documents *e,
                                     const struct ax_eval_document *d) {
    if (e->n == e->cap)
        AX_TRY(grow(e));
    e->sums[e->n] = d->sums;
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        e->columns[c][e->n] = d->columns[c];
    e->side_tokens[e->n % 2] += d->sums.tokens;
    e->n++;
    return AX_OK;
}

enum ax_status ax_eval_documents_loss(const struct ax_eval_documents *e,
                                      const struct ax_documents_objective *o, double kl,
                                      struct ax_eval_result *out) {
    const double weight = o->per == AX_PER_PAIR ? e->n / 2 : e->n;
    struct ax_documents d = {.n = e->n,
                             .sums = e->sums,
                             .kl = kl,
                             .inv_weight = weight > 0 ? 1 / weight : 0,
                             .inv_tokens = e->side_tokens[0] > 0 ? 1 / e->side_tokens[0] : 0};
    struct ax_documents_loss loss = {0};
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        d.columns[c] = e->columns[c];
    AX_TRY(ax_alloc(&loss.gradient, (size_t)e->n, sizeof *loss.gradient));
    o->loss(o->options, &d, &loss);
    ax_free(loss.gradient);
    struct ax_step_measures measures = {0};
    memcpy(measures.sum, loss.sum, sizeof measures.sum);
    memcpy(measures.of, loss.of, sizeof measures.of);
    ax_measures_mean(&measures, out->measures);
    out->loss = loss.loss;
    out->perplexity = NAN;
    if (loss.pairs > 0)
        out->accuracy = loss.right / loss.pairs;
    return AX_OK;
}

void ax_eval_documents_free(struct ax_eval_documents *e) {
    ax_free(e->sums);
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        ax_free(e->columns[c]);
}
