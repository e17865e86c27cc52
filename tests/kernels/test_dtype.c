/* Element types: every bf16 and f16 pattern there and back, and rounding to the nearest of them
 * checked against the neighbors, for every pattern's midpoints and the doubles beside those. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/dtype.h"

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The value of an f16 pattern from its definition. */
static double f16_value(uint16_t bits) {
    int exponent = (bits >> 10) & 31;
    int mantissa = bits & 1023;
    double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                       : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                        : ldexp(1024 + mantissa, exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

static void every_pattern_survives_the_round_trip(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t bits = (uint16_t)i;
        float b = ax_bf16_to_f32(bits);
        float h = ax_f16_to_f32(bits);
        double want = f16_value(bits);
        if (isnan(b)) {
            assert_true(isnan(ax_bf16_to_f32(ax_f32_to_bf16(b))));
        } else {
            assert_true(b == float_of(i << 16));
            assert_int_equal(ax_f32_to_bf16(b), bits);
        }
        if (isnan(want)) {
            assert_true(isnan(h));
            assert_true(isnan(ax_f16_to_f32(ax_f32_to_f16(h))));
        } else {
            assert_true((double)h == want && !signbit(h) == !signbit(want));
            assert_int_equal(ax_f32_to_f16(h), bits);
        }
    }
}

static uint16_t stored(enum ax_dtype dtype, double x) {
    uint16_t bits = 0;
    ax_store(dtype, &bits, 0, x);
    return bits;
}

/* Between the neighbors `low` and `low + 1` (as patterns, away from zero): the midpoint goes to
 * the even one, and the least step off it to the nearer one; through float where float can say it.
 */
static void check_midpoint(enum ax_dtype dtype, uint16_t low, double below, double above) {
    double middle = below + (above - below) / 2;
    uint16_t high = (uint16_t)(low + 1);
    uint16_t even = (low & 1) == 0 ? low : high;
    double away = middle > 0 ? INFINITY : -INFINITY;
    assert_int_equal(stored(dtype, middle), even);
    assert_int_equal(stored(dtype, nextafter(middle, 0)), low);
    assert_int_equal(stored(dtype, nextafter(middle, away)), high);
    float f = (float)middle;
    uint16_t (*narrow)(float) = dtype == AX_BF16 ? ax_f32_to_bf16 : ax_f32_to_f16;
    assert_true((double)f == middle);
    assert_int_equal(narrow(f), even);
    assert_int_equal(narrow(nextafterf(f, 0)), low);
    assert_int_equal(narrow(nextafterf(f, (float)away)), high);
}

/* `largest` is the pattern of the largest finite number. The next pattern is infinity; rounding
 * treats it as the number `beyond`. */
static void check_rounding(enum ax_dtype dtype, uint16_t largest, double beyond) {
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
        for (uint32_t i = 0; i <= largest; i++) {
            uint16_t low = (uint16_t)(i | sign);
            uint16_t high = (uint16_t)(low + 1);
            double above = i == largest ? (sign != 0 ? -beyond : beyond) : ax_load(dtype, &high, 0);
            check_midpoint(dtype, low, ax_load(dtype, &low, 0), above);
        }
    }
    assert_int_equal(stored(dtype, 1e300), largest + 1);
    assert_int_equal(stored(dtype, -INFINITY), (largest + 1) | 0x8000);
    assert_int_equal(stored(dtype, 1e-300), 0);
    assert_int_equal(stored(dtype, -1e-300), 0x8000);
    uint16_t nan = stored(dtype, NAN);
    assert_true(isnan(ax_load(dtype, &nan, 0)));
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    check_rounding(AX_BF16, 0x7f7f, 0x1p128);
    /* NaNs whose payload is only in the truncated bits */
    assert_true(isnan(ax_bf16_to_f32(ax_f32_to_bf16(float_of(0x7f800001)))));
    assert_true(isnan(ax_bf16_to_f32(ax_f32_to_bf16(float_of(0xffffffff)))));
}

