/* Records the stages, sets prices, simulates, and adds up. */
#include "optim/plan/plan_time.h"

#include <math.h>

#include "base/mem.h"
#include "optim/step/unit_times.h"

static const char *const role_names[AX_TIME_ROLES] = {
    [AX_TIME_GATHERS] = "gathers of weights",
    [AX_TIME_REDUCTIONS] = "sums of gradients",
    [AX_TIME_TP] = "tensor parallel",
    [AX_TIME_CP] = "context parallel",
    [AX_TIME_PP] = "pipeline",
    [AX_TIME_EP] = "experts",
    [AX_TIME_OTHER] = "loss and norm",
    [AX_TIME_HOST] = "host's memory",
};

static const char *const kind_names[AX_TIME_KINDS] = {
    [AX_TIME_PRODUCTS] = "matrix products", [AX_TIME_ATTENTION] = "attention",
    [AX_TIME_MEMORY] = "other ops",         [AX_TIME_UPDATES] = "updates",
    [AX_TIME_COPIES] = "host copies",
};

const char *ax_time_kind_name(enum ax_time_kind kind) {
    return kind_names[kind];
}

const char *ax_time_role_name(enum ax_time_role role) {
    return role_names[role];
}

static enum ax_time_role role_of(int role, int kind) {
    switch ((enum ax_role)role) {
    case AX_ROLE_FSDP:
    case AX_ROLE_EFSDP:
        return kind == AX_ALL_GATHER ? AX_TIME_GATHERS : AX_TIME_REDUCTIONS;
    case AX_ROLE_DP_REPLICATE:
        return AX_TIME_REDUCTIONS;
    case AX_ROLE_TP:
        return AX_TIME_TP;
    case AX_ROLE_CP:
        return AX_TIME_CP;
    case AX_ROLE_PP:
        return AX_TIME_PP;
    case AX_ROLE_EP:
        return AX_TIME_EP;
    case AX_ROLE_DP_SHARD:
    case AX_ROLE_BATCH:
    case AX_ROLE_LOSS:
    case AX_ROLE_WORLD:
    case AX_ROLE_COUNT:
        break;
    }
    return AX_TIME_OTHER;
}

/* A simulated group is a kind of op, or a role behind those. */
_Static_assert(AX_TIME_KINDS + AX_TIME_ROLES <= AX_SIM_GROUPS, "each has a group");

/* ---- one stage ---- */

struct stage {
    struct ax_recording recording;
    struct ax_sim_item *items;
    size_t n;
    struct ax_mesh mesh;
    struct ax_rates_group groups[AX_ROLE_COUNT];
    struct ax_plan_op_time ops[AX_OP_COUNT];
    struct ax_plan plan;
};

static void free_stages(struct stage *stages, int n) {
    for (int i = 0; stages && i < n; i++) {
        ax_recording_free(&stages[i].recording);
        ax_free(stages[i].items);
    }
    ax_free(stages);
}

/* A message to a stage is between the same places of both. */
static bool is_far(const struct ax_rates *r, const struct ax_mesh *mesh, int peer) {
    const int node = r->hardware.node;
    const int stride = mesh->world / mesh->size[AX_ROLE_PP];
    const int other = mesh->rank + (peer - mesh->coord[AX_ROLE_PP]) * stride;
    return other / node != mesh->rank / node;
}

/* Of messages beside a pipeline's, which all ranks of a group send and receive at the same time, some are to
 * other nodes if the group is on several. */
