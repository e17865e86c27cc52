/* `axtrain bench step`: speed and memory of a training step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "cmd/bench/bench.h"
#include "parallel/fabric/mesh_sizes.h"
#include "cmd/train/step_args.h"
#include "kernels/backend.h"
#include "model/adapter/load.h"
#include "optim/step/step.h"
#include "parallel/fabric/team.h"
#include "parallel/fabric/world.h"

#define WARM_UP      2
#define MAX_STEPS    1000
#define WAIT_SECONDS 600
#define OWN_ARGS     8

struct step_bench {
    struct ax_bench_model m;
    const char *write_random, *backend, *sizes;
    struct ax_mesh mesh;
    struct ax_step_args a;
    int64_t steps, zero;
    bool attention_varies;
    struct ax_step_options o;

    /* results */
    double seconds[MAX_STEPS], best, best_phases[AX_TIME_COUNT];
    double loss, model_flops;            /* per token */
    uint64_t allocations, faults, waits; /* per timed step: the most */
    struct ax_queue_counters counters;   /* of the last step, … */
    struct ax_times ops[AX_OP_COUNT];    /* … which only measures what ops take */
    double free_before, device_memory;   /* bytes of a GPU; that this process takes, 0: no GPU */
};

/* One more step. */
static enum ax_status time_ops(struct step_bench *b, struct ax_step *s,
                               struct ax_times AX_DEVICE *times) {
    struct ax_step_result r;
    struct ax_queue *q = s->rt->q;
    memset(&q->counters, 0, sizeof q->counters);
    AX_TRY(ax_queue_write(q, times, b->ops, sizeof b->ops));
    q->op_times = times;
    const enum ax_status st = ax_step_run(s, 1e-5, &r);
    q->op_times = NULL;
    b->counters = q->counters;
    return st == AX_OK ? ax_queue_read(q, times, b->ops, sizeof b->ops, NULL) : st;
}

/* Of the best step's time. On a GPU: without a kernel running, but for those that take the time. */
static double outside_ops(const struct step_bench *b) {
    double sum = 0;
    for (int op = 0; op < AX_OP_COUNT; op++)
        sum += b->ops[op].seconds[0];
    return fmax(0, 1 - sum / b->best);
}

