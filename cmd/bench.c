/* `axtrain bench step`: speed and memory of a training step, on a model folder or random weights.
 * What else is timed has a file of its own. */
#include "cmd/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cmd/commands.h"
#include "cmd/shapes_builtin.h"
#include "cmd/step_args.h"
#include "model/save.h"
#include "optim/step.h"

#define WARM_UP   2
#define MAX_STEPS 1000

struct bench {
    const char *model, *arch_name, *write_random, *backend;
    struct ax_step_args a;
    int64_t steps;
    bool json;

    struct ax_json_doc config; /* of --arch */
    struct ax_arch arch;
    struct ax_hf hf; /* dir NULL: random weights */
    struct ax_step_options o;

    /* results */
    double seconds[MAX_STEPS], best_phases[AX_TIME_COUNT];
    double loss;
    uint64_t allocations, faults;      /* per timed step: the most */
    struct ax_queue_counters counters; /* of the last step */
};

/* Random ids, the same for every run. */
static enum ax_status fill_batches(struct bench *b, struct ax_step *s) {
    int32_t *ids = NULL;
    struct ax_document *docs = NULL;
    const int64_t n = b->o.n_docs, len = b->o.max_len;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&ids, (size_t)(n * len), sizeof *ids), st, done);
    AX_TRY_GOTO(ax_alloc(&docs, (size_t)n, sizeof *docs), st, done);
    for (int m = 0; m < b->o.n_microbatches; m++) {
        const struct ax_rng_key key = {1, (uint32_t)m, 0};
        for (int64_t i = 0; i < n * len; i++)
            ids[i] = (int32_t)ax_rng_below(key, (uint64_t)i, (uint64_t)b->arch.vocab_size);
        for (int64_t d = 0; d < n; d++)
            docs[d] = (struct ax_document){.n = len, .tokens = ids + d * len};
        AX_TRY_GOTO(ax_batch_fill(&s->batches[m], s->rt->q, b->arch.vocab_size, (int)n, docs), st,
                    done);
    }
done:
    ax_free(docs);
    ax_free(ids);
    return st;
}

