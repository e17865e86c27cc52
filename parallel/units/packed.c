/* Layout, loading, views and reading of packed storage. */
#include "parallel/units/packed.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/finite.h"
#include "kernels/ops.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"
#include "kernels/transfer.h"

/* What the second scale of double quantization is of. */
#define GROUP_SCALES (AX_NF4_GROUP / AX_NF4_BLOCK)

static int64_t gcd(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static const struct {
    const char *name;
    enum ax_quant kind;
    int64_t block; /* 0 = a row */
} stores[] = {
    [AX_STORAGE_PLAIN] = {"plain", AX_QUANT_COUNT, 0},
    [AX_STORAGE_NF4] = {"nf4", AX_QUANT_NF4, AX_NF4_BLOCK},
    [AX_STORAGE_NF4_DOUBLE] = {"nf4-double", AX_QUANT_NF4, AX_NF4_BLOCK},
    [AX_STORAGE_INT8] = {"int8", AX_QUANT_INT8, 0},
    [AX_STORAGE_FP8] = {"fp8", AX_QUANT_FP8, 0},
    [AX_STORAGE_INT4] = {"int4", AX_QUANT_INT4X2, AX_INT4_BLOCK},
};

const char *ax_storage_name(enum ax_storage store) {
    return stores[store].name;
}

enum ax_status ax_storage_parse(const char *name, enum ax_storage *out) {
    char names[96] = "";
    for (size_t i = 0, n = 0; i < sizeof stores / sizeof *stores; i++) {
        if (strcmp(name, stores[i].name) == 0) {
            *out = (enum ax_storage)i;
            return AX_OK;
        }
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "",
                              stores[i].name);
        AX_ASSERT(n < sizeof names);
    }
    return ax_error(AX_ERR_CONFIG, "--base: \"%s\" is not one of %s", name, names);
}

int64_t ax_storage_block(enum ax_storage store, int64_t cols) {
    return stores[store].block > 0 ? stores[store].block : cols;
}

static enum ax_quant storage_quant(enum ax_storage store) {
    return stores[store].kind;
}

static bool two_per_byte(enum ax_quant kind) {
    return ax_quant_info(kind)->values != NULL;
}

/* A block of the file's is one of the packing, or more where rows do not matter. Groups of nested scales are of single
 * blocks. */
bool ax_storage_has_codes(enum ax_storage store, int64_t cols,
                          const struct ax_element_codes *file) {
    const enum ax_quant kind = storage_quant(store);
    const int64_t block = ax_storage_block(store, cols);
    if (!file || file->quant != (int)(kind == AX_QUANT_INT4X2 ? AX_QUANT_INT4 : kind))
        return false;
    return two_per_byte(kind) && store != AX_STORAGE_NF4_DOUBLE ? file->block % block == 0
                                                                : file->block == block;
}

void ax_packing_start(struct ax_packing *k, enum ax_storage store) {
    *k = (struct ax_packing){store, stores[store].block, store == AX_STORAGE_NF4_DOUBLE};
}

void ax_packing_add(struct ax_packing *k, const struct ax_mesh *mesh, const struct ax_param *p) {
    int64_t run;
    if (ax_param_local_numel(p) == 0)
        return; /* an expert on another rank */
    const int64_t start = ax_param_global_index(p, mesh, 0, &run);
    const bool contiguous = run == ax_param_local_numel(p);
    const int64_t len = p->local_shape[p->ndim - 1];
    if (stores[k->store].block == 0) {
        k->block = gcd(k->block, len);
        return;
    }
    k->block = gcd(k->block, start);
    if (!contiguous)
        k->block = gcd(gcd(k->block, p->shape[p->ndim - 1]), len);
    k->nested = k->nested && contiguous && start % AX_NF4_GROUP == 0;
}

int64_t ax_packing_align(const struct ax_packing *k, int64_t align) {
    align = align / gcd(align, k->block) * k->block;
    return k->nested ? align / gcd(align, AX_NF4_GROUP) * AX_NF4_GROUP : align;
}

int ax_packing_buffers(const struct ax_packing *k, int64_t numel,
                       struct ax_tensor out[AX_PACKED_BUFFERS]) {
    const enum ax_quant kind = storage_quant(k->store);
    const int64_t scales = (numel + k->block - 1) / k->block;
    const int64_t groups = (numel + AX_NF4_GROUP - 1) / AX_NF4_GROUP;
    out[0] = ax_tensor_1d(ax_quant_info(kind)->codes, NULL, ax_quant_code_bytes(kind, numel));
    out[1] = ax_tensor_1d(k->nested ? AX_U8 : AX_F32, NULL, scales);
    out[2] = out[3] = ax_tensor_1d(AX_F32, NULL, groups);
    return k->nested ? 4 : 2;
}

struct ax_packed ax_packing_view(const struct ax_packing *k,
                                 const struct ax_tensor buffers[AX_PACKED_BUFFERS], int64_t first,
                                 int64_t n) {
    struct ax_tensor before[AX_PACKED_BUFFERS], part[AX_PACKED_BUFFERS];
    AX_ASSERT(first % k->block == 0 && (!k->nested || first % AX_NF4_GROUP == 0));
    AX_ASSERT(first % 2 == 0 || !two_per_byte(storage_quant(k->store)));
    ax_packing_buffers(k, first, before);
    const int count = ax_packing_buffers(k, n, part);
    for (int i = 0; i < count; i++)
        part[i].data = (char AX_DEVICE *)buffers[i].data + ax_tensor_bytes(&before[i]);
    return (struct ax_packed){.kind = storage_quant(k->store),
                              .block = k->block,
                              .codes = part[0],
                              .scale = part[1],
                              .nested = part[2],
                              .offset = part[3]};
}

