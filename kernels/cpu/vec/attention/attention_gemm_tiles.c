/* The matrix products of attention on tiles, a block of up to four tiles of sums at a time: 0 and 1 over 2 and 3, with
 * tiles 4 and 5 the rows of a, 6 and 7 the columns of b; or, where there are no more than 16 rows, 0 to 3 beside each
 * other, with the rows in tile 4, the columns in 5, 6, 7, 5. Operands are read where they are. A step is one product of
 * tiles. */
#include "kernels/cpu/vec/attention/attention.h"

#define ROWS AX_TILE_ROWS
#define WIDE (2 * AX_TILE_ROWS)

static bool is_tall(const struct ax_attention_gemm *g, int64_t m) {
    return g->m - m > ROWS;
}

/* Columns of the block at row m. */
static int64_t block_width(const struct ax_attention_gemm *g, int64_t m) {
    return is_tall(g, m) ? WIDE : 2 * WIDE;
}

/* The next tile of the block, or the units after these, or the next block, or the next product. */
static void next_step(struct ax_attention_products *p, const struct ax_attention_gemm *g) {
    const bool tall = is_tall(g, p->m);
    const int64_t cols = least(g->n - p->n, block_width(g, p->m)) / ROWS;
    p->done++;
    p->tile += tall && cols == 1 ? 2 : 1;
    if (p->tile < (tall ? 4 : cols))
        return;
    p->tile = 0;
    p->u += AX_TILE_UNITS;
    if (p->u < g->units)
        return;
    p->u = 0;
    p->n += block_width(g, p->m);
    if (p->n < g->n)
        return;
    p->n = 0;
    p->m += tall ? WIDE : ROWS;
    if (p->m < g->m)
        return;
    p->m = 0;
    p->at++;
}

/* Stores tile t where its sums belong. Macros, since tiles are named by literals. */
#define FLUSH(t)                                                                                   \
    do {                                                                                           \
        if (p->sums[t] != NULL)                                                                    \
            AX_TILE_STORE(t, p->sums[t], p->row[t]);                                               \
        p->sums[t] = NULL;                                                                         \
    } while (0)

/* Tile t += the product of tiles a and b. With a block's first units it is about to sum what belongs to `to`: what it has is
 * stored only now, products after its last one. */
#define ADD(t, a, b, to)                                                                           \
    do {                                                                                           \
        if (p->u == 0) {                                                                           \
            FLUSH(t);                                                                              \
            p->sums[t] = (to);                                                                     \
            p->row[t] = g->c_row * (int64_t)sizeof(float);                                         \
            if (g->accumulate)                                                                     \
                AX_TILE_LOAD(t, p->sums[t], p->row[t]);                                            \
            else                                                                                   \
                AX_TILE_ZERO(t);                                                                   \
        }                                                                                          \
        AX_TILE_DOT(t, a, b);                                                                      \
    } while (0)

static void step(struct ax_attention_products *p) {
    const struct ax_attention_gemm *g = &p->of[p->at];
    const int64_t a_row = g->a_row * (int64_t)sizeof(float);
    const int64_t b_unit = g->b_unit * (int64_t)sizeof(float);
    const float *a = g->a + p->m * g->a_row + p->u, *b = g->b + p->u * g->b_unit + p->n;
    float *c = g->c + p->m * g->c_row + p->n;
    switch (p->tile + (is_tall(g, p->m) ? 4 : 0)) {
    case 0:
        AX_TILE_LOAD(4, a, a_row);
        AX_TILE_LOAD(5, b, b_unit);
        ADD(0, 4, 5, c);
        break;
    case 1:
        AX_TILE_LOAD(6, b + ROWS, b_unit);
        ADD(1, 4, 6, c + ROWS);
        break;
    case 2:
        AX_TILE_LOAD(7, b + 2 * ROWS, b_unit);
        ADD(2, 4, 7, c + 2 * ROWS);
        break;
    case 3:
        AX_TILE_LOAD(5, b + 3 * ROWS, b_unit);
        ADD(3, 4, 5, c + 3 * ROWS);
        break;
    case 4:
        AX_TILE_LOAD(4, a, a_row);
        AX_TILE_LOAD(6, b, b_unit);
        ADD(0, 4, 6, c);
        break;
    case 5:
        AX_TILE_LOAD(7, b + ROWS, b_unit);
        ADD(1, 4, 7, c + ROWS);
        break;
    case 6:
        AX_TILE_LOAD(5, a + ROWS * g->a_row, a_row);
        ADD(2, 5, 6, c + ROWS * g->c_row);
        break;
    default:
        ADD(3, 5, 7, c + ROWS * g->c_row + ROWS);
    }
    next_step(p, g);
}

