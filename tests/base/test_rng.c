/* Known answers of Philox4x32-10, and the distributions made from it. */
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* kat_vectors of Random123: counter words 0 and 1 are the index, 2 the step, 3 the tensor. */
static void known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const uint32_t *c = known[i].counter;
        const uint32_t *k = known[i].key;
        struct ax_rng_key key = {(uint64_t)k[1] << 32 | k[0], c[2], c[3]};
        uint32_t out[4];
        ax_rng_block(key, (uint64_t)c[1] << 32 | c[0], out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void words_come_from_blocks(void **state) {
    (void)state;
    struct ax_rng_key key = {42, 7, 9};
    for (uint64_t i = 0; i < 40; i++) {
        uint32_t w[4];
        ax_rng_block(key, i / 4, w);
        assert_int_equal(ax_rng_u32(key, i), w[i % 4]);
        assert_true(ax_rng_uniform(key, i) == (float)(w[i % 4] >> 8) / 16777216.0F);
    }
}

static void uniform_is_uniform(void **state) {
    (void)state;
    enum { N = 100000, BINS = 20 };
    struct ax_rng_key key = {1, 0, 0};
    int counts[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        float u = ax_rng_uniform(key, i);
        assert_true(u >= 0.0F && u < 1.0F);
        counts[(int)(u * BINS)]++;
    }
    double chi2 = 0.0;
    for (int b = 0; b < BINS; b++) {
        double d = counts[b] - (double)N / BINS;
        chi2 += d * d / ((double)N / BINS);
    }
    assert_true(chi2 < 43.8); /* 19 degrees of freedom, p = 0.001 */
}

/* Moments within 5 standard errors, and neighbors (the two of a pair) uncorrelated. */
static void normal_is_normal(void **state) {
    (void)state;
    enum { N = 200000 };
    struct ax_rng_key key = {3, 1, 2};
    double sum[5] = {0};
    double pairs = 0.0;
    for (uint64_t i = 0; i < N; i++) {
        double z = ax_rng_normal(key, i);
        assert_true(isfinite(z));
        double power = 1.0;
        for (int k = 0; k < 5; k++) {
            sum[k] += power;
            power *= z;
        }
        if (i % 2 == 0)
            pairs += z * (double)ax_rng_normal(key, i + 1);
    }
    double error = 5.0 / sqrt(N);
    assert_true(fabs(sum[1] / N) < error);
    assert_true(fabs(sum[2] / N - 1.0) < error * sqrt(2.0));
    assert_true(fabs(sum[3] / N) < error * sqrt(15.0));
    assert_true(fabs(sum[4] / N - 3.0) < error * sqrt(96.0));
    assert_true(fabs(pairs / (N / 2.0)) < error * sqrt(2.0));
}

static void normals_are_those_of_one_by_one(void **state) {
    (void)state;
    const struct ax_rng_key key = {3, 1, 2};
    float many[13];
    for (uint64_t first = 0; first < 9; first++)
        for (int n = 1; n <= 13; n++) {
            ax_rng_normals(key, first, n, many);
            for (int i = 0; i < n; i++)
                assert_true(many[i] == ax_rng_normal(key, first + (uint64_t)i));
        }
}

static void below_stays_below(void **state) {
    (void)state;
    struct ax_rng_key key = {5, 6, 7};
    static const uint64_t limits[] = {1, 2, 3, 10, 1000003, (1ULL << 63) + 1, UINT64_MAX};
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
        double mean = 0.0;
        for (uint64_t i = 0; i < 20000; i++) {
            uint64_t x = ax_rng_below(key, i, limits[l]);
            assert_true(x < limits[l]);
            mean += (double)x / 20000.0;
        }
        double n = (double)limits[l];
        double expected = (n - 1.0) / 2.0;
        assert_true(fabs(mean - expected) <= 5.0 * n / sqrt(12.0 * 20000.0));
    }
}

/* 2^63 + 1 refuses almost every second draw, so the path that draws again is taken. */
static void below_draws_again(void **state) {
    (void)state;
    struct ax_rng_key key = {5, 6, 7};
    const uint64_t n = (1ULL << 63) + 1;
    int again = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t w[4];
        ax_rng_block(key, i, w);
        uint64_t first = (uint64_t)w[1] << 32 | w[0];
        __extension__ unsigned __int128 product = (unsigned __int128)first * n;
        again += ax_rng_below(key, i, n) != (uint64_t)(product >> 64);
    }
    assert_in_range(again, 400, 600);
}

static void every_part_of_the_key_counts(void **state) {
    (void)state;
    uint32_t base = ax_rng_u32((struct ax_rng_key){1, 2, 3}, 4);
    assert_int_not_equal(base, ax_rng_u32((struct ax_rng_key){2, 2, 3}, 4));
    assert_int_not_equal(base, ax_rng_u32((struct ax_rng_key){1 + (1ULL << 32), 2, 3}, 4));
    assert_int_not_equal(base, ax_rng_u32((struct ax_rng_key){1, 3, 3}, 4));
    assert_int_not_equal(base, ax_rng_u32((struct ax_rng_key){1, 2, 4}, 4));
    assert_int_not_equal(base, ax_rng_u32((struct ax_rng_key){1, 2, 3}, 4 + (1ULL << 34)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(words_come_from_blocks),
        cmocka_unit_test(uniform_is_uniform),
        cmocka_unit_test(normal_is_normal),
        cmocka_unit_test(normals_are_those_of_one_by_one),
        cmocka_unit_test(below_stays_below),
        cmocka_unit_test(below_draws_again),
        cmocka_unit_test(every_part_of_the_key_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
