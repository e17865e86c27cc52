/* Products run as ops on the queue; what is left, triangles of a few columns and the rounding itself,
 * on the host, rows on several threads. */
#include "model/quantize/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "kernels/quant/quant_block.h"

#define PANEL 192 /* columns of XᵀX at a time */
#define TILE  64  /* of the factorization */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Rows [r, r + n) and columns [c, c + m) of a [.][stride] matrix. */
static struct ax_tensor part(const float *a, int64_t stride, int64_t r, int64_t n, int64_t c,
                             int64_t m) {
    struct ax_tensor t = ax_tensor_2d(AX_F32, (void *)(uintptr_t)(a + r * stride + c), n, m);
    t.row_stride = stride;
    return t;
}

enum ax_status ax_gptq_open(struct ax_gptq *g, int64_t n) {
    const size_t size = (size_t)(n * n);
    *g = (struct ax_gptq){.n = n};
    AX_TRY(ax_alloc(&g->h, size, sizeof *g->h));
    return ax_alloc(&g->order, (size_t)n, sizeof *g->order);
}

void ax_gptq_close(struct ax_gptq *g) {
    ax_free(g->h);
    ax_free(g->u);
    ax_free(g->order);
    *g = (struct ax_gptq){0};
}

enum ax_status ax_gptq_see(struct ax_queue *q, struct ax_gptq *g, const struct ax_tensor *x) {
    for (int64_t at = 0; at < g->n; at += PANEL) {
        const int64_t n = least(PANEL, g->n - at);
        const struct ax_gemm product = {.a = ax_tensor_cols(x, 0, at + n),
                                        .b = ax_tensor_cols(x, at, n),
                                        .c = part(g->h, g->n, 0, at + n, at, n),
                                        .trans_a = true,
                                        .accumulate = true,
                                        .alpha = 1};
        AX_TRY(ax_run_gemm(q, &product));
    }
    g->tokens += x->shape[0];
    return AX_OK;
}

/* ---- H⁻¹ = UᵀU ---- */

/* Of a tile [n][n] of A = L·Lᵀ: inverse = L⁻¹ [TILE][TILE], lower. False: A is not
 * positive. */
