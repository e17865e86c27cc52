/* Goes through the products of sizes that make the number of ranks, leaves out what cannot be best by
 * simple rules, estimates the rest from one stage, and simulates the most promising. Threads take the
 * estimates and simulations in turn; results are compared in the order of the list, so their number
 * changes nothing. */
#include "optim/forecast/search.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "optim/plan/choose.h"

#define SHORTLIST 8
/* Of a sequence on a rank of cp: attention and products of fewer tokens are slow. */
#define MOST_ROWS    16
#define MOST_THREADS 64

/* A mesh that no rule leaves out. */
struct candidate {
    struct ax_search_choice choice;
    enum ax_search_reason why; /* AX_SEARCH_REASONS: it fits */
};

struct search {
    const struct ax_plan_request *r;
    struct ax_search *out;
    int64_t rows; /* sequences of a step, of all ranks */
    double parameters;
    struct candidate *candidates; /* owned */
    size_t n_candidates, capacity;
    int n;
    struct ax_search_choice list[SHORTLIST]; /* the fastest so far, first */
};

/* ---- rules ---- */

/* Bytes that a rank has of masters and state at least: of AdamW in float32, 2 + 4 + 4 + 4 + 4 per
 * parameter that trains. Experts are divided over all ranks of a stage, others over fsdp and tp. */
static double least_state(const struct search *s, const struct ax_mesh_sizes *m) {
    const double shared = (double)m->pp * m->dp_shard * m->cp * m->tp;
    const double bytes = s->r->step.model.adapter                       ? 0.5
                         : s->r->step.model.masters == AX_MASTERS_ACCUM ? 6
                                                                        : 2;
    return bytes * s->parameters / shared;
}

static enum ax_search_reason broken_rule(const struct search *s, const struct ax_mesh_sizes *m) {
    const int node = s->r->rates->hardware.node;
    if (m->tp > node)
        return AX_SEARCH_TP_FAR;
    if (m->cp > 1 && s->r->sequence_tokens / m->cp < AX_SEARCH_LEAST_TOKENS)
        return AX_SEARCH_CP_SHORT;
    const int sharing = m->dp_shard * m->cp * m->tp;
    if (m->dp_replicate > 1 && sharing != node && sharing != 8 * node)
        return AX_SEARCH_REPLICAS;
    if (m->ep > 1 && m->ep < node && m->ep < sharing)
        return AX_SEARCH_EXPERTS;
    if (m->pp > s->r->arch->n_layers - ax_arch_predicts(s->r->arch) ||
        (m->pp > 1 && s->rows / m->dp_replicate / m->dp_shard < m->pp))
        return AX_SEARCH_PIPELINE;
    if (s->rows % ((int64_t)m->dp_replicate * m->dp_shard) != 0)
        return AX_SEARCH_BATCH;
    const double memory = s->r->rates->hardware.memory;
    if (memory > 0 && least_state(s, m) > memory)
        return AX_SEARCH_STATES;
    return AX_SEARCH_REASONS;
}

/* ---- one choice ---- */

static void set_choice(const struct search *s, const struct ax_search_choice *c,
                       struct ax_runtime_options *runtime, struct ax_step_options *step) {
    const int64_t ranks = (int64_t)c->sizes.dp_replicate * c->sizes.dp_shard;
    *runtime = s->r->runtime;
    *step = s->r->step;
    step->tp_auto = false; /* chunks: few rows are not what is fast */
    runtime->backend = s->r->rates->backend;
    runtime->sizes = c->sizes;
    step->n_microbatches = (int)(s->rows / ranks / c->rows);
    step->tokens = c->rows * s->r->sequence_tokens;
    step->n_docs = s->r->step.n_docs * c->rows / s->r->sequences;
    step->recompute = c->recompute;
    step->model.cp_method = c->cp_method;
    if (step->n_docs < c->rows)
        step->n_docs = c->rows;
}

static bool fits(const struct search *s, const struct ax_plan_time *t) {
    const double memory = s->r->rates->hardware.memory;
    return memory == 0 || (double)(t->arena + t->beside) <= memory;
}

