/* Movement of units between ranks: gathers and sums; and views of what is gathered. */
#include "parallel/units/unit_segment.h"

/* ---- gathers of codes ---- */

/* FP8 training with one scale for a matrix: a coded segment brings e4m3 codes, half the bytes of
 * BF16, and its ranks agree on the scales first. Values are those that quantizing the gathered matrix
 * would make, to the bit. Shards, masters, gradients, and gathers for anything else stay as they are.
 *
 * Until the gather, at the address of `full`:
 *
 *   codes    U8  [numel]  in the segment's layout; then, aligned, of each of its n parameters
 *   scales   F32 [n]
 *   ranges   F32 [n][2]   as of quant_range
 *   spare                 what the ops write besides
 *
 * unit.c lays coded segments out. */

#define BLOCK 4096 /* elements that are quantized together, for threads: the range is given */

/* `floats` F32 of each parameter after the codes. */
static char AX_DEVICE *after_codes(const struct ax_segment *seg, int64_t floats) {
    char AX_DEVICE *codes = seg->full.data;
    return codes + seg->numel + floats * seg->n_coded * (int64_t)sizeof(float);
}

static struct ax_tensor scales_of(const struct ax_segment *seg) {
    return ax_tensor_1d(AX_F32, after_codes(seg, 0), seg->n_coded);
}

static struct ax_tensor ranges_of(const struct ax_segment *seg) {
    return ax_tensor_2d(AX_F32, after_codes(seg, 1), seg->n_coded, 2);
}

static struct ax_tensor spare_of(const struct ax_segment *seg, enum ax_dtype dtype, int64_t n) {
    char AX_DEVICE *at = after_codes(seg, 3);
    const struct ax_tensor t = ax_tensor_1d(dtype, at, n);
    AX_ASSERT(at - (char AX_DEVICE *)seg->full.data + (int64_t)ax_tensor_bytes(&t) <=
              (int64_t)ax_tensor_bytes(&seg->full));
    return t;
}

/* The part of parameter i that this rank has, as a row, and its place in the shard; false: none. */
static bool coded_part(const struct ax_unit *unit, const struct ax_segment *seg,
                       const struct ax_runtime *rt, int i, struct ax_tensor *row, int64_t *at) {
    int64_t first, n;
    ax_unit_owned(unit, &rt->mesh, seg->coded[i], &first, &n, at);
    if (n == 0)
        return false;
    const struct ax_tensor part = ax_tensor_rows(&seg->shard, *at, n);
    *row = ax_tensor_2d(part.dtype, part.data, 1, n);
    return true;
}

/* The largest numbers of each parameter, of all ranks that have a part of it, and the scales. */
static enum ax_status agree_on_scales(const struct ax_unit *unit, const struct ax_segment *seg,
                                      struct ax_runtime *rt) {
    const struct ax_tensor ranges = ranges_of(seg);
    const enum ax_role over[] = {seg->gather, AX_ROLE_TP};
    struct ax_tensor x;
    int64_t at;
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){ranges, 0}));
    for (int i = 0; i < seg->n_coded; i++)
        if (coded_part(unit, seg, rt, i, &x, &at))
            AX_TRY(ax_run_quant_range(
                rt->q, &(struct ax_quant_range){.x = x, .range = ax_tensor_rows(&ranges, i, 1)}));
    for (int i = 0; i < 2; i++)
        if (rt->mesh.size[over[i]] > 1)
            AX_TRY(ax_comm_max(&rt->comms[over[i]], rt->q, AX_F32, ranges.data,
                               ax_tensor_numel(&ranges)));
    /* a scale follows from its range as from the two numbers in it */
    return ax_run_quantize(
        rt->q, &(struct ax_quantize){.x = ranges,
                                     .codes = spare_of(seg, AX_U8, 2 * (int64_t)seg->n_coded),
                                     .scale = scales_of(seg),
                                     .block = 2,
                                     .kind = AX_QUANT_FP8});
}

