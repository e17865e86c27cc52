/* Reads a file's tensor into the part of a parameter that this rank owns. */
#include <string.h>

#include "base/mem.h"
#include "kernels/finite.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"
#include "kernels/transfer.h"
#include "parallel/units/packed.h"
#include "parallel/units/packed_block.h"
#include "parallel/units/unit.h"

/* ---- a packed parameter ---- */

/* From the file's tensor to codes: full blocks are quantized on the host in a staging buffer of
 * bounded size, and the part that this rank owns is copied into its shard, piece by piece. */

#define STAGE (1 << 20) /* elements quantized together, unless a block is longer */
#define SHORT 4096 /* runs shorter than this are quantized together with the gaps between them */

/* Elements [first, first + n) of the global tensor, quantized. */
struct stage {
    struct ax_queue *q; /* of the host */
    const struct ax_packed_source *source;
    enum ax_quant kind;
    int64_t numel;       /* of the global tensor */
    int64_t block, unit; /* elements that share a scale; that are quantized together */
    bool nested, reads_codes;
    float mean; /* of all scales, if nested */
    int64_t cap, first, n;
    float *x, *scale, *meant, *top, *offset; /* meant: decoded scales */
    unsigned char *codes, *scale_codes;
};

static void stage_free(struct stage *s) {
    ax_free(s->x);
    ax_free(s->scale);
    ax_free(s->meant);
    ax_free(s->top);
    ax_free(s->offset);
    ax_free(s->codes);
    ax_free(s->scale_codes);
}

static enum ax_status stage_allocate(struct stage *s) {
    const size_t n = (size_t)s->cap, scales = n / (size_t)s->block;
    const size_t groups = n / AX_NF4_GROUP + 1;
    AX_TRY(ax_alloc(&s->x, n, sizeof *s->x));
    AX_TRY(ax_alloc(&s->codes, n, 1));
    AX_TRY(ax_alloc(&s->scale, scales, sizeof *s->scale));
    AX_TRY(ax_alloc(&s->meant, scales, sizeof *s->meant));
    AX_TRY(ax_alloc(&s->scale_codes, scales, 1));
    AX_TRY(ax_alloc(&s->top, groups, sizeof *s->top));
    return ax_alloc(&s->offset, groups, sizeof *s->offset);
}

static int64_t blocks_of(const struct stage *s) {
    return (s->n + s->block - 1) / s->block;
}

/* The scales as 8-bit codes, and the decoded scales. */
static enum ax_status nest_scales(struct stage *s) {
    const int64_t scales = blocks_of(s), groups = (s->n + AX_NF4_GROUP - 1) / AX_NF4_GROUP;
    for (int64_t i = 0; i < groups; i++)
        s->offset[i] = s->mean;
    struct ax_quantize a = {.x = ax_tensor_1d(AX_F32, s->scale, scales),
                            .codes = ax_tensor_1d(AX_U8, s->scale_codes, scales),
                            .scale = ax_tensor_1d(AX_F32, s->top, groups),
                            .offset = ax_tensor_1d(AX_F32, s->offset, groups),
                            .block = AX_NF4_GROUP / AX_NF4_BLOCK,
                            .kind = AX_QUANT_MAP8};
    AX_TRY(ax_run_quantize(s->q, &a));
    return ax_run_dequantize(s->q,
                             &(struct ax_dequantize){.out = ax_tensor_1d(AX_F32, s->meant, scales),
                                                     .codes = a.codes,
                                                     .scale = a.scale,
                                                     .offset = a.offset,
                                                     .block = a.block,
                                                     .kind = a.kind});
}

/* The codes and scales that a file has; true if they are of this format. A group of the file's is one or
 * more blocks of the packing. */
static bool has_codes(enum ax_quant kind, int64_t block, const struct ax_element_codes *file) {
    const enum ax_quant bytes = kind == AX_QUANT_INT4X2 ? AX_QUANT_INT4 : kind;
    return file && file->quant == (int)bytes &&
           (kind == bytes ? file->block == block : file->block % block == 0);
}

/* What they mean must be as finite as what is read in other forms. */
static enum ax_status check_codes(const struct stage *s) {
    const struct ax_elements *from = s->source->global;
    const enum ax_quant kind = (enum ax_quant)from->codes->quant;
    int64_t bad = ax_first_nonfinite(AX_F32, s->scale, blocks_of(s)) * s->block;
    for (int64_t i = s->n - 1; i >= 0; i--)
        bad = ax_quant_is_nan(kind, s->codes[i]) ? i : bad;
    if (bad >= s->n)
        return AX_OK;
    float value;
    AX_TRY(from->read(from->ctx, s->first + bad, 1, &value));
    return ax_elements_check(from, s->first + bad, 1, &value);
}

