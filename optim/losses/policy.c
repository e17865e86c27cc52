/* Rows of the head → sums per completion → loss → gradients per row: see policy.h. */
#include "optim/losses/policy.h"

#include <math.h>
#include <string.h>

#include "optim/losses/rows.h"

/* TRL's names. */
enum {
    ENTROPY,
    KL,
    CLIP_LOW,
    CLIP_HIGH,
    CLIP_REGION,
    CLIP_LOW_MIN,
    CLIP_HIGH_MAX,
    CISPO_CLIP,
    PHI,
    RATIO,
    APPROX_KL,
    SAMPLER_MEAN,
    SAMPLER_MIN,
    SAMPLER_MAX,
    SAMPLER_GAP,
    SAMPLER_GAP_MAX,
    MEASURES
};
const char *const ax_policy_measures[MEASURES + 1] = {
    [ENTROPY] = "entropy",
    [KL] = "kl",
    [CLIP_LOW] = "clip_ratio/low_mean",
    [CLIP_HIGH] = "clip_ratio/high_mean",
    [CLIP_REGION] = "clip_ratio/region_mean",
    [CLIP_LOW_MIN] = "clip_ratio/low_min",
    [CLIP_HIGH_MAX] = "clip_ratio/high_max",
    [CISPO_CLIP] = "cispo_clip_ratio",
    [PHI] = "vespo/phi_seq_mean",
    [RATIO] = "ratio_mean",
    [APPROX_KL] = "approx_kl",
    [SAMPLER_MEAN] = "sampling/importance_sampling_ratio/mean",
    [SAMPLER_MIN] = "sampling/importance_sampling_ratio/min",
    [SAMPLER_MAX] = "sampling/importance_sampling_ratio/max",
    [SAMPLER_GAP] = "sampling/sampling_logp_difference/mean",
    [SAMPLER_GAP_MAX] = "sampling/sampling_logp_difference/max"};
_Static_assert(MEASURES <= AX_MEASURES, "too many measures");

/* Over a completion's tokens; doubles only, which ranks sum. A token's share is 0 without a term, else
 * the sampler's ratio, or 1. k3 and loss are those of tokens with a ratio of their own. */
struct sums {
    double tokens, log_ratio, squares;
    double from_sampler; /* Σ (old − sampler) */
    double
        correction; /* Σ of the logarithms of the tokens' corrections, if the loss weighs completions */
    double share, logprob; /* Σ share, Σ share·p */
    double loss, k3, ratio;
    double low, high; /* tokens that are clipped */
    double entropy, kept_entropy;
};
#define SUMS ((int64_t)(sizeof(struct sums) / sizeof(double)))

/* Of one micro-batch, for the queue's calls. */
struct call {
    struct ax_rows rows;
    const struct ax_policy *policy;
    bool counts; /* this rank counts the loss, which all ranks of the sequence know */
};
_Static_assert(sizeof(struct call) <= AX_QUEUE_ARGS, "too many arguments for a call");

/* The views after those of the rows; the first call has those up to TOTALS. */
enum {
    SUMS_AT = AX_ROWS_VIEWS,
    ADVANTAGE,
    OLD,
    REFERENCE,
    SAMPLER,
    TOTALS,
    SCALARS,
    G_LOGPROB,
    G_LSE,
    G_ENTROPY,
    VIEWS
};

/* The same where the call runs. */
struct near {
    struct ax_near_rows rows;
    const struct ax_policy_options *o;
    const float *advantage, *old, *reference, *sampler;
    struct sums *sums;
    double entropy_cut;
};

static struct near near_of(const struct call *c, void *const *at) {
    const struct ax_step_measures *measures = at[TOTALS];
    return (struct near){.rows = ax_rows_near(&c->rows, at),
                         .o = &c->policy->o,
                         .advantage = at[ADVANTAGE],
                         .old = at[OLD],
                         .reference = at[REFERENCE],
                         .sampler = at[SAMPLER],
                         .sums = at[SUMS_AT],
                         .entropy_cut = measures->entropy_cut};
}

