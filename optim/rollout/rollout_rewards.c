/* Rewards of a generation, and what follows from them: advantages of completions or, in PPO, of tokens, and
 * figures. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/fit.h"
#include "base/mem.h"
#include "data/records/format/format.h"
#include "model/generate/classify.h"
#include "model/text/together.h"
#include "optim/rollout/rollout.h"
#include "optim/rollout/taught.h"

enum ax_status ax_rollout_text(const struct ax_rollout *r, const struct ax_completion *c,
                               struct ax_buf *prompt, struct ax_buf *completion) {
    const int32_t *ids = r->ids + c->start;
    AX_TRY(ax_tokenizer_decode(r->o->tokenizer, ids, (size_t)c->n_prompt, false, prompt));
    AX_TRY(ax_tokenizer_decode(r->o->tokenizer, ids + c->n_prompt, (size_t)(c->n - c->n_prompt),
                               true, completion));
    AX_TRY(ax_buf_puts(prompt, ""));
    return ax_buf_puts(completion, "");
}

/* ---- rewards ---- */

/* n completions of whole groups to do, from the first-th on, as reward functions see them. */
struct items {
    struct ax_reward_item *list; /* [n] */
    struct ax_buf *prompts, *completions;
    json_t **records;
    int64_t first, n;
};

static bool is_list(const json_t *record, const char *column) {
    return json_is_array(json_object_get(record, column));
}

/* The record of a completion's prompt, with what the environment has added to it, as in TRL; a group has one
 * without. */
static enum ax_status read_record(struct items *x, const struct ax_rollout *r, int64_t i) {
    const int64_t group = r->o->group;
    const char *observed =
        r->observations ? r->observations[ax_rollout_todo(r, x->first + i) - r->list] : NULL;
    x->records[i] =
        i % group > 0 && !r->o->observes
            ? json_incref(x->records[i - 1])
            : json_loads(r->records[r->todo[(x->first + i) / group]], JSON_ALLOW_NUL, NULL);
    if (!x->records[i])
        return ax_error(AX_ERR_NOMEM, "out of memory for a prompt's record");
    const char *column = json_object_get(x->records[i], "prompt") ? "prompt" : "messages";
    json_t *messages = json_object_get(x->records[i], column);
    return observed && json_is_array(messages) ? ax_format_observe(column, messages, observed)
                                               : AX_OK;
}

static enum ax_status put_item(struct items *x, const struct ax_rollout *r, int64_t i) {
    const struct ax_completion *c = ax_rollout_todo(r, x->first + i);
    const json_t *messages = r->messages ? r->messages[c - r->list] : NULL;
    AX_TRY(ax_rollout_text(r, c, &x->prompts[i], &x->completions[i]));
    if (messages) { /* functions of one text get the answer */
        x->completions[i].len = 0;
        AX_TRY(ax_buf_puts(&x->completions[i], ax_episode_last(messages)));
    }
    AX_TRY(read_record(x, r, i));
    const json_t *record = x->records[i];
    x->list[i] =
        (struct ax_reward_item){.record = record,
                                .prompt = x->prompts[i].data,
                                .completion = x->completions[i].data,
                                .n = x->completions[i].len,
                                .messages = messages,
                                .ids = r->ids + c->start + c->n_prompt,
                                .n_ids = c->n - c->n_prompt,
                                .truncated = c->truncated,
                                .earned = c->earned,
                                .chat = is_list(record, "prompt") || is_list(record, "messages")};
    return AX_OK;
}

static enum ax_status items_create(struct items *x, const struct ax_rollout *r) {
    const size_t n = (size_t)x->n;
    AX_TRY(ax_alloc(&x->list, n, sizeof *x->list));
    AX_TRY(ax_alloc(&x->prompts, n, sizeof *x->prompts));
    AX_TRY(ax_alloc(&x->completions, n, sizeof *x->completions));
    AX_TRY(ax_alloc(&x->records, n, sizeof *x->records));
    for (int64_t i = 0; i < x->n; i++)
        AX_TRY(put_item(x, r, i));
    return AX_OK;
}

