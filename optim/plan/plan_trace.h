/* A planned step as a timeline (optim/metrics/trace.h): the work, waits and transfers of each
 * pipeline stage in a simulation, with a row per communicator. */
#ifndef AX_OPTIM_PLAN_PLAN_TRACE_H
#define AX_OPTIM_PLAN_PLAN_TRACE_H

#include "optim/plan/plan_time.h"
#include "optim/metrics/trace.h"

struct ax_plan_trace {
    struct ax_trace trace;
    bool *named; /* [stages][AX_ROLE_COUNT + 1]: whether the row of lane + 1 has a name yet */
    int stages;
    enum ax_status st; /* status of the first span that could not be added */
};

enum ax_status ax_plan_trace_begin(struct ax_plan_trace *t, int stages);
/* For struct ax_sim_options: span, with the trace as its context. */
void ax_plan_trace_span(void *ctx, const struct ax_sim_span *span);
enum ax_status ax_plan_trace_end(struct ax_plan_trace *t);
void ax_plan_trace_free(struct ax_plan_trace *t);

#endif
