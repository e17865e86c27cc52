/* Puts the completions of a turn into a step's micro-batches: number m of data rank d gets the turn's
 * completions (m·ranks + d)·k …, k of them, as sequences.c does with sequences. What has no
 * gradient is left out of a micro-batch, and only counted (ax_step.absent). */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "optim/train/run.h"

/* ---- a completion as a document ---- */

/* A teacher alone has nothing to say of one whose environment has failed; beside rewards it counts, with no advantage,
 * as one without a reward does. */
static bool has_labels(const struct ax_train *t, const struct ax_completion *c) {
    const struct ax_rollout_options *o = &t->o->rollout;
    return !(c->truncated && o->mask_truncated) && !(c->lost && (!o->policy || !o->rewards));
}

/* The routers' balancing loss is of all tokens. */
static bool completion_trains(const struct ax_train *t, const struct ax_completion *c) {
    const struct ax_policy *p = t->o->rollout.policy;
    return t->step.o.balance_coef != 0 || t->step.o.sequence_coef != 0 || !p ||
           p->o.token_advantages ||
           (has_labels(t, c) && ax_policy_trains(&p->o, (double)c->advantage));
}

/* What it adds to the number that the loss is divided by. */
static double weight_of(const struct ax_train *t, const struct ax_completion *c) {
    if (t->step.o.objective->per == AX_PER_DOCUMENT)
        return 1;
    return has_labels(t, c) ? (double)c->sampled : 0;
}

/* Appends it to micro-batch m, behind `at` tokens, without those that it shares with another of its
 * group. */
static void append_completion(struct ax_train *t, int m, int64_t at, const struct ax_completion *c,
                              int64_t shared, int with) {
    struct ax_train_sequences *r = &t->sequences;
    const struct ax_policy *p = t->o->rollout.policy;
    const int64_t first = c->start + shared, n = c->n - shared;
    const int32_t *ids = t->rollout.ids + first;
    int32_t *tokens = r->tokens + m * r->cap_tokens + at;
    int32_t *labels = r->labels + m * r->cap_tokens + at;
    struct ax_document *doc = &r->docs[m * r->cap_docs + r->n_docs[m]++];
    AX_ASSERT(at + n <= r->cap_tokens && r->n_docs[m] <= r->cap_docs);
    *doc = (struct ax_document){.n = n,
                                .tokens = tokens,
                                .labels = labels,
                                .first_position = shared,
                                .shared = shared,
                                .shared_with = with};
    memcpy(tokens, ids, (size_t)n * sizeof *tokens);
    for (int64_t i = 0; i < n; i++) {
        const bool label = has_labels(t, c) && shared + i + 1 >= c->n_prompt && i + 1 < n &&
                           ax_rollout_is_sampled(&t->rollout, first + i + 1);
        labels[i] = label ? ids[i + 1] : AX_NO_LABEL;
    }
    for (int k = 0; k < ax_columns_count(r->columns); k++)
        doc->columns[k] = ax_train_column_at(r, m, k, at);
    if (!p)
        return;
    /* shifted, as the labels */
    const size_t bytes = (size_t)(n - 1) * sizeof(float);
    if (p->o.token_advantages)
        memcpy(ax_train_column_at(r, m, p->advantage, at), t->rollout.advantages + first + 1,
               bytes);
    else
        memcpy(ax_train_column_at(r, m, p->advantage, at), &c->advantage, sizeof c->advantage);
    if (p->sampler >= 0)
        memcpy(ax_train_column_at(r, m, p->sampler, at), t->rollout.logprobs + first + 1, bytes);
    if (p->old >= 0)
        memcpy(ax_train_column_at(r, m, p->old, at), t->rollout.logprobs + first + 1, bytes);
    if (p->reference >= 0)
        memcpy(ax_train_column_at(r, m, p->reference, at), t->rollout.reference + first + 1, bytes);
}

/* ---- the same for PPO's value model ---- */

