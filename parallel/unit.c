/* Layout, storage and movement of units: see unit.h for the buffers and which of them coincide. */
#include "parallel/unit.h"

#include <string.h>

#define SEGMENT_ALIGN                                                                              \
    256 /* elements: the block of 8-bit optimizer states, and a multiple of 64 B */

enum ax_status ax_masters_parse(const char *name, enum ax_masters *out) {
    static const char *const names[] = {"float32", "bf16_remainder", "bf16_sr"};
    for (int i = AX_MASTERS_ACCUM; i <= AX_MASTERS_STOCHASTIC; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum ax_masters)i;
            return AX_OK;
        }
    }
    return ax_error(AX_ERR_CONFIG,
                    "master_dtype: \"%.40s\" is not one of float32, bf16_remainder, bf16_sr", name);
}

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static void set_local_shape(struct ax_param *p, const struct ax_mesh *mesh) {
    for (int d = 0; d < p->ndim; d++)
        p->local_shape[d] = p->shape[d];
    if (p->tp_dim >= 0)
        p->local_shape[p->tp_dim] = p->shape[p->tp_dim] / mesh->size[AX_ROLE_TP];
    if (p->ep_dim >= 0)
        p->local_shape[p->ep_dim] = p->shape[p->ep_dim] / mesh->size[AX_ROLE_EP];
}

void ax_unit_layout(struct ax_unit *unit, int index, const struct ax_mesh *mesh,
                    const struct ax_unit_options *o, int n, struct ax_param **params,
                    const bool *glue) {
    unit->n_segments = 1;
    struct ax_segment *seg = &unit->segments[0];
    *seg = (struct ax_segment){
        .gather = AX_ROLE_FSDP,
        .reduce_roles = 1u << AX_ROLE_FSDP | 1u << AX_ROLE_DP_REPLICATE,
        .compute = o->compute,
        .accum = ax_dtype_accum(o->compute),
        .align = SEGMENT_ALIGN,
        .trainable = o->train,
        .n_state = o->n_state,
    };
    memcpy(seg->slots, o->slots, sizeof seg->slots);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        struct ax_param *p = params[i];
        set_local_shape(p, mesh);
        p->unit = index;
        p->segment = 0;
        if (!glue[i])
            at = round_up(at, seg->align);
        p->offset = at;
        at += ax_param_local_numel(p);
    }
    const int group = mesh->size[seg->gather];
    seg->shard_numel = round_up(round_up(at, group) / group, seg->align);
    seg->numel = seg->shard_numel * group;
}

static struct ax_tensor take(struct ax_runtime *rt, const char *name, enum ax_dtype dtype,
                             int64_t n) {
    void *data = ax_stack_push(&rt->arena.persistent, name, (size_t)n * ax_dtype_size(dtype));
    return ax_tensor_1d(dtype, data, n);
}

/* The slice of `whole` that is this rank's shard. */
static struct ax_tensor own_part(const struct ax_segment *seg, struct ax_tensor whole, int coord) {
    char *data = whole.data;
    data += (size_t)(coord * seg->shard_numel) * ax_dtype_size(whole.dtype);
    return ax_tensor_1d(whole.dtype, data, seg->shard_numel);
}

void ax_unit_allocate(struct ax_unit *unit, struct ax_runtime *rt,
                      const struct ax_unit_options *o) {
    for (int s = 0; s < unit->n_segments; s++) {
        struct ax_segment *seg = &unit->segments[s];
        const bool alone = rt->mesh.size[seg->gather] == 1;
        const int coord = rt->mesh.coord[seg->gather];
        seg->whole = take(rt, "weights", seg->compute, seg->numel);
        seg->shard = alone ? seg->whole : take(rt, "weights", seg->compute, seg->shard_numel);
        if (!o->train || !seg->trainable)
            continue;
        const bool in_shard = seg->compute == AX_BF16 && o->masters != AX_MASTERS_ACCUM;
        seg->master = seg->compute == seg->accum || in_shard
                          ? seg->shard
                          : take(rt, "masters", seg->accum, seg->shard_numel);
        if (in_shard && o->masters == AX_MASTERS_REMAINDER)
            seg->remainder = take(rt, "master remainders", AX_I16, seg->shard_numel);
        seg->grad_whole = take(rt, "gradients", seg->accum, seg->numel);
        seg->grad = alone ? seg->grad_whole : own_part(seg, seg->grad_whole, coord);
        for (int k = 0; k < seg->n_state; k++)
            seg->state[k] = take(rt, seg->slots[k].name, seg->slots[k].dtype, seg->shard_numel);
    }
}