/* ---- tokens ---- */

/* Labeled row i, of document `doc`. */
struct token {
    double logprob, advantage, share, entropy;
    double log_ratio, ratio; /* its own */
    double from_sampler;     /* old − sampler */
    double correction;       /* the sampler's ratio within its bounds, if tokens have one each */
    double k3, d_k3;         /* and the derivative by p */
    bool kept;
};

static double bounded(const struct ax_sampler_ratio *o, double log_ratio) {
    const double ratio = exp(log_ratio);
    if (o->masks)
        return ratio < o->least || ratio > o->most ? 0 : ratio;
    return fmin(fmax(ratio, o->least), o->most);
}

static struct token token_at(const struct near *n, int doc, int64_t i) {
    const struct ax_near_rows *r = &n->rows;
    struct token t = {.logprob = ax_row_value(r, r->logprob, i),
                      .entropy = ax_row_value(r, r->entropy, i),
                      .advantage = (double)n->advantage[n->o->token_advantages ? i : doc]};
    const double old = n->old ? (double)n->old[i] : t.logprob;
    t.log_ratio = t.logprob - old;
    t.ratio = exp(t.log_ratio);
    t.kept = !n->o->entropy_mask || t.entropy >= n->entropy_cut;
    t.share = t.kept;
    if (n->sampler)
        t.from_sampler = old - (double)n->sampler[i];
    if (n->sampler && !n->o->sampler.sequence) {
        t.correction = bounded(&n->o->sampler, t.from_sampler);
        t.share *= n->o->loss->whole ? 1 : t.correction;
    }
    if (n->reference) {
        const double d = (double)n->reference[i] - t.logprob;
        t.k3 = exp(d) - d - 1;
        t.d_k3 = 1 - exp(d);
    }
    return t;
}

/* True if each token has a loss of its own, else a completion has one. */
static bool of_tokens(const struct ax_policy_options *o) {
    return !o->loss->whole && !o->sequence;
}

static int clipped_at(const struct ax_policy_options *o, double advantage, double ratio) {
    return o->loss->clipped ? o->loss->clipped(o, advantage, ratio) : 0;
}

static void add_token(const struct near *n, const struct token *t, struct sums *s) {
    const int clipped = clipped_at(n->o, t->advantage, t->ratio);
    double slope;
    s->tokens += 1;
    s->log_ratio += t->log_ratio;
    s->squares += t->log_ratio * t->log_ratio;
    s->from_sampler += t->from_sampler;
    if (n->sampler && n->o->loss->whole)
        s->correction += log(fmax(t->correction, AX_VESPO_LEAST));
    s->share += t->share;
    s->logprob += t->share * t->logprob;
    s->ratio += t->ratio;
    s->low += clipped < 0;
    s->high += clipped > 0;
    s->entropy += t->entropy;
    s->kept_entropy += t->kept ? t->entropy : 0;
    s->k3 += t->k3 * (n->o->correct_kl && !n->o->sequence ? t->ratio : 1);
    if (!of_tokens(n->o))
        return;
    if (n->o->loss->weight)
        s->loss -= t->share * n->o->loss->weight(n->o, t->advantage, t->ratio, 0) * t->advantage *
                   t->logprob;
    else
        s->loss += t->share * n->o->loss->term(n->o, t->advantage, t->ratio, &slope);
}

static enum ax_status add_rows(struct ax_queue *q, const void *args, void *const *at) {
    const struct near n = near_of(args, at);
    int doc = 0;
    (void)q;
    memset(n.sums, 0, (size_t)n.rows.n_cap * sizeof *n.sums);
    for (int64_t i = 0; i < n.rows.n && n.rows.labels[i] >= 0; i++) {
        doc = ax_row_document(&n.rows, doc, i);
        const struct token t = token_at(&n, doc, i);
        add_token(&n, &t, &n.sums[doc]);
    }
    return AX_OK;
}

/* ---- completions ---- */