static enum ax_status read_codes(const struct stage *s) {
    const struct ax_elements *from = s->source->global;
    AX_TRY(from->codes->read(from->ctx, s->first, s->n, s->codes, s->scale));
    AX_TRY(check_codes(s));
    for (int64_t i = 0; s->kind == AX_QUANT_INT4X2 && i < s->n; i += 2)
        s->codes[i / 2] = (unsigned char)(s->codes[i] << 4 | (s->codes[i + 1] & 15));
    return AX_OK;
}

/* Makes the stage hold `wanted` elements from `index` on, or as many as fit; codes of the file's stay what they
 * are. */
static enum ax_status quantize_stage(struct stage *s, int64_t index, int64_t wanted) {
    s->first = index / s->unit * s->unit;
    int64_t end = (index + wanted + s->unit - 1) / s->unit * s->unit;
    end = end > s->first + s->cap ? s->first + s->cap : end;
    s->n = (end > s->numel ? s->numel : end) - s->first;
    if (s->reads_codes)
        return read_codes(s);
    AX_TRY(ax_elements_read(s->source->global, s->first, s->n, AX_F32, s->x));
    return ax_run_quantize(
        s->q, &(struct ax_quantize){.x = ax_tensor_1d(AX_F32, s->x, s->n),
                                    .codes = ax_tensor_1d(ax_quant_info(s->kind)->codes, s->codes,
                                                          ax_quant_code_bytes(s->kind, s->n)),
                                    .scale = ax_tensor_1d(AX_F32, s->scale, blocks_of(s)),
                                    .block = s->block,
                                    .kind = s->kind});
}

/* The mean of the full tensor's scales. */
static enum ax_status measure_scales(struct stage *s) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t at = 0; at < s->numel; at += s->n) {
        AX_TRY(quantize_stage(s, at, s->cap));
        for (int64_t i = 0; i < blocks_of(s); i++)
            sum += (double)s->scale[i];
        count += blocks_of(s);
    }
    s->mean = (float)(sum / (double)count);
    return AX_OK;
}

/* Codes two in a byte [from, from + n) to [to, to + n); whole bytes if both start at one. */
static void copy_nibbles(unsigned char *dst, int64_t to, const unsigned char *src, int64_t from,
                         int64_t n) {
    if (to % 2 == 0 && from % 2 == 0) {
        memcpy(dst + to / 2, src + from / 2, (size_t)(n / 2));
        from += n / 2 * 2;
        to += n / 2 * 2;
        n %= 2;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t f = from + i, t = to + i;
        const unsigned code = f % 2 ? src[f / 2] & 15U : (unsigned)src[f / 2] >> 4;
        const unsigned other = t % 2 ? dst[t / 2] & 0xf0U : dst[t / 2] & 15U;
        dst[t / 2] = (unsigned char)(other | (t % 2 ? code : code << 4));
    }
}

/* Where a rank keeps n elements, and the host's view of it. */
struct piece {
    int64_t n;
    int buffers;
    struct ax_queue_piece of[AX_PACKED_BUFFERS];
};

/* Elements [from, from + n) of the global tensor, which the stage holds, to element `to` of the
 * piece. */
static void put_codes(const struct stage *s, const struct ax_packing *k, const struct piece *p,
                      int64_t from, int64_t n, int64_t to) {
    const int64_t skip = from - s->first;
    if (ax_quant_info(s->kind)->values)
        copy_nibbles(p->of[0].host, to, s->codes, skip, n);
    else
        memcpy((char *)p->of[0].host + to, s->codes + skip, (size_t)n);
    const float *scale = s->nested ? s->meant : s->scale;
    for (int64_t i = 0; i < n; i += k->block) {
        const int64_t mine = (to + i) / k->block, theirs = (skip + i) / s->block;
        if (k->nested)
            ((unsigned char *)p->of[1].host)[mine] = s->scale_codes[theirs];
        else
            ((float *)p->of[1].host)[mine] = scale[theirs];
    }
    for (int64_t i = 0; k->nested && i < n; i += AX_NF4_GROUP) {
        ((float *)p->of[2].host)[(to + i) / AX_NF4_GROUP] = s->top[(skip + i) / AX_NF4_GROUP];
        ((float *)p->of[3].host)[(to + i) / AX_NF4_GROUP] = s->mean;
    }
}

