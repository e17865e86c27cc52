/* Gathers and reduces keys and values over cp. */
#include "model/parallel/context_parallel.h"

#include <string.h>

#include "model/parallel/reach.h"

static const char *const names[] = {
    [AX_CP_AUTO] = "auto", [AX_CP_GATHER] = "gather", [AX_CP_RING] = "ring"};

const char *ax_cp_method_name(enum ax_cp_method method) {
    return names[method];
}

enum ax_status ax_cp_check(enum ax_cp_method method, const struct ax_mesh *mesh) {
    const int most = AX_REACH_RUNS / 2;
    if (method != AX_CP_RING || mesh->size[AX_ROLE_CP] <= most)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "context_parallel_method: ring supports at most %d ranks of cp, got %d. "
                    "Nearest: gather, or cp %d.",
                    most, mesh->size[AX_ROLE_CP], most);
}

static int cp_size(const struct ax_runtime *rt) {
    return rt->mesh.size[AX_ROLE_CP];
}

/* A dense [rows][H][hd] in scratch. */
static struct ax_tensor take(struct ax_runtime *rt, const struct ax_tensor *like, int64_t rows) {
    return ax_stack_take(&rt->arena.scratch, "keys and values of the row",
                         ax_tensor_3d(like->dtype, NULL, rows, like->shape[1], like->shape[2]));
}

/* Run number `run` of [cp·T] rows in the sequence's order, and where it is in the ranks' order: run k and
 * run 2·cp − 1 − k are rank k's. */
struct run {
    struct ax_tensor in_sequence, at_ranks;
};

static struct run run_of(int cp, int run, const struct ax_tensor *sequence,
                         const struct ax_tensor *ranked) {
    const int64_t length = sequence->shape[0] / (2 * cp);
    const int at = run < cp ? 2 * run : 2 * (2 * cp - 1 - run) + 1;
    return (struct run){ax_tensor_rows(sequence, run * length, length),
                        ax_tensor_rows(ranked, at * length, length)};
}

enum ax_status ax_cp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all) {
    const int cp = cp_size(rt);
    *all = *own;
    if (cp == 1)
        return AX_OK;
    const int64_t rows = own->shape[0];
    *all = take(rt, own, rows * cp);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor ranked = take(rt, own, rows * cp);
    const struct ax_tensor mine = ax_tensor_rows(&ranked, rt->mesh.coord[AX_ROLE_CP] * rows, rows);
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){.dst = mine, .src = *own}));
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = own->dtype,
                                       .send = mine.data,
                                       .recv = ranked.data,
                                       .count = ax_tensor_numel(&mine)};
    AX_TRY(ax_comm_run(&rt->comms[AX_ROLE_CP], rt->q, &what));
    for (int k = 0; k < 2 * cp; k++) {
        const struct run r = run_of(cp, k, all, &ranked);
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){.dst = r.in_sequence, .src = r.at_ranks}));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

struct ax_cp_gradient ax_cp_gradient(struct ax_runtime *rt, const struct ax_tensor *own) {
    const int64_t rows = own->shape[0] * cp_size(rt);
    if (cp_size(rt) == 1)
        return (struct ax_cp_gradient){.own = *own, .run = *own};
    return (struct ax_cp_gradient){*own, take(rt, own, rows), take(rt, own, rows)};
}

enum ax_status ax_cp_add(struct ax_runtime *rt, const struct ax_cp_gradient *g, bool first) {
    for (int k = 0; g->ranked.data && k < 2 * cp_size(rt); k++) {
        const struct run r = run_of(cp_size(rt), k, &g->run, &g->ranked);
        AX_TRY(first ? ax_run_copy(rt->q, &(struct ax_copy){r.at_ranks, r.in_sequence})
                     : ax_run_add(rt->q, &(struct ax_add){r.at_ranks, r.in_sequence, 1}));
    }
    return AX_OK;
}

enum ax_status ax_cp_reduce(struct ax_runtime *rt, const struct ax_cp_gradient *g) {
    if (!g->ranked.data)
        return AX_OK;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor sum = take(rt, &g->own, g->own.shape[0]);
    const struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                       .dtype = g->own.dtype,
                                       .send = g->ranked.data,
                                       .recv = sum.data,
                                       .count = ax_tensor_numel(&sum)};
    AX_TRY(ax_comm_run(&rt->comms[AX_ROLE_CP], rt->q, &what));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){.dst = g->own, .src = sum}));
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
