#include "optim/rollout/rollout.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- memory ---- */

bool ax_rollout_refers(const struct ax_rollout_options *o) {
    return o->policy->o.beta != 0 || (o->ppo && o->ppo->kl_coef != 0);
}

enum ax_status ax_rollout_create(struct ax_rollout *r, const struct ax_rollout_options *o) {
    *r = (struct ax_rollout){.o = o, .n = o->prompts * o->group};
    if (o->group == 0)
        return AX_OK;
    const size_t n = (size_t)r->n, tokens = n * (size_t)(o->max_prompt + o->max_new);
    const int functions = o->rewards ? ax_rewards_count(o->rewards) : 0;
    AX_TRY(ax_alloc(&r->list, n, sizeof *r->list));
    AX_TRY(ax_alloc(&r->order, n, sizeof *r->order));
    AX_TRY(ax_alloc(&r->origins, (size_t)o->prompts, sizeof *r->origins));
    AX_TRY(ax_alloc(&r->records, (size_t)o->prompts, sizeof *r->records));
    AX_TRY(ax_alloc(&r->todo, (size_t)o->prompts, sizeof *r->todo));
    AX_TRY(ax_alloc(&r->rewards, n * (size_t)functions, sizeof *r->rewards));
    AX_TRY(ax_alloc(&r->ids, tokens, sizeof *r->ids));
    AX_TRY(ax_alloc(&r->logprobs, tokens, sizeof *r->logprobs));
    if (!o->policy)
        return AX_OK;
    if (o->policy->o.entropy_mask)
        AX_TRY(ax_alloc(&r->entropies, tokens, sizeof *r->entropies));
    if (ax_rollout_refers(o))
        AX_TRY(ax_alloc(&r->reference, tokens, sizeof *r->reference));
    if (!o->ppo)
        return AX_OK;
    AX_TRY(ax_alloc(&r->advantages, tokens, sizeof *r->advantages));
    AX_TRY(ax_alloc(&r->values, tokens, sizeof *r->values));
    return ax_alloc(&r->returns, tokens, sizeof *r->returns);
}

static void forget(struct ax_rollout *r) {
    r->filled = false;
    r->turn = 0;
    r->read = 0;
}

void ax_rollout_free(struct ax_rollout *r) {
    for (int64_t i = 0; r->origins && i < r->o->prompts; i++)
        ax_free(r->origins[i].file);
    for (int64_t i = 0; r->records && i < r->o->prompts; i++)
        ax_free(r->records[i]);
    ax_free(r->list);
    ax_free(r->order);
    ax_free(r->origins);
    ax_free(r->records);
    ax_free(r->todo);
    ax_free(r->rewards);
    ax_free(r->ids);
    ax_free(r->logprobs);
    ax_free(r->reference);
    ax_free(r->entropies);
    ax_free(r->advantages);
    ax_free(r->values);
    ax_free(r->returns);
    *r = (struct ax_rollout){0};
}

/* ---- turns ---- */

bool ax_rollout_is_used_up(const struct ax_rollout *r) {
    return !r->filled || r->turn == r->o->steps * r->o->iterations;
}

int64_t ax_rollout_turn_size(const struct ax_rollout *r) {
    return r->n / r->o->steps;
}

const struct ax_completion *ax_rollout_take(const struct ax_rollout *r, int64_t i,
                                            int64_t *number) {
    *number = r->order[r->turn % r->o->steps * ax_rollout_turn_size(r) + i];
    return &r->list[*number];
}

