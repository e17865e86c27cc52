/* The loss of the pairs of a micro-batch: see preference.h. */
#include "optim/losses/preference.h"

#include <math.h>

enum { REFERENCE, SHARE };
#define REFERENCE_COLUMN [REFERENCE] = {"reference", true, AX_OF_EXAMPLE, 0}
#define SHARE_COLUMN     [SHARE] = {"share", true, AX_OF_LABEL, 0}
static const struct ax_columns whole = {.list = {REFERENCE_COLUMN}, .n = 1},
                               shared = {.list = {REFERENCE_COLUMN, SHARE_COLUMN}, .n = 2};

/* TRL's names. */
enum {
    REWARD_CHOSEN,
    REWARD_REJECTED,
    ACCURACY,
    MARGIN,
    LOGP_CHOSEN,
    LOGP_REJECTED,
    LOGIT_CHOSEN,
    LOGIT_REJECTED,
    ENTROPY,
    NLL,
    ODDS_RATIO,
    ODDS_CHOSEN,
    MEASURES
};
static const char *const names[MEASURES + 1] = {[REWARD_CHOSEN] = "rewards/chosen",
                                                [REWARD_REJECTED] = "rewards/rejected",
                                                [ACCURACY] = "rewards/accuracies",
                                                [MARGIN] = "rewards/margins",
                                                [LOGP_CHOSEN] = "logps/chosen",
                                                [LOGP_REJECTED] = "logps/rejected",
                                                [LOGIT_CHOSEN] = "logits/chosen",
                                                [LOGIT_REJECTED] = "logits/rejected",
                                                [ENTROPY] = "entropy",
                                                [NLL] = "nll_loss",
                                                [ODDS_RATIO] = "log_odds_ratio",
                                                [ODDS_CHOSEN] = "log_odds_chosen"};
_Static_assert(MEASURES <= AX_MEASURES, "too many measures");

static void note(struct ax_documents_loss *out, int measure, double sum, double of) {
    out->sum[measure] += sum;
    out->of[measure] += of;
}

/* c and r: log-probs of the answers. */
static void measure(const struct ax_preference_options *o, const struct ax_document_sums side[2],
                    const struct ax_preference_pair *p, const double logps[2],
                    struct ax_documents_loss *out) {
    note(out, REWARD_CHOSEN, o->beta * p->chosen, 1);
    note(out, REWARD_REJECTED, o->beta * p->rejected, 1);
    note(out, ACCURACY, p->chosen > p->rejected, 1);
    note(out, MARGIN, o->beta * (p->chosen - p->rejected), 1);
    note(out, LOGP_CHOSEN, logps[0], 1);
    note(out, LOGP_REJECTED, logps[1], 1);
    note(out, LOGIT_CHOSEN, side[0].logit, side[0].tokens);
    note(out, LOGIT_REJECTED, side[1].logit, side[1].tokens);
    for (int k = 0; k < 2; k++)
        note(out, ENTROPY, side[k].entropy, side[k].tokens);
    if (o->weight[AX_PREFER_SFT] != 0)
        note(out, NLL, side[0].nll, side[0].tokens);
    if (o->weight[AX_PREFER_ODDS_RATIO] == 0)
        return;
    const double odds = ax_preference_log_odds(p);
    note(out, ODDS_RATIO, odds < 0 ? odds - log1p(exp(odds)) : -log1p(exp(-odds)), 1);
    note(out, ODDS_CHOSEN, odds, 1);
}

static void pair_loss(const struct ax_preference_options *o, const struct ax_documents *d,
                      int first, struct ax_documents_loss *out) {
    const struct ax_document_sums *side = &d->sums[first];
    const float *reference = o->reference ? d->columns[REFERENCE] : NULL;
    double value[2], scale[2], logps[2], slope[2] = {0};
    for (int k = 0; k < 2; k++) {
        scale[k] = o->mean ? 1 / side[k].answer : 1;
        logps[k] = side[k].logprob * scale[k];
        /* the reference is a float; rounded alike, a policy that equals it differs by 0 */
        value[k] = reference ? (double)((float)logps[k] - reference[first + k]) : logps[k];
    }
    const struct ax_preference_pair p = {value[0], value[1], side[0].answer, side[1].answer};
    for (int t = 0; t < AX_PREFER_TERMS; t++)
        if (o->weight[t] != 0 && t != AX_PREFER_SFT)
            out->loss += d->inv_weight * ax_preference_value((enum ax_preference_term)t, o, &p,
                                                             o->weight[t], slope);
    for (int k = 0; k < 2; k++)
        out->gradient[first + k].logprob = d->inv_weight * slope[k] * scale[k];
    out->loss += o->weight[AX_PREFER_SFT] * d->inv_tokens * side[0].nll;
    out->gradient[first].nll = o->weight[AX_PREFER_SFT] * d->inv_tokens;
    measure(o, side, &p, logps, out);
}

static void loss(const void *options, const struct ax_documents *d, struct ax_documents_loss *out) {
    for (int first = 0; first + 1 < d->n; first += 2)
        pair_loss(options, d, first, out);
}

struct ax_objective ax_objective_preference(struct ax_preference *p, const char *name,
                                            const struct ax_preference_options *o) {
    const struct ax_columns *columns = o->shares ? &shared : &whole;
    p->o = *o;
    p->documents = (struct ax_documents_objective){.loss = loss,
                                                   .options = &p->o,
                                                   .per = AX_PER_PAIR,
                                                   .columns = columns,
                                                   .share = o->shares ? SHARE : -1,
                                                   .reference = o->reference ? REFERENCE : -1};
    return (struct ax_objective){
        .name = name,
        .columns = columns,
        .per = AX_PER_PAIR,
        .documents = &p->documents,
        .measures = names,
        .head = {.wants_mean = true, .token_grad = ax_documents_token_grad, .ctx = &p->documents}};
}
