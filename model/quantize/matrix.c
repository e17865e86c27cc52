#include "model/quantize/matrix.h"

#include "base/mem.h"

struct ax_quantized_matrix ax_quantized_matrix_of(const struct ax_st_entry *e,
                                                  const struct ax_number_format *f) {
    return (struct ax_quantized_matrix){.e = e,
                                        .format = *f,
                                        .rows = e->shape[0],
                                        .cols = e->shape[1],
                                        .block = f->block > 0 ? f->block : e->shape[1]};
}

void ax_quantize_room_free(struct ax_quantize_room *r) {
    ax_free(r->x);
    ax_free(r->scale);
    ax_free(r->codes);
    ax_free(r->bytes);
    *r = (struct ax_quantize_room){0};
}

static enum ax_status allocate(struct ax_quantize_room *r, int64_t numel, int64_t blocks) {
    *r = (struct ax_quantize_room){.numel = numel, .blocks = blocks};
    AX_TRY(ax_alloc(&r->x, (size_t)numel, sizeof *r->x));
    AX_TRY(ax_alloc(&r->codes, (size_t)numel, 1));
    AX_TRY(ax_alloc(&r->scale, (size_t)blocks, sizeof *r->scale));
    return ax_alloc(&r->bytes, (size_t)blocks, 1);
}

static enum ax_status take_memory(struct ax_quantized_matrix *m) {
    struct ax_quantize_room own = {0}, *room = m->room ? m->room : &own;
    const int64_t numel = m->e->numel, blocks = numel / m->block;
    enum ax_status st = AX_OK;
    if (room->numel < numel || room->blocks < blocks) {
        ax_quantize_room_free(room);
        st = allocate(room, numel, blocks);
    }
    m->x = room->x;
    m->scale = room->scale;
    m->codes = room->codes;
    m->bytes = room->bytes;
    return st;
}

void ax_quantized_matrix_end(struct ax_quantized_matrix *m) {
    struct ax_quantize_room own = {
        .x = m->x, .scale = m->scale, .codes = m->codes, .bytes = m->bytes};
    if (!m->room)
        ax_quantize_room_free(&own);
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
    const int64_t n = m->e->numel;
    AX_TRY(take_memory(m));
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

/* The values of rows [first, first + n). */
static enum ax_status values_of(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                int64_t first, int64_t n, float *out) {
    const int64_t at = first * m->cols, numel = n * m->cols;
    const struct ax_tensor codes = codes_of(m), scale = scales_of(m);
    struct ax_dequantize d = {.out = ax_tensor_2d(AX_F32, out, n, m->cols),
                              .codes = ax_tensor_rows(&codes, at, numel),
                              .scale = ax_tensor_rows(&scale, at / m->block, numel / m->block),
                              .block = m->block,
                              .kind = m->format.kind};
    float outer = m->outer;
    if (m->format.kind == AX_QUANT_NVFP4)
        d.outer = ax_tensor_1d(AX_F32, &outer, 1);
    return ax_run_dequantize(q, &d);
}

enum ax_status ax_quantized_matrix_values(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                          float *out) {
    return values_of(m, q, 0, m->rows, out);
}

/* Several sums beside each other, so that no addition waits for the one before. */
static void add_errors(const float *x, const float *value, int64_t n, double *squares,
                       double *errors) {
    enum { SUMS = 8 };
    double w[SUMS] = {0}, e[SUMS] = {0};
    for (int64_t i = 0; i < n; i += SUMS)
        for (int64_t k = 0; k < SUMS && i + k < n; k++) {
            const double number = (double)x[i + k], error = (double)value[i + k] - number;
            w[k] += number * number;
            e[k] += error * error;
        }
    for (int k = 0; k < SUMS; k++) {
        *squares += w[k];
        *errors += e[k];
    }
}

enum ax_status ax_quantized_matrix_errors(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                          double *squares, double *errors) {
    enum { CHUNK = 1 << 16 };
    const int64_t most = m->cols < CHUNK ? CHUNK / m->cols : 1;
    float *value;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&value, (size_t)(most * m->cols), sizeof *value));
    for (int64_t r = 0; r < m->rows && st == AX_OK; r += most) {
        const int64_t n = m->rows - r < most ? m->rows - r : most;
        st = values_of(m, q, r, n, value);
        if (st == AX_OK)
            add_errors(m->x + r * m->cols, value, n * m->cols, squares, errors);
    }
    ax_free(value);
    return st;
}
