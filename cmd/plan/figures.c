/* Dry runs of a step for each mode, the forecast of the run, and a speed. */
#include "cmd/plan/plan.h"
#include "optim/peak.h"

static enum ax_status measure(struct ax_plan_figures *f, const struct ax_plan_request *r) {
    const struct ax_plan *plan = &f->plans[f->chosen];
    f->speed = r->speed;
    if (r->speed > 0)
        return AX_OK;
    AX_TRY(ax_measure_gemm_peak(&r->runtime, r->step.dtype, &f->peak_flops));
    f->peak_flops *= AX_PLAN_STEP_SHARE;
    f->speed = plan->flops > 0 ? f->peak_flops * (double)plan->tokens / plan->flops : 0;
    return AX_OK;
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
    f->chosen = step.recompute;
    for (int mode = (int)r->first; mode <= (int)r->last; mode++) {
        step.recompute = (enum ax_recompute)mode;
        AX_TRY(ax_plan_make(&f->plans[mode], &r->runtime, r->arch, &step));
    }
    return measure(f, r);
}
