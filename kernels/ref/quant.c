/* Number formats: block after block, exactly as the formulas of kernels/ops.h. Arithmetic is in
 * float, so that codes and scales are the same in every backend. */
#include "base/mem.h"
#include "kernels/panels.h"
#include "kernels/quant/quant_block.h"
#include "kernels/ref/ref.h"
#include "kernels/quant/scheme.h"

static float load(const struct ax_tensor *t, int64_t i) {
    return (float)ax_load(t->dtype, t->data, i);
}

/* ---- tables ---- */

static void put_half(unsigned char *c, int64_t i, uint32_t code) {
    if (i % 2 == 0)
        c[i / 2] = (unsigned char)(code << 4);
    else
        c[i / 2] = (unsigned char)(c[i / 2] | code);
}

static void quantize_by_table(const struct ax_quantize *a, int64_t b, int64_t first, int64_t end) {
    const float offset = ax_ref_given(&a->offset) ? load(&a->offset, b) : 0;
    float amax = 0;
    for (int64_t i = first; i < end; i++)
        amax = fmaxf(amax, fabsf(load(&a->x, i) - offset));
    ax_store(AX_F32, a->scale.data, b, (double)amax);
    for (int64_t i = first; i < end; i++) {
        const float v = (load(&a->x, i) - offset) / (amax > 0 ? amax : 1);
        if (a->kind == AX_QUANT_NF4)
            put_half(a->codes.data, i, ax_nf4_code(v));
        else
            ((unsigned char *)a->codes.data)[i] = (unsigned char)ax_map8_code(v);
    }
}

static float table_value(enum ax_quant kind, const unsigned char *c, int64_t i) {
    if (kind == AX_QUANT_MAP8)
        return ax_map8_values[c[i]];
    return ax_quant_info(kind)->values[i % 2 == 0 ? c[i / 2] >> 4 : c[i / 2] & 15];
}

/* ---- the others ---- */

/* The row of range, or of outer, that a block starting at element `first` of `values` is of. */
static int64_t shared_row(const struct ax_tensor *values, int64_t n, int64_t first) {
    return n == 1 ? 0 : first / ax_tensor_row_len(values);
}

/* The block of elements [first, end) of x, counted without gaps. */
static struct ax_quant_block block_of(enum ax_quant kind, const struct ax_tensor *x,
                                      const struct ax_tensor *range, int64_t first, int64_t end) {
    const int64_t cols = ax_tensor_row_len(x);
    float low = INFINITY, high = -INFINITY, outer = 0;
    for (int64_t i = first; i < end; i++) {
        const float v = (float)ax_ref_get(x, i / cols, i % cols);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    if (ax_ref_given(range)) {
        const int64_t row = shared_row(x, range->shape[0], first);
        const float less = load(range, 2 * row), more = load(range, 2 * row + 1);
        if (ax_quant_info(kind)->outer != 1) {
            outer = ax_quant_outer(kind, ax_greater(less, more));
        } else {
            low = -less;
            high = more;
        }
    }
    return ax_quant_block_of(kind, low, high, outer);
}

static void quantize_block(const struct ax_quantize *a, int64_t b, int64_t first, int64_t end) {
    const struct ax_quant_block block = block_of(a->kind, &a->x, &a->range, first, end);
    if (a->scale.dtype == AX_U8)
        ((unsigned char *)a->scale.data)[b] = (unsigned char)block.byte;
    else
        ((float *)a->scale.data)[b] = block.scale;
    if (ax_ref_given(&a->zero))
        ((float *)a->zero.data)[b] = block.offset;
    for (int64_t i = first; i < end; i++) {
        const float q = ax_quant_rounded(a->kind, load(&a->x, i), &block);
        const uint32_t code = ax_quant_code(a->kind, ax_quant_clamped(a->kind, q));
        if (a->kind == AX_QUANT_INT4X2)
            put_half(a->codes.data, i, code & 15);
        else
            ((unsigned char *)a->codes.data)[i] = (unsigned char)code;
    }
}

enum ax_status ax_ref_quantize(struct ax_queue *q, const struct ax_quantize *a, void *work) {
    (void)q;
    (void)work;
    const int64_t n = ax_tensor_numel(&a->x);
    for (int64_t i = 0; ax_ref_given(&a->outer) && i < a->outer.shape[0]; i++)
        ((float *)a->outer.data)[i] =
            ax_quant_outer(a->kind, ax_greater(load(&a->range, 2 * i), load(&a->range, 2 * i + 1)));
    for (int64_t b = 0; b * a->block < n; b++) {
        const int64_t first = b * a->block, end = first + a->block < n ? first + a->block : n;
        if (a->kind == AX_QUANT_NF4 || a->kind == AX_QUANT_MAP8)
            quantize_by_table(a, b, first, end);
        else
            quantize_block(a, b, first, end);
    }
    return AX_OK;
}

static float value_at(const struct ax_dequantize *a, int64_t i) {
    const unsigned char *codes = a->codes.data;
    const float outer = ax_ref_given(&a->outer) ? load(&a->outer, 0) : 0;
    const int64_t b = i / a->block;
    const float offset = ax_ref_given(&a->offset) ? load(&a->offset, b) : 0;
    const float scale = load(&a->scale, b);
    if (ax_quant_info(a->kind)->fakes) {
        const uint32_t byte = a->scale.dtype == AX_U8 ? (uint32_t)scale : 0;
        const struct ax_quant_block block = ax_quant_stored(a->kind, scale, byte, offset, outer);
        return ax_quant_value(a->kind, ax_quant_of_code(a->kind, codes[i]), &block);
    }
    const float v = table_value(a->kind, codes, i) * scale;
    return a->kind == AX_QUANT_MAP8 ? v + offset : v;
}

enum ax_status ax_ref_dequantize(struct ax_queue *q, const struct ax_dequantize *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t i = 0; i < ax_tensor_numel(&a->out); i++)
        ax_store(a->out.dtype, a->out.data, i, (double)value_at(a, i));
    return AX_OK;
}