static enum ax_status time_steps(struct step_bench *b, struct ax_step *s) {
    b->model_flops = ax_model_flops_per_token(&s->model, b->o.max_len);
    for (int64_t i = 0; i < b->steps + WARM_UP; i++) {
        struct ax_step_result r;
        const uint64_t calls = ax_mem_calls(), faults = ax_mem_minor_faults();
        memset(&s->rt->q->counters, 0, sizeof s->rt->q->counters);
        const double start = ax_clock_now();
        AX_TRY(ax_step_run(s, 1e-5, &r));
        const uint64_t waits = s->rt->q->counters.waits;
        AX_TRY(ax_queue_finish(s->rt->q)); /* for the time of the updates */
        const double seconds = ax_clock_now() - start;
        if (r.skipped)
            return ax_error(AX_ERR_DIVERGED, "bench: step %lld was skipped (loss %g, norm %g)",
                            (long long)i, r.loss, r.grad_norm);
        b->loss = r.loss;
        if (i < WARM_UP)
            continue;
        b->seconds[i - WARM_UP] = seconds;
        if (b->best == 0 || seconds < b->best) {
            b->best = seconds;
            memcpy(b->best_phases, r.seconds, sizeof r.seconds);
        }
        const uint64_t new_calls = ax_mem_calls() - calls;
        const uint64_t new_faults = ax_mem_minor_faults() - faults;
        b->allocations = new_calls > b->allocations ? new_calls : b->allocations;
        b->faults = new_faults > b->faults ? new_faults : b->faults;
        b->waits = waits > b->waits ? waits : b->waits;
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct step_bench *b = ctx;
    struct ax_step s;
    struct ax_times AX_DEVICE *times =
        ax_stack_push(&rt->arena.persistent, "times of ops", sizeof b->ops);
    AX_TRY(ax_step_create(&s, rt, &b->m.arch, &b->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_bench_model_fill(&b->m, &s.model), st, done);
    if (b->o.model.adapter)
        AX_TRY_GOTO(ax_adapter_init(&s.model, 0), st, done);
    if (ax_runtime_planning(rt)) {
        struct ax_step_result r;
        for (int m = 0; m < b->o.n_microbatches; m++)
            AX_TRY_GOTO(ax_batch_fill(&s.batches[m], rt->q, b->m.arch.vocab_size, 0, NULL), st,
                        done);
        AX_TRY_GOTO(ax_step_run(&s, 0, &r), st, done);
    } else {
        AX_TRY_GOTO(ax_bench_batches(&s), st, done);
        AX_TRY_GOTO(time_steps(b, &s), st, done);
        if (ax_queue_is_late(rt->q))
            b->device_memory = b->free_before - (double)ax_backend_memory(b->backend, 1);
        AX_TRY_GOTO(time_ops(b, &s, times), st, done);
    }
done:
    ax_step_free(&s);
    return st;
}

/* ---- output ---- */

/* Of all data ranks. */
static double tokens_per_step(const struct step_bench *b) {
    return (double)(b->o.n_microbatches * b->o.tokens * b->mesh.size[AX_ROLE_BATCH]);
}

static json_t *details(const struct step_bench *b, double median) {
    const double tokens = tokens_per_step(b);
    json_t *phases = json_object(), *ops = json_object();
    for (int p = 0; p < AX_TIME_COUNT; p++)
        json_object_set_new(phases, ax_step_phase_name((enum ax_step_phase)p),
                            json_real(b->best_phases[p]));
    for (int op = 0; op < AX_OP_COUNT; op++) {
        if (b->counters.launches[op] == 0)
            continue;
        json_object_set_new(ops, ax_op_name((enum ax_op)op),
                            json_pack("{sf sI sf}", "seconds", b->ops[op].seconds[0], "launches",
                                      (json_int_t)b->counters.launches[op], "gflops",
                                      b->counters.flops[op] / 1e9));
    }
    return json_pack("{sI sf sf sf sf sI sI sI so so}", "steps", (json_int_t)b->steps,
                     "tokens_per_second", tokens / b->best, "tokens_per_second_median",
                     tokens / median, "loss", b->loss, "outside_ops", outside_ops(b),
                     "peak_rss_bytes", (json_int_t)ax_mem_peak_rss(), "minor_faults_per_step",
                     (json_int_t)b->faults, "fallbacks", (json_int_t)b->counters.fallbacks,
                     "phases", phases, "ops", ops);
}

static void tell(const struct step_bench *b, const struct ax_arena_plan *plan) {
    char peak[32], arena[32], rest[32];
    const double total = (double)ax_mem_peak_rss(), planned = (double)ax_arena_plan_total(plan);
    if (b->device_memory > 0)
        printf("of the GPU's memory %s: planned %s, libraries %s\n",
               ax_format_bytes(peak, sizeof peak, b->device_memory),
               ax_format_bytes(arena, sizeof arena, planned),
               ax_format_bytes(rest, sizeof rest, b->device_memory - planned));
    printf("peak memory %s: planned %s, code, libraries, heap and threads %s\n",
           ax_format_bytes(peak, sizeof peak, total), ax_format_bytes(arena, sizeof arena, planned),
           ax_format_bytes(rest, sizeof rest, total - planned));
    printf(
        "the best of %lld steps, %.0f tokens/s, %.1f %% of it outside ops, by phase and by op:\n",
        (long long)b->steps, tokens_per_step(b) / b->best, 100 * outside_ops(b));
    for (int p = 0; p < AX_TIME_COUNT; p++)
        printf("  %-20s %8.3f s\n", ax_step_phase_name((enum ax_step_phase)p), b->best_phases[p]);
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (b->counters.launches[op] > 0)
            printf("  %-20s %8.3f s  %6llu calls  %8.1f GFLOP/s\n", ax_op_name((enum ax_op)op),
                   b->ops[op].seconds[0], (unsigned long long)b->counters.launches[op],
                   b->counters.flops[op] / b->ops[op].seconds[0] / 1e9);
}

/* What the figures depend on. */
static void name_of(const struct step_bench *b, char *out, size_t size) {
    const struct ax_step_args *a = &b->a;
    char mesh[96];
    snprintf(out, size, "step/%s/%s/%lldx%lld", b->m.name, ax_dtype_info(b->o.model.dtype)->name,
             (long long)a->batch, (long long)a->seq);
    const struct {
        bool is_set;
        const char *text;
    } more[] = {
        {strcmp(a->optimizer, "adamw") != 0, a->optimizer},
        {a->masters != NULL, a->masters},
        {a->moments != NULL, a->moments},
        {strcmp(a->recompute, "selective") != 0, a->recompute},
        {a->dora, "dora"},
        {a->base != NULL, a->base},
        {a->fp8 != NULL, "fp8"},
        {strcmp(b->backend, "cpu") != 0, b->backend},
        {b->zero != 3, b->zero == 2 ? "zero2" : "zero1"},
        {b->attention_varies, "attention-varies"},
        {b->mesh.world > 1, ax_mesh_sizes_name(mesh, sizeof mesh, &b->mesh)},
    };
    size_t len = strlen(out);
    if (a->accumulate > 1)
        len += (size_t)snprintf(out + len, size - len, "x%lld", (long long)a->accumulate);
    if (a->lora)
        len += (size_t)snprintf(out + len, size - len, "/lora%lld", (long long)a->lora);
    for (size_t i = 0; i < sizeof more / sizeof *more && len < size; i++)
        if (more[i].is_set)
            len += (size_t)snprintf(out + len, size - len, "/%s", more[i].text);
}

static enum ax_status report(struct ax_bench *r, struct step_bench *b,
                             const struct ax_arena_plan *plan) {
    char name[160];
    double peak;
    name_of(b, name, sizeof name);
    AX_TRY(ax_bench_peak(r, &peak));
    const double median = ax_bench_median(b->seconds, (size_t)b->steps);
    const double speed = tokens_per_step(b) / median;
    const double executed = ax_queue_product_flops(&b->counters) / median;
    const struct ax_bench_figure rate = {speed, "tokens/s", false,
                                         speed * b->model_flops / (peak * b->mesh.world)};
    const struct ax_bench_figure products = {executed / 1e9, "GFLOP/s", false, executed / peak};
    const struct ax_bench_figure memory = {(double)ax_arena_plan_total(plan) / 1e9, "GB", true, -1};
    const struct ax_bench_figure allocations = {(double)b->allocations, "per step", true, -1};
    const struct ax_bench_figure waits = {(double)b->waits, "per step", true, -1};
    const struct ax_bench_figure taken = {b->device_memory / 1e9, "GB", true, -1};
    AX_TRY(ax_bench_add(r, &rate, "%s/speed", name));        /* its share is MFU */
    AX_TRY(ax_bench_add(r, &products, "%s/executed", name)); /* HFU */
    AX_TRY(ax_bench_add(r, &memory, "%s/planned-memory", name));
    AX_TRY(ax_bench_add(r, &allocations, "%s/allocations", name));
    AX_TRY(ax_bench_add(r, &waits, "%s/waits", name));
    if (b->device_memory > 0)
        AX_TRY(ax_bench_add(r, &taken, "%s/device-memory", name));
    if (ax_bench_tells(r))
        tell(b, plan);
    return ax_bench_detail(r, "step", details(b, median));
}

/* One rank's part; rank 0 reports. */
static enum ax_status run_rank(struct step_bench *b, const struct ax_world *w,
                               struct ax_mesh_sizes sizes, struct ax_arena_plan *plan) {
    AX_TRY(ax_mesh_create(&b->mesh, sizes, w->env.world, w->env.rank));
    struct ax_runtime_options ro = {.backend = b->backend,
                                    .attention_varies = b->attention_varies,
                                    .threads = (int)b->a.threads,
                                    .sizes = sizes,
                                    .fabric = w->fabric};
    b->free_before = (double)ax_backend_memory(b->backend, 1);
    AX_TRY(ax_step_slots(&b->o, b->mesh.coord[AX_ROLE_PP], b->mesh.size[AX_ROLE_PP], &ro.n_slots));
    return ax_runtime_run(&ro, body, b, plan);
}

static enum ax_status run(struct ax_bench *r, struct step_bench *b) {
    struct ax_mesh_sizes sizes = {1, 1, b->sizes ? 1 : -1, 1, 1, 1};
    struct ax_arena_plan plan;
    struct ax_world world;
    AX_TRY(ax_bench_model_open(&b->m, "step", !b->write_random));
    if (b->write_random)
        return ax_bench_model_write(&b->m, b->write_random);
    AX_TRY(ax_bench_backend(r, b->backend));
    AX_TRY(ax_step_args_options(&b->a, &b->o));
    AX_TRY(ax_recompute_parse(b->a.recompute, &b->o.recompute));
    b->o.model.sharding = ax_zero_stage(b->zero);
    b->o.model.tp_overlap = b->o.model.expert_overlap = true;
    if (b->sizes)
        AX_TRY(ax_mesh_sizes_parse(&sizes, "bench step", b->sizes));
    AX_TRY(ax_world_open(&world, &(struct ax_world_options){.timeout = WAIT_SECONDS}));
    const int share = world.fabric ? ax_cpu_count() / world.fabric->local_world : 0;
    if (world.fabric && r->threads == 0) /* the peak is that of as many as the rank computes with */
        r->threads = share > 1 ? share : 1;
    enum ax_status st =
        ax_team_choice(world.fabric, AX_OK, &b->o.model.dtype, sizeof b->o.model.dtype);
    if (st == AX_OK)
        st = run_rank(b, &world, sizes, &plan);
    ax_world_close(&world, st);
    AX_TRY(st);
    if (b->mesh.rank == 0)
        return report(r, b, &plan);
    r->json = false; /* nor has it a file to write or compare */
    r->out = r->compare = NULL;
    return AX_OK;
}

enum ax_status ax_bench_step(struct ax_bench *r, int argc, char **argv) {
    struct step_bench b = {.backend = "cpu", .steps = 6, .zero = 3};
    b.a = (struct ax_step_args){
        .optimizer = "adamw", .recompute = "selective", .batch = 2, .seq = 1024, .accumulate = 1};
    struct ax_arg args[AX_STEP_ARGS_COUNT + OWN_ARGS];
    const struct ax_arg own[OWN_ARGS] = {
        AX_BENCH_MODEL_ARGS(&b.m),
        {"--write-random", AX_ARG_STRING, &b.write_random, 0, 0},
        {"--backend", AX_ARG_STRING, &b.backend, 0, 0},
        {"--steps", AX_ARG_INT, &b.steps, 1, MAX_STEPS},
        {"--mesh", AX_ARG_STRING, &b.sizes, 0, 0},
        {"--zero", AX_ARG_INT, &b.zero, 1, AX_ZERO_STAGES},
        {"--attention-varies", AX_ARG_FLAG, &b.attention_varies, 0, 0},
    };
    ax_step_args_table(&b.a, args);
    memcpy(args + AX_STEP_ARGS_COUNT, own, sizeof own);
    AX_TRY(ax_bench_parse(r, argc, argv, AX_STEP_ARGS_COUNT + OWN_ARGS, args));
    r->threads = b.a.threads;
    const enum ax_status st = run(r, &b);
    ax_bench_model_close(&b.m);
    return st;
}
