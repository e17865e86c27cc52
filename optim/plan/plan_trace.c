#include "optim/plan/plan_trace.h"

#include <stdio.h>

#include "base/mem.h"

enum ax_status ax_plan_trace_begin(struct ax_plan_trace *t, int stages) {
    *t = (struct ax_plan_trace){.stages = stages};
    AX_TRY(ax_alloc(&t->named, (size_t)stages * (AX_TIME_LANES + 1), sizeof *t->named));
    return ax_trace_begin(&t->trace);
}

static const char *lane_name(int lane) {
    return lane < 0                               ? "ops and waits"
           : lane < AX_ROLE_COUNT                 ? ax_role_name((enum ax_role)lane)
           : lane == AX_ROLE_COUNT + AX_TIER_HOST ? "copies to the host"
                                                  : "copies from the host";
}

/* A stage is a process; its stream is row 0, and each communicator has one of its own. */
static enum ax_status name_row(struct ax_plan_trace *t, const struct ax_sim_span *s) {
    const int row = s->lane + 1;
    bool *named = &t->named[(size_t)s->rank * (AX_TIME_LANES + 1) + (size_t)row];
    char stage[32];
    AX_ASSERT(s->rank < t->stages && row <= AX_TIME_LANES);
    if (*named)
        return AX_OK;
    *named = true;
    snprintf(stage, sizeof stage, "stage %d", s->rank);
    return ax_trace_name(&t->trace, s->rank, row, stage, lane_name(s->lane));
}

static enum ax_status add(struct ax_plan_trace *t, const struct ax_sim_span *s) {
    const bool work = s->group < AX_TIME_KINDS;
    const char *of = work ? ax_time_kind_name((enum ax_time_kind)s->group)
                          : ax_time_role_name((enum ax_time_role)(s->group - AX_TIME_KINDS));
    AX_TRY(name_row(t, s));
    return ax_trace_add(&t->trace, &(struct ax_trace_span){.pid = s->rank,
                                                           .tid = s->lane + 1,
                                                           .category = work         ? "op"
                                                                       : s->waiting ? "wait"
                                                                                    : "transfer",
                                                           .name = of,
                                                           .begin = s->start,
                                                           .end = s->end});
}

void ax_plan_trace_span(void *ctx, const struct ax_sim_span *span) {
    struct ax_plan_trace *t = ctx;
    if (t->st == AX_OK)
        t->st = add(t, span);
}

enum ax_status ax_plan_trace_end(struct ax_plan_trace *t) {
    AX_TRY(t->st);
    return ax_trace_end(&t->trace);
}

void ax_plan_trace_free(struct ax_plan_trace *t) {
    ax_trace_free(&t->trace);
    ax_free(t->named);
    t->named = NULL;
}
