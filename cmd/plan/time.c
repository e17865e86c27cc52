/* The time of a step on a machine of the data-sheet table, for a person and for programs. */
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "cmd/plan/plan.h"
#include "optim/plan/plan_trace.h"

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

enum ax_status ax_plan_figures_time(struct ax_plan_figures *f, const struct ax_plan_request *r,
                                    struct ax_step_options *step) {
    struct ax_runtime_options runtime = r->runtime;
    struct ax_train_fit *fit = &f->forecast.fit;
    const double memory = r->rates->hardware.memory;
    runtime.backend = "sheet";
    for (int mode = (int)r->first; mode <= (int)r->last; mode++) {
        step->recompute = (enum ax_recompute)mode;
        AX_TRY(run_mode(f, r, &runtime, step));
        fit->arena = f->time.arena;
        fit->available = (uint64_t)memory;
        fit->fits = memory == 0 || (double)(fit->arena + fit->beside) <= memory;
        if (fit->fits)
            break;
    }
    return AX_OK;
}

static double sum(const double *values, int n) {
    double s = 0;
    for (int i = 0; i < n; i++)
        s += values[i];
    return s;
}

/* "hidden 93 %": of the time in which transfers are under way. */
static void print_roles(const struct ax_plan_time *t) {
    char a[32], b[32];
    for (int role = 0; role < AX_TIME_ROLES; role++)
        if (t->moved[role] > 0)
            printf("         %-20s %10s under way, %10s waited for (%.1f %% of the step)\n",
                   ax_time_role_name((enum ax_time_role)role),
                   ax_format_seconds(a, sizeof a, t->moved[role]),
                   ax_format_seconds(b, sizeof b, t->exposed[role]),
                   100 * t->exposed[role] / t->step);
}

void ax_plan_print_time(const struct ax_plan_request *r, const struct ax_plan_figures *f) {
    const struct ax_plan_time *t = &f->time;
    const struct ax_hardware *h = &r->rates->hardware;
    char a[32], b[32];
    printf("machine  %s (%s): %sFLOP/s in the compute dtype, %s/s of memory\n", h->name, h->source,
           ax_format_count(a, sizeof a, t->peak), ax_format_bytes(b, sizeof b, h->bandwidth));
    printf("step     %s: %s tokens/s, MFU %.1f %% (attention counted in full: %.1f %%)\n",
           ax_format_seconds(a, sizeof a, t->step),
           ax_format_count(b, sizeof b, t->tokens_per_second), 100 * t->mfu, 100 * t->mfu_full);
    for (int kind = 0; kind < AX_TIME_KINDS; kind++)
        if (t->work[kind] > 0)
            printf("         %-20s %10s                        (%.1f %% of the step)\n",
                   ax_time_kind_name((enum ax_time_kind)kind),
                   ax_format_seconds(a, sizeof a, t->work[kind]), 100 * t->work[kind] / t->step);
    print_roles(t);
    if (r->runtime.sizes.pp > 1)
        printf("         a stage computes nothing %.1f %% of the step: %.1f %% waiting for other "
               "stages\n",
               100 * (1 - sum(t->work, AX_TIME_KINDS) / t->step),
               100 * (t->exposed[AX_TIME_PP] + t->idle) / t->step);
}

json_t *ax_plan_time_json(const struct ax_plan_request *r, const struct ax_plan_figures *f) {
    const struct ax_plan_time *t = &f->time;
    if (!r->rates)
        return json_null();
    json_t *work = json_object(), *roles = json_object();
    for (int kind = 0; kind < AX_TIME_KINDS; kind++)
        json_object_set_new(work, ax_time_kind_name((enum ax_time_kind)kind),
                            json_real(t->work[kind]));
    for (int role = 0; role < AX_TIME_ROLES; role++)
        if (t->moved[role] > 0)
            json_object_set_new(roles, ax_time_role_name((enum ax_time_role)role),
                                json_pack("{sf sf}", "moved_seconds", t->moved[role],
                                          "exposed_seconds", t->exposed[role]));
    return json_pack("{ss sf sf sf sf sf sI so so}", "machine", r->rates->hardware.name,
                     "step_seconds", t->step, "tokens_per_second", t->tokens_per_second, "mfu",
                     t->mfu, "mfu_full_attention", t->mfu_full, "idle_seconds", t->idle,
                     "arena_bytes", (json_int_t)t->arena, "compute_seconds", work, "transfers",
                     roles);
}