static void clear_value(struct ax_train *t) {
    struct ax_train_sequences *r = &t->value.sequences;
    memset(r->n_docs, 0, (size_t)r->n_batches * sizeof *r->n_docs);
}

/* Adds a completion after `at` tokens of the value model's micro-batch m. Labels and columns are in place: of a
 * completion's places. */
static void append_value(struct ax_train *t, int m, int64_t at, const struct ax_completion *c) {
    struct ax_train_sequences *r = &t->value.sequences;
    const int64_t from = c->n_prompt - 1, end = from + ax_rollout_span(&t->rollout, c);
    const float *const columns[] = {t->rollout.values, t->rollout.returns};
    int32_t *tokens = r->tokens + m * r->cap_tokens + at;
    int32_t *labels = r->labels + m * r->cap_tokens + at;
    struct ax_document *doc = &r->docs[m * r->cap_docs + r->n_docs[m]++];
    AX_ASSERT(at + c->n <= r->cap_tokens && r->n_docs[m] <= r->cap_docs);
    *doc = (struct ax_document){.n = c->n, .tokens = tokens, .labels = labels};
    memcpy(tokens, t->rollout.ids + c->start, (size_t)c->n * sizeof *tokens);
    for (int64_t i = 0; i < c->n; i++)
        labels[i] =
            i >= from && i < end && ax_rollout_is_place(&t->rollout, c, i - from) ? 0 : AX_NO_LABEL;
    AX_ASSERT(r->columns->n == 2);
    for (int k = 0; k < 2; k++) {
        doc->columns[k] = ax_train_column_at(r, m, k, at);
        memcpy(ax_train_column_at(r, m, k, at), columns[k] + c->start,
               (size_t)c->n * sizeof *columns[k]);
    }
}

/* ---- a turn ---- */

struct place {
    int64_t batch; /* of all ranks; */
    int m;         /* number m of … */
    bool own;      /* … this rank, or of another */
    int64_t at;    /* tokens that it has */
    int docs;      /* … and completions */
    int64_t group; /* of the last one, of which it has the first as … */
    int leader;    /* … document */
};

/* All but the last token of the prompt, whose result differs: the first completion of a group in a
 * micro-batch has them. */
static int64_t share_prompt(const struct ax_train *t, struct place *p, int64_t group,
                            const struct ax_completion *c) {
    if (t->step.o.alike > 1 && p->docs > 0 && p->group == group)
        return c->n_prompt - 1;
    p->group = group;
    p->leader = p->docs;
    return 0;
}

static void put_completion(struct ax_train *t, struct place *p, int64_t number,
                           const struct ax_completion *c) {
    struct ax_train_sequences *r = &t->sequences;
    const int64_t group = number / t->o->rollout.group, shared = share_prompt(t, p, group, c);
    const struct ax_rollout_origin *from = &t->rollout.origins[group];
    if (p->own)
        append_completion(t, p->m, p->at, c, shared, p->leader);
    if (p->own && ax_train_has_value(t->o))
        append_value(t, p->m, p->at, c);
    p->docs++;
    r->origins[p->batch * r->cap_docs + r->all_docs[p->batch]++] =
        (struct ax_train_origin){from->file, from->line};
    p->at += c->n - shared;
    r->n_computed += c->n - shared;
    r->longest[p->m] = p->at > r->longest[p->m] ? p->at : r->longest[p->m];
}

static bool none_trains(const struct ax_train *t) {
    int64_t number;
    for (int64_t i = 0; i < ax_rollout_turn_size(&t->rollout); i++)
        if (completion_trains(t, ax_rollout_take(&t->rollout, i, &number)))
            return false;
    return true;
}