/* What follows from a completion's sums. */
struct completion {
    double scale;  /* of its tokens' losses in the step's */
    double ratio;  /* of all its tokens; with token ratios not used */
    double weight; /* likewise, if the loss weighs completions */
    double share;  /* what its tokens' shares are multiplied by */
    double loss;   /* Σ of its tokens, less entropy */
    double spread; /* d loss / d p of each of its tokens, through the common ratio */
    double k3_by;  /* what k3's derivative is multiplied by */
};

static double scale_of(const struct ax_policy_options *o, double tokens, double inv_weight) {
    const double length[] = {[AX_POLICY_SUM] = 1,
                             [AX_POLICY_TOKENS] = tokens,
                             [AX_POLICY_MOST] = (double)o->max_completion_length};
    return inv_weight / length[o->loss->length];
}

/* 0 if it is dropped, else the sampler's ratio of all its tokens, or 1. */
static double share_of(const struct ax_policy_options *o, const struct sums *s, double advantage) {
    const double drift = -(s->from_sampler + s->log_ratio) / fmax(s->tokens, 1);
    if (advantage < 0 && drift > o->off_policy_threshold)
        return 0;
    return o->sampler.sequence ? bounded(&o->sampler, s->from_sampler) : 1;
}

/* advantage: of the completion, if its tokens have one. */
static struct completion complete(const struct ax_policy_options *o, const struct sums *s,
                                  double advantage, double inv_weight) {
    const double n = fmax(s->tokens, 1);
    struct completion c = {.scale = scale_of(o, n, inv_weight),
                           .ratio = o->sequence ? exp(s->log_ratio / n) : 1,
                           .share = share_of(o, s, advantage),
                           .loss = s->loss,
                           .k3_by = 1};
    double slope = 0;
    if (!of_tokens(o) && o->loss->weight) {
        c.weight = o->loss->weight(o, advantage, c.ratio, s->log_ratio + s->correction);
        c.loss = -c.weight * advantage * s->logprob;
    } else if (!of_tokens(o)) {
        c.loss = s->share * o->loss->term(o, advantage, c.ratio, &slope);
        c.spread = s->share * slope * c.ratio / n;
    }
    c.loss *= c.share;
    c.spread *= c.share;
    const bool corrects = o->sequence && o->correct_kl;
    c.k3_by = corrects ? c.ratio : 1;
    c.loss += o->beta * c.k3_by * s->k3;
    c.spread += corrects ? o->beta * c.ratio / n * s->k3 : 0;
    return c;
}

/* d loss / d p of a token. */
static double slope_of(const struct ax_policy_options *o, const struct token *t,
                       const struct completion *c) {
    const bool own = o->correct_kl && !o->sequence;
    const double share = c->share * t->share;
    double slope = c->spread, by_ratio;
    if (o->beta != 0)
        slope += o->beta * (own ? t->ratio * (t->d_k3 + t->k3) : c->k3_by * t->d_k3);
    if (o->loss->weight)
        slope -= share * t->advantage *
                 (of_tokens(o) ? o->loss->weight(o, t->advantage, t->ratio, 0) : c->weight);
    else if (of_tokens(o)) {
        (void)o->loss->term(o, t->advantage, t->ratio, &by_ratio);
        slope += share * by_ratio * t->ratio;
    }
    return c->scale * slope;
}

/* ---- measures ---- */

static void note(struct ax_step_measures *m, int measure, double sum, double of) {
    m->sum[measure] += sum;
    m->of[measure] += of;
}

