#include "optim/plan/choose.h"

#include <math.h>

#include "optim/plan/plan_time.h"

static enum ax_status estimate(struct ax_plan_time *t, const struct ax_step_options *so,
                               const struct ax_runtime_options *ro, const struct ax_arch *arch) {
    const struct ax_rates rates = ax_rates_agreed("sheet");
    const struct ax_plan_time_options o = {.rates = &rates};
    const struct ax_mesh_sizes *s = &ro->sizes;
    const struct ax_runtime_options one = {.backend = "sheet",
                                           .sizes = *s,
                                           .world = s->pp * s->dp_replicate * s->dp_shard * s->cp *
                                                    s->tp};
    return ax_plan_time_estimate(t, &o, &one, arch, so);
}

static enum ax_status choose_tp(struct ax_step_options *so, const struct ax_runtime_options *ro,
                                const struct ax_arch *arch) {
    struct ax_step_options in_line = *so;
    struct ax_plan_time chunks, line;
    if (!so->tp_auto)
        return AX_OK;
    so->tp_auto = false;
    so->model.tp_overlap = true;
    if (ro->sizes.tp <= 1)
        return AX_OK;
    in_line.model.tp_overlap = false;
    AX_TRY(estimate(&chunks, so, ro, arch));
    AX_TRY(estimate(&line, &in_line, ro, arch));
    so->model.tp_overlap = chunks.step <= line.step;
    return AX_OK;
}

static enum ax_status choose_cp(struct ax_step_options *so, const struct ax_runtime_options *ro,
                                const struct ax_arch *arch) {
    struct ax_step_options with = *so;
    struct ax_plan_time gather, ring;
    if (so->model.cp_method != AX_CP_AUTO)
        return AX_OK;
    so->model.cp_method = AX_CP_GATHER;
    if (ro->sizes.cp <= 1 || 2 * ro->sizes.cp > AX_REACH_RUNS || arch->index.top > 0)
        return AX_OK;
    with.model.cp_method = AX_CP_RING;
    AX_TRY(estimate(&gather, so, ro, arch));
    AX_TRY(estimate(&ring, &with, ro, arch));
    const bool alike = fabs(ring.step - gather.step) <= 0.01 * gather.step;
    if (alike ? ring.arena < gather.arena : ring.step < gather.step)
        so->model.cp_method = AX_CP_RING;
    return AX_OK;
}

enum ax_status ax_step_choose(struct ax_step_options *so, const struct ax_runtime_options *ro,
                              const struct ax_arch *arch) {
    AX_TRY(choose_tp(so, ro, arch));
    return choose_cp(so, ro, arch);
}
