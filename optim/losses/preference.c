/* The terms of preference losses, a table; and the loss of the pairs of a micro-batch (preference.h). σ is the logistic function, β beta, ε label_smoothing.
 *
 *   sigmoid       −(1−ε)·log σ(βd) − ε·log σ(−βd)       DPO, arXiv 2305.18290; ε: cDPO
 *   hinge         max(0, 1 − βd)                        SLiC, 2309.06657
 *   ipo           (c/n_c − r/n_r − 1/2β)²               IPO, 2310.12036; a mean per token as in TRL
 *   ipo_sum       (d − 1/2β)²                           the same with sums, as published
 *   robust        (−(1−ε)·log σ(βd) + ε·log σ(−βd)) / (1 − 2ε)              2403.00409
 *   exo_pair      σ(βd)·(log σ(βd) − log(1−ε)) + σ(−βd)·(log σ(−βd) − log ε)  2402.00856
 *   nca_pair      −log σ(βc) − ½·log σ(−βc) − ½·log σ(−βr)                  2402.05369
 *   bco_pair      −log σ(βc) − log σ(−βr)               BCO without its running mean, 2404.04656
 *   sppo_hard     (c − 1/2β)² + (r + 1/2β)²             2405.00675
 *   apo_zero      1 − σ(βc) + σ(βr)                     2408.06266
 *   apo_down      σ(βc) + 1 − σ(βd)                     2408.06266
 *   discopop      −log σ(βd)·(1 − m) + e^(−βd)·m,  m = σ(βd / tau)          2406.08414
 *   sigmoid_norm  −log σ(β·(c/n_c − r/n_r))             as TRL's
 *   odds_ratio    −β·log σ(o),  o = log(e^c / (1−e^c)) − log(e^r / (1−e^r)) ORPO, 2403.07691 */
#include "optim/losses/preference.h"

#include <math.h>
#include <string.h>