static double rounded(enum ax_dtype dtype, double value) {
    double to;
    ax_store(dtype, &to, 0, value);
    return ax_load(dtype, &to, 0);
}

/* Element [n][k] of W: rounded to compute; of panels, the code's value is, without its scale. */
static double weight_at(const struct ax_packed_gemm *g, int64_t n, int64_t k) {
    const struct ax_dequantize w = {
        .codes = g->codes, .scale = g->scale, .block = g->block, .kind = g->kind};
    const int64_t cols = g->a.shape[1];
    const unsigned char *codes = g->codes.data;
    if (!g->codes.panels)
        return rounded(g->a.dtype, (double)value_at(&w, n * cols + k));
    const double scale = (double)load(&g->scale, ax_panels_scale_at(cols, g->block, n, k));
    const float *values = ax_quant_info(g->kind)->values;
    if (values) {
        const int64_t at = ax_panels_nibble_at(cols, n, k);
        return rounded(g->a.dtype, (double)values[codes[at / 2] >> (at % 2 * 4) & 15]) * scale;
    }
    const unsigned char code = codes[ax_panels_at(cols, n, k)];
    return (double)ax_quant_of_code(g->kind, code) * scale;
}

/* Column n of c. */
static void multiply_row(const struct ax_packed_gemm *g, int64_t n) {
    const int64_t m_len = g->a.shape[0], k_len = g->a.shape[1];
    double sum[AX_REF_GEMM_ROWS];
    for (int64_t m = 0; m < m_len; m += AX_REF_GEMM_ROWS) {
        const int64_t rows = m_len - m < AX_REF_GEMM_ROWS ? m_len - m : AX_REF_GEMM_ROWS;
        memset(sum, 0, sizeof sum);
        for (int64_t k = 0; k < k_len; k++) {
            const double value = weight_at(g, n, k);
            for (int64_t r = 0; r < rows; r++)
                sum[r] += ax_ref_get(&g->a, m + r, k) * value;
        }
        for (int64_t r = 0; r < rows; r++) {
            double c = sum[r];
            c += ax_ref_given(&g->bias) ? ax_ref_get(&g->bias, n, 0) : 0;
            c += ax_ref_given(&g->addend) ? ax_ref_get(&g->addend, m + r, n) : 0;
            ax_ref_set(&g->c, m + r, n, c);
        }
    }
}