static bool factor_tile(const float *tile, int64_t n, int64_t stride, float *inverse) {
    double l[TILE][TILE] = {{0}}, v[TILE][TILE] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = (double)tile[i * stride + j];
            for (int64_t k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            if (i == j && !(sum > 0))
                return false;
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j; i < n; i++) {
            double sum = i == j ? 1 : 0;
            for (int64_t k = j; k < i; k++)
                sum -= l[i][k] * v[k][j];
            v[i][j] = sum / l[i][i];
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            inverse[i * TILE + j] = (float)v[i][j];
    return true;
}

/* Scratch of the factorization. */
struct factors {
    struct ax_queue *q;
    int64_t n;
    float *a;     /* [n][n]: becomes L below the tiles of the diagonal */
    float *m;     /* [n][n]: L⁻¹ */
    float *tiles; /* [tiles][TILE][TILE]: L⁻¹ of the tiles of the diagonal */
    float *rows;  /* [n][TILE], or [TILE][n] */
};

/* Columns [k, k + TILE) of L, and what they take from those after them. */
static enum ax_status factor_columns(const struct factors *f, int64_t k) {
    const int64_t b = least(TILE, f->n - k), left = f->n - k - b;
    float *inverse = f->tiles + k * TILE;
    const bool planning = ax_queue_is_meta(f->q);
    if (!planning && !factor_tile(f->a + k * f->n + k, b, f->n, inverse))
        return ax_error(AX_ERR_DATA,
                        "gptq: what the calibration rows say of a matrix with %lld "
                        "inputs is not positive; use a larger --damping",
                        (long long)f->n);
    if (left == 0)
        return AX_OK;
    const struct ax_tensor below = part(f->a, f->n, k + b, left, k, b);
    const struct ax_tensor l = part(f->rows, TILE, 0, left, 0, b);
    AX_TRY(ax_run_gemm(f->q, &(struct ax_gemm){.a = below,
                                               .b = part(inverse, TILE, 0, b, 0, b),
                                               .c = l,
                                               .trans_b = true,
                                               .alpha = 1}));
    AX_TRY(ax_run_copy(f->q, &(struct ax_copy){.dst = below, .src = l}));
    return ax_run_gemm(f->q, &(struct ax_gemm){.a = l,
                                               .b = l,
                                               .c = part(f->a, f->n, k + b, left, k + b, left),
                                               .trans_b = true,
                                               .accumulate = true,
                                               .alpha = -1});
}

/* Rows [k, k + TILE) of L⁻¹, from those before them. */
static enum ax_status invert_rows(const struct factors *f, int64_t k) {
    const int64_t b = least(TILE, f->n - k);
    const struct ax_tensor tile = part(f->tiles + k * TILE, TILE, 0, b, 0, b);
    AX_TRY(ax_run_copy(f->q, &(struct ax_copy){.dst = part(f->m, f->n, k, b, k, b), .src = tile}));
    if (k == 0)
        return AX_OK;
    const struct ax_tensor sum = part(f->rows, f->n, 0, b, 0, k);
    AX_TRY(ax_run_gemm(f->q, &(struct ax_gemm){.a = part(f->a, f->n, k, b, 0, k),
                                               .b = part(f->m, f->n, 0, k, 0, k),
                                               .c = sum,
                                               .alpha = 1}));
    return ax_run_gemm(
        f->q,
        &(struct ax_gemm){.a = tile, .b = sum, .c = part(f->m, f->n, k, b, 0, k), .alpha = -1});
}

static enum ax_status factorize(struct factors *f) {
    for (int64_t k = 0; k < f->n; k += TILE)
        AX_TRY(factor_columns(f, k));
    for (int64_t k = 0; k < f->n; k += TILE)
        AX_TRY(invert_rows(f, k));
    return AX_OK;
}

struct by_size {
    float size;
    int32_t column;
};

/* Largest first; of equals, the one before. */
static int larger_first(const void *a, const void *b) {
    const struct by_size *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->column < y->column ? -1 : 1;
}

static enum ax_status choose_order(struct ax_gptq *g, bool act_order) {
    struct by_size *list;
    AX_TRY(ax_alloc(&list, (size_t)g->n, sizeof *list));
    for (int64_t i = 0; i < g->n; i++)
        list[i] = (struct by_size){g->h[i * g->n + i], (int32_t)i};
    if (act_order)
        qsort(list, (size_t)g->n, sizeof *list, larger_first);
    for (int64_t i = 0; i < g->n; i++)
        g->order[i] = list[i].column;
    ax_free(list);
    return AX_OK;
}

/* The factor by which our H exceeds that of the paper: sums are divided by a power of two, which
 * rounds nothing, in place of T/2. Codes do not depend on it. */
static double unit_of(const struct ax_gptq *g) {
    return (double)g->tokens / exp2(ceil(log2((double)g->tokens)));
}

/* H from the sums, both triangles; returns λ. The diagonal of a dead column counts as 1. */
static double finish_h(struct ax_gptq *g, double damping) {
    const double unit = unit_of(g);
    const float scale = (float)(2 * unit / (double)g->tokens);
    double sum = 0;
    for (int64_t i = 0; i < g->n; i++) {
        for (int64_t j = i; j < g->n; j++)
            g->h[j * g->n + i] = g->h[i * g->n + j] *= scale;
        const float diagonal = g->h[i * g->n + i];
        sum += diagonal > 0 ? (double)diagonal : unit;
    }
    return damping * sum / (double)g->n;
}

/* Element of H + λI at columns a, b. */
static float damped(const struct ax_gptq *g, int32_t a, int32_t b, double damping) {
    const float h = g->h[a * g->n + b];
    return a != b ? h : (float)((h > 0 ? (double)h : unit_of(g)) + damping);
}

/* With rows and columns reversed, L·Lᵀ = H gives U = L⁻¹ reversed. */
enum ax_status ax_gptq_factor(struct ax_queue *q, struct ax_gptq *g,
                              const struct ax_gptq_options *o) {
    const int64_t n = g->n;
    const size_t all = (size_t)(n * n), strip = (size_t)((n + TILE) * TILE);
    struct factors f = {.q = q, .n = n};
    enum ax_status st;
    if (!g->u)
        AX_TRY(ax_alloc(&g->u, all, sizeof *g->u));
    AX_TRY_GOTO(ax_alloc(&f.a, all, sizeof *f.a), st, done);
    AX_TRY_GOTO(ax_alloc(&f.m, all, sizeof *f.m), st, done);
    AX_TRY_GOTO(ax_alloc(&f.tiles, strip, sizeof *f.tiles), st, done);
    AX_TRY_GOTO(ax_alloc(&f.rows, strip, sizeof *f.rows), st, done);
    const bool planning = ax_queue_is_meta(q);
    const double damping = planning ? 0 : finish_h(g, o->damping);
    AX_TRY_GOTO(choose_order(g, o->act_order), st, done);
    for (int64_t i = 0; !planning && i < n; i++)
        for (int64_t j = 0; j < n; j++)
            f.a[i * n + j] = damped(g, g->order[n - 1 - i], g->order[n - 1 - j], damping);
    AX_TRY_GOTO(factorize(&f), st, done);
    for (int64_t i = 0; !planning && i < n; i++)
        for (int64_t j = 0; j < n; j++)
            g->u[i * n + j] = f.m[(n - 1 - i) * n + n - 1 - j];
done:
    ax_free(f.a);
    ax_free(f.m);
    ax_free(f.tiles);
    ax_free(f.rows);
    return st;
}

/* ---- rounding ---- */

/* Columns [at, end) of some rows of the matrix. */
struct share {
    const struct ax_gptq *g;
    const struct ax_gptq_matrix *m;
    bool act_order;
    float *w, *error; /* [rows][n] in order, updated; [rows][end − at] */
    int64_t at, end, first, last;
};

static struct ax_quant_block block_of(const float *w, int64_t n) {
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    return ax_quant_block_of(AX_QUANT_INT4, low, high, 0);
}

static void round_row(const struct share *s, int64_t r) {
    const struct ax_gptq_matrix *m = s->m;
    const int64_t n = s->g->n, groups = n / m->block, width = s->end - s->at;
    float *const w = s->w + r * n, *const error = s->error + r * width;
    float *const scale = m->scale + r * groups;
    for (int64_t i = s->at; i < s->end; i++) {
        const int32_t column = s->g->order[i];
        const float *u = s->g->u + i * n;
        struct ax_quant_block b = {.scale = scale[column / m->block]};
        if (!s->act_order && i % m->block == 0) {
            b = block_of(w + i, m->block);
            scale[column / m->block] = b.scale;
        }
        b.inverse = 1 / b.scale;
        const float code =
            ax_quant_clamped(AX_QUANT_INT4, ax_quant_rounded(AX_QUANT_INT4, w[i], &b));
        const float value = ax_quant_value(AX_QUANT_INT4, code, &b), e = (w[i] - value) / u[i];
        m->codes[r * n + column] = (signed char)code;
        m->value[r * n + column] = value;
        error[i - s->at] = e;
#pragma omp simd
        for (int64_t j = i + 1; j < s->end; j++)
            w[j] -= e * u[j];
    }
}

static enum ax_status round_rows(void *arg) {
    const struct share *s = arg;
    for (int64_t r = s->first; r < s->last; r++)
        round_row(s, r);
    return AX_OK;
}

/* All rows, on the matrix's threads. */
static enum ax_status round_columns(const struct share *all) {
    enum { MOST = 64 };
    struct ax_worker workers[MOST];
    struct share shares[MOST];
    const int64_t rows = all->m->rows, n = least(least(all->m->threads, MOST), rows);
    enum ax_status st = AX_OK;
    for (int64_t i = 0; i < n; i++) {
        shares[i] = *all;
        shares[i].first = i * rows / n;
        shares[i].last = (i + 1) * rows / n;
        const enum ax_status started = ax_worker_start(&workers[i], round_rows, &shares[i]);
        st = st == AX_OK ? started : st;
    }
    for (int64_t i = 0; i < n; i++) {
        const enum ax_status ended = ax_worker_join(&workers[i]);
        st = st == AX_OK ? ended : st;
    }
    return st;
}

/* Weights in order; what reads nothing but 0 is 0. With act_order the scales are those of the original
 * weights. */
static void begin(const struct share *s) {
    const struct ax_gptq_matrix *m = s->m;
    const int64_t n = s->g->n;
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            const int64_t column = s->g->order[i];
            const bool dead = !(s->g->h[column * n + column] > 0);
            s->w[r * n + i] = dead ? 0 : m->w[r * n + column];
        }
        for (int64_t k = 0; s->act_order && k < n / m->block; k++)
            m->scale[r * (n / m->block) + k] =
                block_of(m->w + r * n + k * m->block, m->block).scale;
    }
}