static enum ax_status time_steps(struct bench *b, struct ax_step *s) {
    double best = 0;
    for (int64_t i = 0; i < b->steps + WARM_UP; i++) {
        struct ax_step_result r;
        const uint64_t calls = ax_mem_calls(), faults = ax_mem_minor_faults();
        memset(&s->rt->q->counters, 0, sizeof s->rt->q->counters);
        const double start = ax_clock_now();
        AX_TRY(ax_step_run(s, 1e-5, &r));
        const double seconds = ax_clock_now() - start;
        if (r.skipped)
            return ax_error(AX_ERR_DIVERGED, "bench: step %lld was skipped (loss %g, norm %g)",
                            (long long)i, r.loss, r.grad_norm);
        b->loss = r.loss;
        if (i < WARM_UP)
            continue;
        b->seconds[i - WARM_UP] = seconds;
        if (best == 0 || seconds < best) {
            best = seconds;
            memcpy(b->best_phases, r.seconds, sizeof r.seconds);
        }
        const uint64_t new_calls = ax_mem_calls() - calls;
        const uint64_t new_faults = ax_mem_minor_faults() - faults;
        b->allocations = new_calls > b->allocations ? new_calls : b->allocations;
        b->faults = new_faults > b->faults ? new_faults : b->faults;
    }
    b->counters = s->rt->q->counters;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct bench *b = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, &b->arch, &b->o));
    enum ax_status st;
    if (b->hf.dir)
        AX_TRY_GOTO(ax_model_load(&s.model, &b->hf), st, done);
    else
        AX_TRY_GOTO(ax_model_init_random(&s.model, 0), st, done);
    if (b->o.adapter)
        AX_TRY_GOTO(ax_adapter_init(&s.model, 0), st, done);
    if (ax_runtime_planning(rt)) {
        struct ax_step_result r;
        for (int m = 0; m < b->o.n_microbatches; m++)
            AX_TRY_GOTO(ax_batch_fill(&s.batches[m], rt->q, b->arch.vocab_size, 0, NULL), st, done);
        AX_TRY_GOTO(ax_step_run(&s, 0, &r), st, done);
    } else {
        rt->q->timing = true;
        AX_TRY_GOTO(fill_batches(b, &s), st, done);
        AX_TRY_GOTO(time_steps(b, &s), st, done);
    }
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status write_body(struct ax_runtime *rt, void *ctx) {
    struct bench *b = ctx;
    struct ax_model m;
    const struct ax_model_options mo = {.dtype = AX_F32, .max_positions = 1};
    AX_TRY(ax_model_create(&m, &b->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&m, 0);
    if (st == AX_OK && !ax_runtime_planning(rt)) {
        const struct ax_model_save save = {.dir = b->write_random,
                                           .base_dir = b->config.root ? NULL : b->model,
                                           .config = b->config.root,
                                           .dtype = b->arch.dtype};
        st = ax_model_save(&m, &save);
    }
    ax_model_free(&m);
    return st;
}

static int by_value(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static json_t *result_json(struct bench *b, const struct ax_arena_plan *plan) {
    qsort(b->seconds, (size_t)b->steps, sizeof *b->seconds, by_value);
    const double tokens = (double)(b->o.n_microbatches * b->o.tokens);
    const double best = b->seconds[0], median = b->seconds[b->steps / 2];
    json_t *phases = json_object(), *ops = json_object();
    for (int p = 0; p < AX_TIME_COUNT; p++)
        json_object_set_new(phases, ax_step_phase_name((enum ax_step_phase)p),
                            json_real(b->best_phases[p]));
    for (int op = 0; op < AX_OP_COUNT; op++) {
        if (b->counters.launches[op] == 0)
            continue;
        json_object_set_new(ops, ax_op_name((enum ax_op)op),
                            json_pack("{sf sI sf}", "seconds", b->counters.seconds[op], "launches",
                                      (json_int_t)b->counters.launches[op], "gflops",
                                      b->counters.flops[op] / 1e9));
    }
    return json_pack("{ss ss ss ss sI sI sI sf sf sf sf sI sI sI sI sI so so}", "what",
                     "axtrain step", "model", b->model ? b->model : b->arch_name, "backend",
                     b->backend, "dtype", ax_dtype_info(b->o.dtype)->name, "batch",
                     (json_int_t)b->a.batch, "seq", (json_int_t)b->a.seq, "steps",
                     (json_int_t)b->steps, "tokens_per_second", tokens / best,
                     "tokens_per_second_median", tokens / median, "mfu_flops_per_second",
                     tokens / best * ax_arch_flops_per_token(&b->arch, b->o.max_len), "loss",
                     b->loss, "peak_rss_bytes", (json_int_t)ax_mem_peak_rss(), "arena_bytes",
                     (json_int_t)ax_arena_plan_total(plan), "allocations_per_step",
                     (json_int_t)b->allocations, "minor_faults_per_step", (json_int_t)b->faults,
                     "fallbacks", (json_int_t)b->counters.fallbacks, "phases", phases, "ops", ops);
}

static enum ax_status report(struct bench *b, const struct ax_arena_plan *plan) {
    json_t *result = result_json(b, plan);
    if (!result)
        return ax_error(AX_ERR_NOMEM, "out of memory for the result");
    char *text = NULL, peak[32], arena[32], rest[32];
    size_t len;
    enum ax_status st = AX_OK;
    if (b->json) {
        st = ax_json_dump(result, &text, &len);
        if (st == AX_OK)
            printf("%s\n", text);
        ax_free(text);
    } else {
        printf("%.0f tokens/s (best), %.0f (median of %lld steps), %.1f GFLOP/s (6N+6LHS causal)\n",
               json_real_value(json_object_get(result, "tokens_per_second")),
               json_real_value(json_object_get(result, "tokens_per_second_median")),
               (long long)b->steps,
               json_real_value(json_object_get(result, "mfu_flops_per_second")) / 1e9);
        const double total = (double)ax_mem_peak_rss(), planned = (double)ax_arena_plan_total(plan);
        printf("peak memory %s: planned %s, code, libraries, heap and threads %s\n",
               ax_format_bytes(peak, sizeof peak, total),
               ax_format_bytes(arena, sizeof arena, planned),
               ax_format_bytes(rest, sizeof rest, total - planned));
        printf("per step: %llu allocations, %llu minor page faults at most\n",
               (unsigned long long)b->allocations, (unsigned long long)b->faults);
        for (int p = 0; p < AX_TIME_COUNT; p++)
            printf("  %-20s %8.3f s\n", ax_step_phase_name((enum ax_step_phase)p),
                   b->best_phases[p]);
        for (int op = 0; op < AX_OP_COUNT; op++)
            if (b->counters.launches[op] > 0)
                printf("  %-20s %8.3f s  %6llu calls  %8.1f GFLOP/s\n", ax_op_name((enum ax_op)op),
                       b->counters.seconds[op], (unsigned long long)b->counters.launches[op],
                       b->counters.flops[op] / b->counters.seconds[op] / 1e9);
    }
    json_decref(result);
    return st;
}

static enum ax_status open_model(struct bench *b) {
    if (b->arch_name) {
        AX_TRY(ax_builtin_config(b->arch_name, &b->config));
        return ax_arch_parse(&b->arch, ax_json_root(&b->config));
    }
    AX_TRY(ax_arch_load(&b->arch, b->model));
    return ax_arch_path_is_config(b->model) || b->write_random ? AX_OK
                                                               : ax_hf_open(&b->hf, b->model);
}

static enum ax_status run(struct bench *b) {
    struct ax_arena_plan plan;
    const struct ax_runtime_options ro = {.backend = b->backend, .threads = (int)b->a.threads};
    AX_TRY(open_model(b));
    if (b->write_random)
        return ax_runtime_run(&ro, write_body, b, NULL);
    AX_TRY(ax_step_args_options(&b->a, &b->o));
    AX_TRY(ax_recompute_parse(b->a.recompute, &b->o.recompute));
    AX_TRY(ax_runtime_run(&ro, body, b, &plan));
    return report(b, &plan);
}

static enum ax_status bench_step(int argc, char **argv) {
    struct bench b = {.backend = "cpu", .steps = 6};
    b.a = (struct ax_step_args){
        .optimizer = "adamw", .recompute = "selective", .batch = 2, .seq = 1024, .accumulate = 1};
    struct ax_arg args[AX_STEP_ARGS_COUNT + 6];
    const struct ax_arg own[] = {
        {"--model", AX_ARG_STRING, &b.model, 0, 0},
        {"--arch", AX_ARG_STRING, &b.arch_name, 0, 0},
        {"--write-random", AX_ARG_STRING, &b.write_random, 0, 0},
        {"--backend", AX_ARG_STRING, &b.backend, 0, 0},
        {"--steps", AX_ARG_INT, &b.steps, 1, MAX_STEPS},
        {"--json", AX_ARG_FLAG, &b.json, 0, 0},
    };
    ax_step_args_table(&b.a, args);
    memcpy(args + AX_STEP_ARGS_COUNT, own, sizeof own);
    int n;
    AX_TRY(ax_args_parse(argc, argv, AX_STEP_ARGS_COUNT + 6, args, 0, 0, NULL, &n));
    if (!b.model == !b.arch_name)
        return ax_error(AX_ERR_CONFIG, "bench step: give either --model DIR or --arch NAME");
    const enum ax_status st = run(&b);
    ax_hf_close(&b.hf);
    ax_arch_free(&b.arch);
    ax_json_free(&b.config);
    return st;
}

static const struct {
    const char *name;
    enum ax_status (*run)(int argc, char **argv);
} kinds[] = {{"step", bench_step}, {"generate", ax_bench_generate}};

enum ax_status ax_cmd_bench(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            return kinds[i].run(argc - 1, argv + 1);
    return ax_error(AX_ERR_CONFIG,
                    "bench: expected what to time, as in `axtrain bench step` or `axtrain bench "
                    "generate`; see `axtrain bench --help`");
}