/* Shares of tokens; of completions if they have one ratio each. */
static void measure_clips(const struct ax_policy_options *o, const struct sums *s,
                          const struct completion *c, double advantage,
                          struct ax_step_measures *m) {
    const int clipped = o->sequence ? clipped_at(o, advantage, c->ratio) : 0;
    const double low = o->sequence ? clipped < 0 : s->low, of = o->sequence ? 1 : s->tokens,
                 high = o->sequence ? clipped > 0 : s->high;
    if (o->loss->measures & AX_POLICY_CAPS)
        note(m, CISPO_CLIP, high, of);
    if (o->loss->measures & AX_POLICY_CLIPS) {
        note(m, CLIP_LOW, low, of);
        note(m, CLIP_HIGH, high, of);
        note(m, CLIP_REGION, low + high, of);
        m->sum[CLIP_LOW_MIN] = fmin(m->sum[CLIP_LOW_MIN], low / fmax(of, 1));
        m->sum[CLIP_HIGH_MAX] = fmax(m->sum[CLIP_HIGH_MAX], high / fmax(of, 1));
        m->of[CLIP_LOW_MIN] = m->of[CLIP_HIGH_MAX] = 1;
    }
}

static void measure(const struct ax_policy_options *o, const struct sums *s,
                    const struct completion *c, double advantage, struct ax_step_measures *m) {
    note(m, ENTROPY, s->entropy, s->tokens);
    if (o->beta != 0)
        note(m, KL, c->k3_by * s->k3, s->tokens);
    if (o->loss->measures & AX_POLICY_WEIGHTS)
        note(m, PHI, c->weight, 1);
    if (o->old) {
        note(m, RATIO, o->sequence ? c->ratio * s->tokens : s->ratio, s->tokens);
        note(m, APPROX_KL, s->squares / 2, s->tokens);
    }
    measure_clips(o, s, c, advantage, m);
}

/* What multiplies the terms: as TRL's, after the bounds. Where cp splits rows, those of one rank are measured. */
static void measure_correction(double correction, struct ax_step_measures *m) {
    note(m, SAMPLER_MEAN, correction, 1);
    m->sum[SAMPLER_MIN] = fmin(m->sum[SAMPLER_MIN], correction);
    m->sum[SAMPLER_MAX] = fmax(m->sum[SAMPLER_MAX], correction);
    m->of[SAMPLER_MIN] = m->of[SAMPLER_MAX] = 1;
}

static void measure_gap(double gap, struct ax_step_measures *m) {
    note(m, SAMPLER_GAP, gap, 1);
    m->sum[SAMPLER_GAP_MAX] = fmax(m->sum[SAMPLER_GAP_MAX], gap);
    m->of[SAMPLER_GAP_MAX] = 1;
}

/* Adds the micro-batch's own to the step's; the smallest and largest of something are means over
 * micro-batches. */
static void count(const struct ax_step_measures *own, struct ax_step_measures *m) {
    for (int i = 0; i < MEASURES; i++)
        note(m, i, own->of[i] > 0 ? own->sum[i] : 0, own->of[i]);
}

/* ---- the calls ---- */

static enum ax_status take_gradients(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *c = args;
    const struct near n = near_of(c, at);
    const struct ax_policy_options *o = n.o;
    struct ax_step_scalars *scalars = at[SCALARS];
    struct ax_step_measures *step = at[TOTALS];
    struct ax_step_measures own = {.sum = {[CLIP_LOW_MIN] = INFINITY, [SAMPLER_MIN] = INFINITY}};
    const double bonus = step->entropy_tokens > 0 ? o->entropy_coef / step->entropy_tokens : 0;
    void *const g_logprob = at[G_LOGPROB], *const g_entropy = at[G_ENTROPY];
    double loss = 0;
    int64_t i = 0;
    (void)q;
    ax_rows_zero(&n.rows, g_logprob);
    ax_rows_zero(&n.rows, g_entropy);
    ax_rows_zero(&n.rows, at[G_LSE]);
    for (int doc = 0; doc < n.rows.n_docs; doc++) {
        const double advantage = o->token_advantages ? 0 : (double)n.advantage[doc];
        const struct sums *s = &n.sums[doc];
        const struct completion done = complete(o, s, advantage, scalars->inv_weight);
        loss += done.scale * done.loss - bonus * s->kept_entropy;
        measure(o, s, &done, advantage, &own);
        if (n.sampler && o->sampler.sequence)
            measure_correction(bounded(&o->sampler, s->from_sampler), &own);
        for (; i < n.rows.n && n.rows.labels[i] >= 0 && n.rows.token[i] < n.rows.cu[doc + 1]; i++) {
            const struct token t = token_at(&n, doc, i);
            ax_row_set(&n.rows, g_logprob, i, slope_of(o, &t, &done));
            if (n.sampler)
                measure_gap(fabs(t.from_sampler), &own);
            if (n.sampler && !o->sampler.sequence)
                measure_correction(t.correction, &own);
            if (g_entropy)
                ax_row_set(&n.rows, g_entropy, i, t.kept ? -bonus : 0);
        }
    }
    if (c->counts) {
        scalars->loss += loss;
        count(&own, step);
    }
    return AX_OK;
}

