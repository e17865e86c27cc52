/* Reads a file's tensor into the part of a parameter that this rank owns. */
#include "parallel/unit.h"

#define LOAD_PART  ((int64_t)1 << 17) /* elements that a thread reads per iteration */
#define LOAD_CHUNK 4096               /* elements computed at a time */

/* Stores n contiguous elements from src at shard position `at`. */
static void put_run(const struct ax_segment *seg, int64_t at, enum ax_dtype dtype, const void *src,
                    int64_t n) {
    char *shard = (char *)seg->shard.data + (size_t)at * ax_dtype_size(seg->compute);
    ax_convert(seg->compute, shard, dtype, src, n);
    if (seg->master.data && seg->master.data != seg->shard.data) {
        char *master = (char *)seg->master.data + (size_t)at * ax_dtype_size(seg->accum);
        ax_convert(seg->accum, master, dtype, src, n);
    }
    for (int64_t i = 0; seg->remainder.data && i < n; i++)
        ((uint16_t *)shard)[i] =
            ax_f32_split((float)ax_load(dtype, src, i), (int16_t *)seg->remainder.data + at + i);
}

/* The same for elements [first, first + n) of `from`, which are computed if it has `read`. */
static enum ax_status load_run(const struct ax_segment *seg, int64_t at,
                               const struct ax_elements *from, int64_t first, int64_t n) {
    double buffer[LOAD_CHUNK]; /* large enough for any dtype */
    if (!from->read) {
        const char *src = from->data;
        put_run(seg, at, from->dtype, src + (size_t)first * ax_dtype_size(from->dtype), n);
        return AX_OK;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < LOAD_CHUNK ? n - i : LOAD_CHUNK;
        AX_TRY(from->read(from->ctx, first + i, m, buffer));
        put_run(seg, at + i, from->dtype, buffer, m);
    }
    return AX_OK;
}

/* The part of a parameter that this rank owns. */
struct owned {
    const struct ax_segment *seg;
    const struct ax_mesh *mesh;
    const struct ax_param *p;
    int64_t first, n, at;
};

static enum ax_status load_part(const struct owned *o, const struct ax_elements *global,
                                int64_t part) {
    const int64_t end = part + LOAD_PART < o->n ? part + LOAD_PART : o->n;
    for (int64_t i = part, run; i < end; i += run) {
        const int64_t from = ax_param_global_index(o->p, o->mesh, o->first + i, &run);
        run = run < end - i ? run : end - i;
        AX_TRY(load_run(o->seg, o->at + i, global, from, run));
    }
    return AX_OK;
}

enum ax_status ax_unit_load(struct ax_unit *unit, const struct ax_mesh *mesh,
                            const struct ax_param *p, const struct ax_elements *global) {
    struct owned o = {.seg = &unit->segments[p->segment], .mesh = mesh, .p = p};
    ax_unit_owned(unit, mesh, p, &o.first, &o.n, &o.at);
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
