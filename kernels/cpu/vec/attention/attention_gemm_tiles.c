/* The matrix products of attention on tiles: 2 × 2 tiles of sums at a time. The operands are read
 * where they are, except those whose rows are summed over, which are transposed first. */
#include "kernels/cpu/vec/attention/attention.h"
#include "kernels/cpu/vec/gemm/gemm_pack.h" /* transpose */

#define ROWS AX_TILE_ROWS
#define WIDE (2 * AX_TILE_ROWS)

/* Up to 32 rows and columns of c, somewhere. */
struct place {
    float *at;
    int64_t stride; /* bytes */
    bool tall, wide;
};

static void load_sums(struct place c) {
    AX_TILE_LOAD(0, c.at, c.stride);
    if (c.wide)
        AX_TILE_LOAD(1, c.at + ROWS, c.stride);
    if (c.tall)
        AX_TILE_LOAD(2, c.at + ROWS * c.stride / 4, c.stride);
    if (c.tall && c.wide)
        AX_TILE_LOAD(3, c.at + ROWS * c.stride / 4 + ROWS, c.stride);
}

static void store_sums(struct place c) {
    AX_TILE_STORE(0, c.at, c.stride);
    if (c.wide)
        AX_TILE_STORE(1, c.at + ROWS, c.stride);
    if (c.tall)
        AX_TILE_STORE(2, c.at + ROWS * c.stride / 4, c.stride);
    if (c.tall && c.wide)
        AX_TILE_STORE(3, c.at + ROWS * c.stride / 4 + ROWS, c.stride);
}

/* A tile of a, transposed if its units are apart. */
struct left {
    const float *at;
    int64_t stride;
};

static struct left left_tile(const struct ax_attention_gemm *g, int64_t m, int64_t u, float *copy) {
    const float *at = g->a + m * g->a_row + u * g->a_unit;
    if (g->a_unit == 1)
        return (struct left){at, g->a_row * (int64_t)sizeof(float)};
    v_float x[AX_LANES];
    for (int i = 0; i < AX_LANES; i++)
        x[i] = v_load_f32(at + i * g->a_unit, AX_LANES);
    transpose(x);
    for (int i = 0; i < AX_LANES; i++)
        v_store_f32(copy + i * AX_LANES, AX_LANES, x[i]);
    return (struct left){copy, 64};
}

static void add_products(const struct ax_attention_gemm *g, int64_t m, int64_t n, bool tall,
                         bool wide) {
    const int64_t stride = g->b_unit * (int64_t)sizeof(float);
    float copies[2 * AX_TILE_SIZE];
    for (int64_t u = 0; u < g->units; u += AX_TILE_UNITS) {
        const float *b = g->b + u * g->b_unit + n;
        const struct left a = left_tile(g, m, u, copies);
        AX_TILE_LOAD(4, a.at, a.stride);
        AX_TILE_LOAD(6, b, stride);
        AX_TILE_DOT(0, 4, 6);
        if (wide) {
            AX_TILE_LOAD(7, b + ROWS, stride);
            AX_TILE_DOT(1, 4, 7);
        }
        if (tall) {
            const struct left below = left_tile(g, m + ROWS, u, copies + AX_TILE_SIZE);
            AX_TILE_LOAD(5, below.at, below.stride);
            AX_TILE_DOT(2, 5, 6);
        }
        if (tall && wide)
            AX_TILE_DOT(3, 5, 7);
    }
}

/* to[r][j] = scale · from[r][j]; strides in floats, cols a multiple of AX_LANES. */
static void copy(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows,
                 int64_t cols, float scale) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j += AX_LANES)
            v_store_f32(to + r * to_row + j, AX_LANES,
                        v_load_f32(from + r * from_row + j, AX_LANES) * v_set(scale));
}

/* Rows m … and columns n … of c, at most 32 each. What is past its last row or has to be scaled is
 * only in `sums`. */
static void block(const struct ax_attention_gemm *g, int64_t m, int64_t n) {
    const int64_t rows = least(g->m - m, WIDE), cols = least(g->n - n, WIDE);
    const bool tall = rows > ROWS, wide = cols > ROWS;
    float *c = g->c + m * g->c_row + n, sums[WIDE * WIDE];
    const struct place there = {c, g->c_row * (int64_t)sizeof(float), tall, wide};
    const struct place here = {sums, WIDE * (int64_t)sizeof(float), tall, wide};
    if (g->accumulate && rows % ROWS == 0) {
        load_sums(there);
        add_products(g, m, n, tall, wide);
        store_sums(there);
        return;
    }
    if (g->accumulate) {
        memset(sums, 0, sizeof sums);
        copy(sums, WIDE, c, g->c_row, rows, cols, 1.0f);
        load_sums(here);
    } else {
        AX_TILE_ZERO(0);
        AX_TILE_ZERO(1);
        AX_TILE_ZERO(2);
        AX_TILE_ZERO(3);
    }
    add_products(g, m, n, tall, wide);
    store_sums(here);
    copy(c, g->c_row, sums, WIDE, rows, cols, g->accumulate ? 1.0f : g->scale);
}

void AX_VEC(ax_attention_gemm)(const struct ax_attention_gemm *g) {
    AX_ASSERT(g->pairs && g->units % AX_TILE_UNITS == 0 && g->n % AX_LANES == 0);
    for (int64_t m = 0; m < g->m; m += WIDE)
        for (int64_t n = 0; n < g->n; n += WIDE)
            block(g, m, n);
}
