#include "tests/doubles/scaled_link.h"

#include "base/mem.h"

/* That a rank sends in a planned step. */
static enum ax_status bytes_of(const struct ax_scaled_step *step,
                               const struct ax_runtime_options *ro, double *bytes) {
    struct ax_plan *plan;
    AX_TRY(ax_alloc(&plan, 1, sizeof *plan));
    const enum ax_status st = ax_plan_make(plan, ro, step->arch, step->o);
    *bytes = 0;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            *bytes += plan->bytes_sent[role][kind];
    ax_free(plan);
    return st;
}

static double work_of(const struct ax_plan_time *t) {
    double seconds = 0;
    for (int kind = 0; kind < AX_TIME_KINDS; kind++)
        seconds += t->work[kind];
    return seconds;
}

enum ax_status ax_scaled_link(struct ax_scaled_link *out, const char *hardware,
                              const struct ax_runtime_options *ro,
                              const struct ax_scaled_step *here, double seconds,
                              const struct ax_scaled_step *there) {
    struct ax_hardware h;
    struct ax_plan_time t;
    struct ax_sim_item gather;
    double small, large;
    AX_TRY(ax_hardware_find(hardware, &h));
    const struct ax_rates rates = ax_rates_of(&h);
    AX_TRY(ax_plan_time(&t, &(struct ax_plan_time_options){.rates = &rates}, ro, there->arch,
                        there->o));
    AX_TRY(bytes_of(here, ro, &small));
    AX_TRY(bytes_of(there, ro, &large));
    const struct ax_rates_group node = {.size = ro->world, .local = ro->world};
    const struct ax_transfer_event byte = {.kind = AX_ALL_GATHER, .bytes = 1};
    ax_rates_transfer(&rates, &node, false, &byte, &gather);
    out->slower = seconds / work_of(&t);
    out->smaller = small / large;
    out->link.latency = gather.seconds * out->slower;
    out->link.bytes_per_second = out->smaller / (gather.links[AX_SIM_NODE] * out->slower);
    return AX_OK;
}
