/* Dry runs of a step for each mode, the forecast of the run, and a speed. */
#include "optim/forecast/figures.h"

#include "base/io.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "optim/plan/peak.h"
#include "optim/plan/plan_trace.h"

static int data_ranks_of(const struct ax_mesh_sizes *s) {
    return (s->dp_replicate > 1 ? s->dp_replicate : 1) * (s->dp_shard > 1 ? s->dp_shard : 1);
}

int64_t ax_plan_step_tokens(const struct ax_plan_request *r, const struct ax_plan *p) {
    return p->tokens * data_ranks_of(&r->runtime.sizes);
}

static enum ax_status measure(struct ax_plan_figures *f, const struct ax_plan_request *r) {
    const struct ax_plan *plan = &f->plans[f->chosen];
    f->speed = r->speed > 0 ? r->speed : f->time.tokens_per_second;
    if (f->speed > 0 || !ax_backend_runs(r->runtime.backend))
        return AX_OK;
    const struct ax_runtime_options here = {.backend = r->runtime.backend,
                                            .threads = r->runtime.threads};
    struct ax_peak peak;
    AX_TRY(ax_measure_gemm_peak(&here, r->step.model.dtype, AX_PEAK_SECONDS, &peak));
    f->peak_flops = peak.flops * AX_PLAN_STEP_SHARE;
    f->speed =
        plan->flops > 0 ? f->peak_flops * (double)ax_plan_step_tokens(r, plan) / plan->flops : 0;
    return AX_OK;
}

static enum ax_status plan_stages(struct ax_plan_figures *f, const struct ax_plan_request *r,
                                  const struct ax_step_options *step) {
    const int world = r->runtime.world, n = r->runtime.sizes.pp;
    if (world < 2)
        return AX_OK;
    AX_TRY(ax_alloc(&f->stages, (size_t)n, sizeof *f->stages));
    f->n_stages = n;
    for (int i = 0; i < n; i++) {
        struct ax_plan_stage *stage = &f->stages[i];
        struct ax_runtime_options runtime = r->runtime;
        runtime.rank = r->stages[i].rank;
        runtime.n_slots = r->stages[i].n_slots;
        stage->arena = r->stages[i].arena;
        AX_TRY(ax_mesh_create(&stage->mesh, runtime.sizes, world, runtime.rank));
        AX_TRY(ax_plan_make(&stage->plan, &runtime, r->arch, step));
    }
    return AX_OK;
}

/* The step of one mode, and its timeline if there is to be one. */
static enum ax_status run_mode(struct ax_plan_figures *f, const struct ax_plan_request *r,
                               const struct ax_runtime_options *runtime,
                               const struct ax_step_options *step) {
    struct ax_plan_time_options o = {.rates = r->rates};
    struct ax_plan_trace trace;
    if (!r->timeline)
        return ax_plan_time(&f->time, &o, runtime, r->arch, step);
    enum ax_status st = ax_plan_trace_begin(&trace, runtime->sizes.pp > 0 ? runtime->sizes.pp : 1);
    o.sim = (struct ax_sim_options){.span = ax_plan_trace_span, .ctx = &trace};
    if (st == AX_OK)
        st = ax_plan_time(&f->time, &o, runtime, r->arch, step);
    if (st == AX_OK)
        st = ax_plan_trace_end(&trace);
    if (st == AX_OK)
        st = ax_write_file_atomic(r->timeline, trace.trace.text.data, trace.trace.text.len);
    ax_plan_trace_free(&trace);
    return st;
}

/* On the machine of the rates: chooses step->recompute among the request's modes, the first that fits
 * if there are several, and takes memory and speed from there. */
static enum ax_status choose_by_time(struct ax_plan_figures *f, const struct ax_plan_request *r,
                                     struct ax_step_options *step) {
    struct ax_runtime_options runtime = r->runtime;
    struct ax_train_fit *fit = &f->forecast.fit;
    const double memory = r->rates->hardware.memory;
    runtime.backend = r->rates->backend;
    for (int mode = (int)r->first; mode <= (int)r->last; mode++) {
        step->recompute = (enum ax_recompute)mode;
        AX_TRY(run_mode(f, r, &runtime, step));
        fit->arena = f->time.arena;
        fit->beside = f->time.beside;
        fit->available = (uint64_t)memory;
        fit->fits = memory == 0 || (double)(fit->arena + fit->beside) <= memory;
        if (fit->fits)
            break;
    }
    return AX_OK;
}

void ax_plan_figures_free(struct ax_plan_figures *f) {
    if (f)
        ax_free(f->stages);
    ax_free(f);
}

enum ax_status ax_plan_figures_make(struct ax_plan_figures *f, const struct ax_plan_request *r) {
    struct ax_step_options step = r->step;
    const struct ax_train_options alone = {.arch = r->arch,
                                           .runtime = r->runtime,
                                           .step = r->step,
                                           .recompute_auto = r->first != r->last};
    if (r->train)
        AX_TRY(ax_train_forecast(r->train, &step, &f->forecast));
    else
        AX_TRY(ax_train_fit(&alone, &step, &f->forecast.fit));
    if (r->rates)
        AX_TRY(choose_by_time(f, r, &step));
    f->chosen = step.recompute;
    for (int mode = (int)r->first; mode <= (int)r->last; mode++) {
        step.recompute = (enum ax_recompute)mode;
        AX_TRY(ax_plan_make(&f->plans[mode], &r->runtime, r->arch, &step));
    }
    step.recompute = f->chosen;
    if (r->rates) /* the memory above is a step's, too */
        f->forecast.fit.blocks = f->plans[f->chosen].blocks;
    AX_TRY(plan_stages(f, r, &step));
    return measure(f, r);
}
