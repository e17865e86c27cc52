#include "kernels/cpu/tile_check.h"

#include <math.h>
#include <string.h>

/* Exponents of the operands, biased by 127: [low, low + range). */
static const struct {
    unsigned low, range;
} exponents[] = {
    {120, 12}, /* around 1: every sum rounds */
    {60, 6},   /* sums become denormal in between, or only in the end */
    {0, 3},    /* denormal operands, and sums that are only that of c */
    {186, 12}, /* large; some overflow */
};

/* A float32's bits; the low ones are zero unless they are asked for. */
static uint32_t draw(uint64_t *state, size_t i, uint32_t low_bits) {
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's */
    const unsigned random = (unsigned)(*state >> 16) & 0xffff;
    const uint32_t exponent = exponents[i].low + random % exponents[i].range;
    return ((uint32_t)(*state >> 32) & (0x807f0000 | low_bits)) | exponent << 23;
}

/* Two bf16 numbers. */
static uint32_t draw_pair(uint64_t *state, size_t i) {
    const uint32_t first = draw(state, i, 0) >> 16;
    return first | draw(state, i, 0);
}

static void fill(struct ax_tile_product *p, size_t i) {
    uint64_t state = i;
    for (size_t k = 0; k < 32 * 16; k++) {
        p->a[k / 16][k % 16] = draw_pair(&state, i);
        p->b[k / 32][k % 32] = draw_pair(&state, i);
    }
    for (size_t k = 0; k < 32 * 32; k++) {
        const uint32_t bits = draw(&state, i, 0xffff);
        memcpy(&p->c[k / 32][k % 32], &bits, sizeof bits);
    }
}

static bool same(float x, float y) {
    uint32_t p, q;
    memcpy(&p, &x, sizeof p);
    memcpy(&q, &y, sizeof q);
    return p == q || (isnan(x) && isnan(y));
}

bool ax_tile_products_agree(void (*one)(struct ax_tile_product *p),
                            void (*other)(struct ax_tile_product *p)) {
    struct ax_tile_product p, q;
    for (size_t i = 0; i < sizeof exponents / sizeof *exponents; i++) {
        fill(&p, i);
        q = p;
        one(&p);
        other(&q);
        for (size_t k = 0; k < 32 * 32; k++)
            if (!same(p.c[k / 32][k % 32], q.c[k / 32][k % 32]))
                return false;
    }
    return true;
}