static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    check_rounding(AX_F16, 0x7bff, 0x1p16);
    assert_true(isnan(ax_f16_to_f32(ax_f32_to_f16(float_of(0x7f800001)))));
    assert_int_equal(ax_f32_to_f16(65520), 0x7c00);
    assert_int_equal(ax_f32_to_f16(nextafterf(65520, 0)), 0x7bff);
}

static void storing_rounds_once(void **state) {
    (void)state;
    /* Just above a bf16 midpoint by less than a float can say: rounding to float first would land
     * on the midpoint and then go down to even. */
    double x = 1 + 0x1p-8 + 0x1p-40;
    assert_int_equal(stored(AX_BF16, x), 0x3f81);
    assert_int_equal(ax_f32_to_bf16((float)x), 0x3f80);
    assert_int_equal(stored(AX_F16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
}

static void integers_saturate(void **state) {
    (void)state;
    static const struct {
        enum ax_dtype dtype;
        double value, want;
    } cases[] = {
        {AX_I8, 200, 127},
        {AX_I8, -200, -128},
        {AX_I8, 2.5, 2},
        {AX_I8, 3.5, 4},
        {AX_I16, 40000, 32767},
        {AX_I16, -40000, -32768},
        {AX_I16, -2.5, -2},
        {AX_U8, -1, 0},
        {AX_U8, 255.4, 255},
        {AX_U8, 1e9, 255},
        {AX_I32, -1e12, -2147483648.0},
        {AX_I32, 1e12, 2147483647.0},
        {AX_I32, -7.5, -8},
        {AX_I64, -1e300, -0x1p63},
        {AX_I64, 12345678901.0, 12345678901.0},
        {AX_I32, NAN, 0},
        {AX_I64, 1e300, 0x1.fffffffffffffp62},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t room[2] = {0};
        ax_store(cases[i].dtype, room, 1, cases[i].value);
        assert_true(ax_load(cases[i].dtype, room, 1) == cases[i].want);
        assert_true(ax_load(cases[i].dtype, room, 0) == 0);
    }
}

/* Every pair of dtypes, on numbers that all of them hold. */
static void convert_is_store_of_load(void **state) {
    (void)state;
    static const double values[] = {0, 1, 2, 3, 5, 100, 126};
    enum { N = sizeof(values) / sizeof(values[0]) };
    for (int from = 0; from < AX_DTYPE_COUNT; from++) {
        double source[N];
        for (int i = 0; i < N; i++)
            ax_store((enum ax_dtype)from, source, i, values[i]);
        for (int to = 0; to < AX_DTYPE_COUNT; to++) {
            double target[N + 1];
            memset(target, 0x55, sizeof(target));
            ax_convert((enum ax_dtype)to, target, (enum ax_dtype)from, source, N);
            for (int i = 0; i < N; i++)
                assert_true(ax_load((enum ax_dtype)to, target, i) == values[i]);
            unsigned char behind;
            memcpy(&behind, (char *)target + N * ax_dtype_size((enum ax_dtype)to), 1);
            assert_int_equal(behind, 0x55);
        }
    }
    float third = 1.0f / 3;
    uint16_t half;
    ax_convert(AX_BF16, &half, AX_F32, &third, 1);
    assert_int_equal(half, 0x3eab);
    ax_convert(AX_F16, &half, AX_F32, &third, 1);
    assert_int_equal(half, 0x3555);
    ax_convert(AX_F16, &half, AX_F32, &third, 0); /* nothing */
    assert_int_equal(half, 0x3555);
}

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static bool is_nan(uint16_t bf16) {
    return (bf16 & 0x7fffu) > 0x7f80u;
}

/* Every float survives, and its bf16 half is the nearest one; that of a NaN is a NaN. */
static void split_and_join(void **state) {
    (void)state;
    for (uint64_t u = 0; u <= UINT32_MAX; u += 65521 + u % 7) {
        int16_t rest;
        const float x = from_bits((uint32_t)u);
        const uint16_t half = ax_f32_split(x, &rest);
        if (isnan(x)) {
            assert_true(is_nan(half) && isnan(ax_f32_join(half, rest)));
            continue;
        }
        assert_int_equal(bits(ax_f32_join(half, rest)), (uint32_t)u);
        if ((u & 0xffff) != 0x8000)
            assert_int_equal(half, ax_f32_to_bf16(x));
    }
    int16_t rest;
    static const uint32_t nans[] = {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0xff807fffu};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        const uint16_t half = ax_f32_split(from_bits(nans[i]), &rest);
        assert_true(is_nan(half) && isnan(ax_f32_join(half, rest)));
    }
    assert_int_equal(ax_f32_split(from_bits(0x3f808000u), &rest), 0x3f81);
    assert_int_equal(rest, -32768);
}

/* Of all 2¹⁶ draws, as many go up as x is 2⁻¹⁶-ths of the way; what is exact stays. */
static void random_rounding_is_even_handed(void **state) {
    (void)state;
    static const uint32_t values[] = {0x3f800000u, 0x3f800001u, 0x3f807fffu, 0xbf80c000u,
                                      0x3fffffffu, 0x00000003u, 0x7f800000u};
    for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
        const uint16_t down = (uint16_t)(values[v] >> 16);
        uint32_t ups = 0;
        for (uint32_t r = 0; r < 65536; r++) {
            const uint16_t got = ax_f32_to_bf16_random(from_bits(values[v]), r);
            assert_true(got == down || got == down + 1);
            ups += got != down;
        }
        assert_int_equal(ups, values[v] & 0xffff);
    }
    assert_true(isnan(ax_bf16_to_f32(ax_f32_to_bf16_random(from_bits(0x7fffffffu), 65535))));
}

