/* Sorting rows by expert, and the all-to-alls: see expert.h. */
#include "parallel/expert.h"

#include <string.h>

#include "base/mem.h"

enum ax_status ax_expert_group_create(struct ax_expert_group *g, const struct ax_runtime *rt,
                                      int64_t n_experts) {
    const int ranks = rt->mesh.size[AX_ROLE_EP];
    *g = (struct ax_expert_group){.ranks = ranks, .n_experts = n_experts};
    if (n_experts % ranks != 0) {
        int near = ranks;
        while (n_experts % near != 0)
            near--;
        return ax_error(AX_ERR_CONFIG,
                        "mesh: ep %d does not divide the %lld experts. Nearest: ep %d.", ranks,
                        (long long)n_experts, near);
    }
    g->n_local = n_experts / ranks;
    g->first = rt->mesh.coord[AX_ROLE_EP] * g->n_local;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&g->counts, 4 * (size_t)n_experts, sizeof *g->counts), st, fail);
    AX_TRY_GOTO(ax_alloc(&g->sent, 2 * (size_t)ranks, sizeof *g->sent), st, fail);
    g->even = g->counts + 2 * n_experts;
    g->received = g->sent + ranks;
    return AX_OK;
fail:
    ax_expert_group_free(g);
    return st;
}

void ax_expert_group_free(struct ax_expert_group *g) {
    ax_free(g->counts);
    ax_free(g->sent);
    *g = (struct ax_expert_group){0};
}

/* A token goes to an expert at most once. */
int64_t ax_expert_capacity(const struct ax_expert_group *g, int64_t T, int64_t k) {
    return g->ranks * T * (k < g->n_local ? k : g->n_local);
}

/* n rows, distributed over the experts as evenly as possible. */
static void fill_even(struct ax_expert_group *g, int64_t n) {
    const int64_t E = g->n_experts;
    for (int64_t e = 0; e < E; e++)
        g->even[e] = g->even[E + e] = (int32_t)(n * (e + 1) / E - n * e / E);
}

/* Reads the counts, and keeps how many rows go to each rank and come from it. */
static enum ax_status read_counts(struct ax_expert_group *g, struct ax_runtime *rt,
                                  const struct ax_expert_route *r) {
    const int64_t rows = ax_tensor_numel(&r->places);
    int64_t *leave = r->rows, *come = r->rows + g->ranks, all_leave = 0, all_come = 0;
    fill_even(g, rows);
    AX_TRY(ax_queue_read(rt->q, r->counts.data, g->counts, ax_tensor_bytes(&r->counts), g->even));
    for (int rank = 0; rank < g->ranks; rank++) {
        leave[rank] = come[rank] = 0;
        for (int64_t e = rank * g->n_local; e < (rank + 1) * g->n_local; e++) {
            leave[rank] += g->counts[e];
            come[rank] += g->counts[g->n_experts + e];
        }
        all_leave += leave[rank];
        all_come += come[rank];
    }
    if (all_leave <= rows && all_come <= r->regroup.shape[0])
        return AX_OK;
    return ax_error(AX_ERR_FAILED,
                    "experts: %lld rows to send of %lld, %lld to get with room for %lld; this is a "
                    "bug in axtrain",
                    (long long)all_leave, (long long)rows, (long long)all_come,
                    (long long)r->regroup.shape[0]);
}

/* Sets the elements of the next all-to-all, at `width` per row. */
static void set_width(struct ax_expert_group *g, const struct ax_expert_route *r, int64_t width) {
    for (int rank = 0; rank < g->ranks; rank++) {
        g->sent[rank] = r->rows[rank] * width;
        g->received[rank] = r->rows[g->ranks + rank] * width;
    }
}

static enum ax_status all_to_all(struct ax_runtime *rt, enum ax_dtype dtype,
                                 const void AX_DEVICE *send, const int64_t *sent,
                                 void AX_DEVICE *recv, const int64_t *received) {
    const struct ax_collective what = {.kind = AX_ALL_TO_ALL_V,
                                       .dtype = dtype,
                                       .send = send,
                                       .recv = recv,
                                       .send_counts = sent,
                                       .recv_counts = received};
    return ax_comm_run(&rt->comms[AX_ROLE_EP], rt->q, &what);
}

/* Tells each rank how many rows come for its experts. */
static enum ax_status exchange_counts(struct ax_expert_group *g, struct ax_runtime *rt,
                                      const struct ax_expert_route *r) {
    for (int rank = 0; rank < g->ranks; rank++)
        g->sent[rank] = g->received[rank] = g->n_local;
    return all_to_all(rt, AX_I32, ax_tensor_row(&r->counts, 0), g->sent,
                      ax_tensor_row(&r->counts, 1), g->received);
}

