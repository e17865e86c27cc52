/* Layout, storage and loading of units: see unit.h for the buffers and which ones are shared. */
#include "parallel/units/unit.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/finite.h"
#include "kernels/quant/quant_block.h"
#include "kernels/transfer.h"
#include "parallel/units/unit_segment.h"

/* Elements: the block of 8-bit optimizer states, and a multiple of 64 B. */
#define SEGMENT_ALIGN 256

static const char *const masters_names[] = {"float32", "bf16_remainder", "bf16_sr"};

const char *ax_masters_name(size_t i) {
    return i <= AX_MASTERS_STOCHASTIC ? masters_names[i] : NULL;
}

enum ax_status ax_masters_parse(const char *name, enum ax_masters *out) {
    for (int i = AX_MASTERS_ACCUM; i <= AX_MASTERS_STOCHASTIC; i++) {
        if (strcmp(name, masters_names[i]) == 0) {
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
    int64_t first;
    for (int d = 0; d < p->ndim; d++)
        p->local_shape[d] = p->shape[d];
    if (p->tp_dim >= 0)
        ax_split_range(p->shape[p->tp_dim], mesh->size[AX_ROLE_TP], mesh->coord[AX_ROLE_TP], &first,
                       &p->local_shape[p->tp_dim]);
    if (p->expert)
        p->local_shape[p->ep_dim] =
            p->ep_owner == mesh->coord[AX_ROLE_EP] ? p->shape[p->ep_dim] : 0;
    else if (p->ep_dim >= 0)
        ax_split_range(p->shape[p->ep_dim], mesh->size[AX_ROLE_EP], mesh->coord[AX_ROLE_EP], &first,
                       &p->local_shape[p->ep_dim]);
}

/* Of a copy, a parameter that it lacks has no elements, in whatever segment is first. */
static bool is_absent(const struct ax_unit *unit, const struct ax_param *p) {
    return unit->copy && p->uncopied;
}

/* Roles with more than one rank: a sum over one rank needs no separate segment. */
static uint32_t present_roles(const struct ax_mesh *mesh, uint32_t roles) {
    uint32_t present = 0;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        if ((roles >> role & 1) && mesh->size[role] > 1)
            present |= 1u << role;
    return present;
}

/* Trained parameters are, whether codes are gathered or not: so ranks have the same elements, and sums
 * over them, such as the norm, the same order. Ops cannot read shards in the host tier. */
static bool is_coded(const struct ax_unit_options *o, const struct ax_param *p) {
    const bool trained = o->train && p->trainable;
    return p->coded && (trained || (o->sharding.coded && !o->offload.layers));
}

static void add_coded(struct ax_segment *seg, const struct ax_param *p) {
    AX_ASSERT(seg->n_coded < AX_MAX_CODED);
    seg->coded[seg->n_coded++] = p;
}

static void add_product(struct ax_segment *seg, struct ax_param *p) {
    if (!p->linear || !seg->trainable)
        return;
    AX_ASSERT(seg->n_products < AX_MAX_PRODUCTS);
    seg->products[seg->n_products++] = p;
}

/* The unit's segment for p, created if missing. */
static int segment_for(struct ax_unit *unit, const struct ax_mesh *mesh,
                       const struct ax_unit_options *o, const struct ax_param *p) {
    const enum ax_role gather = p->ep_dim >= 0 ? AX_ROLE_EFSDP : AX_ROLE_FSDP;
    const uint32_t reduce =
        1u << gather | 1u << AX_ROLE_DP_REPLICATE | present_roles(mesh, p->grad_partial_over);
    const bool trainable = o->train && p->trainable;
    const bool adapters = !trainable && p->adapter;
    const bool coded = is_coded(o, p);
    const enum ax_dtype accum = ax_dtype_accum(o->compute), dtype = p->buffer ? accum : o->compute;
    for (int s = 0; s < unit->n_segments; s++) {
        const struct ax_segment *seg = &unit->segments[s];
        if (seg->gather == gather && seg->reduce_roles == reduce && seg->trainable == trainable &&
            seg->adapters == adapters && seg->buffer == p->buffer && seg->uncopied == p->uncopied &&
            seg->packing.store == p->storage && (seg->n_coded > 0) == coded)
            return s;
    }
    AX_ASSERT(unit->n_segments < AX_MAX_SEGMENTS);
    struct ax_segment *seg = &unit->segments[unit->n_segments];
    *seg = (struct ax_segment){.gather = gather,
                               .reduce_roles = reduce,
                               .compute = dtype,
                               .accum = accum,
                               .align = SEGMENT_ALIGN,
                               .trainable = trainable,
                               .adapters = adapters,
                               .buffer = p->buffer,
                               .uncopied = p->uncopied,
                               .bf16_sums = o->sharding.bf16_sums && o->compute != AX_F64};
    ax_packing_start(&seg->packing, p->storage);
    return unit->n_segments++;
}

void ax_unit_layout(struct ax_unit *unit, const struct ax_mesh *mesh,
                    const struct ax_unit_options *o, int n, struct ax_param **params,
                    const bool *glue) {
    unit->n_segments = 0;
    for (int i = 0; i < n; i++) {
        struct ax_param *p = params[i];
        set_local_shape(p, mesh);
        if (is_absent(unit, p)) {
            p->local_shape[0] = 0;
            p->segment = 0;
            continue;
        }
        p->segment = segment_for(unit, mesh, o, p);
        if (p->storage != AX_STORAGE_PLAIN)
            ax_packing_add(&unit->segments[p->segment].packing, mesh, p);
        if (is_coded(o, p))
            add_coded(&unit->segments[p->segment], p);
        add_product(&unit->segments[p->segment], p);
    }
    for (int s = 0; s < unit->n_segments; s++)
        if (ax_segment_is_packed(&unit->segments[s]))
            unit->segments[s].align =
                ax_packing_align(&unit->segments[s].packing, unit->segments[s].align);
    for (int i = 0; i < n; i++) {
        struct ax_param *p = params[i];
        struct ax_segment *seg = &unit->segments[p->segment];
        if (!glue[i] || ax_segment_is_packed(seg) || params[i - 1]->segment != p->segment)
            seg->numel = round_up(seg->numel, seg->align);
        p->offset = seg->numel;
        seg->numel += ax_param_local_numel(p);
    }
    for (int s = 0; s < unit->n_segments; s++) {
        struct ax_segment *seg = &unit->segments[s];
        const int group = mesh->size[seg->gather];
        seg->shard_numel = round_up(round_up(seg->numel, group) / group, seg->align);
        seg->numel = seg->shard_numel * group;
    }
}

static const struct ax_param *find(int n, const struct ax_param *params, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(params[i].name, name) == 0)
            return &params[i];
    return NULL;
}

/* The number of the segment of `of` with exactly the parameters of segment s, or −1. */
static int same_segment(const struct ax_unit *unit, int s, int n, const struct ax_param *params,
                        const struct ax_unit *of, int n_of, const struct ax_param *params_of) {
    const struct ax_segment *seg = &unit->segments[s];
    int same = -1;
    for (int i = 0; i < n; i++) {
        if (params[i].segment != s)
            continue;
        const struct ax_param *p = find(n_of, params_of, params[i].name);
        if (!p || p->offset != params[i].offset || (same >= 0 && p->segment != same))
            return -1;
        same = p->segment;
    }
    if (same < 0)
        return -1;
    const struct ax_segment *other = &of->segments[same];
    const bool alike = !seg->trainable && !other->trainable && !seg->adapters && !seg->buffer &&
                       !other->buffer && seg->gather == other->gather &&
                       seg->compute == other->compute && seg->numel == other->numel &&
                       seg->packing.store == other->packing.store;
    return alike ? same : -1;
}

void ax_unit_borrow(struct ax_unit *unit, int n, const struct ax_param *params,
                    const struct ax_unit *of, int n_of, const struct ax_param *params_of) {
    for (int s = 0; s < unit->n_segments; s++) {
        const int same = same_segment(unit, s, n, params, of, n_of, params_of);
        if (same >= 0)
            unit->segments[s].lender = &of->segments[same];
    }
}

bool ax_unit_present(const struct ax_unit *unit) {
    return unit->n_segments > 0;
}

static struct ax_tensor take_from(struct ax_stack *stack, const char *name, enum ax_dtype dtype,
                                  int64_t n) {
    return ax_tensor_1d(dtype, ax_stack_push(stack, name, (size_t)n * ax_dtype_size(dtype)), n);
}

static struct ax_tensor take(struct ax_runtime *rt, const char *name, enum ax_dtype dtype,
                             int64_t n) {
    return take_from(&rt->arena.persistent, name, dtype, n);
}

static size_t full_bytes(const struct ax_segment *seg) {
    struct ax_tensor packed[AX_PACKED_BUFFERS];
    size_t bytes = 0;
    if (!ax_segment_is_packed(seg))
        return ax_arena_round((size_t)seg->numel * ax_dtype_size(seg->compute));
    const int n = ax_packing_buffers(&seg->packing, seg->numel, packed);
    for (int i = 0; i < n; i++)
        bytes += ax_arena_round(ax_tensor_bytes(&packed[i]));
    return bytes;
}

/* Bytes that a unit needs in a pool buffer: its gathered segments, contiguous. */
static void streamed_bytes(const struct ax_unit *unit, const struct ax_runtime *rt, size_t *full,
                           size_t *grad) {
    *full = *grad = 0;
    for (int s = 0; s < unit->n_segments; s++) {
        const struct ax_segment *seg = &unit->segments[s];
        if (ax_segment_in_place(seg, rt))
            continue;
        *full += full_bytes(seg);
        *grad +=
            seg->trainable ? ax_arena_round((size_t)seg->numel * ax_dtype_size(seg->accum)) : 0;
    }
}

size_t ax_unit_hold_bytes(const struct ax_unit *unit, const struct ax_runtime *rt) {
    size_t full = 0, grad;
    if (unit->pool)
        streamed_bytes(unit, rt, &full, &grad);
    return full;
}

void ax_unit_pool_create(struct ax_unit_pool *pool, struct ax_runtime *rt,
                         const struct ax_unit_options *o, struct ax_unit *units, int n) {
    size_t full = 0, grad = 0;
    for (int i = 0; i < n; i++) {
        size_t w, g;
        struct ax_segment *seg = units[i].segments;
        for (; seg < units[i].segments + units[i].n_segments; seg++)
            seg->host_shard =
                seg->lender ? seg->lender->host_shard : o->offload.layers && !seg->trainable;
        streamed_bytes(&units[i], rt, &w, &g);
        full = w > full ? w : full;
        grad = g > grad ? g : grad;
    }
    *pool = (struct ax_unit_pool){.prefetch = o->sharding.prefetch};
    for (int buffer = 0; buffer < 2; buffer++) {
        if (!o->sharding.keep_weights)
            pool->full[buffer] = ax_stack_push(&rt->arena.persistent, "gathered weights", full);
        if (o->train && !o->sharding.keep_gradients)
            pool->grad[buffer] = ax_stack_push(&rt->arena.persistent, "unsharded gradients", grad);
    }
}

/* Allocates an unsharded buffer: from a pool buffer at `*at`, or from the persistent stack (at
 * NULL). */
static struct ax_tensor take_full(struct ax_runtime *rt, char AX_DEVICE **at, const char *name,
                                  enum ax_dtype dtype, int64_t n) {
    if (!*at)
        return take(rt, name, dtype, n);
    const struct ax_tensor t = ax_tensor_1d(dtype, *at, n);
    *at += ax_arena_round(ax_tensor_bytes(&t));
    return t;
}

/* Where a segment's shard is. */
static struct ax_stack *home_of(const struct ax_segment *seg, struct ax_runtime *rt) {
    return seg->host_shard ? &rt->arena.host : &rt->arena.persistent;
}

static void allocate_packed(struct ax_segment *seg, struct ax_runtime *rt,
                            char AX_DEVICE **full_at) {
    ax_packing_buffers(&seg->packing, seg->numel, seg->packed);
    const int n = ax_packing_buffers(&seg->packing, seg->shard_numel, seg->packed_shard);
    for (int i = 0; i < n; i++) {
        struct ax_tensor *full = &seg->packed[i], *shard = &seg->packed_shard[i];
        *shard = seg->lender
                     ? seg->lender->packed_shard[i]
                     : take_from(home_of(seg, rt), "packed weights", shard->dtype, shard->shape[0]);
        *full = ax_segment_in_place(seg, rt)
                    ? *shard
                    : take_full(rt, full_at, "gathered weights", full->dtype, full->shape[0]);
    }
}

static const char *name_of(const struct ax_segment *seg) {
    return seg->trainable ? "weights" : seg->buffer ? "buffers" : "frozen weights";
}

void ax_unit_allocate(struct ax_unit *unit, struct ax_runtime *rt, const struct ax_unit_options *o,
                      struct ax_unit_pool *pool, int buffer) {
    char AX_DEVICE *full_at = pool ? pool->full[buffer] : NULL;
    char AX_DEVICE *grad_at =
        pool ? pool->grad[buffer] : NULL; /* NULL: it has a buffer of its own */
    unit->pool = o->sharding.keep_weights ? NULL : pool;
    unit->buffer = pool ? buffer : -1;
    for (int s = 0; s < unit->n_segments; s++) {
        struct ax_segment *seg = &unit->segments[s];
        if (ax_segment_is_packed(seg)) {
            allocate_packed(seg, rt, &full_at);
            continue;
        }
        seg->shard =
            seg->lender ? seg->lender->shard
                        : take_from(home_of(seg, rt), name_of(seg), seg->compute, seg->shard_numel);
        seg->full = ax_segment_in_place(seg, rt)
                        ? seg->shard
                        : take_full(rt, &full_at, "gathered weights", seg->compute, seg->numel);
        if (!seg->trainable)
            continue;
        const bool in_shard = seg->compute == AX_BF16 && o->masters != AX_MASTERS_ACCUM;
        const bool separate = seg->compute != seg->accum && !in_shard;
        seg->host_master = o->offload.optimizer && separate;
        seg->master = separate
                          ? take_from(seg->host_master ? &rt->arena.host : &rt->arena.persistent,
                                      "masters", seg->accum, seg->shard_numel)
                          : seg->shard;
        if (in_shard && o->masters == AX_MASTERS_REMAINDER)
            seg->remainder = take(rt, "master remainders", AX_I16, seg->shard_numel);
        seg->grad = take(rt, "gradients", seg->accum, seg->shard_numel);
        seg->grad_full = ax_segment_alone(seg, rt) ? seg->grad
                                                   : take_full(rt, &grad_at, "unsharded gradients",
                                                               seg->accum, seg->numel);
    }
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

/* ---- reading a file's tensor into the part of a parameter that this rank owns ---- */

#define LOAD_PART  ((int64_t)1 << 17) /* elements that a thread reads per iteration */
#define LOAD_CHUNK 4096               /* elements computed and checked at a time */

/* The part of a parameter that this rank owns. */
struct owned {
    const struct ax_segment *seg;
    struct ax_runtime *rt;
    const struct ax_param *p;
    int64_t first, n, at;
};

/* What a segment keeps of contiguous elements; host NULL: nothing. */
enum { KEEP_SHARD, KEEP_MASTER, KEEP_REMAINDER, N_KEPT };
struct kept {
    const struct ax_segment *seg;
    struct ax_queue_piece of[N_KEPT];
};

static void kept_list(struct kept *k, const struct owned *o, int64_t at, int64_t n) {
    const struct ax_segment *seg = o->seg;
    const struct ax_tensor *from[N_KEPT] = {&seg->shard, &seg->master, &seg->remainder};
    *k = (struct kept){.seg = seg};
    for (int i = 0; i < N_KEPT; i++) {
        const size_t size = ax_dtype_size(from[i]->dtype);
        if (!from[i]->data || (i == KEEP_MASTER && seg->master.data == seg->shard.data))
            continue;
        k->of[i].device = (char AX_DEVICE *)from[i]->data + (size_t)at * size;
        k->of[i].bytes = (size_t)n * size;
    }
}

/* Stores n contiguous elements from src at element `at` of what is kept. */
static void put_run(const struct kept *k, int64_t at, enum ax_dtype dtype, const void *src,
                    int64_t n) {
    const struct ax_segment *seg = k->seg;
    char *shard = (char *)k->of[KEEP_SHARD].host + (size_t)at * ax_dtype_size(seg->compute);
    ax_convert(seg->compute, shard, dtype, src, n);
    if (k->of[KEEP_MASTER].host) {
        char *master = (char *)k->of[KEEP_MASTER].host + (size_t)at * ax_dtype_size(seg->accum);
        ax_convert(seg->accum, master, dtype, src, n);
    }
    int16_t *remainder = k->of[KEEP_REMAINDER].host;
    for (int64_t i = 0; remainder && i < n; i++)
        ((uint16_t *)shard)[i] = ax_f32_split((float)ax_load(dtype, src, i), remainder + at + i);
}

/* The same for elements [first, first + n) of `from`, which are computed if it has `read`. */
static enum ax_status load_run(const struct kept *k, int64_t at, const struct ax_elements *from,
                               int64_t first, int64_t n) {
    double buffer[LOAD_CHUNK]; /* large enough for any dtype */
    const char *file = from->data;
    for (int64_t i = 0, m; i < n; i += m) {
        const void *src = file + (size_t)(first + i) * ax_dtype_size(from->dtype);
        m = n - i < LOAD_CHUNK ? n - i : LOAD_CHUNK;
        if (from->read) {
            AX_TRY(from->read(from->ctx, first + i, m, buffer));
            src = buffer;
        }
        put_run(k, at + i, from->dtype, src, m);
        AX_TRY(ax_elements_check(from, first + i, m, src)); /* while the cache has it */
    }
    return AX_OK;
}

static enum ax_status load_part(const struct owned *o, const struct ax_elements *global,
                                int64_t part) {
    const int64_t n = o->n - part < LOAD_PART ? o->n - part : LOAD_PART;
    struct kept k;
    kept_list(&k, o, o->at + part, n);
    enum ax_status st = ax_queue_begin_write(o->rt->q, N_KEPT, k.of);
    for (int64_t i = 0, run; st == AX_OK && i < n; i += run) {
        const int64_t from = ax_param_global_index(o->p, &o->rt->mesh, o->first + part + i, &run);
        run = run < n - i ? run : n - i;
        st = load_run(&k, i, global, from, run);
    }
    const enum ax_status end = ax_queue_end_write(o->rt->q, N_KEPT, k.of);
    return st == AX_OK ? end : st;
}

enum ax_status ax_unit_load(struct ax_unit *unit, struct ax_runtime *rt, const struct ax_param *p,
                            const struct ax_elements *global) {
    struct owned o = {.seg = &unit->segments[p->segment], .rt = rt, .p = p};
    ax_unit_owned(unit, &rt->mesh, p, &o.first, &o.n, &o.at);
    int64_t failed = o.n; /* first part that could not be read */
    /* Most of a model's loading time is first-touch page faults of the file and the arena, which
     * the kernel serves faster to several threads than to one. */
#pragma omp parallel for schedule(static) reduction(min : failed) if (o.n >= 4 * LOAD_PART)
    for (int64_t part = 0; part < o.n; part += LOAD_PART)
        if (load_part(&o, global, part) != AX_OK)
            failed = part < failed ? part : failed;
    /* fails again, because the message is in another thread's error record */
    return failed < o.n ? load_part(&o, global, failed) : AX_OK;
}

enum ax_status ax_unit_load_packed(struct ax_unit *unit, struct ax_runtime *rt,
                                   const struct ax_param *p, const struct ax_elements *global) {
    struct ax_segment *seg = &unit->segments[p->segment];
    const struct ax_packed_source source = {p, &rt->mesh, global};
    int64_t first, n, at;
    ax_unit_owned(unit, &rt->mesh, p, &first, &n, &at);
    if (n == 0)
        return AX_OK;
    return ax_packing_load(&seg->packing, rt->q, seg->packed_shard, &source, first, n, at);
}

bool ax_segment_owned(const struct ax_segment *seg, const struct ax_mesh *mesh) {
    const bool replica = (seg->reduce_roles >> AX_ROLE_TP & 1) && mesh->coord[AX_ROLE_TP] > 0;
    return !replica && mesh->coord[AX_ROLE_DP_REPLICATE] == 0;
}

bool ax_unit_owns(const struct ax_unit *unit, const struct ax_mesh *mesh,
                  const struct ax_param *p) {
    return ax_unit_present(unit) && !unit->copy &&
           ax_segment_owned(&unit->segments[p->segment], mesh);
}
