#include "optim/losses/kto.h"

#include <math.h>

enum { REFERENCE, DESIRABLE };
const struct ax_columns ax_kto_columns = {
    .list = {[REFERENCE] = {"reference", true, AX_OF_EXAMPLE, 0},
             [DESIRABLE] = {"desirable", false, AX_OF_EXAMPLE, 0}},
    .n = 2};

/* TRL's names; of each two the first is of desirable answers. */
enum { REWARD, MARGIN = REWARD + 2, LOGP, LOGIT = LOGP + 2, ENTROPY = LOGIT + 2, KL, MEASURES };
static const char *const names[MEASURES + 1] = {[REWARD] = "rewards/chosen",
                                                [REWARD + 1] = "rewards/rejected",
                                                [MARGIN] = "rewards/margins",
                                                [LOGP] = "logps/chosen",
                                                [LOGP + 1] = "logps/rejected",
                                                [LOGIT] = "logits/chosen",
                                                [LOGIT + 1] = "logits/rejected",
                                                [ENTROPY] = "entropy",
                                                [KL] = "kl"};
_Static_assert(MEASURES <= AX_MEASURES, "too many measures");

static void note(struct ax_documents_loss *out, int measure, double sum, double of) {
    out->sum[measure] += sum;
    out->of[measure] += of;
}

static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static void loss(const void *options, const struct ax_documents *d, struct ax_documents_loss *out) {
    const struct ax_kto_options *o = options;
    const float *reference = d->columns[REFERENCE];
    const int32_t *desirable = d->columns[DESIRABLE];
    const double z = o->apo_zero_unpaired ? 0 : fmax(0, d->kl);
    for (int i = 0; i < d->n; i++) {
        const struct ax_document_sums *s = &d->sums[i];
        const bool good = desirable[i] != 0;
        /* rounded as the reference is: see preference.c */
        const double x = (double)((float)s->logprob - reference[i]), sign = good ? 1 : -1;
        const double weight = good ? o->desirable_weight : o->undesirable_weight;
        const double share = sigmoid(sign * o->beta * (x - z));
        out->loss += d->inv_weight * weight * (1 - share);
        out->gradient[i].logprob = -d->inv_weight * weight * sign * o->beta * share * (1 - share);
        note(out, REWARD + !good, o->beta * x, 1);
        note(out, LOGP + !good, s->logprob, 1);
        note(out, LOGIT + !good, s->logit, s->tokens);
        note(out, ENTROPY, s->entropy, s->tokens);
        if (!o->apo_zero_unpaired)
            note(out, KL, z, 1);
    }
}

/* None where answers are all of one kind. */
static void derive(double means[AX_MEASURES]) {
    means[MARGIN] = means[REWARD] - means[REWARD + 1];
}

struct ax_objective ax_objective_kto(struct ax_kto *k, const struct ax_kto_options *o) {
    *k = (struct ax_kto){.o = *o};
    k->documents = (struct ax_documents_objective){.loss = loss,
                                                   .options = &k->o,
                                                   .per = AX_PER_DOCUMENT,
                                                   .columns = &ax_kto_columns,
                                                   .share = -1,
                                                   .reference = REFERENCE,
                                                   .mismatches = !o->apo_zero_unpaired,
                                                   .derive = derive};
    return (struct ax_objective){
        .name = "kto",
        .columns = &ax_kto_columns,
        .per = AX_PER_DOCUMENT,
        .documents = &k->documents,
        .measures = names,
        .head = {.wants_mean = true, .token_grad = ax_documents_token_grad, .ctx = &k->documents}};
}