enum ax_status ax_gptq_round(struct ax_queue *q, const struct ax_gptq *g,
                             const struct ax_gptq_options *o, const struct ax_gptq_matrix *m) {
    enum { COLUMNS = 128 };
    const int64_t n = g->n, rows = m->rows;
    const int64_t width = m->block < COLUMNS ? COLUMNS / m->block * m->block : m->block;
    struct share s = {.g = g, .m = m, .act_order = o->act_order};
    const bool planning = ax_queue_is_meta(q);
    enum ax_status st;
    AX_TRY(ax_alloc(&s.w, (size_t)(rows * n), sizeof *s.w));
    AX_TRY_GOTO(ax_alloc(&s.error, (size_t)(rows * width), sizeof *s.error), st, done);
    if (!planning)
        begin(&s);
    for (s.at = 0; s.at < n; s.at = s.end) {
        s.end = least(s.at + width, n);
        if (!planning)
            AX_TRY_GOTO(round_columns(&s), st, done);
        if (s.end == n)
            break;
        const struct ax_gemm update = {.a = part(s.error, s.end - s.at, 0, rows, 0, s.end - s.at),
                                       .b = part(g->u, n, s.at, s.end - s.at, s.end, n - s.end),
                                       .c = part(s.w, n, 0, rows, s.end, n - s.end),
                                       .accumulate = true,
                                       .alpha = -1};
        AX_TRY_GOTO(ax_run_gemm(q, &update), st, done);
    }
    st = AX_OK;
done:
    ax_free(s.w);
    ax_free(s.error);
    return st;
}

