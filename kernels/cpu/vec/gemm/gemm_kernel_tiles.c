/* The micro-kernel on tiles: 2 × 2 tiles of sums, two of each operand. Edges have one tile instead of
 * two, in either direction. */
#include "kernels/cpu/vec/gemm/gemm.h"

#define ROW   (AX_GEMM_NR * (int64_t)sizeof(float))
#define RIGHT AX_TILE_ROWS                /* the second tile of a row */
#define BELOW (AX_TILE_ROWS * AX_GEMM_NR) /* of a column */

static void load_sums(const float *acc, bool tall, bool wide, bool first) {
    if (first) {
        AX_TILE_ZERO(0);
        AX_TILE_ZERO(1);
        AX_TILE_ZERO(2);
        AX_TILE_ZERO(3);
        return;
    }
    AX_TILE_LOAD(0, acc, ROW);
    if (wide)
        AX_TILE_LOAD(1, acc + RIGHT, ROW);
    if (tall)
        AX_TILE_LOAD(2, acc + BELOW, ROW);
    if (tall && wide)
        AX_TILE_LOAD(3, acc + BELOW + RIGHT, ROW);
}

static void store_sums(float *acc, bool tall, bool wide) {
    AX_TILE_STORE(0, acc, ROW);
    if (wide)
        AX_TILE_STORE(1, acc + RIGHT, ROW);
    if (tall)
        AX_TILE_STORE(2, acc + BELOW, ROW);
    if (tall && wide)
        AX_TILE_STORE(3, acc + BELOW + RIGHT, ROW);
}

/* Edges: one tile instead of two, in either direction. */
static void multiply_edge(bool tall, bool wide, int64_t units, const float *a, const float *b) {
    for (int64_t u = 0; u < units; u += AX_TILE_UNITS) {
        AX_TILE_LOAD(4, a, 64);
        AX_TILE_LOAD(6, b, 64);
        AX_TILE_DOT(0, 4, 6);
        if (wide) {
            AX_TILE_LOAD(7, b + AX_TILE_SIZE, 64);
            AX_TILE_DOT(1, 4, 7);
        }
        if (tall) {
            AX_TILE_LOAD(5, a + AX_TILE_SIZE, 64);
            AX_TILE_DOT(2, 5, 6);
        }
        a += 2 * AX_TILE_SIZE;
        b += 2 * AX_TILE_SIZE;
    }
}

/* The next lines of w; `at` is the next one's address. After the last line of lines it fetches that again. */
AX_INLINE const char *fetch(struct ax_gemm_ahead *w, const char *at, bool to_write) {
    for (int64_t i = 0; i < w->each; i++) {
        if (to_write)
            __builtin_prefetch(at, 1, 3);
        else
            __builtin_prefetch(at, 0, 2);
        at += w->stride;
        if (++w->row == w->rows) {
            w->row = 0;
            w->line += w->line + 1 < w->lines;
            at = w->first + 64 * w->line;
        }
    }
    return at;
}

static const char *next_line(const struct ax_gemm_ahead *w) {
    return w->first + w->row * w->stride + 64 * w->line;
}

#define LOAD_A(t, at)                                                                              \
    if (a_passes)                                                                                  \
        AX_TILE_LOAD_ONCE(t, at, 64);                                                              \
    else                                                                                           \
        AX_TILE_LOAD(t, at, 64)
#define LOAD_B(t, at)                                                                              \
    if (a_passes)                                                                                  \
        AX_TILE_LOAD(t, at, 64);                                                                   \
    else                                                                                           \
        AX_TILE_LOAD_ONCE(t, at, 64)

/* Loads of a step follow the products of the one before as closely as they can: with another program on the
 * same core they are not renamed, and would wait for each other. */
AX_INLINE void multiply_full(bool a_passes, int64_t units, const float *a, const float *b,
                             struct ax_gemm_caches *caches) {
    struct ax_gemm_ahead next = caches->next, sums = caches->sums, c = caches->c;
    const char *next_at = next_line(&next), *sums_at = sums.first, *c_at = c.first;
    LOAD_A(4, a);
    LOAD_B(6, b);
    LOAD_B(7, b + AX_TILE_SIZE);
    LOAD_A(5, a + AX_TILE_SIZE);
    for (int64_t u = AX_TILE_UNITS; u < units; u += AX_TILE_UNITS) {
        a += 2 * AX_TILE_SIZE;
        b += 2 * AX_TILE_SIZE;
        AX_TILE_DOT(0, 4, 6);
        AX_TILE_DOT(1, 4, 7);
        sums_at = fetch(&sums, sums_at, true);
        c_at = fetch(&c, c_at, true);
        AX_TILE_DOT(2, 5, 6);
        LOAD_A(4, a);
        LOAD_B(6, b);
        AX_TILE_DOT(3, 5, 7);
        LOAD_A(5, a + AX_TILE_SIZE);
        LOAD_B(7, b + AX_TILE_SIZE);
        next_at = fetch(&next, next_at, false);
    }
    AX_TILE_DOT(0, 4, 6);
    AX_TILE_DOT(1, 4, 7);
    AX_TILE_DOT(2, 5, 6);
    AX_TILE_DOT(3, 5, 7);
    caches->next = next;
}

void AX_VEC(ax_gemm_kernel)(bool pairs, int64_t rows, int64_t cols, int64_t units, const float *a,
                            const float *b, float *acc, bool first, struct ax_gemm_caches *caches) {
    AX_ASSERT(pairs && units % AX_TILE_UNITS == 0);
    const bool tall = rows > AX_TILE_ROWS, wide = cols > AX_TILE_ROWS;
    load_sums(acc, tall, wide, first);
    if (!(tall && wide) || units == 0)
        multiply_edge(tall, wide, units, a, b);
    else if (caches->a_passes)
        multiply_full(true, units, a, b, caches);
    else
        multiply_full(false, units, a, b, caches);
    store_sums(acc, tall, wide);
}
