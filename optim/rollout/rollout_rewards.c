/* Rewards of a generation, and what follows from them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "optim/rollout/rollout.h"

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

/* A group has one record. */
static enum ax_status read_record(struct items *x, const struct ax_rollout *r, int64_t i) {
    const int64_t group = r->o->group;
    x->records[i] = i % group > 0 ? json_incref(x->records[i - 1])
                                  : json_loads(r->records[r->todo[(x->first + i) / group]],
                                               JSON_ALLOW_NUL, NULL);
    return x->records[i] ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a prompt's record");
}

static enum ax_status put_item(struct items *x, const struct ax_rollout *r, int64_t i) {
    const struct ax_completion *c = ax_rollout_todo(r, x->first + i);
    AX_TRY(ax_rollout_text(r, c, &x->prompts[i], &x->completions[i]));
    AX_TRY(read_record(x, r, i));
    const json_t *record = x->records[i];
    x->list[i] =
        (struct ax_reward_item){.record = record,
                                .prompt = x->prompts[i].data,
                                .completion = x->completions[i].data,
                                .n = x->completions[i].len,
                                .ids = r->ids + c->start + c->n_prompt,
                                .n_ids = c->n - c->n_prompt,
                                .truncated = c->truncated,
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
static enum ax_status score(const struct ax_rollout *r, int64_t first, int64_t n, double *out) {
    struct items x = {.first = first, .n = n};
    enum ax_status st;
    AX_TRY_GOTO(items_create(&x, r), st, done);
    st = out ? ax_rewards_score(r->o->rewards, (size_t)n, x.list, out)
             : ax_rewards_join(r->o->rewards, (size_t)n, x.list);
done:
    items_free(&x);
    return st;
}

/* Of the ranks with the same sequences, the first scores, as functions need not repeat themselves;
 * the others join it in what is computed by all. */
static bool scores(const struct ax_mesh *m) {
    return m->coord[AX_ROLE_TP] == 0 && m->coord[AX_ROLE_CP] == 0 && m->coord[AX_ROLE_PP] == 0;
}

/* Of programs that this rank has run so far. */
static void add_verdicts(const struct ax_rollout *r, double sign, double *verdicts) {
    for (int i = 0; i < ax_rewards_count(r->o->rewards); i++)
        for (int v = 0; v < AX_VERDICT_COUNT; v++)
            verdicts[v] += sign * (double)ax_rewards_counters(r->o->rewards, i)->verdicts[v];
}

/* Each data rank scores the completions of some groups; then all have all rewards [n][functions]. */
static enum ax_status score_share(const struct ax_rollout *r, struct ax_runtime *rt, int64_t n,
                                  double *rewards) {
    const int functions = ax_rewards_count(r->o->rewards);
    int64_t first, own;
    ax_split_range(r->n_todo, rt->mesh.size[AX_ROLE_BATCH], rt->mesh.coord[AX_ROLE_BATCH], &first,
                   &own);
    const bool fills = scores(&rt->mesh) && own > 0;
    double *verdicts = rewards + n * functions;
    add_verdicts(r, -1, verdicts);
    if (fills || ax_rewards_are_joint(r->o->rewards))
        AX_TRY(score(r, first * r->o->group, own * r->o->group,
                     fills ? rewards + first * r->o->group * functions : NULL));
    add_verdicts(r, 1, verdicts);
    return ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, rewards, n * functions + AX_VERDICT_COUNT);
}

static struct ax_advantage_options options_of(const struct ax_rollout *r, double *weights) {
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
static enum ax_status sift(struct ax_rollout *r) {
    double weights[AX_ROLLOUT_MAX_REWARDS], *totals;
    const struct ax_advantage_options o = options_of(r, weights);
    const int64_t groups = r->n_todo;
    AX_TRY(ax_alloc(&totals, (size_t)o.group, sizeof *totals));
    r->n_todo = 0;
    for (int64_t i = 0; i < groups; i++) {
        const int64_t group = r->todo[i];
        ax_reward_totals(&o, o.group, r->rewards + group * o.group * o.n_rewards, totals);
        if (!(ax_reward_stats_of(totals, o.group, 1).std > 0))
            r->todo[r->n_todo++] = group;
    }
    ax_free(totals);
    return AX_OK;
}

enum ax_status ax_rollout_reward(struct ax_rollout *r, struct ax_runtime *rt) {
    const int64_t n = r->n_todo * r->o->group;
    const int functions = ax_rewards_count(r->o->rewards);
    double *rewards;
    AX_TRY(ax_alloc(&rewards, (size_t)(n * functions) + AX_VERDICT_COUNT, sizeof *rewards));
    const enum ax_status st = score_share(r, rt, n, rewards);
    for (int64_t i = 0; st == AX_OK && i < n; i++)
        memcpy(r->rewards + (ax_rollout_todo(r, i) - r->list) * functions, rewards + i * functions,
               (size_t)functions * sizeof *rewards);
    for (int v = 0; v < AX_VERDICT_COUNT; v++)
        r->verdicts[v] += rewards[n * functions + v];
    ax_free(rewards);
    return st == AX_OK ? sift(r) : st;
}

/* ---- figures ---- */

void ax_rollout_put(struct ax_rollout *r, double value, const char *fmt, ...) {
    struct ax_figures *f = &r->figures;
    va_list args;
    AX_ASSERT(f->n < AX_FIGURES_MAX);
    va_start(args, fmt);
    (void)vsnprintf(f->names[f->n], sizeof f->names[0], fmt, args);
    va_end(args);
    f->values[f->n++] = value;
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
    ax_rollout_put(r, l->n > 0 ? l->sum / l->n : 0, "completions/mean_%slength", what);
    ax_rollout_put(r, l->least, "completions/min_%slength", what);
    ax_rollout_put(r, l->most, "completions/max_%slength", what);
}

static void put_all_lengths(struct ax_rollout *r) {
    struct lengths all = {0}, ended = {0};
    for (int64_t i = 0; i < r->n; i++) {
        const double n = (double)(r->list[i].n - r->list[i].n_prompt);
        add_length(&all, n);
        if (!r->list[i].truncated)
            add_length(&ended, n);
    }
    put_lengths(r, &all, "");
    ax_rollout_put(r, 1 - ended.n / (double)r->n, "completions/clipped_ratio");
    put_lengths(r, &ended, "terminated_");
}

static void put_rewards(struct ax_rollout *r, const struct ax_advantage_options *o,
                        const double *totals) {
    for (int k = 0; k < o->n_rewards; k++) {
        const char *name = ax_rewards_name(r->o->rewards, k);
        const struct ax_reward_stats s = ax_reward_stats_of(r->rewards + k, r->n, o->n_rewards);
        ax_rollout_put(r, s.mean, "rewards/%s/mean", name);
        ax_rollout_put(r, s.std, "rewards/%s/std", name);
    }
    const struct ax_reward_stats s = ax_reward_stats_of(totals, r->n, 1);
    ax_rollout_put(r, s.mean, "reward");
    ax_rollout_put(r, s.std, "reward_std");
    ax_rollout_put(r, ax_share_without_spread(o, r->n, totals), "frac_reward_zero_std");
}

/* Of code: how many programs ended how, and the share that did not end by themselves. */
static void put_verdicts(struct ax_rollout *r) {
    double all = 0;
    for (int v = 0; v < AX_VERDICT_COUNT; v++)
        all += r->verdicts[v];
    if (all == 0)
        return;
    for (int v = 0; v < AX_VERDICT_COUNT; v++)
        ax_rollout_put(r, r->verdicts[v], "code/verdicts/%s", ax_verdict_names[v]);
    ax_rollout_put(r, 1 - r->verdicts[AX_VERDICT_EXIT] / all, "code/stopped");
}

/* How many prompts it took to have as many whose completions differ. */
static void put_rounds(struct ax_rollout *r) {
    if (r->o->rounds == 0)
        return;
    ax_rollout_put(r, r->round, "dynamic_sampling/rounds");
    ax_rollout_put(r, (double)r->read, "dynamic_sampling/prompts");
}

/* ---- all ---- */

static void judge_completions(struct ax_rollout *r, const struct ax_advantage_options *o,
                              double *advantages) {
    ax_advantages(o, r->n, r->rewards, advantages);
    for (int64_t i = 0; i < r->n; i++)
        r->list[i].advantage = (float)advantages[i];
}

static enum ax_worth worth_of(const struct ax_rollout *r, const struct ax_advantage_options *o,
                              const double *totals) {
    double most = 0;
    bool none = true, reached = true;
    for (int k = 0; k < o->n_rewards; k++)
        most += (o->weights ? o->weights[k] : 1) * ax_rewards_most(r->o->rewards, k);
    for (int64_t i = 0; i < r->n; i++) {
        const double first = totals[i / o->group * o->group];
        if (isfinite(totals[i]) && totals[i] != first)
            return AX_WORTH_VARIED;
        none = none && !isfinite(totals[i]);
        reached = reached && totals[i] >= most;
    }
    return none ? AX_WORTH_NONE : reached ? AX_WORTH_MOST : AX_WORTH_EQUAL;
}

static enum ax_status judge(struct ax_rollout *r, double *totals, double *advantages) {
    double weights[AX_ROLLOUT_MAX_REWARDS];
    const struct ax_advantage_options o = options_of(r, weights);
    ax_reward_totals(&o, r->n, r->rewards, totals);
    r->worth = worth_of(r, &o, totals);
    if (r->o->ppo && r->worth != AX_WORTH_NONE)
        r->worth = AX_WORTH_VARIED;
    r->figures.n = 0;
    put_all_lengths(r);
    put_rewards(r, &o, totals);
    put_rounds(r);
    put_verdicts(r);
    if (r->o->ppo)
        return ax_rollout_judge_tokens(r, totals);
    judge_completions(r, &o, advantages);
    return AX_OK;
}

enum ax_status ax_rollout_judge(struct ax_rollout *r) {
    double *values;
    AX_TRY(ax_alloc(&values, 2 * (size_t)r->n, sizeof *values));
    const enum ax_status st = judge(r, values, values + r->n);
    ax_free(values);
    return st;
}
