/* Rows and vocabulary over tp: gathers and sums. */
#include "model/parallel/tensor_parallel.h"

static int tp_size(const struct ax_runtime *rt) {
    return rt->mesh.size[AX_ROLE_TP];
}

int64_t ax_tp_rows(const struct ax_runtime *rt, int64_t T) {
    AX_ASSERT(T % tp_size(rt) == 0);
    return T / tp_size(rt);
}

int64_t ax_tp_first(const struct ax_runtime *rt, int64_t T) {
    return ax_tp_first_own(rt, ax_tp_rows(rt, T));
}

int64_t ax_tp_first_own(const struct ax_runtime *rt, int64_t rows) {
    return rt->mesh.coord[AX_ROLE_TP] * rows;
}

/* A dense tensor of `times` times the rows. */
static struct ax_tensor more_rows(const struct ax_tensor *t, int64_t times) {
    int64_t shape[AX_MAX_DIMS] = {times * t->shape[0]};
    for (int d = 1; d < t->ndim; d++)
        shape[d] = t->shape[d];
    return ax_tensor_nd(t->dtype, NULL, t->ndim, shape);
}

enum ax_status ax_tp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all) {
    *all = *own;
    if (tp_size(rt) == 1)
        return AX_OK;
    AX_ASSERT(ax_tensor_is_dense(own));
    *all = more_rows(own, tp_size(rt));
    *all = ax_stack_take(&rt->arena.scratch, "gathered rows", *all);
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = own->dtype,
                                       .send = own->data,
                                       .recv = all->data,
                                       .count = ax_tensor_numel(own)};
    return ax_comm_run(&rt->comms[AX_ROLE_TP], rt->q, &what);
}

struct ax_tensor ax_tp_partial(struct ax_runtime *rt, const struct ax_tensor *own) {
    if (tp_size(rt) == 1)
        return *own;
    struct ax_tensor t = more_rows(own, tp_size(rt));
    t = ax_stack_take(&rt->arena.scratch, "partial sums", t);
    return t;
}

enum ax_status ax_tp_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                            const struct ax_tensor *addend, const struct ax_tensor *own) {
    if (partial->data == own->data)
        return AX_OK;
    AX_ASSERT(ax_tensor_is_dense(own));
    const struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                       .dtype = own->dtype,
                                       .send = partial->data,
                                       .recv = own->data,
                                       .count = ax_tensor_numel(own)};
    AX_TRY(ax_comm_run(&rt->comms[AX_ROLE_TP], rt->q, &what));
    if (!addend)
        return AX_OK;
    return ax_run_add(rt->q, &(struct ax_add){.dst = *own, .src = *addend, .alpha = 1});
}

enum ax_status ax_tp_start_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                                  struct ax_tensor *all, struct ax_ticket *ticket) {
    AX_ASSERT(ax_tensor_is_dense(own) && tp_size(rt) > 1);
    *all = more_rows(own, tp_size(rt));
    *all = ax_stack_take(&rt->arena.scratch, "gathered rows", *all);
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = own->dtype,
                                       .send = own->data,
                                       .recv = all->data,
                                       .count = ax_tensor_numel(own)};
    return ax_comm_start(&rt->comms[AX_ROLE_TP], rt->q, &what, ticket);
}

enum ax_status ax_tp_start_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                                  const struct ax_tensor *own, struct ax_ticket *ticket) {
    struct ax_comm *c = &rt->comms[AX_ROLE_TP];
    AX_ASSERT(ax_tensor_is_dense(own) && tp_size(rt) > 1);
    struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                 .dtype = own->dtype,
                                 .send = partial->data,
                                 .recv = own->data,
                                 .count = ax_tensor_numel(own)};
    const size_t staging = c->stages ? ax_comm_staging(&what, c->size) : 0;
    if (staging > 0)
        what.staging = ax_stack_push(&rt->arena.scratch, "others' parts of sums", staging);
    return ax_comm_start(c, rt->q, &what, ticket);
}

enum ax_status ax_tp_arrive(struct ax_runtime *rt, struct ax_ticket ticket) {
    return ax_comm_wait(&rt->comms[AX_ROLE_TP], rt->q, ticket);
}

bool ax_tp_adds(const struct ax_runtime *rt) {
    return rt->mesh.coord[AX_ROLE_TP] == 0;
}

enum ax_status ax_tp_sum(struct ax_runtime *rt, const struct ax_tensor *t) {
    if (tp_size(rt) == 1)
        return AX_OK;
    return ax_comm_sum(&rt->comms[AX_ROLE_TP], rt->q, t->dtype, t->data, ax_tensor_numel(t));
}

int ax_tp_shards(const struct ax_runtime *rt, const struct ax_param *p) {
    return p->tp_dim < 0 ? 1 : tp_size(rt);
}

int64_t ax_tp_first_row(const struct ax_runtime *rt, const struct ax_param *p) {
    int64_t first, len;
    if (p->tp_dim < 0)
        return 0;
    ax_split_range(p->shape[0], tp_size(rt), rt->mesh.coord[AX_ROLE_TP], &first, &len);
    return first;
}