/* Σ product·e, several sums beside each other. */
static double dot(const float *product, const float *e, int64_t stride, int64_t rows, int64_t n) {
    enum { SUMS = 8 };
    double sum[SUMS] = {0}, all = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += SUMS)
            for (int64_t k = 0; k < SUMS && i + k < n; k++)
                sum[k] += (double)product[r * n + i + k] * (double)e[r * stride + i + k];
    for (int k = 0; k < SUMS; k++)
        all += sum[k];
    return all;
}

/* H is symmetric: what is above a panel's diagonal counts twice. */
enum ax_status ax_gptq_error(struct ax_queue *q, const struct ax_gptq *g, int64_t rows,
                             const float *e, double *out) {
    const int64_t n = g->n;
    float *product;
    enum ax_status st = ax_alloc(&product, (size_t)(rows * least(PANEL, n)), sizeof *product);
    *out = 0;
    for (int64_t at = 0; st == AX_OK && at < n; at += PANEL) {
        const int64_t w = least(PANEL, n - at);
        const struct ax_tensor c = part(product, w, 0, rows, 0, w);
        const struct ax_gemm above = {
            .a = part(e, n, 0, rows, 0, at), .b = part(g->h, n, 0, at, at, w), .c = c, .alpha = 2};
        const struct ax_gemm within = {.a = part(e, n, 0, rows, at, w),
                                       .b = part(g->h, n, at, w, at, w),
                                       .c = c,
                                       .accumulate = at > 0,
                                       .alpha = 1};
        if (at > 0)
            st = ax_run_gemm(q, &above);
        if (st == AX_OK)
            st = ax_run_gemm(q, &within);
        if (st == AX_OK && !ax_queue_is_meta(q))
            *out += dot(product, e + at, n, rows, w);
    }
    ax_free(product);
    if (!ax_queue_is_meta(q))
        *out /= unit_of(g);
    return st;
}