/* Where none trains, the first is there nevertheless: optimizers go on by their moments. */
static void deal_turn(struct ax_train *t) {
    struct ax_train_sequences *r = &t->sequences;
    const int64_t n = ax_rollout_turn_size(&t->rollout), each = t->o->data.sequences_per_batch;
    const bool none = none_trains(t);
    struct place p = {0};
    memset(r->n_docs, 0, (size_t)r->n_batches * sizeof *r->n_docs);
    memset(r->longest, 0, (size_t)r->n_batches * sizeof *r->longest);
    memset(r->all_docs, 0, (size_t)(r->n_batches * r->ranks) * sizeof *r->all_docs);
    r->n_tokens = r->n_trained = r->n_computed = 0;
    t->step.absent = 0;
    if (ax_train_has_value(t->o))
        clear_value(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t number;
        const struct ax_completion *c = ax_rollout_take(&t->rollout, i, &number);
        const int64_t batch = i / each;
        if (i % each == 0)
            p = (struct place){
                .batch = batch, .m = (int)(batch / r->ranks), .own = batch % r->ranks == r->own};
        r->n_tokens += c->n_prompt + c->sampled;
        r->n_trained += has_labels(t, c) ? c->sampled : 0;
        if (completion_trains(t, c) || (none && i == 0))
            put_completion(t, &p, number, c);
        else if (p.own)
            t->step.absent += weight_of(t, c);
    }
}

/* ---- the tokens with the highest entropies ---- */

/* Entropies of the turn's labeled tokens to `out`, unless NULL; those up to the bound are not counted. */
static int64_t collect_entropies(const struct ax_train *t, bool own, double above, double *out) {
    const int64_t each = t->o->data.sequences_per_batch;
    int64_t n = 0, number;
    for (int64_t i = 0; i < ax_rollout_turn_size(&t->rollout); i++) {
        const struct ax_completion *c = ax_rollout_take(&t->rollout, i, &number);
        const float *entropies = t->rollout.entropies + c->start;
        if ((own && i / each % t->sequences.ranks != t->sequences.own) || !has_labels(t, c))
            continue;
        for (int64_t k = c->n_prompt; k < c->n; k++) {
            if ((double)entropies[k] < above || !ax_rollout_is_sampled(&t->rollout, c->start + k))
                continue;
            if (out)
                out[n] = (double)entropies[k];
            n++;
        }
    }
    return n;
}

/* Sets the bound that a share of the turn's tokens is above, by the entropies of when they were drawn. */
static enum ax_status cut_entropies(struct ax_train *t) {
    const int64_t n = t->rollout.entropies ? collect_entropies(t, false, 0, NULL) : 0;
    double *entropies;
    int64_t kept;
    if (n == 0)
        return AX_OK;
    AX_TRY(ax_alloc(&entropies, (size_t)n, sizeof *entropies));
    collect_entropies(t, false, 0, entropies);
    t->step.entropy_cut = ax_policy_entropy_cut(entropies, n, t->o->rollout.top_entropy, &kept);
    t->step.entropy_tokens = collect_entropies(t, true, t->step.entropy_cut, NULL);
    ax_free(entropies);
    return AX_OK;
}

/* After the last turn of a generation, its prompts are done. */
static void count_prompts(struct ax_train *t) {
    const struct ax_rollout_options *o = &t->o->rollout;
    const bool last = t->rollout.turn == o->steps * o->iterations;
    t->sequences.epoch = t->rollout.epoch;
    t->sequences.index = t->rollout.index;
    t->sequences.n = last ? t->rollout.read : 0;
}

static void show_completion(struct ax_train *t, int i) {
    struct ax_buf prompt = {0}, completion = {0}, worth = {0};
    if (ax_rollout_text(&t->rollout, &t->rollout.list[i], &prompt, &completion) == AX_OK &&
        ax_rollout_worth(&t->rollout, i, &worth) == AX_OK)
        ax_metrics_show(t->metrics, t->done + 1, i + 1, &prompt, &completion, &worth);
    ax_error_clear();
    ax_buf_free(&worth);
    ax_buf_free(&prompt);
    ax_buf_free(&completion);
}

