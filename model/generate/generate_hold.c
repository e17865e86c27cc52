/* Weights of other ranks, gathered once for all passes of a generator. They take what a step has for
 * activations; where that is less, and where nothing is trained, passes gather a unit at a time. */
#include "model/generate/generate_lanes.h"

static size_t bytes_of(const struct ax_generator *d) {
    size_t bytes = 0;
    for (int u = 0; u < d->model->n_units; u++)
        bytes += ax_unit_hold_bytes(&d->model->units[u], d->model->rt);
    return bytes;
}

/* What passes take beside the generator's memory is small, and not known yet. */
static bool fits(const struct ax_generator *d, size_t bytes) {
    const struct ax_arena *a = &d->model->rt->arena;
    struct ax_arena_plan plan = a->plan;
    if (a->planning)
        ax_arena_measure(a, &plan);
    return ax_stack_mark(&a->scratch) + bytes <= ax_arena_plan_phase(&plan, AX_PHASE_TRAIN);
}

enum ax_status ax_generate_hold(struct ax_generator *d) {
    struct ax_runtime *rt = d->model->rt;
    const int *size = rt->mesh.size;
    const size_t bytes = bytes_of(d);
    double lacks = bytes > 0 && !fits(d, bytes) ? 1 : 0; /* all ranks gather, or none */
    if (bytes == 0 && size[AX_ROLE_FSDP] == 1 && size[AX_ROLE_EFSDP] == 1)
        return AX_OK;
    if (!ax_runtime_planning(rt))
        AX_TRY(ax_runtime_combine(rt, AX_ROLE_WORLD, AX_MAX, &lacks, 1));
    if (lacks > 0)
        return AX_OK;
    d->holds = rt->held = true;
    for (int u = 0; u < d->model->n_units; u++) {
        struct ax_unit *unit = &d->model->units[u];
        const size_t own = ax_unit_hold_bytes(unit, rt);
        AX_TRY(ax_unit_hold(unit, rt, ax_stack_push(&rt->arena.scratch, "gathered weights", own)));
    }
    return AX_OK;
}

void ax_generate_let_go(struct ax_generator *d) {
    for (int u = 0; d->holds && u < d->model->n_units; u++)
        if (d->model->units[u].gathered > 0) /* an error came before the others */
            ax_unit_let_go(&d->model->units[u], d->model->rt);
}