static void items_free(struct items *x) {
    for (int64_t i = 0; i < x->n; i++) {
        if (x->prompts)
            ax_buf_free(&x->prompts[i]);
        if (x->completions)
            ax_buf_free(&x->completions[i]);
        if (x->records)
            json_decref(x->records[i]);
    }
    ax_free(x->list);
    ax_free(x->prompts);
    ax_free(x->completions);
    ax_free(x->records);
}

/* `out` NULL: joins those who score. */
static enum ax_status score_items(const struct ax_rollout *r, int64_t first, int64_t n,
                                  double *out) {
    struct items x = {.first = first, .n = n};
    enum ax_status st;
    AX_TRY_GOTO(items_create(&x, r), st, done);
    st = out ? ax_rewards_score(r->o->rewards, (size_t)n, x.list, out)
             : ax_rewards_join(r->o->rewards, (size_t)n, x.list);
done:
    items_free(&x);
    return st;
}

/* Of programs that this rank has run so far. */
static void add_verdicts(const struct ax_rollout *r, double sign, double *verdicts) {
    for (int i = 0; i < ax_rewards_count(r->o->rewards); i++)
        for (int v = 0; v < AX_VERDICT_COUNT; v++)
            verdicts[v] += sign * (double)ax_rewards_counters(r->o->rewards, i)->verdicts[v];
}

/* This rank's completions, and its part in what is computed by all. */
static enum ax_status score_own(const struct ax_rollout *r, struct ax_runtime *rt, int64_t first,
                                int64_t n, double *out) {
    struct ax_together ranks = {.rt = rt, .stop_now = ax_rollout_stop_now};
    struct ax_reward_watch watch = ax_together_watch(&ranks);
    if (ax_together_runs(&rt->mesh) && n > 0) {
        ax_rewards_watch(r->o->rewards, &watch);
        ax_rewards_set_progress(r->o->rewards, r->progress);
        const enum ax_status st = score_items(r, first, n, out);
        ax_rewards_watch(r->o->rewards, NULL);
        return st;
    }
    AX_TRY(ax_together_settle(&ranks));
    return ax_rewards_are_joint(r->o->rewards) ? score_items(r, first, n, NULL) : AX_OK;
}

/* Each data rank scores the completions of some groups; then all have all rewards [n][functions],
 * unless they were asked to stop. */
static enum ax_status score_share(struct ax_rollout *r, struct ax_runtime *rt, int64_t n,
                                  double *rewards, bool *stopped) {
    const int functions = ax_rewards_count(r->o->rewards);
    int64_t first, own;
    ax_split_range(r->n_todo, rt->mesh.size[AX_ROLE_BATCH], rt->mesh.coord[AX_ROLE_BATCH], &first,
                   &own);
    double *verdicts = rewards + n * functions;
    add_verdicts(r, -1, verdicts);
    const enum ax_status st = score_own(r, rt, first * r->o->group, own * r->o->group,
                                        rewards + first * r->o->group * functions);
    AX_TRY(ax_together_note_stop(st, stopped));
    add_verdicts(r, 1, verdicts);
    if (*stopped)
        return AX_OK;
    AX_TRY(
        ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, rewards, n * functions + AX_VERDICT_COUNT));
    return ax_rollout_share_logged(r, rt, first * r->o->group);
}

static struct ax_advantage_options advantage_options(const struct ax_rollout *r, double *weights) {
    struct ax_advantage_options o = r->o->advantages;
    o.group = r->o->group;
    o.n_rewards = ax_rewards_count(r->o->rewards);
    o.weights = weights;
    AX_ASSERT(o.n_rewards <= AX_ROLLOUT_MAX_REWARDS);
    for (int k = 0; k < o.n_rewards; k++)
        weights[k] = ax_rewards_weight(r->o->rewards, k);
    return o;
}

