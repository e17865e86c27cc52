#include "cmd/convert/quantize_matrix.h"

#include "base/mem.h"

struct ax_quantized_matrix ax_quantized_matrix_of(const struct ax_st_entry *e,
                                                  const struct ax_number_format *f) {
    return (struct ax_quantized_matrix){.e = e,
                                        .format = *f,
                                        .rows = e->shape[0],
                                        .cols = e->shape[1],
                                        .block = f->block > 0 ? f->block : e->shape[1]};
}

void ax_quantized_matrix_end(struct ax_quantized_matrix *m) {
    ax_free(m->x);
    ax_free(m->scale);
    ax_free(m->codes);
    ax_free(m->bytes);
    m->x = m->scale = NULL;
    m->codes = m->bytes = NULL;
}

/* The tensor of its scales, and of the one of all of it. */
static struct ax_tensor scales_of(const struct ax_quantized_matrix *m) {
    const struct ax_quant_info *info = ax_quant_info(m->format.kind);
    void *data = info->scale == AX_U8 ? (void *)m->bytes : m->scale;
    return ax_tensor_1d(info->scale, data, m->e->numel / m->block);
}

static struct ax_tensor codes_of(const struct ax_quantized_matrix *m) {
    return ax_tensor_1d(ax_quant_info(m->format.kind)->codes, m->codes, m->e->numel);
}

/* The ranges of its rows, or of all of it, where blocks do not suffice. */
static enum ax_status find_ranges(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                  struct ax_quantize *a, float **ranges) {
    const int64_t outer = ax_quant_info(m->format.kind)->outer;
    const int64_t n = outer == AX_BLOCK_ROW ? m->rows : 1;
    if (outer == 1 && m->format.block != AX_BLOCK_TENSOR)
        return AX_OK;
    AX_TRY(ax_alloc(ranges, 2 * (size_t)n, sizeof **ranges));
    a->range = ax_tensor_2d(AX_F32, *ranges, n, 2);
    return ax_run_quant_range(q, &(struct ax_quant_range){.x = a->x, .range = a->range});
}

enum ax_status ax_quantized_matrix_make(struct ax_quantized_matrix *m, struct ax_queue *q) {
    const int64_t n = m->e->numel, blocks = n / m->block;
    AX_TRY(ax_alloc(&m->x, (size_t)n, sizeof *m->x));
    AX_TRY(ax_alloc(&m->codes, (size_t)n, 1));
    AX_TRY(ax_alloc(&m->scale, (size_t)blocks, sizeof *m->scale));
    AX_TRY(ax_alloc(&m->bytes, (size_t)blocks, 1));
    if (!ax_queue_is_meta(q))
        AX_TRY(ax_st_read(m->e, 0, n, AX_F32, m->x));
    struct ax_quantize a = {.x = ax_tensor_2d(AX_F32, m->x, m->rows, m->cols),
                            .codes = codes_of(m),
                            .scale = scales_of(m),
                            .block = m->block,
                            .kind = m->format.kind};
    float *ranges = NULL;
    enum ax_status st = find_ranges(m, q, &a, &ranges);
    if (ax_quant_info(m->format.kind)->outer == AX_BLOCK_TENSOR)
        a.outer = ax_tensor_1d(AX_F32, &m->outer, 1);
    if (st == AX_OK)
        st = ax_run_quantize(q, &a);
    ax_free(ranges);
    return st;
}

enum ax_status ax_quantized_matrix_values(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                          float *out) {
    struct ax_dequantize d = {.out = ax_tensor_2d(AX_F32, out, m->rows, m->cols),
                              .codes = codes_of(m),
                              .scale = scales_of(m),
                              .block = m->block,
                              .kind = m->format.kind};
    float outer = m->outer;
    if (m->format.kind == AX_QUANT_NVFP4)
        d.outer = ax_tensor_1d(AX_F32, &outer, 1);
    return ax_run_dequantize(q, &d);
}