static void price_start(const struct ax_rates *r, const struct stage *s, int unit,
                        const struct ax_transfer_event *t, struct ax_sim_item *item) {
    const bool message = t->lane == AX_ROLE_PP && t->kind == AX_SEND_RECV;
    const int peer = t->to >= 0 ? t->to : t->from;
    *item = (struct ax_sim_item){.kind = AX_SIM_START,
                                 .unit = unit,
                                 .group = AX_TIME_KINDS + (int)role_of(t->lane, t->kind),
                                 .lane = t->lane,
                                 .to = message ? t->to : -1,
                                 .from = message ? t->from : -1,
                                 .ticket = t->ticket};
    const struct ax_rates_group *g = &s->groups[t->lane];
    const bool far = message ? is_far(r, &s->mesh, peer) : g->local < g->size;
    ax_rates_transfer(r, g, far, t, item);
    if (t->kind == AX_SEND_RECV && !message && t->from < 0) /* while as much is received */
        item->seconds = item->links[AX_SIM_NODE] = item->links[AX_SIM_NETWORK] = 0;
}

/* A unit's work of one kind that follows each other is one item. */
static void add_work(struct stage *s, int unit, enum ax_time_kind kind, double seconds) {
    const int group = (int)kind;
    struct ax_sim_item *last = s->n > 0 ? &s->items[s->n - 1] : NULL;
    if (last && last->kind == AX_SIM_WORK && last->group == group && last->unit == unit)
        last->seconds += seconds;
    else
        s->items[s->n++] = (struct ax_sim_item){.kind = AX_SIM_WORK,
                                                .group = group,
                                                .unit = unit,
                                                .to = -1,
                                                .from = -1,
                                                .seconds = seconds};
}

/* PCIe carries both ways at the same time, and neither takes anything from ops. */
static void price_copy(const struct ax_rates *r, struct stage *s, int unit,
                       const struct ax_copy_event *c) {
    const double seconds = ax_rates_copy(r, c->bytes);
    if (c->ticket == 0)
        add_work(s, unit, AX_TIME_COPIES, seconds);
    else
        s->items[s->n++] = (struct ax_sim_item){.kind = AX_SIM_START,
                                                .unit = unit,
                                                .group = AX_TIME_KINDS + AX_TIME_HOST,
                                                .lane = ax_time_lane(c->ticket),
                                                .to = -1,
                                                .from = -1,
                                                .ticket = c->ticket,
                                                .seconds = seconds};
}

static void add_wait(struct stage *s, int unit, int lane, uint64_t ticket) {
    s->items[s->n++] = (struct ax_sim_item){
        .kind = AX_SIM_WAIT, .unit = unit, .lane = lane, .ticket = ticket, .to = -1, .from = -1};
}

static double price_op(const struct ax_rates *r, struct stage *s, const struct ax_op_event *e) {
    const double seconds = ax_rates_seconds(r, e);
    s->ops[e->op].seconds += seconds;
    s->ops[e->op].calls++;
    return seconds;
}

static enum ax_status price(const struct ax_rates *r, struct stage *s) {
    AX_TRY(ax_alloc(&s->items, s->recording.n > 0 ? s->recording.n : 1, sizeof *s->items));
    AX_ASSERT(s->items);
    for (size_t i = 0; i < s->recording.n; i++) {
        const struct ax_event *e = &s->recording.events[i];
        if (e->kind == AX_EVENT_OP)
            add_work(s, e->unit, ax_rates_kind(e->op.op), price_op(r, s, &e->op));
        else if (e->kind == AX_EVENT_COPY)
            price_copy(r, s, e->unit, &e->copy);
        else if (e->kind == AX_EVENT_AFTER)
            add_wait(s, e->unit, ax_time_lane(e->copy.ticket), e->copy.ticket);
        else if (e->kind == AX_EVENT_START)
            price_start(r, s, e->unit, &e->transfer, &s->items[s->n++]);
        else
            add_wait(s, e->unit, e->transfer.lane, e->transfer.ticket);
    }
    return AX_OK;
}

/* One rank's sizes may be 0. */
static struct ax_runtime_options filled(const struct ax_runtime_options *ro) {
    struct ax_runtime_options o = *ro;
    if (o.world < 2) {
        o.world = 1;
        o.sizes = (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1};
    }
    return o;
}