/* Groups whose completions are all worth the same, or nothing, stay to do. */
static enum ax_status sift_groups(struct ax_rollout *r) {
    double weights[AX_ROLLOUT_MAX_REWARDS], *work;
    const struct ax_advantage_options o = advantage_options(r, weights);
    const int64_t groups = r->n_todo;
    AX_TRY(ax_alloc(&work, (size_t)o.group, sizeof *work));
    r->n_todo = 0;
    for (int64_t i = 0; i < groups; i++) {
        const int64_t group = r->todo[i];
        if (!ax_group_teaches(&o, r->rewards + group * o.group * o.n_rewards, work))
            r->todo[r->n_todo++] = group;
    }
    ax_free(work);
    return AX_OK;
}

enum ax_status ax_rollout_reward(struct ax_rollout *r, struct ax_runtime *rt, bool *stopped) {
    const int64_t n = r->n_todo * r->o->group;
    const int functions = ax_rewards_count(r->o->rewards);
    double *rewards;
    AX_TRY(ax_alloc(&rewards, (size_t)(n * functions) + AX_VERDICT_COUNT, sizeof *rewards));
    const enum ax_status st = score_share(r, rt, n, rewards, stopped);
    const bool scored = st == AX_OK && !*stopped;
    for (int64_t i = 0; scored && i < n; i++) {
        const struct ax_completion *c = ax_rollout_todo(r, i);
        for (int k = 0; k < functions; k++)
            r->rewards[(c - r->list) * functions + k] = c->lost ? NAN : rewards[i * functions + k];
    }
    for (int v = 0; scored && v < AX_VERDICT_COUNT; v++)
        r->verdicts[v] += rewards[n * functions + v];
    ax_free(rewards);
    return scored ? sift_groups(r) : st;
}

/* ---- figures ---- */

__attribute__((format(printf, 3, 4))) static void put_figure(struct ax_rollout *r, double value,
                                                             const char *fmt, ...) {
    char name[AX_FIGURES_NAME];
    va_list args;
    va_start(args, fmt);
    ax_vfit(name, sizeof name, fmt, args); /* those of a long name differ at their ends */
    va_end(args);
    ax_figures_add(&r->figures, name, value);
}

struct lengths {
    double n, sum, least, most;
};

static void add_length(struct lengths *l, double length) {
    l->least = l->n == 0 ? length : fmin(l->least, length);
    l->most = l->n == 0 ? length : fmax(l->most, length);
    l->sum += length;
    l->n++;
}

static void put_lengths(struct ax_rollout *r, const struct lengths *l, const char *what) {
    put_figure(r, l->n > 0 ? l->sum / l->n : 0, "completions/mean_%slength", what);
    put_figure(r, l->least, "completions/min_%slength", what);
    put_figure(r, l->most, "completions/max_%slength", what);
}

static void put_all_lengths(struct ax_rollout *r) {
    struct lengths all = {0}, ended = {0};
    for (int64_t i = 0; i < r->n; i++) {
        const double n = (double)r->list[i].sampled;
        add_length(&all, n);
        if (!r->list[i].truncated)
            add_length(&ended, n);
    }
    put_lengths(r, &all, "");
    put_figure(r, 1 - ended.n / (double)r->n, "completions/clipped_ratio");
    put_lengths(r, &ended, "terminated_");
}

