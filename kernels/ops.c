/* The dispatcher: one ax_run_<op> per row of AX_OP_LIST. It picks who runs the op, takes workspace
 * from the queue's scratch stack for the time of the call, and counts. */
#include "kernels/ops.h"

#include <stdio.h>

#include "base/clock.h"
#include "kernels/operands.h"
#include "kernels/queue.h"

struct ax_call {
    const struct ax_ops *run; /* whose entry to call */
    void *work;               /* workspace or NULL */
    size_t mark;              /* of the scratch stack before the workspace */
    double start;             /* seconds, while timing */
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

/* On a meta queue the planned backend (q->model) decides about fallback and workspace as it would
 * for real, and then nothing is computed: q->ops runs. */
static enum ax_status begin(struct ax_queue *q, enum ax_op op, const void *args,
                            struct ax_call *call) {
    check(op, args);
    const struct ax_ops *chosen = q->model;
    if (chosen->supports != NULL && !chosen->supports(q, op, args)) {
        chosen = q->fallback;
        if (chosen == NULL) {
            char shapes[512];
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: backend %s cannot run this op on %s, and there is no backend to "
                            "fall back to. Use another dtype or device.",
                            ax_op_name(op), q->model->name,
                            ax_op_describe(op, args, shapes, sizeof(shapes)));
        }
        q->counters.fallbacks++;
    }
    size_t bytes = chosen->workspace != NULL ? chosen->workspace(q, op, args) : 0;
    call->mark = ax_stack_mark(q->scratch);
    call->work = bytes > 0 ? ax_stack_push(q->scratch, "workspace", bytes) : NULL;
    call->run = q->ops == q->model ? chosen : q->ops;
    call->start = q->timing ? ax_clock_now() : 0;
    return AX_OK;
}

static enum ax_status end(struct ax_queue *q, enum ax_op op, const void *args,
                          const struct ax_call *call, enum ax_status st) {
    if (q->timing) {
        q->counters.seconds[op] += ax_clock_now() - call->start;
    }
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
    return AX_OK;
}

#define DEFINE_RUN(name)                                                                           \
    enum ax_status ax_run_##name(struct ax_queue *q, const struct ax_##name *args) {               \
        struct ax_call call;                                                                       \
        AX_TRY(begin(q, AX_OP_##name, args, &call));                                               \
        return end(q, AX_OP_##name, args, &call, call.run->name(q, args, call.work));              \
    }
AX_OP_LIST(DEFINE_RUN)