static enum ax_status make_stage(struct stage *s, const struct ax_rates *r, int stage,
                                 const struct ax_runtime_options *ro, const struct ax_arch *arch,
                                 const struct ax_step_options *so) {
    struct ax_runtime_options own = filled(ro);
    const int stages = own.sizes.pp;
    own.rank = stage * (own.world / stages);
    AX_TRY(ax_step_slots(so, stage, stages, &own.n_slots));
    AX_TRY(ax_plan_record(&s->plan, &s->recording, &own, arch, so));
    AX_TRY(ax_mesh_create(&s->mesh, own.sizes, own.world, own.rank));
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        AX_TRY(ax_rates_group_of(r, &s->mesh, (enum ax_role)role, &s->groups[role]));
    return price(r, s);
}

/* ---- a step ---- */

static void add_up(struct ax_plan_time *t, const struct ax_sim_rank *ranks, int n) {
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < AX_TIME_KINDS; i++)
            t->work[i] += ranks[k].work[i] / n;
        for (int i = 0; i < AX_TIME_ROLES; i++) {
            t->moved[i] += ranks[k].moved[AX_TIME_KINDS + i] / n;
            t->exposed[i] += ranks[k].exposed[AX_TIME_KINDS + i] / n;
        }
        t->idle += (t->step - ranks[k].end) / n;
    }
}

static void take_plans(struct ax_plan_time *t, const struct stage *stages, int n) {
    const struct ax_plan *p = &stages[0].plan;
    t->tokens = (double)p->tokens * stages[0].mesh.size[AX_ROLE_BATCH];
    t->flops = p->model_flops;
    t->flops_full = p->model_flops_full;
    for (int k = 0; k < n; k++) {
        const uint64_t arena = ax_arena_plan_total(&stages[k].plan.arena);
        t->arena = arena > t->arena ? arena : t->arena;
        t->beside = stages[k].plan.beside > t->beside ? stages[k].plan.beside : t->beside;
        for (int op = 0; op < AX_OP_COUNT; op++) {
            t->ops[op].seconds += stages[k].ops[op].seconds / n;
            t->ops[op].calls += stages[k].ops[op].calls / n;
        }
    }
}

static enum ax_status run(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                          const struct ax_runtime_options *ro, const struct ax_arch *arch,
                          const struct ax_step_options *so) {
    const int n = filled(ro).sizes.pp;
    struct stage *stages;
    struct ax_sim_rank *ranks = NULL;
    struct ax_sim_options sim = o->sim;
    *t = (struct ax_plan_time){0};
    AX_TRY(ax_alloc(&stages, (size_t)n, sizeof *stages));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&ranks, (size_t)n, sizeof *ranks), st, done);
    for (int k = 0; k < n; k++) {
        AX_TRY_GOTO(make_stage(&stages[k], o->rates, k, ro, arch, so), st, done);
        ranks[k] = (struct ax_sim_rank){.items = stages[k].items, .n = stages[k].n};
    }
    sim.contention = o->rates->contention;
    AX_TRY_GOTO(ax_simulate(n, ranks, &sim, &t->step), st, done);
    add_up(t, ranks, n);
    take_plans(t, stages, n);
done:
    ax_free(ranks);
    free_stages(stages, n);
    return st;
}

/* ---- many micro-batches ---- */

/* *value of a shorter step becomes that of a step `factor` times as far from it as the longer one. */
static void extrapolate(double *value, double longer, double factor) {
    *value += factor * (longer - *value);
}