enum ax_status ax_unit_gather(struct ax_unit *unit, struct ax_runtime *rt) {
    if (unit->gathered++ > 0)
        return AX_OK;
    for (int s = 0; s < unit->n_segments; s++) {
        struct ax_segment *seg = &unit->segments[s];
        const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                           .dtype = seg->compute,
                                           .send = seg->shard.data,
                                           .recv = seg->whole.data,
                                           .count = seg->shard_numel};
        AX_TRY(ax_comm_run(&rt->comms[seg->gather], rt->q, &what));
    }
    return AX_OK;
}

void ax_unit_release(struct ax_unit *unit) {
    AX_ASSERT(unit->gathered > 0);
    unit->gathered--;
}

enum ax_status ax_unit_reduce(struct ax_unit *unit, struct ax_runtime *rt) {
    for (int s = 0; s < unit->n_segments; s++) {
        struct ax_segment *seg = &unit->segments[s];
        if (!seg->trainable)
            continue;
        struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                     .dtype = seg->accum,
                                     .send = seg->grad_whole.data,
                                     .recv = seg->grad.data,
                                     .count = seg->shard_numel};
        AX_TRY(ax_comm_run(&rt->comms[seg->gather], rt->q, &what));
        what.kind = AX_ALL_REDUCE;
        what.send = seg->grad.data;
        for (int role = 0; role < AX_ROLE_COUNT; role++)
            if (role != (int)seg->gather && (seg->reduce_roles >> role & 1))
                AX_TRY(ax_comm_run(&rt->comms[role], rt->q, &what));
    }
    return AX_OK;
}

static struct ax_tensor slice(struct ax_tensor flat, const struct ax_param *p) {
    if (!flat.data)
        return (struct ax_tensor){.dtype = flat.dtype};
    char *data = flat.data;
    data += (size_t)p->offset * ax_dtype_size(flat.dtype);
    return ax_tensor_nd(flat.dtype, data, p->ndim, p->local_shape);
}

struct ax_tensor ax_unit_weight(const struct ax_unit *unit, const struct ax_param *p) {
    AX_ASSERT(unit->gathered > 0);
    return slice(unit->segments[p->segment].whole, p);
}

struct ax_tensor ax_unit_grad(const struct ax_unit *unit, const struct ax_param *p) {
    return slice(unit->segments[p->segment].grad_whole, p);
}

void ax_unit_owned(const struct ax_unit *unit, const struct ax_mesh *mesh, const struct ax_param *p,
                   int64_t *first, int64_t *n, int64_t *at) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    const int64_t lo = mesh->coord[seg->gather] * seg->shard_numel, hi = lo + seg->shard_numel;
    const int64_t begin = p->offset > lo ? p->offset : lo;
    const int64_t end_of = p->offset + ax_param_local_numel(p);
    const int64_t end = end_of < hi ? end_of : hi;
    *first = begin - p->offset;
    *n = end > begin ? end - begin : 0;
    *at = begin - lo;
}

void ax_unit_load(struct ax_unit *unit, const struct ax_mesh *mesh, const struct ax_param *p,
                  enum ax_dtype dtype, const void *global) {
    struct ax_segment *seg = &unit->segments[p->segment];
    int64_t first, n, at;
    ax_unit_owned(unit, mesh, p, &first, &n, &at);
    const size_t from_size = ax_dtype_size(dtype), shard_size = ax_dtype_size(seg->compute);
    for (int64_t done = 0; done < n;) {
        int64_t run;
        const int64_t from = ax_param_global_index(p, mesh, first + done, &run);
        if (run > n - done)
            run = n - done;
        const char *src = (const char *)global + (size_t)from * from_size;
        char *shard = (char *)seg->shard.data + (size_t)(at + done) * shard_size;
        ax_convert(seg->compute, shard, dtype, src, run);
        if (seg->master.data && seg->master.data != seg->shard.data) {
            const size_t master_size = ax_dtype_size(seg->accum);
            char *master = (char *)seg->master.data + (size_t)(at + done) * master_size;
            ax_convert(seg->accum, master, dtype, src, run);
        }
        for (int64_t i = 0; seg->remainder.data && i < run; i++)
            ((uint16_t *)shard)[i] = ax_f32_split((float)ax_load(dtype, src, i),
                                                  (int16_t *)seg->remainder.data + at + done + i);
        done += run;
    }
}
