#include "model/later.h"

#include "base/mem.h"
#include "kernels/ops.h"
#include "model/linear.h"

static enum ax_status keep(struct ax_later *a, struct ax_queue *q, const struct ax_tensor *from,
                           struct ax_tensor *copy) {
    *copy = ax_tensor_2d(from->dtype, NULL, from->shape[0], from->shape[1]);
    copy->data = ax_stack_push_end(a->stack, "for weight gradients", ax_tensor_bytes(copy));
    return ax_run_copy(q, &(struct ax_copy){.dst = *copy, .src = *from});
}

enum ax_status ax_later_add(struct ax_later *a, struct ax_runtime *rt, const struct ax_linear *l,
                            const struct ax_tensor *x, const struct ax_tensor *dy) {
    if (a->n == a->cap) {
        const int cap = a->cap > 0 ? 2 * a->cap : 64;
        AX_TRY(ax_regrow(&a->list, (size_t)a->cap, (size_t)cap, sizeof *a->list));
        a->cap = cap;
    }
    struct ax_later_product *p = &a->list[a->n++];
    p->linear = l;
    AX_TRY(keep(a, rt->q, x, &p->x));
    return keep(a, rt->q, dy, &p->dy);
}

enum ax_status ax_later_run(struct ax_later *a, struct ax_runtime *rt, const struct ax_unit *unit) {
    while (a->done < a->n && a->list[a->done].linear->unit == unit) {
        const struct ax_later_product *p = &a->list[a->done++];
        AX_TRY(ax_linear_backward_weights(rt, p->linear, &p->x, &p->dy));
    }
    return AX_OK;
}

void ax_later_end(struct ax_later *a) {
    AX_ASSERT(a->done == a->n);
    a->n = a->done = 0;
    ax_stack_release_end(a->stack);
}

void ax_later_free(struct ax_later *a) {
    ax_free(a->list);
    *a = (struct ax_later){0};
}