static struct ax_view column(const struct ax_batch *b, int c) {
    return c < 0 ? (struct ax_view){NULL, 0, AX_VIEW_READ}
                 : ax_view_of(&b->columns[c], AX_VIEW_READ);
}

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    const struct ax_policy *policy = ctx;
    struct ax_runtime *rt = p->model->rt;
    const struct ax_batch *b = p->batch;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t words = SUMS * b->n_cap;
    const struct ax_tensor sums = ax_tensor_1d(
        AX_F64, ax_stack_push(scratch, "sums of completions", (size_t)words * sizeof(double)),
        words);
    const struct call call = {.rows = ax_rows_of(b, c), .policy = policy, .counts = b->part == 0};
    struct ax_view views[VIEWS] = {
        [SUMS_AT] = ax_view_of(&sums, AX_VIEW_WRITE),
        [ADVANTAGE] = column(b, policy->advantage),
        [OLD] = column(b, policy->old),
        [REFERENCE] = column(b, policy->reference),
        [SAMPLER] = column(b, policy->sampler),
        [TOTALS] = {p->measures, sizeof *p->measures, AX_VIEW_UPDATE},
        [SCALARS] = {p->scalars, sizeof *p->scalars, AX_VIEW_UPDATE},
        [G_LOGPROB] = ax_rows_value(&call.rows, c->g_logprob.data, AX_VIEW_WRITE),
        [G_LSE] = ax_rows_value(&call.rows, c->g_lse.data, AX_VIEW_WRITE),
        [G_ENTROPY] = ax_rows_value(&call.rows, c->g_entropy.data, AX_VIEW_WRITE)};
    ax_rows_view(&call.rows, views);
    AX_TRY(ax_queue_call(rt->q, add_rows, &call, sizeof call, views, TOTALS + 1));
    AX_TRY(ax_comm_sum(&rt->comms[AX_ROLE_CP], rt->q, AX_F64, sums.data, words));
    views[SUMS_AT].use = AX_VIEW_READ;
    AX_TRY(ax_queue_call(rt->q, take_gradients, &call, sizeof call, views, VIEWS));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- the objective ---- */

static int add_column(struct ax_columns *columns, bool wanted, const char *name,
                      enum ax_column_of of) {
    if (!wanted)
        return -1;
    columns->list[columns->n] = (struct ax_column){name, true, of, 0};
    return columns->n++;
}

struct ax_objective ax_objective_policy(struct ax_policy *p, const struct ax_policy_options *o) {
    *p = (struct ax_policy){.o = *o};
    p->advantage = add_column(&p->columns, true, "advantage",
                              o->token_advantages ? AX_OF_LABEL : AX_OF_EXAMPLE);
    p->old = add_column(&p->columns, o->old, "old", AX_OF_LABEL);
    p->reference = add_column(&p->columns, o->beta != 0, "reference", AX_OF_LABEL);
    p->sampler = add_column(&p->columns, o->sampler.given, "sampler", AX_OF_LABEL);
    return (struct ax_objective){
        .name = "policy",
        .columns = &p->columns,
        .per = o->loss->per,
        .measures = ax_policy_measures,
        .head = {.needs_entropy = o->entropy_coef != 0, .token_grad = token_grad, .ctx = p}};
}