/* Quantizes this rank's part, *own [shard_numel], of *all [numel], which are to be gathered. */
static enum ax_status encode_segment(const struct ax_unit *unit, const struct ax_segment *seg,
                                     struct ax_runtime *rt, struct ax_tensor *own,
                                     struct ax_tensor *all) {
    const struct ax_tensor ranges = ranges_of(seg);
    struct ax_quantize a = {.kind = AX_QUANT_FP8};
    int64_t at;
    *all = ax_tensor_1d(AX_U8, seg->full.data, seg->numel);
    *own = ax_tensor_rows(all, rt->mesh.coord[seg->gather] * seg->shard_numel, seg->shard_numel);
    AX_TRY(agree_on_scales(unit, seg, rt));
    for (int i = 0; i < seg->n_coded; i++) {
        if (!coded_part(unit, seg, rt, i, &a.x, &at))
            continue;
        const int64_t n = a.x.shape[1];
        a.block = n < BLOCK ? n : BLOCK;
        a.codes = ax_tensor_rows(own, at, n);
        a.scale = spare_of(seg, AX_F32, (n + a.block - 1) / a.block);
        a.range = ax_tensor_rows(&ranges, i, 1);
        AX_TRY(ax_run_quantize(rt->q, &a));
    }
    return AX_OK;
}

/* The codes of a parameter of a gathered segment. */
static struct ax_packed codes_of(const struct ax_segment *seg, const struct ax_param *p) {
    const struct ax_tensor scales = scales_of(seg);
    int i = 0;
    while (seg->coded[i] != p)
        AX_ASSERT(++i < seg->n_coded);
    char AX_DEVICE *codes = seg->full.data;
    const int64_t n = ax_param_local_numel(p);
    return (struct ax_packed){.kind = AX_QUANT_FP8,
                              .block = n,
                              .codes = ax_tensor_1d(AX_U8, codes + p->offset, n),
                              .scale = ax_tensor_rows(&scales, i, 1)};
}

/* ---- gathers and sums ---- */

/* This rank's part of an unsharded buffer: where a shard in the host tier is gathered from. */
static struct ax_tensor own_part(const struct ax_segment *seg, const struct ax_runtime *rt,
                                 const struct ax_tensor *full, int64_t n) {
    return ax_tensor_rows(full, rt->mesh.coord[seg->gather] * n, n);
}

/* Copies a shard from the host tier beside ops. Others are sent it when it is here. */
static enum ax_status fetch_shard(struct ax_unit *unit, const struct ax_segment *seg,
                                  struct ax_runtime *rt, const struct ax_tensor *shard,
                                  const struct ax_tensor *mine) {
    AX_TRY(ax_queue_copy_beside(rt->q, AX_TIER_DEVICE, mine->data, shard->data,
                                ax_tensor_bytes(shard), &unit->copied));
    return ax_segment_alone(seg, rt) ? AX_OK : ax_queue_after(rt->q, unit->copied);
}

static enum ax_status start_buffer(struct ax_unit *unit, const struct ax_segment *seg,
                                   struct ax_runtime *rt, const struct ax_tensor *shard,
                                   const struct ax_tensor *full, struct ax_ticket *ticket) {
    const struct ax_tensor mine =
        seg->host_shard ? own_part(seg, rt, full, shard->shape[0]) : *shard;
    if (seg->host_shard)
        AX_TRY(fetch_shard(unit, seg, rt, shard, &mine));
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = full->dtype,
                                       .send = mine.data,
                                       .recv = full->data,
                                       .count = shard->shape[0]};
    return ax_comm_start(&rt->comms[seg->gather], rt->q, &what, ticket);
}

/* What a segment gathers: one buffer, or a packed one's. */
static int buffers(const struct ax_segment *seg) {
    int n = 0;
    if (!ax_segment_is_packed(seg))
        return 1;
    while (n < AX_PACKED_BUFFERS && seg->packed[n].data)
        n++;
    return n;
}

static enum ax_status start_segment(struct ax_unit *unit, struct ax_segment *seg,
                                    struct ax_runtime *rt, bool codes) {
    const bool packed = ax_segment_is_packed(seg);
    const int n = buffers(seg);
    struct ax_tensor own, all;
    seg->has_codes = codes && seg->n_coded > 0 && !ax_segment_in_place(seg, rt);
    if (seg->has_codes) {
        AX_TRY(encode_segment(unit, seg, rt, &own, &all));
        return start_buffer(unit, seg, rt, &own, &all, &seg->gathers[0]);
    }
    for (int i = 0; i < n; i++)
        AX_TRY(start_buffer(unit, seg, rt, packed ? &seg->packed_shard[i] : &seg->shard,
                            packed ? &seg->packed[i] : &seg->full, &seg->gathers[i]));
    return AX_OK;
}

enum ax_status ax_unit_start_gather(struct ax_unit *unit, struct ax_runtime *rt, bool codes) {
    if (unit->gathered++ > 0)
        return AX_OK;
    if (unit->pool) {
        const struct ax_unit *before = unit->pool->user[unit->buffer];
        AX_ASSERT(!before || before == unit || before->gathered == 0);
        unit->pool->user[unit->buffer] = unit;
    }
    unit->arriving = true;
    for (int s = 0; s < unit->n_segments; s++)
        AX_TRY(start_segment(unit, &unit->segments[s], rt, codes));
    return AX_OK;
}

