#include "optim/choose_cp.h"

#include <math.h>

#include "optim/plan_time.h"

static enum ax_status estimate(struct ax_plan_time *t, enum ax_cp_method method,
                               const struct ax_step_options *so,
                               const struct ax_runtime_options *ro, const struct ax_arch *arch) {
    const struct ax_rates rates = ax_rates_agreed("sheet");
    const struct ax_plan_time_options o = {.rates = &rates};
    const struct ax_mesh_sizes *s = &ro->sizes;
    const struct ax_runtime_options one = {.backend = "sheet",
                                           .sizes = *s,
                                           .world = s->pp * s->dp_replicate * s->dp_shard * s->cp *
                                                    s->tp};
    struct ax_step_options with = *so;
    with.cp_method = method;
    return ax_plan_time_estimate(t, &o, &one, arch, &with);
}

enum ax_status ax_step_choose_cp(struct ax_step_options *so, const struct ax_runtime_options *ro,
                                 const struct ax_arch *arch) {
    struct ax_plan_time gather, ring;
    if (so->cp_method != AX_CP_AUTO)
        return AX_OK;
    so->cp_method = AX_CP_GATHER;
    if (ro->sizes.cp <= 1 || 2 * ro->sizes.cp > AX_REACH_RUNS)
        return AX_OK;
    AX_TRY(estimate(&gather, AX_CP_GATHER, so, ro, arch));
    AX_TRY(estimate(&ring, AX_CP_RING, so, ro, arch));
    const bool alike = fabs(ring.step - gather.step) <= 0.01 * gather.step;
    if (alike ? ring.arena < gather.arena : ring.step < gather.step)
        so->cp_method = AX_CP_RING;
    return AX_OK;
}
