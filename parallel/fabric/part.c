#include "parallel/fabric/part.h"

#include "base/mem.h"

static enum ax_status part_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                const int *ranks, int n, bool apart) {
    const struct ax_fabric_part *p = f->state;
    int *of_whole;
    AX_TRY(ax_alloc(&of_whole, (size_t)n, sizeof *of_whole));
    for (int i = 0; i < n; i++)
        of_whole[i] = p->first + ranks[i];
    const enum ax_status st = p->whole->ops->open(p->whole, c, role, of_whole, n, apart);
    ax_free(of_whole);
    return st;
}

static void part_fail(struct ax_fabric *f, enum ax_status st) {
    const struct ax_fabric_part *p = f->state;
    p->whole->ops->fail(p->whole, st);
}

static void part_free(struct ax_fabric *f) {
    (void)f; /* the whole has everything */
}

void ax_fabric_part_open(struct ax_fabric_part *p, struct ax_fabric *whole, int first, int n) {
    AX_ASSERT(first <= whole->rank && whole->rank < first + n);
    *p = (struct ax_fabric_part){.ops = {.name = whole->ops->name,
                                         .stages = whole->ops->stages,
                                         .open = part_open,
                                         .fail = part_fail,
                                         .free = part_free},
                                 .whole = whole,
                                 .first = first};
    p->fabric = (struct ax_fabric){.ops = &p->ops,
                                   .world = n,
                                   .rank = whole->rank - first,
                                   .local_world = whole->local_world,
                                   .timeout = whole->timeout,
                                   .state = p};
}
