/* delta_gates_forward, delta_gates_backward. If heads have one decay, there are as many elements as heads in each token,
 * which is little: they are computed one by one. Decays of channels are computed by vectors. Sums over tokens by the
 * blocks of rowsum.h. */
#include "kernels/cpu/vec/delta/gates.h"
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

static float sigmoid_of(float x) {
    return 1 / (1 + exp_one(-x));
}

/* Heads, those of a row, rows per token, and decays of a head. */
struct heads {
    int64_t count, row, rows, width;
};
static struct heads heads_of(const struct ax_tensor *b, const struct ax_tensor *log,
                             const struct ax_tensor *bias) {
    return (struct heads){log->shape[0], b->shape[1], log->shape[0] / b->shape[1],
                          bias->shape[0] / log->shape[0]};
}

/* ---- decays of channels ---- */

/* ln(1 + y) = 2·artanh(s), s = y / (2 + y), for 0 ≤ y ≤ 1: artanh by its series, within 2 ulp. */
AX_INLINE v_float v_log1p(v_float y) {
    const v_float s = y / (v_set(2) + y), square = s * s;
    v_float p = v_set(1.0f / 15);
    for (int n = 13; n >= 1; n -= 2)
        p = v_fma(p, square, v_set(1.0f / (float)n));
    return (s + s) * p;
}
AX_INLINE v_float v_softplus(v_float x) {
    const v_float zero = v_set(0);
    return v_max(x, zero) + v_log1p(v_exp(v_min(x, zero - x)));
}
AX_INLINE v_float v_sigmoid(v_float x) {
    return v_set(1) / (v_set(1) + v_exp(v_set(0) - x));
}

/* An element's address. */
static inline void *place_of(const struct ax_tensor *t, int64_t row, int64_t col) {
    return (char *)t->data + (row * t->row_stride + col) * (int64_t)ax_dtype_size(t->dtype);
}

/* g of head h, which begins at column col of row n. */
AX_INLINE void decay_channels(enum ax_dtype dtype, const struct ax_delta_gates_forward *f,
                              int64_t width, int64_t h, int64_t n, int64_t col) {
    const v_float scale = v_set(-exp_one(of_head(&f->log, h)));
    const void *a = place_of(&f->a, n, col), *bias = place_of(&f->bias, 0, h * width);
    float *g = place_of(&f->g, n, col);
    for (int64_t i = 0; i < width; i += AX_LANES) {
        const int64_t some = least(AX_LANES, width - i);
        const v_float x = v_load(dtype, a, i, some) + v_load(dtype, bias, i, some);
        v_store_f32(g + i, some, scale * v_softplus(x));
    }
}

/* da of the head, and its terms of dlog and dbias. */
AX_INLINE void channels_backward(enum ax_dtype dtype, const struct ax_delta_gates_backward *b,
                                 int64_t width, int64_t h, int64_t n, int64_t col, float *dlog,
                                 float *dbias) {
    const v_float scale = v_set(-exp_one(of_head(&b->log, h)));
    const void *a = place_of(&b->a, n, col), *bias = place_of(&b->bias, 0, h * width);
    const float *dg = place_of(&b->dg, n, col);
    void *out = place_of(&b->da, n, col);
    v_float sum = v_set(0);
    for (int64_t i = 0; i < width; i += AX_LANES) {
        const int64_t some = least(AX_LANES, width - i);
        const v_float x = v_load(dtype, a, i, some) + v_load(dtype, bias, i, some);
        const v_float scaled = v_load_f32(dg + i, some) * scale, da = scaled * v_sigmoid(x);
        v_store(dtype, out, i, some, da);
        v_store_f32(dbias + i, some, v_load_f32(dbias + i, some) + da);
        sum = v_fma(scaled, v_softplus(x), sum);
    }
    *dlog += (float)v_sum(sum);
}

/* ---- both ---- */

enum ax_status AX_VEC(ax_cpu_delta_gates_forward)(struct ax_queue *q,
                                                  const struct ax_delta_gates_forward *f,
                                                  void *work) {
    (void)work;
    const struct heads s = heads_of(&f->b, &f->log, &f->bias);
    const int64_t tokens = f->b.shape[0] / s.rows;
    AX_PARALLEL_FOR (team(q, 8 * tokens * s.count * s.width), t, tokens) {
        for (int64_t h = 0; h < s.count; h++) {
            const int64_t n = t * s.rows + h / s.row, j = h % s.row;
            if (s.width > 1) {
                AX_BY_DTYPE(f->a.dtype, decay_channels, f, s.width, h, n, j * s.width);
            } else {
                const float x = at(&f->a, n, j) + of_head(&f->bias, h);
                put(&f->g, n, j, -exp_one(of_head(&f->log, h)) * softplus(x));
            }
            put(&f->beta, n, j, (float)f->scale * sigmoid_of(at(&f->b, n, j)));
        }
    }
    return AX_OK;
}

size_t AX_VEC(ax_cpu_delta_gates_backward_workspace)(struct ax_queue *q,
                                                     const struct ax_delta_gates_backward *b) {
    (void)q;
    const struct heads s = heads_of(&b->b, &b->log, &b->bias);
    return block_sums_bytes(b->b.shape[0] / s.rows, s.count * (1 + s.width));
}

/* Of a token; adds to the sums of dlog and of dbias. */
static void backward_token(const struct ax_delta_gates_backward *b, const struct heads *s,
                           int64_t t, float *dlog, float *dbias) {
    for (int64_t h = 0; h < s->count; h++) {
        const int64_t n = t * s->rows + h / s->row, j = h % s->row;
        const float strength = sigmoid_of(at(&b->b, n, j));
        put(&b->db, n, j, at(&b->dbeta, n, j) * (float)b->scale * strength * (1 - strength));
        if (s->width > 1) {
            AX_BY_DTYPE(b->a.dtype, channels_backward, b, s->width, h, n, j * s->width, dlog + h,
                        dbias + h * s->width);
            continue;
        }
        const float x = at(&b->a, n, j) + of_head(&b->bias, h);
        const float scaled = -at(&b->dg, n, j) * exp_one(of_head(&b->log, h));
        const float da = scaled * sigmoid_of(x);
        put(&b->da, n, j, da);
        dlog[h] += scaled * softplus(x);
        dbias[h] += da;
    }
}

enum ax_status AX_VEC(ax_cpu_delta_gates_backward)(struct ax_queue *q,
                                                   const struct ax_delta_gates_backward *b,
                                                   void *work) {
    const struct heads s = heads_of(&b->b, &b->log, &b->bias);
    const int64_t tokens = b->b.shape[0] / s.rows, channels = s.count * s.width;
    const struct row_blocks blocks = block_rows(tokens);
    float *dlog = work, *dbias = dlog + blocks.count * s.count;
    AX_PARALLEL_FOR (team(q, 8 * tokens * channels), i, blocks.count) {
        memset(dlog + i * s.count, 0, (size_t)s.count * sizeof *dlog);
        memset(dbias + i * channels, 0, (size_t)channels * sizeof *dbias);
        for (int64_t t = i * blocks.rows; t < least(tokens, (i + 1) * blocks.rows); t++)
            backward_token(b, &s, t, dlog + i * s.count, dbias + i * channels);
    }
    if (b->dlog.data)
        add_blocks(q, b->dlog.data, dlog, blocks.count, s.count);
    if (b->dbias.data)
        add_blocks(q, b->dbias.data, dbias, blocks.count, channels);
    return AX_OK;
}
