#include "model/core/later.h"

#include "base/mem.h"

struct ax_tensor ax_later_take(struct ax_later *a, const struct ax_tensor *t) {
    struct ax_tensor copy = ax_tensor_nd(t->dtype, NULL, t->ndim, t->shape);
    copy.data = ax_stack_push_end(a->stack, "for weight gradients", ax_tensor_bytes(&copy));
    return copy;
}

enum ax_status ax_later_add(struct ax_later *a, const struct ax_later_product *product) {
    if (a->n == a->cap) {
        const int cap = a->cap > 0 ? 2 * a->cap : 64;
        AX_TRY(ax_regrow(&a->list, (size_t)a->cap, (size_t)cap, sizeof *a->list));
        a->cap = cap;
    }
    a->list[a->n++] = *product;
    return AX_OK;
}

enum ax_status ax_later_run(struct ax_later *a, struct ax_pass *p, const struct ax_unit *unit) {
    while (a->done < a->n && a->list[a->done].unit == unit) {
        const struct ax_later_product *next = &a->list[a->done++];
        AX_TRY(next->run(p, next));
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