enum ax_status ax_unit_arrive(struct ax_unit *unit, struct ax_runtime *rt) {
    AX_ASSERT(unit->gathered > 0);
    AX_TRY(ax_queue_after(rt->q, unit->copied));
    for (int s = 0; unit->arriving && s < unit->n_segments; s++) {
        const struct ax_segment *seg = &unit->segments[s];
        const int n = buffers(seg);
        for (int i = 0; i < n; i++)
            AX_TRY(ax_comm_wait(&rt->comms[seg->gather], rt->q, seg->gathers[i]));
    }
    unit->arriving = false;
    return AX_OK;
}

enum ax_status ax_unit_gather(struct ax_unit *unit, struct ax_runtime *rt) {
    AX_TRY(ax_unit_start_gather(unit, rt, false));
    return ax_unit_arrive(unit, rt);
}

void ax_unit_release(struct ax_unit *unit) {
    AX_ASSERT(unit->gathered > 0 && !unit->arriving);
    unit->gathered--;
}

void ax_unit_drop_gathers(struct ax_unit *unit, int kept) {
    unit->gathered = unit->gathered < kept ? unit->gathered : kept;
    unit->arriving = false;
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

/* Over the gather role, of grad_full to `sum`; over another one, whose ranks all have the same part,
 * of `sent` in place. */
static enum ax_status start_sum(const struct ax_segment *seg, struct ax_runtime *rt,
                                enum ax_role over, struct ax_segment_sum *s) {
    const bool scatters = over == seg->gather;
    struct ax_comm *c = &rt->comms[over];
    s->over = over;
    AX_TRY(to_send(seg, rt, scatters ? &seg->grad_full : &seg->grad, &s->sent));
    if (scatters)
        s->sum = push(rt, "reduced gradients", s->sent.dtype, seg->shard_numel);
    struct ax_collective what = {.kind = scatters ? AX_REDUCE_SCATTER : AX_ALL_REDUCE,
                                 .dtype = s->sent.dtype,
                                 .send = s->sent.data,
                                 .recv = scatters ? s->sum.data : s->sent.data,
                                 .count = seg->shard_numel};
    const size_t staging = c->stages ? ax_comm_staging(&what, c->size) : 0;
    if (staging > 0)
        what.staging = ax_stack_push(&rt->arena.scratch, "others' parts of sums", staging);
    return ax_comm_start(c, rt->q, &what, &s->ticket);
}

static enum ax_status finish_sum(struct ax_segment *seg, struct ax_runtime *rt,
                                 const struct ax_segment_sum *s) {
    AX_TRY(ax_comm_wait(&rt->comms[s->over], rt->q, s->ticket));
    if (s->over != seg->gather)
        return s->sent.data == seg->grad.data
                   ? AX_OK
                   : ax_run_copy(rt->q, &(struct ax_copy){seg->grad, s->sent});
    const bool adds = seg->summed;
    seg->summed = true;
    return adds ? ax_run_add(rt->q, &(struct ax_add){seg->grad, s->sum, 1})
                : ax_run_copy(rt->q, &(struct ax_copy){seg->grad, s->sum});
}

/* True if grad_full is grad. */
static bool is_alone(const struct ax_segment *seg) {
    return seg->grad.data == seg->grad_full.data;
}

/* The role after `before` (AX_ROLE_COUNT: the first one) that the gradients of a segment are summed
 * over; AX_ROLE_COUNT after the last one. The gather role comes first. */
static enum ax_role next_role(const struct ax_segment *seg, const struct ax_runtime *rt, bool last,
                              enum ax_role before) {
    if (!seg->trainable)
        return AX_ROLE_COUNT;
    if (before == AX_ROLE_COUNT && !is_alone(seg))
        return seg->gather;
    int role = before == AX_ROLE_COUNT || before == seg->gather ? 0 : (int)before + 1;
    while (role < AX_ROLE_COUNT && (!last || role == (int)seg->gather || rt->mesh.size[role] == 1 ||
                                    !(seg->reduce_roles >> role & 1)))
        role++;
    return (enum ax_role)role;
}

static enum ax_status zero(const struct ax_segment *seg, struct ax_runtime *rt, int64_t first,
                           int64_t end) {
    const struct ax_fill fill = {ax_tensor_rows(&seg->grad_full, first, end - first), 0};
    return first == end ? AX_OK : ax_run_fill(rt->q, &fill);
}

static enum ax_status begin(struct ax_segment *seg, struct ax_runtime *rt) {
    int64_t at = 0;
    for (int k = 0; k < seg->n_products; k++) {
        struct ax_param *p = seg->products[k];
        AX_TRY(zero(seg, rt, at, p->offset));
        at = p->offset + ax_param_local_numel(p);
        p->begins = true;
    }
    seg->begun = true;
    return zero(seg, rt, at, seg->numel);
}

enum ax_status ax_unit_begin_gradients(struct ax_unit *unit, struct ax_runtime *rt) {
    for (int i = 0; i < unit->n_segments; i++)
        if (unit->segments[i].trainable && !unit->segments[i].begun)
            AX_TRY(begin(&unit->segments[i], rt));
    return AX_OK;
}

bool ax_unit_grad_begins(const struct ax_unit *unit, const struct ax_param *p) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    int k = 0;
    AX_ASSERT(!seg->trainable || seg->begun);
    if (!seg->trainable || !p->begins)
        return false;
    while (seg->products[k] != p)
        AX_ASSERT(++k < seg->n_products);
    seg->products[k]->begins = false;
    return true;
}