static void names(void **state) {
    (void)state;
    static const char *const shorts[AX_DTYPE_COUNT] = {"fp64", "fp32", "bf16", "fp16", "i64",
                                                       "i32",  "i16",  "i8",   "u8"};
    static const size_t sizes[AX_DTYPE_COUNT] = {8, 4, 2, 2, 8, 4, 2, 1, 1};
    for (int d = 0; d < AX_DTYPE_COUNT; d++) {
        enum ax_dtype got = AX_DTYPE_COUNT;
        assert_int_equal(ax_dtype_parse(ax_dtype_info((enum ax_dtype)d)->name, &got), AX_OK);
        assert_int_equal(got, d);
        got = AX_DTYPE_COUNT;
        assert_int_equal(ax_dtype_parse(shorts[d], &got), AX_OK);
        assert_int_equal(got, d);
        assert_int_equal(ax_dtype_size((enum ax_dtype)d), sizes[d]);
        assert_int_equal(ax_dtype_info((enum ax_dtype)d)->is_float, d <= AX_F16);
        assert_int_equal(ax_dtype_accum((enum ax_dtype)d), d == AX_F64 ? AX_F64 : AX_F32);
    }
    static const struct {
        const char *name;
        enum ax_dtype dtype;
    } other[] = {{"f64", AX_F64}, {"f32", AX_F32}, {"f16", AX_F16}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        enum ax_dtype got = AX_DTYPE_COUNT;
        assert_int_equal(ax_dtype_parse(other[i].name, &got), AX_OK);
        assert_int_equal(got, other[i].dtype);
    }
    assert_string_equal(ax_dtype_info(AX_BF16)->safetensors, "BF16");
    enum ax_dtype got = AX_I8;
    assert_int_equal(ax_dtype_parse("fp8", &got), AX_ERR_CONFIG);
    assert_int_equal(got, AX_I8);
    assert_non_null(strstr(ax_error_text(), "\"fp8\""));
    assert_non_null(strstr(ax_error_text(), "bfloat16"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_survives_the_round_trip),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(storing_rounds_once),
        cmocka_unit_test(integers_saturate),
        cmocka_unit_test(convert_is_store_of_load),
        cmocka_unit_test(split_and_join),
        cmocka_unit_test(random_rounding_is_even_handed),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