static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double log_sigmoid(double x) {
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

/* A function of one number: its value; its derivative by that number in *slope. */
typedef double function(const struct ax_preference_options *o, double x, double *slope);

static double smooth_sigmoid(const struct ax_preference_options *o, double x, double *slope) {
    const double b = o->beta, e = o->label_smoothing;
    *slope = b * (-(1 - e) * sigmoid(-b * x) + e * sigmoid(b * x));
    return -(1 - e) * log_sigmoid(b * x) - e * log_sigmoid(-b * x);
}

static double plain_sigmoid(const struct ax_preference_options *o, double x, double *slope) {
    *slope = -o->beta * sigmoid(-o->beta * x);
    return -log_sigmoid(o->beta * x);
}

static double hinge(const struct ax_preference_options *o, double x, double *slope) {
    const double left = 1 - o->beta * x;
    *slope = left > 0 ? -o->beta : 0;
    return left > 0 ? left : 0;
}

static double ipo(const struct ax_preference_options *o, double x, double *slope) {
    const double off = x - 1 / (2 * o->beta);
    *slope = 2 * off;
    return off * off;
}

static double robust(const struct ax_preference_options *o, double x, double *slope) {
    const double b = o->beta, e = o->label_smoothing, scale = 1 / (1 - 2 * e);
    *slope = scale * b * (-(1 - e) * sigmoid(-b * x) - e * sigmoid(b * x));
    return scale * (-(1 - e) * log_sigmoid(b * x) + e * log_sigmoid(-b * x));
}

/* d/dx of s·(log s − k) + t·(log t − l), with s = σ(βx), t = σ(−βx), is β·s·t·(log s − k − log t + l). */
static double exo_pair(const struct ax_preference_options *o, double x, double *slope) {
    const double b = o->beta, s = sigmoid(b * x), t = sigmoid(-b * x);
    const double up = log_sigmoid(b * x) - log1p(-o->label_smoothing);
    const double down = log_sigmoid(-b * x) - log(o->label_smoothing);
    *slope = b * s * t * (up - down);
    return s * up + t * down;
}

static double discopop(const struct ax_preference_options *o, double x, double *slope) {
    const double b = o->beta, m = sigmoid(b * x / o->discopop_tau);
    const double logistic = -log_sigmoid(b * x), exponential = exp(-b * x);
    const double dm = m * sigmoid(-b * x / o->discopop_tau) * b / o->discopop_tau;
    *slope = -b * sigmoid(-b * x) * (1 - m) - b * exponential * m + (exponential - logistic) * dm;
    return logistic * (1 - m) + exponential * m;
}

/* ½·(…) of the chosen answer alone. */
static double nca_chosen(const struct ax_preference_options *o, double c, double *slope) {
    const double b = o->beta;
    *slope = -b * sigmoid(-b * c) + b / 2 * sigmoid(b * c);
    return -log_sigmoid(b * c) - log_sigmoid(-b * c) / 2;
}

static double nca_rejected(const struct ax_preference_options *o, double r, double *slope) {
    *slope = o->beta / 2 * sigmoid(o->beta * r);
    return -log_sigmoid(-o->beta * r) / 2;
}

static double bco_rejected(const struct ax_preference_options *o, double r, double *slope) {
    *slope = o->beta * sigmoid(o->beta * r);
    return -log_sigmoid(-o->beta * r);
}

static double sppo_chosen(const struct ax_preference_options *o, double c, double *slope) {
    return ipo(o, c, slope);
}

static double sppo_rejected(const struct ax_preference_options *o, double r, double *slope) {
    const double value = ipo(o, -r, slope);
    *slope = -*slope;
    return value;
}

static double rise(const struct ax_preference_options *o, double x, double *slope) {
    const double b = o->beta;
    *slope = b * sigmoid(b * x) * sigmoid(-b * x);
    return sigmoid(b * x);
}

static double fall(const struct ax_preference_options *o, double x, double *slope) {
    const double value = 1 - rise(o, x, slope);
    *slope = -*slope;
    return value;
}

/* log(e^x / (1 − e^x)) of a mean log-prob x < 0; its slope 1 / (1 − e^x). */
static double log_odds(double x, double *slope) {
    *slope = -1 / expm1(x);
    return x - log(-expm1(x));
}

/* A term is f(c) + g(r) + h(c − r) of those that it has; `normed`: c and r are divided by their tokens
 * first. */
static const struct term {
    const char *name;
    bool normed;
    function *chosen, *rejected, *difference;
} terms[AX_PREFER_TERMS] = {
    [AX_PREFER_SIGMOID] = {"sigmoid", false, NULL, NULL, smooth_sigmoid},
    [AX_PREFER_HINGE] = {"hinge", false, NULL, NULL, hinge},
    [AX_PREFER_IPO] = {"ipo", true, NULL, NULL, ipo},
    [AX_PREFER_IPO_SUM] = {"ipo_sum", false, NULL, NULL, ipo},
    [AX_PREFER_ROBUST] = {"robust", false, NULL, NULL, robust},
    [AX_PREFER_EXO_PAIR] = {"exo_pair", false, NULL, NULL, exo_pair},
    [AX_PREFER_NCA_PAIR] = {"nca_pair", false, nca_chosen, nca_rejected, NULL},
    [AX_PREFER_BCO_PAIR] = {"bco_pair", false, plain_sigmoid, bco_rejected, NULL},
    [AX_PREFER_SPPO_HARD] = {"sppo_hard", false, sppo_chosen, sppo_rejected, NULL},
    [AX_PREFER_APO_ZERO] = {"apo_zero", false, fall, rise, NULL},
    [AX_PREFER_APO_DOWN] = {"apo_down", false, rise, NULL, fall},
    [AX_PREFER_DISCOPOP] = {"discopop", false, NULL, NULL, discopop},
    [AX_PREFER_SIGMOID_NORM] = {"sigmoid_norm", true, NULL, NULL, plain_sigmoid},
    [AX_PREFER_ODDS_RATIO] = {.name = "odds_ratio"},
    [AX_PREFER_SFT] = {.name = "sft"},
};

int ax_preference_term_find(const char *name) {
    for (int i = 0; i < AX_PREFER_TERMS; i++)
        if (strcmp(terms[i].name, name) == 0)
            return i;
    return -1;
}

const char *ax_preference_term_name(enum ax_preference_term term) {
    return terms[term].name;
}

/* log(e^c / (1 − e^c)) − log(e^r / (1 − e^r)), of mean log-probs. */
static double pair_log_odds(const struct ax_preference_pair *p) {
    double slope;
    return log_odds(p->chosen, &slope) - log_odds(p->rejected, &slope);
}

static double odds_ratio(const struct ax_preference_options *o, const struct ax_preference_pair *p,
                         double weight, double slope[2]) {
    double by_chosen, by_rejected;
    log_odds(p->chosen, &by_chosen);
    log_odds(p->rejected, &by_rejected);
    const double odds = pair_log_odds(p);
    const double down = -weight * o->beta * sigmoid(-odds);
    slope[0] += down * by_chosen;
    slope[1] -= down * by_rejected;
    return -weight * o->beta * log_sigmoid(odds);
}

/* The term's value; adds its derivatives by c and r to slope[2]. AX_PREFER_SFT is not a function of
 * a pair, and not supported here. */
static double term_value(enum ax_preference_term term, const struct ax_preference_options *o,
                         const struct ax_preference_pair *p, double weight, double slope[2]) {
    const struct term *t = &terms[term];
    if (term == AX_PREFER_ODDS_RATIO)
        return odds_ratio(o, p, weight, slope);
    const bool divide = t->normed && !o->mean;
    const double n_c = divide ? p->n_chosen : 1, n_r = divide ? p->n_rejected : 1;
    const double c = p->chosen / n_c, r = p->rejected / n_r;
    const double gap = c - r - (o->gamma != 0 ? o->gamma / o->beta : 0);
    double value = 0, by;
    if (t->chosen) {
        value += weight * t->chosen(o, c, &by);
        slope[0] += weight * by / n_c;
    }
    if (t->rejected) {
        value += weight * t->rejected(o, r, &by);
        slope[1] += weight * by / n_r;
    }
    if (t->difference) {
        value += weight * t->difference(o, gap, &by);
        slope[0] += weight * by / n_c;
        slope[1] -= weight * by / n_r;
    }
    return value;
}

/* ---- the loss of pairs ---- */

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
    const double odds = pair_log_odds(p);
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
            out->loss +=
                d->inv_weight * term_value((enum ax_preference_term)t, o, &p, o->weight[t], slope);
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
