/* The dispatcher: one ax_run_<op> per row of AX_OP_LIST. It chooses the backend, takes workspace from
 * the queue's scratch stack for the duration of the call, counts, and records if asked to. */
#include "kernels/ops.h"

#include <stdio.h>

#include "kernels/operands.h"
#include "kernels/queue.h"
#include "kernels/recording.h"
#include "kernels/timeline.h"

struct ax_call {
    const struct ax_ops *run; /* the backend to call */
    void *work;               /* workspace or NULL */
    size_t mark;              /* of the scratch stack before the workspace */
    double start;             /* on the timeline's clock */
};

static void check(enum ax_op op, const void *args) {
    const char *rule = ax_op_broken_rule(op, args);
    if (rule != NULL) {
        char shapes[512], text[1024];
        ax_op_describe(op, args, shapes, sizeof(shapes));
        (void)snprintf(text, sizeof(text), "%s: %s, with %s", ax_op_name(op), rule, shapes);
        ax_assert_failed(text, __FILE__, __LINE__);
    }
}

/* 0: nobody wants to know. */
static double now_of(const struct ax_queue *q) {
    return q->timeline ? ax_timeline_now(q->timeline) : 0;
}

/* On a meta queue the planned backend (q->model) decides about fallback and workspace as it would
 * in a run; then q->ops runs and computes nothing. */
static enum ax_status begin(struct ax_queue *q, enum ax_op op, const void *args,
                            struct ax_call *call) {
    check(op, args);
    const struct ax_ops *chosen = q->model;
    if (chosen->supports != NULL && !chosen->supports(q, op, args)) {
        chosen = q->fallback;
        if (chosen == NULL) {
            char shapes[512];
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: backend %s cannot run this op on %s, and no other computes in its "
                            "memory. Use another dtype or backend.",
                            ax_op_name(op), q->model->name,
                            ax_op_describe(op, args, shapes, sizeof(shapes)));
        }
        q->counters.fallbacks++;
    }
    size_t bytes = chosen->workspace != NULL ? chosen->workspace(q, op, args) : 0;
    call->mark = ax_stack_mark(q->scratch);
    call->work = bytes > 0 ? ax_stack_push(q->scratch, "workspace", bytes) : NULL;
    call->run = q->ops == q->model ? chosen : q->ops;
    call->start = now_of(q);
    return q->op_times ? ax_queue_time(q, q->op_times + op, -1) : AX_OK;
}

static enum ax_status end(struct ax_queue *q, enum ax_op op, const void *args,
                          const struct ax_call *call, enum ax_status st) {
    const double stopped = now_of(q);
    if (q->op_times && st == AX_OK)
        st = ax_queue_time(q, q->op_times + op, 0);
    ax_stack_release(q->scratch, call->mark);
    if (st != AX_OK) {
        char shapes[512];
        return ax_error_prefix(st, "%s on %s (%s)", ax_op_name(op), call->run->name,
                               ax_op_describe(op, args, shapes, sizeof(shapes)));
    }
    struct ax_op_cost cost = ax_op_cost(op, args);
    q->counters.launches[op]++;
    q->counters.flops[op] += cost.flops;
    q->counters.bytes[op] += cost.bytes;
    if (q->timeline)
        ax_timeline_add(q->timeline, &(struct ax_timeline_span){.kind = AX_SPAN_OP,
                                                                .what = (int)op,
                                                                .lane = -1,
                                                                .begin = call->start,
                                                                .end = stopped,
                                                                .bytes = cost.bytes,
                                                                .flops = cost.flops});
    return q->recording ? ax_record_op(q->recording, op, args, cost) : AX_OK;
}

#define DEFINE_RUN(name)                                                                           \
    enum ax_status ax_run_##name(struct ax_queue *q, const struct ax_##name *args) {               \
        struct ax_call call;                                                                       \
        AX_TRY(begin(q, AX_OP_##name, args, &call));                                               \
        return end(q, AX_OP_##name, args, &call, call.run->name(q, args, call.work));              \
    }
AX_OP_LIST(DEFINE_RUN)

/* The same for all ops, with untyped arguments. */
#define DEFINE_ANY(name)                                                                           \
    static enum ax_status any_##name(struct ax_queue *q, const void *args) {                       \
        return ax_run_##name(q, args);                                                             \
    }
AX_OP_LIST(DEFINE_ANY)

enum ax_status ax_run_op(struct ax_queue *q, enum ax_op op, const void *args) {
    static enum ax_status (*const any[AX_OP_COUNT])(struct ax_queue *, const void *) = {
#define ROW(op) [AX_OP_##op] = any_##op,
        AX_OP_LIST(ROW)
#undef ROW
    };
    AX_ASSERT(op < AX_OP_COUNT);
    return any[op](q, args);
}