enum ax_status ax_ref_packed_gemm(struct ax_queue *q, const struct ax_packed_gemm *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->c.shape[1]; n++)
        multiply_row(a, n);
    return AX_OK;
}

enum ax_status ax_ref_quant_range(struct ax_queue *q, const struct ax_quant_range *a, void *work) {
    (void)q;
    (void)work;
    float *range = a->range.data;
    memset(range, 0, ax_tensor_bytes(&a->range));
    for (int64_t r = 0; r < a->x.shape[0]; r++) {
        for (int64_t i = 0; i < a->x.shape[1]; i++) {
            float *own = range + 2 * (a->columns ? i : a->range.shape[0] == 1 ? 0 : r);
            const float v = (float)ax_ref_get(&a->x, r, i);
            own[0] = ax_greater(-v, own[0]);
            own[1] = ax_greater(v, own[1]);
        }
    }
    return AX_OK;
}

static void fake_columns(const struct ax_fake_quantize *a) {
    const float *range = a->range.data;
    for (int64_t i = 0; i < a->x.shape[1]; i++) {
        const struct ax_quant_block b =
            ax_quant_block_of(a->kind, -range[2 * i], range[2 * i + 1], 0);
        for (int64_t r = 0; r < a->x.shape[0]; r++)
            ax_ref_set(&a->y, r, i,
                       (double)ax_quant_fake(a->kind, (float)ax_ref_get(&a->x, r, i), &b));
    }
}

enum ax_status ax_ref_fake_quantize(struct ax_queue *q, const struct ax_fake_quantize *a,
                                    void *work) {
    (void)q;
    (void)work;
    const int64_t cols = a->x.shape[1];
    if (a->columns) {
        fake_columns(a);
        return AX_OK;
    }
    for (int64_t first = 0; first < ax_tensor_numel(&a->x); first += a->block) {
        const struct ax_quant_block b =
            block_of(a->kind, &a->x, &a->range, first, first + a->block);
        for (int64_t i = first; i < first + a->block; i++) {
            const float x = (float)ax_ref_get(&a->x, i / cols, i % cols);
            ax_ref_set(&a->y, i / cols, i % cols, (double)ax_quant_fake(a->kind, x, &b));
        }
    }
    return AX_OK;
}

/* dx of one block from its x and dy. */
static void block_gradient(const struct ax_fake_quantize_backward *a, int64_t first, const float *x,
                           const double *dy, double *dx) {
    if (a->kind == AX_QUANT_INT4_ASYM) {
        ax_quant_asym_gradient(x, dy, a->block, dx);
        return;
    }
    const struct ax_quant_block b = block_of(a->kind, &a->x, &a->range, first, first + a->block);
    for (int64_t i = 0; i < a->block; i++)
        dx[i] = ax_quant_kept(a->kind, x[i], &b) ? dy[i] : 0;
}

enum ax_status ax_ref_fake_quantize_backward(struct ax_queue *q,
                                             const struct ax_fake_quantize_backward *a,
                                             void *work) {
    (void)q;
    (void)work;
    const int64_t cols = a->x.shape[1];
    double *room;
    AX_TRY(ax_alloc(&room, 3 * (size_t)a->block, sizeof *room));
    double *dy = room, *dx = room + a->block;
    float *x = (float *)(room + 2 * a->block);
    for (int64_t first = 0; first < ax_tensor_numel(&a->x); first += a->block) {
        const int64_t row = first / cols, col = first % cols;
        for (int64_t i = 0; i < a->block; i++) {
            x[i] = (float)ax_ref_get(&a->x, row, col + i);
            dy[i] = ax_ref_get(&a->dy, row, col + i);
        }
        block_gradient(a, first, x, dy, dx);
        for (int64_t i = 0; i < a->block; i++) {
            const double before = a->accumulate ? ax_ref_get(&a->dx, row, col + i) : 0;
            ax_ref_set(&a->dx, row, col + i, before + dx[i]);
        }
    }
    ax_free(room);
    return AX_OK;
}