enum ax_status ax_tp_gather_stats(struct ax_runtime *rt, const struct ax_param *head,
                                  const struct ax_tensor *stats, struct ax_tensor *all) {
    const int shards = ax_tp_shards(rt, head);
    *all = *stats;
    if (shards > 1)
        AX_TRY(ax_tp_gather(rt, stats, all));
    *all = ax_tensor_3d(stats->dtype, all->data, shards, stats->shape[0], stats->shape[1]);
    return AX_OK;
}

/* The columns with as many more as the longest shard has. */
static enum ax_status widen(struct ax_runtime *rt, struct ax_tensor *cols, int64_t width) {
    const struct ax_tensor own = *cols;
    if (own.shape[1] == width && ax_tensor_is_dense(&own))
        return AX_OK;
    *cols = ax_stack_take(&rt->arena.scratch, "columns of a shard",
                          ax_tensor_2d(own.dtype, NULL, own.shape[0], width));
    return ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_cols(cols, 0, own.shape[1]), own});
}

enum ax_status ax_tp_gather_cols(struct ax_runtime *rt, const struct ax_tensor *own, int64_t n_cols,
                                 struct ax_tensor *all) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const int64_t n = own->shape[0], width = (n_cols + tp_size(rt) - 1) / tp_size(rt);
    struct ax_tensor mine = *own, shards;
    *all = *own;
    if (tp_size(rt) == 1)
        return AX_OK;
    *all =
        ax_stack_take(scratch, "columns of all shards", ax_tensor_2d(own->dtype, NULL, n, n_cols));
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(widen(rt, &mine, width));
    AX_TRY(ax_tp_gather(rt, &mine, &shards));
    for (int r = 0; r < tp_size(rt); r++) { /* from one below the other to side by side */
        int64_t first, len;
        ax_split_range(n_cols, tp_size(rt), r, &first, &len);
        const struct ax_tensor shard = ax_tensor_rows(&shards, r * n, n);
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_cols(all, first, len),
                                                    ax_tensor_cols(&shard, 0, len)}));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_tp_share(struct ax_runtime *rt, const struct ax_tensor *values) {
    AX_ASSERT(ax_tensor_is_dense(values));
    const struct ax_collective what = {.kind = AX_BROADCAST,
                                       .dtype = values->dtype,
                                       .recv = values->data,
                                       .count = ax_tensor_numel(values)};
    return tp_size(rt) == 1 ? AX_OK : ax_comm_run(&rt->comms[AX_ROLE_TP], rt->q, &what);
}

enum ax_status ax_tp_gather_top(struct ax_runtime *rt, const struct ax_param *head,
                                const struct ax_tensor *logits, int64_t k, struct ax_tensor *all) {
    *all = *logits;
    if (ax_tp_shards(rt, head) == 1)
        return AX_OK;
    struct ax_stack *scratch = &rt->arena.scratch;
    const int64_t n = logits->shape[0];
    const enum ax_dtype dtype = ax_dtype_accum(logits->dtype);
    struct ax_tensor own = ax_tensor_2d(dtype, NULL, n, k), shards;
    *all = ax_stack_take(scratch, "largest logits", ax_tensor_2d(dtype, NULL, n, tp_size(rt) * k));
    const size_t mark = ax_stack_mark(scratch);
    own = ax_stack_take(scratch, "largest logits", own);
    AX_TRY(ax_run_top_logits(rt->q, &(struct ax_top_logits){*logits, own}));
    AX_TRY(ax_tp_gather(rt, &own, &shards));
    for (int64_t r = 0; r < tp_size(rt); r++) /* from one below the other to side by side */
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_cols(all, r * k, k),
                                                    ax_tensor_rows(&shards, r * n, n)}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* This rank's columns of all ranks' columns. */
static struct ax_tensor own_columns(const struct ax_runtime *rt, const struct ax_tensor *all) {
    int64_t first, n;
    ax_split_range(all->shape[1], tp_size(rt), rt->mesh.coord[AX_ROLE_TP], &first, &n);
    return ax_tensor_cols(all, first, n);
}

enum ax_status ax_tp_to_rows(struct ax_runtime *rt, const struct ax_tensor *x,
                             const struct ax_tensor *rows) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor all = ax_tp_partial(rt, rows);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){all, 0}));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){own_columns(rt, &all), *x}));
    AX_TRY(ax_tp_reduce(rt, &all, NULL, rows));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_tp_to_columns(struct ax_runtime *rt, const struct ax_tensor *rows,
                                const struct ax_tensor *x) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor all;
    AX_TRY(ax_tp_gather(rt, rows, &all));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){*x, own_columns(rt, &all)}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

bool ax_tp_kv_replicated(const struct ax_mesh *mesh, int64_t n_kv_heads) {
    return n_kv_heads < mesh->size[AX_ROLE_TP];
}

int64_t ax_tp_first_kv_head(const struct ax_mesh *mesh, int64_t n_kv_heads) {
    if (!ax_tp_kv_replicated(mesh, n_kv_heads))
        return 0;
    return mesh->coord[AX_ROLE_TP] * n_kv_heads / mesh->size[AX_ROLE_TP];
}