static void put_rewards(struct ax_rollout *r, const struct ax_advantage_options *o,
                        const double *totals, double *work) {
    for (int k = 0; k < o->n_rewards; k++) {
        const char *name = ax_rewards_name(r->o->rewards, k);
        const struct ax_reward_stats s = ax_reward_stats_of(r->rewards + k, r->n, o->n_rewards);
        put_figure(r, s.mean, "rewards/%s/mean", name);
        put_figure(r, s.std, "rewards/%s/std", name);
    }
    const struct ax_reward_stats s = ax_reward_stats_of(totals, r->n, 1);
    put_figure(r, s.mean, "reward");
    put_figure(r, s.std, "reward_std");
    if (!r->o->ppo) /* which has no groups */
        put_figure(r, ax_share_without_spread(o, r->n, r->rewards, work), "frac_reward_zero_std");
}

/* Of code: how many programs ended how, and the share that did not end by themselves. */
static void put_verdicts(struct ax_rollout *r) {
    double all = 0;
    for (int v = 0; v < AX_VERDICT_COUNT; v++)
        all += r->verdicts[v];
    if (all == 0)
        return;
    for (int v = 0; v < AX_VERDICT_COUNT; v++)
        put_figure(r, r->verdicts[v], "code/verdicts/%s", ax_verdict_names[v]);
    put_figure(r, 1 - r->verdicts[AX_VERDICT_EXIT] / all, "code/stopped");
}

/* With TRL's names; those after the first two are ours. */
static void put_tools(struct ax_rollout *r) {
    double calls = 0, failed = 0, unread = 0, late = 0;
    if (!r->o->turns)
        return;
    for (int64_t i = 0; i < r->n; i++) {
        calls += (double)r->list[i].n_calls;
        failed += (double)r->list[i].n_failed;
        unread += (double)r->list[i].n_unread;
        late += r->list[i].late;
    }
    put_figure(r, calls / (double)r->n, "tools/call_frequency");
    put_figure(r, calls > 0 ? failed / calls : 0, "tools/failure_frequency");
    put_figure(r, unread / (double)r->n, "tools/unread_frequency");
    put_figure(r, r->tool_seconds, "tools/seconds");
    put_figure(r, r->wait_seconds, "tools/wait_seconds");
    if (r->o->turns->max_seconds > 0)
        put_figure(r, late / (double)r->n, "tools/timeout_frequency");
}

/* Turns per completion, and completions whose environment has failed. */
static void put_environment(struct ax_rollout *r) {
    double turns = 0, lost = 0;
    if (!r->o->tools || ax_tools_environments(r->o->tools) == 0)
        return;
    for (int64_t i = 0; i < r->n; i++) {
        turns += (double)r->list[i].n_turns;
        lost += r->list[i].lost;
    }
    put_figure(r, turns / (double)r->n, "environment/turns");
    put_figure(r, lost / (double)r->n, "environment/lost_frequency");
}

/* Where completions may be the model's or the records'. */
static void put_source(struct ax_rollout *r) {
    if (r->o->own_share > 0)
        put_figure(r, r->list[0].given ? 0 : 1, "on_policy");
}

/* How many prompts it took to have as many whose completions differ. */
static void put_rounds(struct ax_rollout *r) {
    if (r->o->rounds == 0)
        return;
    put_figure(r, r->round, "dynamic_sampling/rounds");
    put_figure(r, (double)r->read, "dynamic_sampling/prompts");
}

static void put_drafts(struct ax_rollout *r) {
    if (!r->o->drafts)
        return;
    put_figure(r, (double)r->passes, "drafts/passes");
    put_figure(r, (double)r->drafts, "drafts/tried");
    put_figure(r, (double)r->accepted, "drafts/accepted");
}

/* ---- PPO: values of tokens ---- */

#define PASS_DOCS 4 /* of the longest length; a pass's memory is a step's */

int64_t ax_rollout_span(const struct ax_rollout *r, const struct ax_completion *c) {
    const int64_t n = c->n - c->n_prompt;
    return n < r->o->max_new ? n + 1 : n;
}

static int64_t places_of(const struct ax_rollout *r, const struct ax_completion *c) {
    return c->sampled + ax_rollout_span(r, c) - (c->n - c->n_prompt);
}

