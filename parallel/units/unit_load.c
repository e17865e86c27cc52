/* Reads a file's tensor into the part of a parameter that this rank owns. */
#include "parallel/units/unit.h"

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
enum { SHARD, MASTER, REMAINDER, N_KEPT };
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
        if (!from[i]->data || (i == MASTER && seg->master.data == seg->shard.data))
            continue;
        k->of[i].device = (char AX_DEVICE *)from[i]->data + (size_t)at * size;
        k->of[i].bytes = (size_t)n * size;
    }
}

/* Stores n contiguous elements from src at element `at` of what is kept. */
static void put_run(const struct kept *k, int64_t at, enum ax_dtype dtype, const void *src,
                    int64_t n) {
    const struct ax_segment *seg = k->seg;
    char *shard = (char *)k->of[SHARD].host + (size_t)at * ax_dtype_size(seg->compute);
    ax_convert(seg->compute, shard, dtype, src, n);
    if (k->of[MASTER].host) {
        char *master = (char *)k->of[MASTER].host + (size_t)at * ax_dtype_size(seg->accum);
        ax_convert(seg->accum, master, dtype, src, n);
    }
    int16_t *remainder = k->of[REMAINDER].host;
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
