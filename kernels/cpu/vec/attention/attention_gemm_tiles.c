/* The matrix products of attention on tiles: 2 × 2 tiles of sums at a time. The operands are read
 * where they are. */
#include "kernels/cpu/vec/attention/attention.h"

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

static void add_products(const struct ax_attention_gemm *g, int64_t m, int64_t n, bool tall,
                         bool wide) {
    const int64_t a_stride = g->a_row * (int64_t)sizeof(float);
    const int64_t b_stride = g->b_unit * (int64_t)sizeof(float);
    const float *a = g->a + m * g->a_row, *b = g->b + n;
    for (int64_t u = 0; u < g->units; u += AX_TILE_UNITS) {
        AX_TILE_LOAD(4, a, a_stride);
        AX_TILE_LOAD(6, b, b_stride);
        if (wide)
            AX_TILE_LOAD(7, b + ROWS, b_stride);
        if (tall)
            AX_TILE_LOAD(5, a + ROWS * g->a_row, a_stride);
        AX_TILE_DOT(0, 4, 6);
        if (wide)
            AX_TILE_DOT(1, 4, 7);
        if (tall)
            AX_TILE_DOT(2, 5, 6);
        if (tall && wide)
            AX_TILE_DOT(3, 5, 7);
        a += AX_TILE_UNITS;
        b += AX_TILE_UNITS * g->b_unit;
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
    const bool direct = rows % ROWS == 0 && (g->accumulate || g->scale == 1.0f);
    if (!g->accumulate) {
        AX_TILE_ZERO(0);
        AX_TILE_ZERO(1);
        AX_TILE_ZERO(2);
        AX_TILE_ZERO(3);
    } else if (direct) {
        load_sums(there);
    } else {
        memset(sums, 0, sizeof sums);
        copy(sums, WIDE, c, g->c_row, rows, cols, 1.0f);
        load_sums(here);
    }
    add_products(g, m, n, tall, wide);
    if (direct) {
        store_sums(there);
        return;
    }
    store_sums(here);
    copy(c, g->c_row, sums, WIDE, rows, cols, g->accumulate ? 1.0f : g->scale);
}

void AX_VEC(ax_attention_gemm)(const struct ax_attention_gemm *g) {
    AX_ASSERT(g->pairs && g->a_unit == 1 && g->units % AX_TILE_UNITS == 0 && g->n % AX_LANES == 0);
    for (int64_t m = 0; m < g->m; m += WIDE)
        for (int64_t n = 0; n < g->n; n += WIDE)
            block(g, m, n);
}
