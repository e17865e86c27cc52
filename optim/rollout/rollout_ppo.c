/* PPO's part of a generation: values, rewards and advantages of tokens.
 *
 * A completion has a place for each token, at the token before it, and, if it is shorter than the
 * longest can be, one at its last token, where TRL puts the score; else the score is at the last
 * token's place. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/generate/classify.h"
#include "optim/rollout/rollout.h"

#define PASS_DOCS 4 /* of the longest length; a pass's memory is a step's */

int64_t ax_rollout_places(const struct ax_rollout *r, const struct ax_completion *c) {
    const int64_t n = c->n - c->n_prompt;
    return n < r->o->max_new ? n + 1 : n;
}

/* ---- values ---- */

/* A data rank's completions as documents, which are labeled at their places. */
struct valued {
    int64_t first, n;
    struct ax_document *docs; /* [n] */
    int32_t *labels;          /* [n][max_prompt + max_new] */
    double *values;           /* [all completions][max_new] */
};

static enum ax_status valued_create(struct valued *v, const struct ax_rollout *r) {
    const int64_t width = r->o->max_prompt + r->o->max_new;
    AX_TRY(ax_alloc(&v->docs, (size_t)v->n, sizeof *v->docs));
    AX_TRY(ax_alloc(&v->labels, (size_t)(v->n * width), sizeof *v->labels));
    AX_TRY(ax_alloc(&v->values, (size_t)(r->n * r->o->max_new), sizeof *v->values));
    for (int64_t i = 0; i < v->n; i++) {
        const struct ax_completion *c = &r->list[v->first + i];
        int32_t *labels = v->labels + i * width;
        const int64_t from = c->n_prompt - 1, end = from + ax_rollout_places(r, c);
        for (int64_t t = 0; t < c->n; t++)
            labels[t] = t >= from && t < end ? 0 : AX_NO_LABEL;
        v->docs[i] = (struct ax_document){.n = c->n, .tokens = r->ids + c->start, .labels = labels};
    }
    return AX_OK;
}

static void valued_free(struct valued *v) {
    ax_free(v->docs);
    ax_free(v->labels);
    ax_free(v->values);
}

/* This rank's values follow each other: spreads them over max_new places each, from the last on. */
static void spread(const struct ax_rollout *r, struct valued *v, const double *packed) {
    for (int64_t i = 0; i < v->n; i++) {
        const int64_t n = ax_rollout_places(r, &r->list[v->first + i]);
        memcpy(v->values + (v->first + i) * r->o->max_new, packed, (size_t)n * sizeof *packed);
        packed += n;
    }
}

static enum ax_status read_values(struct ax_rollout *r, struct ax_model *value,
                                  const struct ax_classify_options *o, struct valued *v) {
    double *packed;
    AX_TRY(valued_create(v, r));
    AX_TRY(ax_alloc(&packed, (size_t)(v->n * r->o->max_new), sizeof *packed));
    const enum ax_status st = ax_classify(value, o, (int)v->n, v->docs, packed);
    if (st == AX_OK)
        spread(r, v, packed);
    ax_free(packed);
    AX_TRY(st);
    AX_TRY(ax_runtime_combine(value->rt, AX_ROLE_BATCH, AX_SUM, v->values, r->n * r->o->max_new));
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        for (int64_t t = 0; t < ax_rollout_places(r, c); t++)
            r->values[c->start + c->n_prompt - 1 + t] = (float)v->values[i * r->o->max_new + t];
    }
    return AX_OK;
}

enum ax_status ax_rollout_value(struct ax_rollout *r, struct ax_model *value) {
    const int64_t longest = r->o->max_prompt + r->o->max_new;
    const struct ax_classify_options o = {.tokens = PASS_DOCS * longest,
                                          .max_docs = 4 * PASS_DOCS,
                                          .max_len = longest,
                                          .shared = true};
    const struct ax_mesh *mesh = &value->rt->mesh;
    struct valued v = {0};
    if (ax_runtime_planning(value->rt))
        return ax_classify(value, &o, 0, NULL, NULL);
    ax_split_range(r->n, mesh->size[AX_ROLE_BATCH], mesh->coord[AX_ROLE_BATCH], &v.first, &v.n);
    const enum ax_status st = read_values(r, value, &o, &v);
    valued_free(&v);
    return st;
}

/* ---- advantages ---- */

/* Of all completions, a row of max_new each. */
struct judged {
    double *logprobs, *reference, *values, *rewards, *advantages, *flat;
};

static void take(const struct ax_rollout *r, int64_t i, struct judged *j) {
    const struct ax_completion *c = &r->list[i];
    const int64_t row = i * r->o->max_new, at = c->start + c->n_prompt;
    for (int64_t t = 0; t < c->n - c->n_prompt; t++) {
        j->logprobs[row + t] = (double)r->logprobs[at + t];
        j->reference[row + t] = (double)(r->reference ? r->reference : r->logprobs)[at + t];
    }
    for (int64_t t = 0; t < ax_rollout_places(r, c); t++)
        j->values[row + t] = (double)r->values[at - 1 + t];
}

