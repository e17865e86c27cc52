/* quant_range, fake_quantize and its backward: read quant.h first. */
#include <stdatomic.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/quant/quant.h"

#define STRIP 64 /* columns per task */

/* Rows per task. */
static int64_t rows_per_task(int64_t cols) {
    return cols < PIECE ? PIECE / cols : 1;
}

/* ---- range ---- */

/* Raises *top, the bits of a number that is not negative: those are ordered as the numbers are. */
static void raise_to(_Atomic uint32_t *top, float value) {
    uint32_t bits, before = atomic_load(top);
    memcpy(&bits, &value, sizeof bits);
    while (bits > before && !atomic_compare_exchange_weak(top, &before, bits))
        continue;
}

static void range_of_rows(const struct ax_quant_range *a, int64_t first, int64_t n,
                          _Atomic uint32_t all[2]) {
    const bool by_row = a->range.shape[0] > 1 || a->x.shape[0] == 1;
    float buffer[BUFFER];
    for (int64_t r = first; r < first + n; r++) {
        struct extremes e =
            extremes_of(a->x.dtype, ax_tensor_row(&a->x, r), 0, a->x.shape[1], buffer);
        e = (struct extremes){ax_greater(e.less, 0), ax_greater(e.more, 0)};
        if (by_row) {
            ((float *)a->range.data)[2 * r] = e.less;
            ((float *)a->range.data)[2 * r + 1] = e.more;
        } else {
            raise_to(&all[0], e.less);
            raise_to(&all[1], e.more);
        }
    }
}

/* Of columns [first, first + n), n ≤ STRIP. */
static void range_of_columns(const struct ax_quant_range *a, int64_t first, int64_t n) {
    float x[STRIP], less[STRIP] = {0}, more[STRIP] = {0};
    for (int64_t r = 0; r < a->x.shape[0]; r++) {
        AX_BY_DTYPE(a->x.dtype, read_floats, ax_tensor_row(&a->x, r), first, n, x);
        for (int64_t i = 0; i < n; i++) {
            less[i] = ax_greater(-x[i], less[i]);
            more[i] = ax_greater(x[i], more[i]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        ((float *)a->range.data)[2 * (first + i)] = less[i];
        ((float *)a->range.data)[2 * (first + i) + 1] = more[i];
    }
}

enum ax_status AX_VEC(ax_cpu_quant_range)(struct ax_queue *q, const struct ax_quant_range *a,
                                          void *work) {
    (void)work;
    const int64_t cols = a->x.shape[1];
    if (a->columns) {
        AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(cols, STRIP))
            range_of_columns(a, t * STRIP, least(STRIP, cols - t * STRIP));
        return AX_OK;
    }
    const int64_t rows = a->x.shape[0], each = rows_per_task(a->x.shape[1]);
    _Atomic uint32_t all[2] = {0, 0};
    {
        AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(rows, each))
            range_of_rows(a, t * each, least(each, rows - t * each), all);
    }
    for (int i = 0; i < 2 && a->range.shape[0] == 1 && rows != 1; i++) {
        const uint32_t bits = atomic_load(&all[i]);
        memcpy((float *)a->range.data + i, &bits, sizeof bits);
    }
    return AX_OK;
}

/* ---- values ---- */

/* Elements [first, first + n) of a tensor's row, read, written, and their extremes. Their calls stay calls: inlined for
 * each kind and dtype, they would be most of what is compiled here. Columns are too few for a call. */
static __attribute__((noinline)) void read_part(const struct ax_tensor *t, int64_t row,
                                                int64_t first, int64_t n, float *out) {
    AX_BY_DTYPE(t->dtype, read_floats, ax_tensor_row(t, row), first, n, out);
}

static __attribute__((noinline)) void write_part(const float *x, const struct ax_tensor *t,
                                                 int64_t row, int64_t first, int64_t n) {
    AX_BY_DTYPE(t->dtype, write_floats, x, ax_tensor_row(t, row), first, n);
}

static __attribute__((noinline)) struct extremes
extremes_part(const struct ax_tensor *t, int64_t row, int64_t first, int64_t n, float *buffer) {
    return extremes_of(t->dtype, ax_tensor_row(t, row), first, n, buffer);
}

AX_INLINE void fake(enum ax_quant kind, float *x, int64_t n, const struct ax_quant_block *b) {
    for (int64_t i = 0; i < n; i++)
        x[i] = ax_quant_fake(kind, x[i], b);
}

/* Elements [first, first + n) of a row, whole blocks that fit into the buffer. */
AX_INLINE void fake_blocks(enum ax_quant kind, const struct ax_fake_quantize *a, int64_t row,
                           int64_t first, int64_t n) {
    float x[BUFFER];
    read_part(&a->x, row, first, n, x);
    for (int64_t i = 0; i < n; i += a->block) {
        struct extremes e = {-INFINITY, -INFINITY};
        see(&e, x + i, a->block);
        const struct ax_quant_block b = block_of(kind, e, &a->range, row);
        fake(kind, x + i, a->block, &b);
    }
    write_part(x, &a->y, row, first, n);
}

/* A block longer than the buffer. */
AX_INLINE void fake_long(enum ax_quant kind, const struct ax_fake_quantize *a, int64_t row,
                         int64_t first) {
    float x[BUFFER];
    const struct extremes e = extremes_part(&a->x, row, first, a->block, x);
    const struct ax_quant_block b = block_of(kind, e, &a->range, row);
    for (int64_t i = 0; i < a->block; i += BUFFER) {
        const int64_t n = least(BUFFER, a->block - i);
        read_part(&a->x, row, first + i, n, x);
        fake(kind, x, n, &b);
        write_part(x, &a->y, row, first + i, n);
    }
}