static void stretch(struct ax_plan_time *t, const struct ax_plan_time *longer, double factor) {
    extrapolate(&t->step, longer->step, factor);
    extrapolate(&t->tokens, longer->tokens, factor);
    extrapolate(&t->flops, longer->flops, factor);
    extrapolate(&t->flops_full, longer->flops_full, factor);
    extrapolate(&t->idle, longer->idle, factor);
    for (int i = 0; i < AX_TIME_KINDS; i++)
        extrapolate(&t->work[i], longer->work[i], factor);
    for (int i = 0; i < AX_OP_COUNT; i++) {
        extrapolate(&t->ops[i].seconds, longer->ops[i].seconds, factor);
        extrapolate(&t->ops[i].calls, longer->ops[i].calls, factor);
    }
    for (int i = 0; i < AX_TIME_ROLES; i++) {
        extrapolate(&t->moved[i], longer->moved[i], factor);
        extrapolate(&t->exposed[i], longer->exposed[i], factor);
    }
    double arena = (double)t->arena; /* has each micro-batch's inputs */
    extrapolate(&arena, (double)longer->arena, factor);
    t->arena = (uint64_t)arena;
}

static enum ax_status run_short(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                                const struct ax_runtime_options *ro, const struct ax_arch *arch,
                                const struct ax_step_options *so) {
    const int stages = filled(ro).sizes.pp;
    const struct ax_pipeline pipeline = ax_step_pipeline(so, stages);
    const int least = stages > 1 ? (1 + ax_pipeline_chunks(&pipeline)) * stages : 2, more = stages;
    if (!o->shorten || so->n_microbatches <= least + more)
        return run(t, o, ro, arch, so);
    struct ax_step_options shorter = *so;
    struct ax_plan_time longer;
    shorter.n_microbatches = least;
    AX_TRY(run(t, o, ro, arch, &shorter));
    shorter.n_microbatches = least + more;
    AX_TRY(run(&longer, o, ro, arch, &shorter));
    stretch(t, &longer, (double)(so->n_microbatches - least) / more);
    return AX_OK;
}

/* Of the peak. */
static void rate(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                 const struct ax_step_options *so) {
    t->peak = o->rates->hardware.bf16 * ax_rates_dtype_share(so->model.dtype);
    t->tokens_per_second = t->tokens / t->step;
    t->mfu = t->flops / t->step / t->peak;
    t->mfu_full = t->flops_full / t->step / t->peak;
}

enum ax_status ax_plan_time(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                            const struct ax_runtime_options *ro, const struct ax_arch *arch,
                            const struct ax_step_options *so) {
    AX_TRY(run_short(t, o, ro, arch, so));
    rate(t, o, so);
    return AX_OK;
}

/* ---- one stage for all ---- */

#define MESSAGES (1u << AX_ROLE_PP) /* which would wait for other stages */

/* Drops transfers over the roles `dropped`, as bits. */
static void drop_transfers(struct stage *s, unsigned dropped) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->items[i].kind == AX_SIM_WORK || !(dropped >> s->items[i].lane & 1))
            s->items[n++] = s->items[i];
    s->n = n;
}

static enum ax_status run_alone(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                                struct stage *s) {
    struct ax_sim_options sim = {.contention = o->rates->contention};
    drop_transfers(s, MESSAGES);
    struct ax_sim_rank rank = {.items = s->items, .n = s->n};
    AX_TRY(ax_simulate(1, &rank, &sim, &t->step));
    take_plans(t, s, 1);
    return AX_OK;
}

enum ax_status ax_plan_time_estimate(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                                     const struct ax_runtime_options *ro,
                                     const struct ax_arch *arch, const struct ax_step_options *so) {
    const int stages = filled(ro).sizes.pp;
    const struct ax_pipeline pipeline = ax_step_pipeline(so, stages);
    struct ax_step_options few = *so;
    struct stage *stage;
    *t = (struct ax_plan_time){0};
    if (few.n_microbatches > stages)
        few.n_microbatches = stages;
    AX_TRY(ax_alloc(&stage, 1, sizeof *stage));
    /* the first has the embedding, and perhaps layers that are unlike the others */
    enum ax_status st = make_stage(stage, o->rates, stages > 2 ? 1 : 0, ro, arch, &few);
    if (st == AX_OK)
        st = run_alone(t, o, stage);
    free_stages(stage, 1);
    AX_TRY(st);
    const double each = 1.0 / few.n_microbatches, n = so->n_microbatches;
    t->step *= each * (n + (stages - 1.0) / ax_pipeline_chunks(&pipeline) /
                               (ax_pipeline_halves(&pipeline) ? 3 : 1));
    t->tokens *= each * n;
    t->flops *= each * n;
    t->flops_full *= each * n;
    rate(t, o, so);
    return AX_OK;
}

