/* Layout, views and reading of packed storage; unit_load.c fills it. */
#include "parallel/units/packed.h"

#include <string.h>

#include "kernels/quant/scheme.h"
#include "parallel/units/packed_block.h"

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
    for (int i = AX_STORAGE_PLAIN; i <= AX_STORAGE_INT4; i++) {
        if (strcmp(name, stores[i].name) == 0) {
            *out = (enum ax_storage)i;
            return AX_OK;
        }
    }
    return ax_error(AX_ERR_CONFIG,
                    "--base: \"%s\" is not one of plain, nf4, nf4-double, int8, fp8, int4", name);
}

int64_t ax_storage_block(enum ax_storage store, int64_t cols) {
    return stores[store].block > 0 ? stores[store].block : cols;
}

enum ax_quant ax_storage_quant(enum ax_storage store) {
    return stores[store].kind;
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
    const enum ax_quant kind = ax_storage_quant(k->store);
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
    ax_packing_buffers(k, first, before);
    const int count = ax_packing_buffers(k, n, part);
    for (int i = 0; i < count; i++)
        part[i].data = (char AX_DEVICE *)buffers[i].data + ax_tensor_bytes(&before[i]);
    return (struct ax_packed){.kind = ax_storage_quant(k->store),
                              .block = k->block,
                              .codes = part[0],
                              .scale = part[1],
                              .nested = part[2],
                              .offset = part[3]};
}

/* The scales as numbers; nested ones are decoded into scratch. */
static enum ax_status scales_of(struct ax_queue *q, const struct ax_packed *packed,
                                struct ax_tensor *scale) {
    *scale = packed->scale;
    if (!packed->nested.data)
        return AX_OK;
    *scale = ax_tensor_1d(AX_F32, NULL, packed->scale.shape[0]);
    scale->data = ax_stack_push(q->scratch, "scales", ax_tensor_bytes(scale));
    return ax_run_dequantize(q, &(struct ax_dequantize){.out = *scale,
                                                        .codes = packed->scale,
                                                        .scale = packed->nested,
                                                        .offset = packed->offset,
                                                        .block = AX_NF4_GROUP / AX_NF4_BLOCK,
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
