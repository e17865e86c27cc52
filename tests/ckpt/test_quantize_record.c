/* What GGUF's encoders make of values that are hard in many ways, to the bit: how near it is and a digest of its
 * blocks is in quantize_record.txt. Arithmetic is without fused operations, so every machine makes the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/hash/hash.h"
#include "base/rng.h"
#include "ckpt/gguf/blocks.h"
#include "tests/record.h"

enum { BLOCK = 256, ALL = 24 * BLOCK };

#define RECORD "tests/ckpt/quantize_record.txt"

/* Nearly normal, exact in single precision on any machine. */
static float near_normal(struct ax_rng_key key, uint64_t i) {
    int64_t sum = 0;
    for (uint64_t k = 0; k < 12; k++)
        sum += (int64_t)ax_rng_below(key, 12 * i + k, 4096) - 2048;
    return (float)sum / 4096;
}

/* ---- values ---- */

static float of_a_matrix(float v, int i) {
    (void)i;
    return v / 64;
}

static float of_sizes(float v, int i) { /* each group of 16 has its own */
    return ldexpf(v, -(i / 16 * 7 % 11));
}

static float far_away(float v, int i) {
    return (i / BLOCK % 2 ? 5.0F : -5.0F) + v / 16;
}

static float outliers(float v, int i) {
    return i % 37 == 0 ? 40 * v : v / 128;
}

static float of_one_sign(float v, int i) {
    return i / 64 % 2 ? fabsf(v) : -fabsf(v);
}

static float few_values(float v, int i) { /* ties, also of the largest magnitudes */
    (void)i;
    return rintf(v * 2) / 8;
}

static float with_zeros(float v, int i) { /* groups, and blocks */
    return i / 32 % 3 == 0 || i / BLOCK % 5 == 4 ? 0 : v;
}

static float tiny(float v, int i) { /* scales below the smallest, up to it, and just above */
    return ldexpf(v, -10 - i / BLOCK * 2);
}

static float large(float v, int i) {
    (void)i;
    return v * 2048;
}

static float grows(float v, int i) {
    return (float)(i % BLOCK - 128) / 64 + v / 256;
}

static const struct {
    const char *name;
    float (*of)(float v, int i);
} kinds[] = {
    {"matrix", of_a_matrix},   {"sizes", of_sizes},  {"far", far_away},     {"outliers", outliers},
    {"one sign", of_one_sign}, {"ties", few_values}, {"zeros", with_zeros}, {"tiny", tiny},
    {"large", large},          {"growing", grows},
};

/* ---- the record ---- */

/* Relative error, as a root mean square. */
static double error_of(const float *x, const float *y) {
    double missed = 0, all = 0;
    for (int i = 0; i < ALL; i++) {
        const double v = (double)x[i], e = (double)y[i] - v;
        missed += e * e;
        all += v * v;
    }
    return sqrt(missed / all);
}

static void put_type(struct ax_buf *out, const struct ax_block_type *t) {
    static float x[ALL], y[ALL];
    static unsigned char blocks[ALL * 4];
    record_put(out, "%s, %d elements in %d bytes\n", t->name, t->elements, t->bytes);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const struct ax_rng_key key = {.seed = 11, .tensor = (uint32_t)k};
        const int n = ALL / t->elements;
        for (int i = 0; i < ALL; i++)
            x[i] = kinds[k].of(near_normal(key, (uint64_t)i), i);
        t->quantize(x, n, blocks);
        t->dequantize(blocks, n, y);
        const uint64_t digest = ax_hash64(blocks, (size_t)n * (size_t)t->bytes, 0);
        record_put(out, "  %-9s %-10.5g %016llx\n", kinds[k].name, error_of(x, y),
                   (unsigned long long)digest);
    }
}

static void blocks_are_as_recorded(void **state) {
    (void)state;
    struct ax_buf now = {0};
    int written = 0;
    for (uint32_t id = 0; id < 64; id++) {
        const struct ax_block_type *t = ax_block_type_find(id);
        if (t && t->quantize) {
            put_type(&now, t);
            written++;
        }
    }
    assert_true(written >= 12);
    record_compare(RECORD, &now);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_are_as_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
