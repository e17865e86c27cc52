#include "parallel/units/unit_codes.h"

#define BLOCK 4096 /* elements that are quantized together, for threads: the range is given */

void ax_segment_add_coded(struct ax_segment *seg, const struct ax_param *p) {
    AX_ASSERT(seg->n_coded < AX_MAX_CODED);
    seg->coded[seg->n_coded++] = p;
}

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
static bool own_part(const struct ax_unit *unit, const struct ax_segment *seg,
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
static enum ax_status agree(const struct ax_unit *unit, const struct ax_segment *seg,
                            struct ax_runtime *rt) {
    const struct ax_tensor ranges = ranges_of(seg);
    const enum ax_role over[] = {seg->gather, AX_ROLE_TP};
    struct ax_tensor x;
    int64_t at;
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){ranges, 0}));
    for (int i = 0; i < seg->n_coded; i++)
        if (own_part(unit, seg, rt, i, &x, &at))
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

enum ax_status ax_segment_encode(const struct ax_unit *unit, const struct ax_segment *seg,
                                 struct ax_runtime *rt, struct ax_tensor *own,
                                 struct ax_tensor *all) {
    const struct ax_tensor ranges = ranges_of(seg);
    struct ax_quantize a = {.kind = AX_QUANT_FP8};
    int64_t at;
    *all = ax_tensor_1d(AX_U8, seg->full.data, seg->numel);
    *own = ax_tensor_rows(all, rt->mesh.coord[seg->gather] * seg->shard_numel, seg->shard_numel);
    AX_TRY(agree(unit, seg, rt));
    for (int i = 0; i < seg->n_coded; i++) {
        if (!own_part(unit, seg, rt, i, &a.x, &at))
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

struct ax_packed ax_segment_codes(const struct ax_segment *seg, const struct ax_param *p) {
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