/* ---- loading ----
 *
 * From the file's tensor to codes: full blocks are quantized on the host in a staging buffer of
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
    /* Double quantization is of the global tensor, also where the packing of this rank's part is not
     * nested, and has the decoded scales. */
    bool double_quantized, reads_codes;
    float mean; /* of all scales, if double_quantized */
    int64_t cap, first, n;
    float *x, *scale;
    unsigned char *codes;
    /* if double_quantized: the scales' codes, what these mean, and scales and offsets of groups */
    unsigned char *scale_codes;
    float *meant, *top, *offset;
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
                            .block = GROUP_SCALES,
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

/* Refuses codes and scales of numbers that are not finite, as ax_elements_read refuses such numbers. */
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
    for (int64_t i = 0; two_per_byte(s->kind) && i < s->n; i += 2)
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

/* Copies n codes of 4 bits from number `from` of src on to number `to` of dst on. The even number of a byte is its high
 * half, which is written first. Whole bytes are copied if both begin with one. */
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
        dst[t / 2] = (unsigned char)(t % 2 ? (dst[t / 2] & 0xf0U) | code : code << 4);
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
    if (two_per_byte(s->kind))
        copy_nibbles(p->of[0].host, to, s->codes, skip, n);
    else
        memcpy((char *)p->of[0].host + to, s->codes + skip, (size_t)n);
    const float *scale = s->double_quantized ? s->meant : s->scale;
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
            if (s->double_quantized)
                AX_TRY(nest_scales(s));
        }
        run = run > s->first + s->n - from ? s->first + s->n - from : run;
        put_codes(s, k, p, from, run, local);
        local += run;
    }
    return AX_OK;
}

/* Fills the piece in the host's view of its buffers, which the queue writes to them. */
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

enum ax_status ax_packing_load(const struct ax_packing *k, struct ax_queue *q,
                               const struct ax_tensor buffers[AX_PACKED_BUFFERS],
                               const struct ax_packed_source *source, int64_t first, int64_t n,
                               int64_t at) {
    const struct ax_param *p = source->p;
    struct stage s = {.source = source,
                      .kind = storage_quant(k->store),
                      .numel = ax_param_numel(p),
                      .double_quantized = k->store == AX_STORAGE_NF4_DOUBLE};
    s.block = ax_storage_block(k->store, p->shape[p->ndim - 1]);
    s.reads_codes = ax_storage_has_codes(k->store, p->shape[p->ndim - 1], source->global->codes);
    if (s.reads_codes)
        s.block = source->global->codes->block;
    s.unit = s.double_quantized ? AX_NF4_GROUP : s.block;
    s.cap = s.unit < STAGE ? STAGE / s.unit * s.unit : s.unit;
    const int64_t most = piece_size(k);
    enum ax_status st;
    AX_TRY(ax_host_queue_open(q, &s.q));
    AX_TRY_GOTO(stage_allocate(&s), st, done);
    if (s.double_quantized)
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

/* ---- reading ---- */

/* The scales as numbers; nested ones are decoded into scratch. */
static enum ax_status scales_of(struct ax_queue *q, const struct ax_packed *packed,
                                struct ax_tensor *scale) {
    *scale = packed->scale;
    if (!packed->nested.data)
        return AX_OK;
    *scale =
        ax_stack_take(q->scratch, "scales", ax_tensor_1d(AX_F32, NULL, packed->scale.shape[0]));
    return ax_run_dequantize(q, &(struct ax_dequantize){.out = *scale,
                                                        .codes = packed->scale,
                                                        .scale = packed->nested,
                                                        .offset = packed->offset,
                                                        .block = GROUP_SCALES,
                                                        .kind = AX_QUANT_MAP8});
}

enum ax_status ax_packed_read(struct ax_queue *q, const struct ax_packed *packed,
                              const struct ax_tensor *out) {
    const size_t mark = ax_stack_mark(q->scratch);
    struct ax_dequantize d = {
        .out = *out, .codes = packed->codes, .block = packed->block, .kind = packed->kind};
    AX_TRY(scales_of(q, packed, &d.scale));
    AX_TRY(ax_run_dequantize(q, &d));
    ax_stack_release(q->scratch, mark);
    return AX_OK;
}

enum ax_status ax_packed_multiply(struct ax_queue *q, const struct ax_packed *packed,
                                  const struct ax_packed_product *p) {
    const size_t mark = ax_stack_mark(q->scratch);
    struct ax_packed_gemm g = {.a = p->x,
                               .codes = packed->codes,
                               .c = p->y,
                               .bias = p->bias,
                               .addend = p->addend,
                               .block = packed->block,
                               .kind = packed->kind};
    AX_TRY(scales_of(q, packed, &g.scale));
    AX_TRY(ax_run_packed_gemm(q, &g));
    ax_stack_release(q->scratch, mark);
    return AX_OK;
}