/* Puts local elements [first, first + n) into the piece, as the stage comes to have them. */
static enum ax_status fill_piece(struct stage *s, const struct ax_packing *k, const struct piece *p,
                                 int64_t first) {
    for (int64_t local = 0; local < p->n;) {
        int64_t run;
        const int64_t from =
            ax_param_global_index(s->source->p, s->source->mesh, first + local, &run);
        run = run > p->n - local ? p->n - local : run;
        if (s->n == 0 || from < s->first || from >= s->first + s->n) {
            AX_TRY(quantize_stage(s, from, run < SHORT ? s->cap : run));
            if (s->nested)
                AX_TRY(nest_scales(s));
        }
        run = run > s->first + s->n - from ? s->first + s->n - from : run;
        put_codes(s, k, p, from, run, local);
        local += run;
    }
    return AX_OK;
}

/* The same between the begin and the end of writing it. */
static enum ax_status load_piece(struct stage *s, const struct ax_packing *k, struct ax_queue *q,
                                 struct piece *p, int64_t first) {
    AX_ASSERT(p->buffers >= 2); /* codes and scales */
    AX_TRY(ax_queue_begin_write(q, p->buffers, p->of));
    const enum ax_status st = fill_piece(s, k, p, first);
    const enum ax_status end = ax_queue_end_write(q, p->buffers, p->of);
    return st == AX_OK ? end : st;
}

/* Elements [at, at + n) of a rank's buffers. */
static struct piece piece_of(const struct ax_packing *k,
                             const struct ax_tensor buffers[AX_PACKED_BUFFERS], int64_t at,
                             int64_t n) {
    struct piece p = {.n = n};
    const struct ax_packed view = ax_packing_view(k, buffers, at, n);
    const struct ax_tensor all[AX_PACKED_BUFFERS] = {view.codes, view.scale, view.nested,
                                                     view.offset};
    for (; p.buffers < AX_PACKED_BUFFERS && all[p.buffers].data; p.buffers++)
        p.of[p.buffers] =
            (struct ax_queue_piece){all[p.buffers].data, ax_tensor_bytes(&all[p.buffers]), NULL};
    return p;
}

/* Elements that are written together: full scales, groups and bytes. */
static int64_t piece_size(const struct ax_packing *k) {
    const int64_t unit = ax_packing_align(k, 2);
    struct ax_tensor buffers[AX_PACKED_BUFFERS];
    size_t bytes = 0;
    for (int i = ax_packing_buffers(k, unit, buffers) - 1; i >= 0; i--)
        bytes += ax_tensor_bytes(&buffers[i]);
    AX_ASSERT(bytes > 0); /* codes and scales */
    const size_t units = (AX_QUEUE_STAGE - AX_PACKED_BUFFERS * AX_ARENA_ALIGN) / bytes;
    return units > 1 ? (int64_t)units * unit : unit;
}

static enum ax_status load_packing(const struct ax_packing *k, struct ax_queue *q,
                                   const struct ax_tensor buffers[AX_PACKED_BUFFERS],
                                   const struct ax_packed_source *source, int64_t first, int64_t n,
                                   int64_t at) {
    const struct ax_param *p = source->p;
    struct stage s = {.source = source,
                      .kind = ax_storage_quant(k->store),
                      .numel = ax_param_numel(p),
                      .nested = k->store == AX_STORAGE_NF4_DOUBLE};
    s.block = ax_storage_block(k->store, p->shape[p->ndim - 1]);
    s.reads_codes = has_codes(s.kind, s.block, source->global->codes);
    if (s.reads_codes)
        s.block = source->global->codes->block;
    s.unit = s.nested ? AX_NF4_GROUP : s.block;
    s.cap = s.unit < STAGE ? STAGE / s.unit * s.unit : s.unit;
    const int64_t most = piece_size(k);
    enum ax_status st;
    AX_TRY(ax_host_queue_open(q, &s.q));
    AX_TRY_GOTO(stage_allocate(&s), st, done);
    if (s.nested)
        AX_TRY_GOTO(measure_scales(&s), st, done);
    s.n = 0;
    for (int64_t i = 0; i < n; i += most) {
        struct piece piece = piece_of(k, buffers, at + i, n - i < most ? n - i : most);
        AX_TRY_GOTO(load_piece(&s, k, q, &piece, first + i), st, done);
    }
done:
    stage_free(&s);
    ax_host_queue_close(q, s.q);
    return st;
}

/* ---- any other ---- */

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
    return load_packing(&seg->packing, rt->q, seg->packed_shard, &source, first, n, at);
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
