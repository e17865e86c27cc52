/* Gathers and reduces keys and values over cp. */
#include "model/context_parallel.h"

static int cp_size(const struct ax_runtime *rt) {
    return rt->mesh.size[AX_ROLE_CP];
}

/* A dense [rows][H][hd] in scratch. */
static struct ax_tensor take(struct ax_runtime *rt, const struct ax_tensor *like, int64_t rows) {
    struct ax_tensor t = ax_tensor_3d(like->dtype, NULL, rows, like->shape[1], like->shape[2]);
    t.data = ax_stack_push(&rt->arena.scratch, "keys and values of the row", ax_tensor_bytes(&t));
    return t;
}

enum ax_status ax_cp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all) {
    *all = *own;
    if (cp_size(rt) == 1)
        return AX_OK;
    const int64_t rows = own->shape[0];
    *all = take(rt, own, rows * cp_size(rt));
    const struct ax_tensor mine = ax_tensor_rows(all, rt->mesh.coord[AX_ROLE_CP] * rows, rows);
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){.dst = mine, .src = *own}));
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = own->dtype,
                                       .send = mine.data,
                                       .recv = all->data,
                                       .count = ax_tensor_numel(&mine)};
    return ax_comm_run(&rt->comms[AX_ROLE_CP], rt->q, &what);
}

struct ax_tensor ax_cp_partial(struct ax_runtime *rt, const struct ax_tensor *own) {
    return cp_size(rt) == 1 ? *own : take(rt, own, own->shape[0] * cp_size(rt));
}

enum ax_status ax_cp_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                            const struct ax_tensor *own) {
    if (partial->data == own->data)
        return AX_OK;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor sum = take(rt, own, own->shape[0]);
    const struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                       .dtype = own->dtype,
                                       .send = partial->data,
                                       .recv = sum.data,
                                       .count = ax_tensor_numel(&sum)};
    AX_TRY(ax_comm_run(&rt->comms[AX_ROLE_CP], rt->q, &what));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){.dst = *own, .src = sum}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_cp_sum(struct ax_runtime *rt, const struct ax_tensor *t) {
    if (cp_size(rt) == 1)
        return AX_OK;
    return ax_comm_sum(&rt->comms[AX_ROLE_CP], rt->q, t->dtype, t->data, ax_tensor_numel(t));
}

bool ax_cp_adds(const struct ax_runtime *rt) {
    return rt->mesh.coord[AX_ROLE_CP] == 0;
}