int64_t ax_rollout_groups_in(const struct ax_rollout_options *o, int64_t completions) {
    const int64_t most = completions < o->prompts ? completions : o->prompts;
    int64_t groups = (completions + o->group - 2) / o->group + 1;
    if (o->steps > 1)
        return most;
    if (completions % o->group == 0)
        groups = completions / o->group;
    else if (o->group % completions == 0)
        groups = 1;
    return groups < most ? groups : most;
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Each turn has a random share of the completions. */
static void shuffle(struct ax_rollout *r) {
    const struct ax_rng_key key = {r->o->sampling.seed, (uint32_t)r->generation, 0x726f6c6c};
    for (int64_t i = 0; i < r->n; i++)
        r->order[i] = i;
    for (int64_t i = r->n - 1; r->o->steps > 1 && i > 0; i--) {
        const uint64_t k = ax_rng_below(key, (uint64_t)i, (uint64_t)i + 1);
        const int64_t other = r->order[k];
        r->order[k] = r->order[i];
        r->order[i] = other;
    }
    const int64_t turn = ax_rollout_turn_size(r);
    for (int64_t i = 0; i < r->n; i += turn)
        qsort(r->order + i, (size_t)turn, sizeof *r->order, ascending);
}

/* ---- a generation ---- */

static enum ax_status plan(struct ax_rollout *r, const struct ax_rollout_models *m) {
    bool stopped;
    AX_TRY(ax_rollout_sample(r, m->policy, &stopped));
    for (int i = 0; i < r->o->n_models; i++)
        AX_TRY(ax_reward_model_read(r->o->models[i], 0, NULL, NULL));
    if (m->reference)
        AX_TRY(ax_rollout_refer(r, m->reference, &stopped));
    return m->value ? ax_rollout_value(r, m->value) : AX_OK;
}

/* Prompts, completions and rewards of the groups to do, which become those to do again. */
static enum ax_status go_round(struct ax_rollout *r, struct ax_model *m, struct ax_loader *loader,
                               bool *stopped) {
    AX_TRY(ax_rollout_read(r, loader));
    const double start = ax_clock_now();
    AX_TRY(ax_rollout_sample(r, m, stopped));
    const double sampled = ax_clock_now();
    r->seconds += sampled - start;
    if (!*stopped)
        AX_TRY(ax_rollout_reward(r, m->rt));
    r->reward_seconds += ax_clock_now() - sampled;
    return AX_OK;
}

static void do_all(struct ax_rollout *r) {
    memset(r->verdicts, 0, sizeof r->verdicts);
    r->n_todo = r->o->prompts;
    for (int64_t i = 0; i < r->n_todo; i++)
        r->todo[i] = i;
}

static enum ax_status fill(struct ax_rollout *r, const struct ax_rollout_models *m,
                           struct ax_loader *loader, bool *stopped) {
    do_all(r);
    for (r->round = 0; r->round <= r->o->rounds && r->n_todo > 0 && !*stopped; r->round++)
        AX_TRY(go_round(r, m->policy, loader, stopped));
    const double start = ax_clock_now();
    if (m->reference && !*stopped)
        AX_TRY(ax_rollout_refer(r, m->reference, stopped));
    if (m->value && !*stopped)
        AX_TRY(ax_rollout_value(r, m->value));
    r->seconds += ax_clock_now() - start;
    return AX_OK;
}

enum ax_status ax_rollout_generate(struct ax_rollout *r, const struct ax_rollout_models *m,
                                   struct ax_loader *loader, bool *stopped) {
    struct ax_loader_state at;
    *stopped = false;
    if (ax_runtime_planning(m->policy->rt))
        return plan(r, m);
    ax_loader_save(loader, &at);
    forget(r);
    r->seconds = r->reward_seconds = 0;
    r->generation++;
    AX_TRY(fill(r, m, loader, stopped));
    if (*stopped) {
        r->generation--;
        return ax_loader_restore(loader, &at);
    }
    r->filled = true;
    shuffle(r);
    return ax_rollout_judge(r);
}

/* ---- an evaluation ---- */

struct ax_rollout_options ax_rollout_for_evaluation(const struct ax_rollout_options *o, int64_t n) {
    struct ax_rollout_options e = *o;
    e.group = o->eval_group;
    e.prompts = n;
    e.steps = e.iterations = 1;
    e.rounds = 0;
    e.policy = NULL;
    e.ppo = NULL;
    return e;
}

/* Its number, 0, is no generation's. */
enum ax_status ax_rollout_evaluate(struct ax_rollout *r, struct ax_model *m,
                                   struct ax_loader *loader, bool *stopped) {
    *stopped = false;
    do_all(r);
    ax_loader_start_epoch(loader, 0);
    AX_TRY(go_round(r, m, loader, stopped));
    return *stopped ? AX_OK : ax_rollout_judge(r);
}