/* Zeroes what no product has written. */
static enum ax_status complete(struct ax_segment *seg, struct ax_runtime *rt) {
    if (!seg->begun)
        AX_TRY(begin(seg, rt));
    for (int k = 0; k < seg->n_products; k++) {
        struct ax_param *p = seg->products[k];
        if (p->begins)
            AX_TRY(zero(seg, rt, p->offset, p->offset + ax_param_local_numel(p)));
        p->begins = false;
    }
    return AX_OK;
}

void ax_unit_drop_gradients(struct ax_unit *unit) {
    for (int i = 0; i < unit->n_segments; i++)
        unit->segments[i].begun = unit->segments[i].summed = false;
}

enum ax_status ax_unit_start_reduce(struct ax_unit_sum *r, struct ax_unit *unit,
                                    struct ax_runtime *rt, bool last) {
    AX_ASSERT(!r->unit);
    *r =
        (struct ax_unit_sum){.unit = unit, .last = last, .mark = ax_stack_mark(&rt->arena.scratch)};
    for (int i = 0; i < unit->n_segments; i++) {
        struct ax_segment *seg = &unit->segments[i];
        r->sums[i].over = next_role(seg, rt, last, AX_ROLE_COUNT);
        if (seg->trainable)
            AX_TRY(complete(seg, rt));
        if (r->sums[i].over != AX_ROLE_COUNT)
            AX_TRY(start_sum(seg, rt, r->sums[i].over, &r->sums[i]));
        seg->begun = seg->begun && is_alone(seg);
    }
    return AX_OK;
}

