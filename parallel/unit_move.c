/* Movement of units between ranks: gathers and sums; and views of what is gathered. */
#include "parallel/unit_segment.h"

/* This rank's part of an unsharded buffer: where a shard in the host tier is gathered from. */
static struct ax_tensor own_part(const struct ax_segment *seg, const struct ax_runtime *rt,
                                 const struct ax_tensor *full, int64_t n) {
    return ax_tensor_rows(full, rt->mesh.coord[seg->gather] * n, n);
}

static enum ax_status gather_buffer(const struct ax_segment *seg, struct ax_runtime *rt,
                                    const struct ax_tensor *shard, const struct ax_tensor *full) {
    const struct ax_tensor mine =
        seg->host_shard ? own_part(seg, rt, full, shard->shape[0]) : *shard;
    if (seg->host_shard)
        AX_TRY(ax_queue_copy(rt->q, mine.data, shard->data, ax_tensor_bytes(shard)));
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = full->dtype,
                                       .send = mine.data,
                                       .recv = full->data,
                                       .count = shard->shape[0]};
    return ax_comm_run(&rt->comms[seg->gather], rt->q, &what);
}

static enum ax_status gather_packed(const struct ax_segment *seg, struct ax_runtime *rt) {
    for (int i = 0; i < AX_PACKED_BUFFERS && seg->packed[i].data; i++)
        AX_TRY(gather_buffer(seg, rt, &seg->packed_shard[i], &seg->packed[i]));
    return AX_OK;
}

enum ax_status ax_unit_gather(struct ax_unit *unit, struct ax_runtime *rt) {
    if (unit->gathered++ > 0)
        return AX_OK;
    if (unit->pool) {
        const struct ax_unit *before = unit->pool->user[unit->buffer];
        AX_ASSERT(!before || before == unit || before->gathered == 0);
        unit->pool->user[unit->buffer] = unit;
    }
    for (int s = 0; s < unit->n_segments; s++) {
        const struct ax_segment *seg = &unit->segments[s];
        AX_TRY(ax_segment_is_packed(seg) ? gather_packed(seg, rt)
                                         : gather_buffer(seg, rt, &seg->shard, &seg->full));
    }
    return AX_OK;
}

void ax_unit_release(struct ax_unit *unit) {
    AX_ASSERT(unit->gathered > 0);
    unit->gathered--;
}

static size_t place(struct ax_tensor *full, char AX_DEVICE *at) {
    full->data = at;
    return ax_arena_round(ax_tensor_bytes(full));
}

/* The unsharded buffers, one after another, as the pool has them (unit.c). */
static void move_to(struct ax_unit *unit, const struct ax_runtime *rt, char AX_DEVICE *at) {
    for (int s = 0; s < unit->n_segments; s++) {
        struct ax_segment *seg = &unit->segments[s];
        if (ax_segment_in_place(seg, rt))
            continue;
        for (int i = 0; i < AX_PACKED_BUFFERS && seg->packed[i].data; i++)
            at += place(&seg->packed[i], at);
        if (!ax_segment_is_packed(seg))
            at += place(&seg->full, at);
    }
}

enum ax_status ax_unit_hold(struct ax_unit *unit, struct ax_runtime *rt, void AX_DEVICE *at) {
    AX_ASSERT(unit->gathered == 0 && !unit->away);
    if (unit->pool) {
        unit->away = unit->pool;
        unit->pool = NULL;
        move_to(unit, rt, at);
    }
    return ax_unit_gather(unit, rt);
}

void ax_unit_let_go(struct ax_unit *unit, struct ax_runtime *rt) {
    ax_unit_release(unit);
    AX_ASSERT(unit->gathered == 0);
    if (!unit->away)
        return;
    move_to(unit, rt, unit->away->full[unit->buffer]);
    unit->pool = unit->away;
    unit->away = NULL;
}

static struct ax_tensor push(struct ax_runtime *rt, const char *name, enum ax_dtype dtype,
                             int64_t n) {
    const size_t bytes = (size_t)n * ax_dtype_size(dtype);
    return ax_tensor_1d(dtype, ax_stack_push(&rt->arena.scratch, name, bytes), n);
}

/* *out = gradients in the dtype in which they are sent. */
static enum ax_status to_send(const struct ax_segment *seg, struct ax_runtime *rt,
                              const struct ax_tensor *grad, struct ax_tensor *out) {
    *out = *grad;
    if (!seg->bf16_sums)
        return AX_OK;
    *out = push(rt, "gradients to send", AX_BF16, grad->shape[0]);
    return ax_run_copy(rt->q, &(struct ax_copy){*out, *grad});
}