/* Keeps it if it is one of the fastest. */
static void keep(struct search *s, const struct ax_search_choice *c) {
    int at = s->n;
    while (at > 0 && s->list[at - 1].time.tokens_per_second < c->time.tokens_per_second)
        at--;
    if (s->n == SHORTLIST)
        s->out->left_out[AX_SEARCH_SLOWER]++;
    if (at == SHORTLIST)
        return;
    s->n += s->n < SHORTLIST;
    for (int i = s->n - 1; i > at; i--)
        s->list[i] = s->list[i - 1];
    s->list[at] = *c;
}

/* The least recompute from c's on that fits. A mesh that cannot be planned is one that the model refuses. */
static enum ax_search_reason try_rows(const struct search *s, struct ax_search_choice *c) {
    const struct ax_plan_time_options o = {.rates = s->r->rates};
    struct ax_runtime_options runtime;
    struct ax_step_options step;
    for (; c->recompute <= s->r->last; c->recompute++) {
        set_choice(s, c, &runtime, &step);
        enum ax_status st = ax_step_choose(&step, &runtime, s->r->arch);
        c->cp_method = step.model.cp_method;
        if (st == AX_OK)
            st = ax_plan_time_estimate(&c->time, &o, &runtime, s->r->arch, &step);
        if (st != AX_OK) {
            ax_error_clear();
            return AX_SEARCH_MODEL;
        }
        if (fits(s, &c->time))
            return AX_SEARCH_REASONS;
    }
    return AX_SEARCH_MEMORY;
}

/* The best number of rows per micro-batch: more, until they do not fit or gain nothing. What did not fit
 * with fewer does not fit with more. */
static enum ax_status estimate_one(const struct search *s, struct candidate *k) {
    const struct ax_mesh_sizes *sizes = &k->choice.sizes;
    const int64_t each = s->rows / ((int64_t)sizes->dp_replicate * sizes->dp_shard);
    struct ax_search_choice c = k->choice;
    k->why = AX_SEARCH_PIPELINE;
    while (c.rows <= MOST_ROWS && each % c.rows == 0 && each / c.rows >= sizes->pp &&
           c.rows * s->r->sequence_tokens <= INT32_MAX) {
        const enum ax_search_reason why = try_rows(s, &c);
        if (k->why == AX_SEARCH_PIPELINE)
            k->why = why;
        if (why < AX_SEARCH_REASONS ||
            c.time.tokens_per_second < 1.005 * k->choice.time.tokens_per_second)
            break;
        k->choice = c;
        c.rows *= 2;
    }
    return AX_OK;
}

/* ---- in turn ---- */

struct turns {
    const struct search *s;
    enum ax_status (*each)(const struct search *s, struct candidate *k);
    struct candidate *list;
    size_t n;
    atomic_size_t next;
};

static enum ax_status take_turns(void *arg) {
    struct turns *t = arg;
    for (size_t i = atomic_fetch_add(&t->next, 1); i < t->n; i = atomic_fetch_add(&t->next, 1))
        AX_TRY(t->each(t->s, &t->list[i]));
    return AX_OK;
}

/* Of each candidate, on all CPUs. */
static enum ax_status for_each(const struct search *s, struct candidate *list, size_t n,
                               enum ax_status (*each)(const struct search *, struct candidate *)) {
    struct turns t = {.s = s, .each = each, .list = list, .n = n};
    struct ax_worker *workers;
    const int cpus = ax_cpu_count(), others = (cpus < MOST_THREADS ? cpus : MOST_THREADS) - 1;
    int started = 0;
    AX_TRY(ax_alloc(&workers, (size_t)others + 1, sizeof *workers));
    while (started < others && ax_worker_start(&workers[started], take_turns, &t) == AX_OK)
        started++;
    enum ax_status st = take_turns(&t); /* alone, if threads are refused */
    for (int i = 0; i < started; i++) {
        const enum ax_status joined = ax_worker_join(&workers[i]);
        st = st == AX_OK ? joined : st;
    }
    ax_free(workers);
    return st;
}

/* ---- all of them ---- */

/* The next divisor of n after d; 0: none. */
static int next_divisor(int n, int d) {
    for (d++; d <= n; d++)
        if (n % d == 0)
            return d;
    return 0;
}

static enum ax_status list_mesh(struct search *s, const struct ax_mesh_sizes *sizes) {
    const enum ax_search_reason why = broken_rule(s, sizes);
    s->out->tried++;
    if (why < AX_SEARCH_REASONS) {
        s->out->left_out[why]++;
        return AX_OK;
    }
    AX_TRY(ax_grow(&s->candidates, s->n_candidates, &s->capacity, sizeof *s->candidates));
    s->candidates[s->n_candidates++] =
        (struct candidate){.choice = {.sizes = *sizes,
                                      .rows = 1,
                                      .recompute = s->r->first,
                                      .cp_method = s->r->step.model.cp_method}};
    return AX_OK;
}