static enum ax_status finish_segment(struct ax_segment *seg, struct ax_runtime *rt, bool last,
                                     struct ax_segment_sum *s) {
    size_t mark = ax_stack_mark(&rt->arena.scratch);
    while (s->over != AX_ROLE_COUNT) {
        AX_TRY(finish_sum(seg, rt, s));
        ax_stack_release(&rt->arena.scratch, mark);
        mark = ax_stack_mark(&rt->arena.scratch);
        s->over = next_role(seg, rt, last, s->over);
        if (s->over != AX_ROLE_COUNT)
            AX_TRY(start_sum(seg, rt, s->over, s));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_unit_finish_reduce(struct ax_unit_sum *r, struct ax_runtime *rt) {
    if (!r->unit)
        return AX_OK;
    for (int i = 0; i < r->unit->n_segments; i++)
        AX_TRY(finish_segment(&r->unit->segments[i], rt, r->last, &r->sums[i]));
    ax_stack_release(&rt->arena.scratch, r->mark);
    r->unit = NULL;
    return AX_OK;
}

/* The second sums have memory below what is pushed from here on. */
static enum ax_status start_second(struct ax_unit_sum *r, const struct ax_unit_sum *first,
                                   struct ax_runtime *rt) {
    *r = (struct ax_unit_sum){
        .unit = first->unit, .last = first->last, .mark = ax_stack_mark(&rt->arena.scratch)};
    for (int i = 0; i < r->unit->n_segments; i++) {
        const struct ax_segment *seg = &r->unit->segments[i];
        const enum ax_role before = first->sums[i].over;
        r->sums[i].over =
            before == AX_ROLE_COUNT ? AX_ROLE_COUNT : next_role(seg, rt, r->last, before);
        if (r->sums[i].over != AX_ROLE_COUNT)
            AX_TRY(start_sum(seg, rt, r->sums[i].over, &r->sums[i]));
    }
    return AX_OK;
}

enum ax_status ax_unit_pass_reduce(struct ax_unit_sum *r, struct ax_unit_sum *next,
                                   struct ax_runtime *rt) {
    if (!r->unit)
        return ax_unit_finish_reduce(next, rt);
    for (int i = 0; i < r->unit->n_segments; i++)
        if (r->sums[i].over != AX_ROLE_COUNT)
            AX_TRY(finish_sum(&r->unit->segments[i], rt, &r->sums[i]));
    ax_stack_release(&rt->arena.scratch, r->mark);
    AX_TRY(ax_unit_finish_reduce(next, rt));
    AX_TRY(start_second(next, r, rt));
    r->unit = NULL;
    return AX_OK;
}

/* The second's memory is below the other's. */
enum ax_status ax_unit_finish_reduces(struct ax_unit_sum *r, struct ax_unit_sum *next,
                                      struct ax_runtime *rt) {
    AX_TRY(ax_unit_finish_reduce(r, rt));
    return ax_unit_finish_reduce(next, rt);
}

static struct ax_tensor slice(struct ax_tensor flat, const struct ax_param *p) {
    if (!flat.data)
        return (struct ax_tensor){.dtype = flat.dtype};
    char AX_DEVICE *data = flat.data;
    data += (size_t)p->offset * ax_dtype_size(flat.dtype);
    return ax_tensor_nd(flat.dtype, data, p->ndim, p->local_shape);
}

bool ax_unit_is_packed(const struct ax_unit *unit, const struct ax_param *p) {
    return ax_segment_is_packed(&unit->segments[p->segment]) || ax_unit_has_codes(unit, p);
}

bool ax_unit_has_codes(const struct ax_unit *unit, const struct ax_param *p) {
    return unit->segments[p->segment].has_codes;
}

struct ax_packed ax_unit_packed_run(const struct ax_unit *unit, const struct ax_param *p,
                                    int64_t n) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    const struct ax_param *last = &p[n - 1];
    AX_ASSERT(unit->gathered > 0 && !unit->arriving && ax_segment_is_packed(seg));
    for (int64_t i = 1; i < n; i++)
        AX_ASSERT(ax_param_follows(&p[i - 1], &p[i]));
    return ax_packing_view(&seg->packing, seg->packed, p->offset,
                           last->offset + ax_param_local_numel(last) - p->offset);
}

struct ax_packed ax_unit_packed(const struct ax_unit *unit, const struct ax_param *p) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    AX_ASSERT(unit->gathered > 0 && !unit->arriving && ax_unit_is_packed(unit, p));
    if (seg->has_codes)
        return codes_of(seg, p);
    struct ax_packed packed = ax_unit_packed_run(unit, p, 1);
    packed.codes.panels = p->panels;
    return packed;
}

struct ax_tensor ax_unit_weight(const struct ax_unit *unit, const struct ax_param *p) {
    AX_ASSERT(unit->gathered > 0 && !unit->arriving && !ax_unit_is_packed(unit, p));
    struct ax_tensor weight = slice(unit->segments[p->segment].full, p);
    weight.panels = p->panels;
    return weight;
}

struct ax_tensor ax_unit_grad(const struct ax_unit *unit, const struct ax_param *p) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    AX_ASSERT(!seg->trainable || (seg->begun && !p->begins));
    return slice(seg->grad_full, p);
}

bool ax_unit_trains(const struct ax_unit *unit, const struct ax_param *p) {
    return unit->segments[p->segment].trainable;
}

enum ax_status ax_unit_master(const struct ax_unit *unit, struct ax_runtime *rt,
                              const struct ax_param *p, struct ax_tensor gathered[AX_MAX_SEGMENTS],
                              struct ax_tensor *out) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    struct ax_tensor *all = &gathered[p->segment];
    if (!all->data) {
        struct ax_tensor mine = seg->master;
        if (seg->host_master) {
            mine = ax_stack_take(&rt->arena.scratch, "masters", mine);
            AX_TRY(ax_queue_copy(rt->q, mine.data, seg->master.data, ax_tensor_bytes(&mine)));
        }
        *all = ax_tensor_1d(seg->accum, mine.data, seg->numel);
        if (!ax_segment_alone(seg, rt)) {
            *all = ax_stack_take(&rt->arena.scratch, "gathered masters", *all);
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