/* grad += Σ over the gather role of this rank's part of grad_full. */
static enum ax_status reduce_scatter(const struct ax_segment *seg, struct ax_runtime *rt) {
    if (seg->grad.data == seg->grad_full.data)
        return AX_OK; /* one buffer: already accumulated */
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor sent;
    AX_TRY(to_send(seg, rt, &seg->grad_full, &sent));
    const struct ax_tensor sum = push(rt, "reduced gradients", sent.dtype, seg->shard_numel);
    const struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                       .dtype = sent.dtype,
                                       .send = sent.data,
                                       .recv = sum.data,
                                       .count = seg->shard_numel};
    AX_TRY(ax_comm_run(&rt->comms[seg->gather], rt->q, &what));
    AX_TRY(ax_run_add(rt->q, &(struct ax_add){seg->grad, sum, 1}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){seg->grad_full, 0}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* grad = its sum over a role whose ranks all have it. */
static enum ax_status all_reduce(const struct ax_segment *seg, struct ax_runtime *rt,
                                 enum ax_role role) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor sent;
    if (rt->mesh.size[role] == 1)
        return AX_OK;
    AX_TRY(to_send(seg, rt, &seg->grad, &sent));
    AX_TRY(ax_comm_sum(&rt->comms[role], rt->q, sent.dtype, sent.data, seg->shard_numel));
    if (sent.data != seg->grad.data)
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){seg->grad, sent}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_unit_reduce(struct ax_unit *unit, struct ax_runtime *rt, bool last) {
    for (int s = 0; s < unit->n_segments; s++) {
        const struct ax_segment *seg = &unit->segments[s];
        if (!seg->trainable)
            continue;
        AX_TRY(reduce_scatter(seg, rt));
        for (int role = 0; last && role < AX_ROLE_COUNT; role++)
            if (role != (int)seg->gather && (seg->reduce_roles >> role & 1))
                AX_TRY(all_reduce(seg, rt, (enum ax_role)role));
    }
    return AX_OK;
}

static struct ax_tensor slice(struct ax_tensor flat, const struct ax_param *p) {
    if (!flat.data)
        return (struct ax_tensor){.dtype = flat.dtype};
    char AX_DEVICE *data = flat.data;
    data += (size_t)p->offset * ax_dtype_size(flat.dtype);
    return ax_tensor_nd(flat.dtype, data, p->ndim, p->local_shape);
}

bool ax_unit_is_packed(const struct ax_unit *unit, const struct ax_param *p) {
    return ax_segment_is_packed(&unit->segments[p->segment]);
}

struct ax_packed ax_unit_packed(const struct ax_unit *unit, const struct ax_param *p) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    AX_ASSERT(unit->gathered > 0 && ax_segment_is_packed(seg));
    return ax_packing_view(&seg->packing, seg->packed, p->offset, ax_param_local_numel(p));
}

struct ax_tensor ax_unit_weight(const struct ax_unit *unit, const struct ax_param *p) {
    AX_ASSERT(unit->gathered > 0 && !ax_unit_is_packed(unit, p));
    struct ax_tensor weight = slice(unit->segments[p->segment].full, p);
    weight.panels = p->panels;
    return weight;
}

struct ax_tensor ax_unit_grad(const struct ax_unit *unit, const struct ax_param *p) {
    return slice(unit->segments[p->segment].grad_full, p);
}

enum ax_status ax_unit_master(const struct ax_unit *unit, struct ax_runtime *rt,
                              const struct ax_param *p, struct ax_tensor gathered[AX_MAX_SEGMENTS],
                              struct ax_tensor *out) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    struct ax_tensor *all = &gathered[p->segment];
    if (!all->data) {
        struct ax_tensor mine = seg->master;
        if (seg->host_master) {
            mine.data = ax_stack_push(&rt->arena.scratch, "masters", ax_tensor_bytes(&mine));
            AX_TRY(ax_queue_copy(rt->q, mine.data, seg->master.data, ax_tensor_bytes(&mine)));
        }
        *all = ax_tensor_1d(seg->accum, mine.data, seg->numel);
        if (!ax_segment_alone(seg, rt)) {
            all->data = ax_stack_push(&rt->arena.scratch, "gathered masters", ax_tensor_bytes(all));
            const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                               .dtype = seg->accum,
                                               .send = mine.data,
                                               .recv = all->data,
                                               .count = seg->shard_numel};
            AX_TRY(ax_comm_run(&rt->comms[seg->gather], rt->q, &what));
        }
    }
    *out = slice(*all, p);
    return AX_OK;
}

enum ax_status ax_unit_keep(const struct ax_unit *unit, struct ax_runtime *rt) {
    for (int s = 0; s < unit->n_segments; s++) {
        const struct ax_segment *seg = &unit->segments[s];
        if (seg->trainable || ax_segment_is_packed(seg) || ax_segment_in_place(seg, rt))
            continue;
        const struct ax_tensor mine = own_part(seg, rt, &seg->full, seg->shard_numel);
        AX_TRY(seg->host_shard
                   ? ax_queue_copy(rt->q, seg->shard.data, mine.data, ax_tensor_bytes(&mine))
                   : ax_run_copy(rt->q, &(struct ax_copy){seg->shard, mine}));
    }
    return AX_OK;
}