void AX_VEC(ax_attention_queue)(struct ax_attention_products *p,
                                const struct ax_attention_gemm *g) {
    AX_ASSERT(g->pairs && g->a_unit == 1 && g->units % AX_TILE_UNITS == 0 && g->n % AX_LANES == 0);
    AX_ASSERT(g->units > 0 && g->m % AX_TILE_ROWS == 0 && (g->accumulate || g->scale == 1.0f));
    if (p->at == p->queued) {
        p->queued = p->at = 0;
        p->steps = p->done = 0;
    }
    AX_ASSERT(p->queued < AX_ATTENTION_QUEUED);
    p->of[p->queued++] = *g;
    p->steps += g->m / ROWS * (g->n / ROWS) * (g->units / AX_TILE_UNITS);
}

void AX_VEC(ax_attention_advance)(struct ax_attention_products *p, int64_t part, int64_t parts) {
    while (p->done * parts < p->steps * part)
        step(p);
    if (part < parts)
        return;
    FLUSH(0);
    FLUSH(1);
    FLUSH(2);
    FLUSH(3);
}

static void run(const struct ax_attention_gemm *g) {
    struct ax_attention_products p = {0};
    AX_VEC(ax_attention_queue)(&p, g);
    AX_VEC(ax_attention_advance)(&p, 1, 1);
}

/* to[r][j] = scale · from[r][j]; strides in floats, cols a multiple of AX_LANES. */
static void copy(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows,
                 int64_t cols, float scale) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j += AX_LANES)
            v_store_f32(to + r * to_row + j, AX_LANES,
                        v_load_f32(from + r * from_row + j, AX_LANES) * v_set(scale));
}

/* Rows m … and columns n … of c, at most 32 each, by way of a copy, which may have more rows and is not scaled. */
static void run_copied(const struct ax_attention_gemm *g, int64_t m, int64_t n) {
    const int64_t rows = least(g->m - m, WIDE), cols = least(g->n - n, WIDE);
    float *c = g->c + m * g->c_row + n, sums[WIDE * WIDE] = {0};
    struct ax_attention_gemm part = *g;
    part.m = round_up(rows, ROWS);
    part.n = cols;
    part.a += m * g->a_row;
    part.b += n;
    part.c = sums;
    part.c_row = WIDE;
    part.scale = 1.0f;
    if (g->accumulate)
        copy(sums, WIDE, c, g->c_row, rows, cols, 1.0f);
    run(&part);
    copy(c, g->c_row, sums, WIDE, rows, cols, g->accumulate ? 1.0f : g->scale);
}

void AX_VEC(ax_attention_gemm)(const struct ax_attention_gemm *g) {
    if (g->units == 0) {
        for (int64_t r = 0; r < g->m && !g->accumulate; r++)
            memset(g->c + r * g->c_row, 0, (size_t)g->n * sizeof(float));
        return;
    }
    if (g->m % ROWS == 0 && (g->accumulate || g->scale == 1.0f)) {
        run(g);
        return;
    }
    for (int64_t m = 0; m < g->m; m += WIDE)
        for (int64_t n = 0; n < g->n; n += WIDE)
            run_copied(g, m, n);
}