/* ---- a unit ---- */

static void add_span(void *ctx, const struct ax_sim_span *span) {
    double *seconds = ctx; /* by unit, as recorded */
    if (span->lane < 0)
        seconds[span->item->unit] += span->end - span->start;
}

/* What moves weights and gradients is behind other micro-batches in a pipeline. */
#define OF_TOKENS (1u << AX_ROLE_TP | 1u << AX_ROLE_CP | 1u << AX_ROLE_EP)

static enum ax_status time_units(double *seconds, const struct ax_rates *rates,
                                 const struct ax_runtime_options *ro, const struct ax_arch *arch,
                                 const struct ax_step_options *so) {
    const struct ax_sim_options sim = {
        .contention = rates->contention, .span = add_span, .ctx = seconds};
    struct stage *stage;
    double end;
    AX_TRY(ax_alloc(&stage, 1, sizeof *stage));
    enum ax_status st = make_stage(stage, rates, 0, ro, arch, so);
    if (st == AX_OK) {
        drop_transfers(stage, ~OF_TOKENS);
        struct ax_sim_rank rank = {.items = stage->items, .n = stage->n};
        st = ax_simulate(1, &rank, &sim, &end);
    }
    free_stages(stage, 1);
    return st;
}

/* True if options are for some layers: then none is like another. */
static bool names_layers(const struct ax_step_options *o) {
    return o->model.adapter || o->model.unfrozen || o->model.unquantized_first > 0 ||
           o->model.unquantized_last > 0;
}

enum ax_status ax_unit_times(double **out, const struct ax_runtime *rt, const struct ax_arch *arch,
                             const struct ax_step_options *so) {
    const int *size = rt->mesh.size;
    const struct ax_runtime_options ro = {.backend = "sheet",
                                          .threads = 1,
                                          .sizes = {1, size[AX_ROLE_DP_REPLICATE],
                                                    size[AX_ROLE_DP_SHARD], size[AX_ROLE_CP],
                                                    size[AX_ROLE_TP], size[AX_ROLE_EP]},
                                          .world = rt->mesh.world / size[AX_ROLE_PP]};
    const struct ax_rates rates = ax_rates_agreed(rt->q->model->name);
    const size_t layers = (size_t)arch->n_layers;
    struct ax_step_options alone = *so;
    struct ax_arch few = {0};
    double *seconds = NULL, all = 0;
    int *as = NULL;
    enum ax_status st;
    alone.pipeline = AX_PIPELINE_1F1B;
    alone.n_microbatches = 1;
    alone.model.lender = NULL;
    AX_TRY(ax_alloc(out, layers + 2, sizeof **out));
    AX_TRY_GOTO(ax_alloc(&seconds, layers + 3, sizeof *seconds), st, done);
    AX_TRY_GOTO(ax_alloc(&as, layers, sizeof *as), st, done);
    AX_TRY_GOTO(ax_arch_kinds(arch, names_layers(so), &few, as), st, done);
    AX_TRY_GOTO(time_units(seconds, &rates, &ro, &few, &alone), st, done);
    (*out)[0] = seconds[1];
    (*out)[layers + 1] = seconds[few.n_layers + 2];
    for (size_t i = 0; i < layers; i++)
        (*out)[i + 1] = seconds[as[i] + 2];
    for (size_t u = 0; u < layers + 2; u++)
        all += (*out)[u];
    for (size_t u = 0; u < layers + 2; u++)
        (*out)[u] = round(1e6 * (*out)[u] / all);
done:
    ax_free(seconds);
    ax_free(as);
    ax_free(few.layers);
    return st;
}