AX_INLINE void fake_rows(enum ax_quant kind, const struct ax_fake_quantize *a, int64_t row,
                         int64_t end) {
    const int64_t cols = a->x.shape[1], fit = BUFFER / a->block * a->block;
    for (; row < end; row++) {
        for (int64_t i = 0; fit > 0 && i < cols; i += fit)
            fake_blocks(kind, a, row, i, least(fit, cols - i));
        for (int64_t i = 0; fit == 0 && i < cols; i += a->block)
            fake_long(kind, a, row, i);
    }
}

/* Columns [first, first + n), n ≤ STRIP. */
AX_INLINE void fake_columns(enum ax_quant kind, const struct ax_fake_quantize *a, int64_t first,
                            int64_t n) {
    float x[STRIP];
    struct ax_quant_block b[STRIP];
    const float *range = (const float *)a->range.data + 2 * first;
    for (int64_t i = 0; i < n; i++)
        b[i] = ax_quant_block_of(kind, -range[2 * i], range[2 * i + 1], 0);
    for (int64_t r = 0; r < a->x.shape[0]; r++) {
        AX_BY_DTYPE(a->x.dtype, read_floats, ax_tensor_row(&a->x, r), first, n, x);
        for (int64_t i = 0; i < n; i++)
            x[i] = ax_quant_fake(kind, x[i], &b[i]);
        AX_BY_DTYPE(a->y.dtype, write_floats, x, ax_tensor_row(&a->y, r), first, n);
    }
}

enum ax_status AX_VEC(ax_cpu_fake_quantize)(struct ax_queue *q, const struct ax_fake_quantize *a,
                                            void *work) {
    (void)work;
    const int64_t cols = a->x.shape[1];
    if (a->columns) {
        AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(cols, STRIP))
            AX_BY_KIND(a->kind, fake_columns, a, t * STRIP, least(STRIP, cols - t * STRIP));
        return AX_OK;
    }
    const int64_t rows = a->x.shape[0], each = rows_per_task(a->x.shape[1]);
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(rows, each))
        AX_BY_KIND(a->kind, fake_rows, a, t * each, least((t + 1) * each, rows));
    return AX_OK;
}

/* ---- gradients ---- */

/* Where an integer was clamped, 0 in place of d. */
AX_INLINE void clip(enum ax_quant kind, const float *x, float *d, int64_t n,
                    const struct ax_quant_block *b) {
    for (int64_t i = 0; i < n; i++)
        d[i] = ax_quant_kept(kind, x[i], b) ? d[i] : 0;
}

AX_INLINE void add_vector(enum ax_dtype real, const float *d, void *dx, int64_t first, int64_t i,
                          int64_t n) {
    v_store(real, dx, first + i, n, v_load(real, dx, first + i, n) + v_load_f32(d + i, n));
}

AX_INLINE void add_floats(enum ax_dtype real, const float *d, void *dx, int64_t first, int64_t n) {
    AX_EACH_VECTOR(n, add_vector, real, d, dx, first);
}

/* Sets, or adds to, elements [first, first + n) of a row of dx. */
static __attribute__((noinline)) void give(const struct ax_fake_quantize_backward *a,
                                           const float *d, int64_t row, int64_t first, int64_t n) {
    if (a->accumulate)
        AX_BY_DTYPE(a->dx.dtype, add_floats, d, ax_tensor_row(&a->dx, row), first, n);
    else
        write_part(d, &a->dx, row, first, n);
}

/* Elements [first, first + n) of a row, of one block whose extremes are known. */
AX_INLINE void clip_part(enum ax_quant kind, const struct ax_fake_quantize_backward *a, int64_t row,
                         int64_t first, int64_t n, const struct ax_quant_block *b) {
    float x[BUFFER], d[BUFFER];
    read_part(&a->x, row, first, n, x);
    read_part(&a->dy, row, first, n, d);
    clip(kind, x, d, n, b);
    give(a, d, row, first, n);
}

static void asym_block(const struct ax_fake_quantize_backward *a, int64_t row, int64_t first) {
    float x[BUFFER], d[BUFFER];
    double dy[BUFFER / 2];
    const int64_t n = a->block; /* ≤ BUFFER / 2 */
    read_part(&a->x, row, first, n, x);
    read_part(&a->dy, row, first, n, d);
    for (int64_t i = 0; i < n; i++)
        dy[i] = (double)d[i];
    ax_quant_asym_gradient(x, dy, n, dy);
    for (int64_t i = 0; i < n; i++)
        d[i] = (float)dy[i];
    give(a, d, row, first, n);
}

AX_INLINE void clip_rows(enum ax_quant kind, const struct ax_fake_quantize_backward *a, int64_t row,
                         int64_t end) {
    float x[BUFFER];
    for (; row < end; row++) {
        for (int64_t at = 0; at < a->x.shape[1]; at += a->block) {
            if (kind == AX_QUANT_INT4_ASYM) {
                asym_block(a, row, at);
                continue;
            }
            const struct extremes e = extremes_part(&a->x, row, at, a->block, x);
            const struct ax_quant_block b = block_of(kind, e, &a->range, row);
            for (int64_t i = 0; i < a->block; i += BUFFER)
                clip_part(kind, a, row, at + i, least(BUFFER, a->block - i), &b);
        }
    }
}

enum ax_status AX_VEC(ax_cpu_fake_quantize_backward)(struct ax_queue *q,
                                                     const struct ax_fake_quantize_backward *a,
                                                     void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0], each = rows_per_task(a->x.shape[1]);
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->x)), t, ceil_div(rows, each))
        AX_BY_KIND(a->kind, clip_rows, a, t * each, least((t + 1) * each, rows));
    return AX_OK;
}