bool ax_rollout_is_place(const struct ax_rollout *r, const struct ax_completion *c, int64_t at) {
    const int64_t token = c->n_prompt + at;
    return token == c->n || ax_rollout_is_sampled(r, c->start + token);
}

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
        for (int64_t t = 0; t < c->n; t++)
            labels[t] = AX_NO_LABEL;
        for (int64_t t = 0; t < ax_rollout_span(r, c); t++)
            if (ax_rollout_is_place(r, c, t))
                labels[c->n_prompt - 1 + t] = 0;
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
static void spread_values(const struct ax_rollout *r, struct valued *v, const double *packed) {
    for (int64_t i = 0; i < v->n; i++) {
        const int64_t n = places_of(r, &r->list[v->first + i]);
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
        spread_values(r, v, packed);
    ax_free(packed);
    AX_TRY(st);
    AX_TRY(ax_runtime_combine(value->rt, AX_ROLE_BATCH, AX_SUM, v->values, r->n * r->o->max_new));
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        const double *own = v->values + i * r->o->max_new;
        for (int64_t t = 0; t < ax_rollout_span(r, c); t++)
            if (ax_rollout_is_place(r, c, t))
                r->values[c->start + c->n_prompt - 1 + t] = (float)*own++;
    }
    return AX_OK;
}

enum ax_status ax_rollout_value(struct ax_rollout *r, struct ax_model *value, bool *stopped) {
    const int64_t longest = r->o->max_prompt + r->o->max_new;
    const struct ax_classify_options o = {.tokens = PASS_DOCS * longest,
                                          .max_docs = 4 * PASS_DOCS,
                                          .max_len = longest,
                                          .shared = true,
                                          .stop_now = ax_rollout_stop_now};
    const struct ax_mesh *mesh = &value->rt->mesh;
    struct valued v = {0};
    if (ax_runtime_planning(value->rt))
        return ax_classify(value, &o, 0, NULL, NULL);
    ax_split_range(r->n, mesh->size[AX_ROLE_BATCH], mesh->coord[AX_ROLE_BATCH], &v.first, &v.n);
    const enum ax_status st = read_values(r, value, &o, &v);
    valued_free(&v);
    return ax_together_note_stop(st, stopped);
}

/* ---- PPO: advantages of tokens ---- */

/* Of all completions, a row of max_new each, of sampled tokens or of places alone. */
struct judged {
    double *logprobs, *reference, *values, *rewards, *advantages, *flat;
};

static void take_tokens(const struct ax_rollout *r, int64_t i, struct judged *j) {
    const struct ax_completion *c = &r->list[i];
    const float *reference = r->reference ? r->reference : r->logprobs;
    const int64_t first = c->start + c->n_prompt;
    int64_t k = i * r->o->max_new;
    for (int64_t t = 0; t < ax_rollout_span(r, c); t++) {
        if (!ax_rollout_is_place(r, c, t))
            continue;
        j->values[k] = (double)r->values[first - 1 + t];
        if (first + t < c->start + c->n) {
            j->logprobs[k] = (double)r->logprobs[first + t];
            j->reference[k] = (double)reference[first + t];
        }
        k++;
    }
}

/* Rows of x one after the other, only as long as the completions; or back. How many numbers. */
static int64_t flatten_rows(const struct ax_rollout *r, double *x, double *flat, bool places,
                            bool back) {
    int64_t at = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        const int64_t n = places ? places_of(r, c) : c->sampled;
        double *row = x + i * r->o->max_new;
        memcpy(back ? row : flat + at, back ? flat + at : row, (size_t)n * sizeof *row);
        at += n;
    }
    return at;
}

static void whiten_tokens(const struct ax_rollout *r, struct judged *j) {
    const int64_t n = flatten_rows(r, j->advantages, j->flat, false, false);
    ax_whiten(n, j->flat);
    (void)flatten_rows(r, j->advantages, j->flat, false, true);
}