/* The expert of every received row, in order of arrival; −1 after the last. */
static enum ax_status exchange_experts(struct ax_expert_group *g, struct ax_runtime *rt,
                                       const struct ax_tensor *experts,
                                       const struct ax_expert_route *r, struct ax_tensor *came) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const int64_t rows = ax_tensor_numel(experts);
    struct ax_tensor sorted = ax_tensor_1d(AX_I32, NULL, rows);
    sorted.data = ax_stack_push(scratch, "sorted experts", ax_tensor_bytes(&sorted));
    const struct ax_scatter_rows sort = {.dst = sorted,
                                         .src = ax_tensor_1d(AX_I32, experts->data, rows),
                                         .rows = ax_tensor_1d(AX_I32, r->places.data, rows)};
    AX_TRY(ax_run_scatter_rows(rt->q, &sort));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){*came, -1}));
    AX_TRY(read_counts(g, rt, r));
    set_width(g, r, 1);
    return all_to_all(rt, AX_I32, sorted.data, g->sent, came->data, g->received);
}

enum ax_status ax_expert_assign(struct ax_expert_group *g, struct ax_runtime *rt,
                                const struct ax_tensor *experts, const struct ax_expert_route *r) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_group_rows group = {.keys = *experts, .places = r->places, .offsets = r->offsets};
    if (g->ranks == 1)
        return ax_run_group_rows(rt->q, &group);

    struct ax_tensor offsets = ax_tensor_1d(AX_I32, NULL, g->n_experts + 1), came = r->regroup;
    offsets.data = ax_stack_push(scratch, "sorted experts", ax_tensor_bytes(&offsets));
    came.data = ax_stack_push(scratch, "sorted experts", ax_tensor_bytes(&came));
    group.offsets = offsets;
    group.counts = ax_tensor_1d(AX_I32, r->counts.data, g->n_experts);
    AX_TRY(ax_run_group_rows(rt->q, &group));
    AX_TRY(exchange_counts(g, rt, r));
    AX_TRY(exchange_experts(g, rt, experts, r, &came));
    const struct ax_group_rows regroup = {
        .keys = came, .places = r->regroup, .offsets = r->offsets, .first = g->first};
    AX_TRY(ax_run_group_rows(rt->q, &regroup));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

int64_t ax_expert_count(const struct ax_expert_group *g, const struct ax_expert_route *r) {
    int64_t n = 0;
    for (int rank = 0; rank < g->ranks && g->ranks > 1; rank++)
        n += r->rows[g->ranks + rank];
    return g->ranks > 1 ? n : ax_tensor_numel(&r->places);
}

/* Scratch for `n` rows like those of t. */
static struct ax_tensor scratch_rows(struct ax_runtime *rt, const struct ax_tensor *t, int64_t n) {
    struct ax_tensor rows = ax_tensor_2d(t->dtype, NULL, n, t->shape[1]);
    rows.data = ax_stack_push(&rt->arena.scratch, "rows in transit", ax_tensor_bytes(&rows));
    return rows;
}

struct ax_tensor ax_expert_sorted(const struct ax_expert_group *g, struct ax_runtime *rt,
                                  const struct ax_expert_route *r, const struct ax_tensor *rows) {
    return g->ranks == 1 ? *rows : scratch_rows(rt, rows, ax_tensor_numel(&r->places));
}

enum ax_status ax_expert_send(struct ax_expert_group *g, struct ax_runtime *rt,
                              const struct ax_expert_route *r, const struct ax_tensor *sorted,
                              const struct ax_tensor *rows) {
    if (g->ranks == 1)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor came = scratch_rows(rt, rows, r->regroup.shape[0]);
    const int64_t n = ax_expert_count(g, r);
    set_width(g, r, rows->shape[1]);
    AX_TRY(all_to_all(rt, rows->dtype, sorted->data, g->sent, came.data, g->received));
    const struct ax_scatter_rows regroup = {.dst = *rows,
                                            .src = ax_tensor_rows(&came, 0, n),
                                            .rows = ax_tensor_rows(&r->regroup, 0, n)};
    AX_TRY(ax_run_scatter_rows(rt->q, &regroup));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_expert_return(struct ax_expert_group *g, struct ax_runtime *rt,
                                const struct ax_expert_route *r, const struct ax_tensor *rows,
                                const struct ax_tensor *sorted) {
    if (g->ranks == 1)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor leave = scratch_rows(rt, rows, r->regroup.shape[0]);
    const int64_t n = ax_expert_count(g, r);
    set_width(g, r, rows->shape[1]);
    const struct ax_combine_forward gather = {.src = *rows,
                                              .rows = ax_tensor_rows(&r->regroup, 0, n),
                                              .out = ax_tensor_rows(&leave, 0, n)};
    AX_TRY(ax_run_combine_forward(rt->q, &gather));
    AX_TRY(all_to_all(rt, rows->dtype, leave.data, g->received, sorted->data, g->sent));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