/* Logs it; a line that cannot be made costs nothing but itself. */
static void report_completions(struct ax_train *t) {
    for (int64_t i = 0; t->metrics && i < t->rollout.n; i++) {
        struct ax_buf line = {0};
        if (ax_rollout_line(&t->rollout, i, t->done + 1, &line) == AX_OK)
            ax_metrics_completion(t->metrics, &line);
        else
            ax_log_warn("completions.jsonl: %s", ax_error_text());
        ax_error_clear();
        ax_buf_free(&line);
        if (i < ax_rollout_shown(&t->rollout))
            show_completion(t, (int)i);
    }
}

/* ---- rewards that teach nothing ---- */

#define WORTHLESS_STEPS 3 /* in a row: a warning */
#define WORTHLESS_RUN   4 /* of a run without others: an error */

static const char *const worthless[] = {
    [AX_WORTH_VARIED] = "",
    [AX_WORTH_NONE] = "no completion has a reward: the functions return None or NaN, or fail",
    [AX_WORTH_EQUAL] =
        "all completions of a prompt have the same reward: the functions do not tell them "
        "apart, the task is too hard, or sampling (temperature) has no variety",
    [AX_WORTH_MOST] = "all completions have the highest reward: there is nothing left to learn",
};

static void watch_worth(struct ax_train *t) {
    struct ax_train_worth *w = &t->worth;
    const enum ax_worth worth = t->rollout.worth;
    w->steps++;
    w->in_a_row = worth == AX_WORTH_VARIED ? 0 : w->in_a_row + 1;
    w->usable = w->usable || worth == AX_WORTH_VARIED || worth == AX_WORTH_MOST;
    if (w->in_a_row == WORTHLESS_STEPS)
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done + 1,
                         "%d steps in a row teach nothing: %s", WORTHLESS_STEPS, worthless[worth]);
}

/* Steps before a resumed run may have been of use. */
enum ax_status ax_train_worth_end(const struct ax_train *t) {
    const struct ax_train_worth *w = &t->worth;
    if (w->steps < WORTHLESS_RUN || w->usable || t->out->resumed_from > 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "no reward of %lld steps was of use, so nothing was learned: %s",
                    (long long)w->steps, worthless[t->rollout.worth]);
}

/* ---- the next turn ---- */

/* Memory is the step's: what a step does not need while it samples. */
enum ax_status ax_train_rollout_plan(struct ax_train *t) {
    bool stopped;
    struct ax_rollout r = {.o = &t->o->rollout};
    const bool only_evaluates = t->o->rollout_ranks > 0;
    if (!ax_train_has_rollout(t->o) || (only_evaluates && t->o->data.eval_tokens == 0))
        return AX_OK;
    const struct ax_rollout_models m = ax_train_rollout_models(t);
    return ax_rollout_generate(&r, &m, NULL, &stopped);
}

enum ax_status ax_train_rollout_next(struct ax_train *t, bool *stopped) {
    *stopped = false;
    if (ax_train_runs_ahead(t->o)) {
        AX_TRY(ax_train_ahead_next(t, stopped));
        if (*stopped)
            return AX_OK;
    } else if (ax_rollout_is_used_up(&t->rollout)) {
        const struct ax_rollout_models m = ax_train_rollout_models(t);
        ax_metrics_doing(t->metrics, "sampling", 0, 0);
        AX_TRY(ax_train_schedule_progress(&t->schedule, &t->o->data, t->done, &t->rollout));
        AX_TRY(ax_rollout_generate(&t->rollout, &m, t->o->data.train, stopped));
        if (*stopped)
            return AX_OK;
        report_completions(t);
    }
    deal_turn(t);
    if (t->o->remote && t->o->step.objective->head.distill)
        AX_TRY(ax_train_sequences_ask(&t->sequences, &t->step, t->o->remote, stopped));
    if (*stopped)
        return AX_OK;
    AX_TRY(cut_entropies(t));
    watch_worth(t);
    t->rollout.turn++;
    count_prompts(t);
    return ax_train_sequences_fill(&t->sequences, &t->step);
}