/* Rewards keep their mean. */
static void whiten_rewards(const struct ax_rollout *r, struct judged *j) {
    const int64_t n = flatten_rows(r, j->rewards, j->flat, true, false);
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += j->flat[i] / (double)n;
    ax_whiten(n, j->flat);
    for (int64_t i = 0; i < n; i++)
        j->flat[i] += mean;
    (void)flatten_rows(r, j->rewards, j->flat, true, true);
}

/* One whose environment has failed is worth what was expected: it teaches nothing but the KL divergence. */
static double score_of(const struct ax_rollout *r, const struct judged *j, int64_t i,
                       const double *totals) {
    const int64_t last = i * r->o->max_new + places_of(r, &r->list[i]) - 1;
    const double score = r->list[i].lost ? j->values[last] : isnan(totals[i]) ? 0 : totals[i];
    return score - (r->list[i].truncated ? r->o->ppo->missing_eos_penalty : 0);
}

static void put_token_figures(struct ax_rollout *r, const struct judged *j, const double *totals) {
    const struct ax_rollout_ppo *o = r->o->ppo;
    const double n = (double)r->n;
    double kl = 0, entropy = 0, score = 0, ended = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        for (int64_t t = 0; t < c->sampled; t++) {
            const double logprob = j->logprobs[i * r->o->max_new + t];
            kl += ax_kl_estimate(o->kl, logprob - j->reference[i * r->o->max_new + t]) / n;
            entropy -= logprob / n;
        }
        score += score_of(r, j, i, totals) / n;
        ended += !c->truncated;
    }
    put_figure(r, kl, "objective/kl");
    put_figure(r, entropy, "objective/entropy");
    put_figure(r, -o->kl_coef * kl, "objective/non_score_reward");
    put_figure(r, score - o->kl_coef * kl, "objective/rlhf_reward");
    put_figure(r, score, "objective/scores");
    put_figure(r, ended, "val/num_eos_tokens");
    put_figure(r, (double)(r->generation * r->n), "episode");
}

/* The advantage of a completion, for people, is its tokens' mean. */
static void store_advantages(struct ax_rollout *r, const struct judged *j, const double *raw) {
    for (int64_t i = 0; i < r->n; i++) {
        struct ax_completion *c = &r->list[i];
        const int64_t first = c->start + c->n_prompt;
        double sum = 0;
        for (int64_t t = 0, k = i * r->o->max_new; t < ax_rollout_span(r, c); t++) {
            const bool is = ax_rollout_is_place(r, c, t);
            if (first + t < c->start + c->n) {
                r->advantages[first + t] = is ? (float)j->advantages[k] : 0;
                sum += is ? j->advantages[k] : 0;
            }
            r->returns[first - 1 + t] = is ? (float)(raw[k] + j->values[k]) : 0;
            k += is;
        }
        c->advantage = (float)(sum / (double)c->sampled);
    }
}

static void judge_tokens(struct ax_rollout *r, struct judged *j, double *raw,
                         const double *totals) {
    const struct ax_rollout_ppo *o = r->o->ppo;
    const int64_t width = r->o->max_new;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        take_tokens(r, i, j);
        ax_token_rewards(o->kl, o->kl_coef, c->sampled, j->logprobs + i * width,
                         j->reference + i * width, score_of(r, j, i, totals), places_of(r, c),
                         j->rewards + i * width);
    }
    if (o->whiten_rewards)
        whiten_rewards(r, j);
    for (int64_t i = 0; i < r->n; i++)
        ax_gae(o->gamma, o->lambda, places_of(r, &r->list[i]), j->rewards + i * width,
               j->values + i * width, raw + i * width);
    memcpy(j->advantages, raw, (size_t)(r->n * width) * sizeof *raw);
    whiten_tokens(r, j);
    store_advantages(r, j, raw);
    put_token_figures(r, j, totals);
}