static enum ax_status list_experts(struct search *s, struct ax_mesh_sizes m) {
    const int ranks = m.dp_shard * m.cp * m.tp;
    const int64_t experts = s->r->arch->moe.n_experts;
    for (int ep = 1; ep; ep = next_divisor(ranks, ep)) {
        m.ep = ep;
        if (ep == 1 || (experts > 0 && experts % ep == 0))
            AX_TRY(list_mesh(s, &m));
    }
    return AX_OK;
}

static enum ax_status list_all(struct search *s) {
    const int world = s->r->runtime.world;
    for (int tp = 1; tp; tp = next_divisor(world, tp))
        for (int pp = 1; pp; pp = next_divisor(world / tp, pp))
            for (int cp = 1; cp; cp = next_divisor(world / tp / pp, cp))
                for (int rep = 1; rep; rep = next_divisor(world / tp / pp / cp, rep))
                    AX_TRY(list_experts(
                        s, (struct ax_mesh_sizes){.tp = tp,
                                                  .pp = pp,
                                                  .cp = cp,
                                                  .dp_replicate = rep,
                                                  .dp_shard = world / tp / pp / cp / rep}));
    return AX_OK;
}

static enum ax_status estimate(struct search *s) {
    AX_TRY(for_each(s, s->candidates, s->n_candidates, estimate_one));
    for (size_t i = 0; i < s->n_candidates; i++)
        if (s->candidates[i].choice.time.step > 0)
            keep(s, &s->candidates[i].choice);
        else
            s->out->left_out[s->candidates[i].why]++;
    return AX_OK;
}

/* With more recompute where another stage than the estimated one needs more memory. */
static enum ax_status simulate_one(const struct search *s, struct candidate *k) {
    const struct ax_plan_time_options o = {.rates = s->r->rates, .shorten = true};
    struct ax_search_choice *c = &k->choice;
    struct ax_runtime_options runtime;
    struct ax_step_options step;
    for (k->why = AX_SEARCH_MEMORY; c->recompute <= s->r->last; c->recompute++) {
        set_choice(s, c, &runtime, &step);
        AX_TRY(ax_plan_time(&c->time, &o, &runtime, s->r->arch, &step));
        if (fits(s, &c->time)) {
            k->why = AX_SEARCH_REASONS;
            break;
        }
    }
    return AX_OK;
}

/* The shortlist, simulated, in order. */
static enum ax_status simulate(struct search *s) {
    struct search sorted = {.r = s->r, .out = s->out};
    struct candidate list[SHORTLIST] = {0};
    for (int i = 0; i < s->n; i++)
        list[i].choice = s->list[i];
    AX_TRY(for_each(s, list, (size_t)s->n, simulate_one));
    for (int i = 0; i < s->n; i++)
        if (list[i].why == AX_SEARCH_REASONS)
            keep(&sorted, &list[i].choice);
        else
            s->out->left_out[list[i].why]++;
    for (int i = 0; i < sorted.n; i++)
        if (i < AX_SEARCH_BEST)
            s->out->best[s->out->n++] = sorted.list[i];
        else
            s->out->left_out[AX_SEARCH_SLOWER]++;
    return AX_OK;
}

enum ax_status ax_search_run(struct ax_search *out, const struct ax_plan_request *r) {
    const struct ax_mesh_sizes *m = &r->runtime.sizes;
    const int64_t ranks =
        (int64_t)(m->dp_replicate > 0 ? m->dp_replicate : 1) * (m->dp_shard > 0 ? m->dp_shard : 1);
    const double begin = ax_clock_now();
    struct search *s;
    *out = (struct ax_search){0};
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->r = r;
    s->out = out;
    s->rows = r->sequences * r->step.n_microbatches * ranks;
    s->parameters = (double)ax_arch_parameters(r->arch);
    enum ax_status st = list_all(s);
    if (st == AX_OK)
        st = estimate(s);
    if (st == AX_OK)
        st = simulate(s);
    ax_free(s->candidates);
    ax_free(s);
    out->seconds = ax_clock_now() - begin;
    return st;
}