/* Rows of x one after the other, only as long as the completions; or back. How many numbers. */
static int64_t flatten(const struct ax_rollout *r, double *x, double *flat, bool places,
                       bool back) {
    int64_t at = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        const int64_t n = places ? ax_rollout_places(r, c) : c->n - c->n_prompt;
        double *row = x + i * r->o->max_new;
        memcpy(back ? row : flat + at, back ? flat + at : row, (size_t)n * sizeof *row);
        at += n;
    }
    return at;
}

static void whiten_tokens(const struct ax_rollout *r, struct judged *j) {
    const int64_t n = flatten(r, j->advantages, j->flat, false, false);
    ax_whiten(n, j->flat);
    (void)flatten(r, j->advantages, j->flat, false, true);
}

/* Rewards keep their mean. */
static void whiten_rewards(const struct ax_rollout *r, struct judged *j) {
    const int64_t n = flatten(r, j->rewards, j->flat, true, false);
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += j->flat[i] / (double)n;
    ax_whiten(n, j->flat);
    for (int64_t i = 0; i < n; i++)
        j->flat[i] += mean;
    (void)flatten(r, j->rewards, j->flat, true, true);
}

static double score_of(const struct ax_rollout *r, int64_t i, const double *totals) {
    const double score = isnan(totals[i]) ? 0 : totals[i];
    return score - (r->list[i].truncated ? r->o->ppo->missing_eos_penalty : 0);
}

static void put_figures(struct ax_rollout *r, const struct judged *j, const double *totals) {
    const struct ax_rollout_ppo *o = r->o->ppo;
    const double n = (double)r->n;
    double kl = 0, entropy = 0, score = 0, ended = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        for (int64_t t = 0; t < c->n - c->n_prompt; t++) {
            const double logprob = j->logprobs[i * r->o->max_new + t];
            kl += ax_kl_estimate(o->kl, logprob - j->reference[i * r->o->max_new + t]) / n;
            entropy -= logprob / n;
        }
        score += score_of(r, i, totals) / n;
        ended += !c->truncated;
    }
    ax_rollout_put(r, kl, "objective/kl");
    ax_rollout_put(r, entropy, "objective/entropy");
    ax_rollout_put(r, -o->kl_coef * kl, "objective/non_score_reward");
    ax_rollout_put(r, score - o->kl_coef * kl, "objective/rlhf_reward");
    ax_rollout_put(r, score, "objective/scores");
    ax_rollout_put(r, ended, "val/num_eos_tokens");
    ax_rollout_put(r, (double)(r->generation * r->n), "episode");
}

/* The advantage of a completion, for people, is its tokens' mean. */
static void store(struct ax_rollout *r, const struct judged *j, const double *raw) {
    for (int64_t i = 0; i < r->n; i++) {
        struct ax_completion *c = &r->list[i];
        const int64_t row = i * r->o->max_new, at = c->start + c->n_prompt, n = c->n - c->n_prompt;
        double sum = 0;
        for (int64_t t = 0; t < n; t++) {
            r->advantages[at + t] = (float)j->advantages[row + t];
            sum += j->advantages[row + t];
        }
        for (int64_t t = 0; t < ax_rollout_places(r, c); t++)
            r->returns[at - 1 + t] = (float)(raw[row + t] + j->values[row + t]);
        c->advantage = (float)(sum / (double)n);
    }
}

static void judge(struct ax_rollout *r, struct judged *j, double *raw, const double *totals) {
    const struct ax_rollout_ppo *o = r->o->ppo;
    const int64_t width = r->o->max_new;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        take(r, i, j);
        ax_token_rewards(o->kl, o->kl_coef, c->n - c->n_prompt, j->logprobs + i * width,
                         j->reference + i * width, score_of(r, i, totals), ax_rollout_places(r, c),
                         j->rewards + i * width);
    }
    if (o->whiten_rewards)
        whiten_rewards(r, j);
    for (int64_t i = 0; i < r->n; i++)
        ax_gae(o->gamma, o->lambda, ax_rollout_places(r, &r->list[i]), j->rewards + i * width,
               j->values + i * width, raw + i * width);
    memcpy(j->advantages, raw, (size_t)(r->n * width) * sizeof *raw);
    whiten_tokens(r, j);
    store(r, j, raw);
    put_figures(r, j, totals);
}

enum ax_status ax_rollout_judge_tokens(struct ax_rollout *r, const double *totals) {
    const size_t n = (size_t)(r->n * r->o->max_new);
    double *all;
    AX_TRY(ax_alloc(&all, 7 * n, sizeof *all));
    struct judged j = {all, all + n, all + 2 * n, all + 3 * n, all + 4 * n, all + 5 * n};
    judge(r, &j, all + 6 * n, totals);
    ax_free(all);
    return AX_OK;
}