static enum ax_status judge_all_tokens(struct ax_rollout *r, const double *totals) {
    const size_t n = (size_t)(r->n * r->o->max_new);
    double *all;
    AX_TRY(ax_alloc(&all, 7 * n, sizeof *all));
    struct judged j = {all, all + n, all + 2 * n, all + 3 * n, all + 4 * n, all + 5 * n};
    judge_tokens(r, &j, all + 6 * n, totals);
    ax_free(all);
    return AX_OK;
}

/* ---- a teacher ---- */

/* The first is the loss of a run without rewards; the others have the names of TRL's IWOPDTrainer. */
static enum ax_status judge_by_teacher(struct ax_rollout *r) {
    struct ax_taught t;
    if (!r->teacher)
        return AX_OK;
    AX_TRY(ax_rollout_teach(r, &t));
    put_figure(r, t.kl, "kd_loss");
    if (r->o->teach.gamma == 0)
        return AX_OK;
    put_figure(r, t.advantage, "iw_opd/mean_advantage");
    put_figure(r, t.size, "iw_opd/mean_abs_advantage");
    put_figure(r, t.weight, "iw_opd/mean_weight");
    put_figure(r, t.least, "iw_opd/min_weight");
    put_figure(r, t.most, "iw_opd/max_weight");
    return AX_OK;
}

/* ---- all of a generation ---- */

static void judge_completions(struct ax_rollout *r, const struct ax_advantage_options *o,
                              double *advantages) {
    ax_advantages(o, r->n, r->rewards, advantages);
    for (int64_t i = 0; i < r->n; i++)
        r->list[i].advantage = (float)advantages[i];
}

static enum ax_worth worth_of(const struct ax_rollout *r, const struct ax_advantage_options *o,
                              const double *totals, double *work) {
    double most = 0;
    bool none = true, reached = true;
    for (int k = 0; k < o->n_rewards; k++)
        most += (o->weights ? o->weights[k] : 1) * ax_rewards_most(r->o->rewards, k);
    for (int64_t i = 0; i < r->n; i += o->group)
        if (ax_group_teaches(o, r->rewards + i * o->n_rewards, work))
            return AX_WORTH_VARIED;
    for (int64_t i = 0; i < r->n; i++) {
        none = none && !isfinite(totals[i]);
        reached = reached && totals[i] >= most;
    }
    return none ? AX_WORTH_NONE : reached ? AX_WORTH_MOST : AX_WORTH_EQUAL;
}

static enum ax_status judge_rewards(struct ax_rollout *r, double *totals, double *advantages) {
    double weights[AX_ROLLOUT_MAX_REWARDS];
    const struct ax_advantage_options o = advantage_options(r, weights);
    ax_reward_totals(&o, r->n, r->rewards, totals);
    r->worth = worth_of(r, &o, totals, advantages);
    if (r->teacher || (r->o->ppo && r->worth != AX_WORTH_NONE))
        r->worth = AX_WORTH_VARIED;
    put_rewards(r, &o, totals, advantages);
    put_rounds(r);
    put_tools(r);
    put_environment(r);
    put_verdicts(r);
    if (r->o->ppo)
        return judge_all_tokens(r, totals);
    judge_completions(r, &o, advantages);
    return judge_by_teacher(r);
}

enum ax_status ax_rollout_judge(struct ax_rollout *r) {
    double *values;
    r->figures.n = 0;
    put_all_lengths(r);
    put_drafts(r);
    if (!r->o->rewards) {
        put_source(r);
        put_tools(r);
        put_environment(r);
        r->worth = AX_WORTH_VARIED;
        return judge_by_teacher(r);
    }
    AX_TRY(ax_alloc(&values, 2 * (size_t)r->n, sizeof *values));
    const enum ax_status st = judge_rewards(r, values, values + r->n);
    ax_rollout_put_logged(r);
    ax_free(values);
    return st;
}
