/* Products with packed weights: of rows, the bits of unpacking first; of panels, sums of weights that are not
 * rounded. Both, whatever the number of rows and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/isa.h"
#include "kernels/panels.h"
#include "kernels/quant/scheme.h"
#include "tests/kernels/harness.h"
#include "tests/skip.h"

#define MOST 40 /* rows, more than are multiplied from codes */

struct sizes {
    enum ax_quant kind;
    int64_t n, k, block;
};
static const struct sizes cases[] = {
    {AX_QUANT_INT8, 48, 70, 70},   {AX_QUANT_INT8, 32, 576, 576},  {AX_QUANT_INT8, 17, 64, 64},
    {AX_QUANT_INT8, 32, 128, 8},   {AX_QUANT_NF4, 48, 320, 64},    {AX_QUANT_NF4, 16, 192, 64},
    {AX_QUANT_NF4, 16, 37, 64},    {AX_QUANT_INT4, 64, 160, 32},   {AX_QUANT_FP8, 32, 96, 96},
    {AX_QUANT_INT8, 48, 130, 130}, {AX_QUANT_INT4X2, 48, 160, 32}, {AX_QUANT_INT4X2, 16, 33, 32},
};

struct operands {
    struct ax_tensor x, codes, scale, values, bias;
};

static float number(int64_t i) {
    return sinf((float)(3 * i + 1)) * 0.75F;
}

static struct ax_tensor take(enum ax_dtype dtype, int64_t rows, int64_t cols) {
    struct ax_tensor t = ax_tensor_2d(dtype, NULL, rows, cols);
    assert_int_equal(ax_alloc(&t.data, ax_tensor_bytes(&t), 1), AX_OK);
    return t;
}

static struct ax_tensor numbers(enum ax_dtype dtype, int64_t rows, int64_t cols) {
    const struct ax_tensor t = take(dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        ax_store(dtype, t.data, i, (double)number(i));
    return t;
}

static struct operands make(const struct sizes *s, enum ax_dtype dtype) {
    const int64_t numel = s->n * s->k, blocks = (numel + s->block - 1) / s->block;
    struct operands o = {.x = numbers(dtype, MOST, s->k), .values = take(dtype, s->n, s->k)};
    const struct ax_tensor codes =
        take(ax_quant_info(s->kind)->codes, 1, ax_quant_code_bytes(s->kind, numel));
    const struct ax_tensor scale = take(AX_F32, 1, blocks), bias = numbers(dtype, 1, s->n);
    const int n_codes = s->kind == AX_QUANT_FP8 ? 125 : 256; /* others are no numbers */
    for (int64_t i = 0; i < codes.shape[1]; i++)
        ((unsigned char *)codes.data)[i] = (unsigned char)((i * 37 + i / 256 * 11) % n_codes);
    for (int64_t i = 0; i < blocks; i++)
        ((float *)scale.data)[i] = 0.001F * (float)(1 + i % 29);
    o.codes = ax_tensor_1d(codes.dtype, codes.data, codes.shape[1]);
    o.scale = ax_tensor_1d(AX_F32, scale.data, blocks);
    o.bias = ax_tensor_1d(dtype, bias.data, s->n);
    return o;
}

static void release(struct operands *o) {
    ax_free(o->x.data);
    ax_free(o->codes.data);
    ax_free(o->scale.data);
    ax_free(o->values.data);
    ax_free(o->bias.data);
}

static void to_panels(struct machine *m, const struct sizes *s, struct operands *o) {
    struct ax_code_panels p = {.codes = o->codes,
                               .scale = o->scale,
                               .rows = s->n,
                               .cols = s->k,
                               .block = s->block,
                               .kind = s->kind};
    assert_int_equal(ax_code_panels_make(m->q, &p), AX_OK);
    o->codes = p.codes;
    assert_true(o->codes.panels);
}

/* got = x·Wᵀ + bias, computed a piece of rows at a time. */
static void multiply(struct machine *m, const struct sizes *s, const struct operands *o,
                     int64_t rows, const struct ax_tensor *got) {
    for (int64_t at = 0; at + rows <= MOST; at += rows) {
        const struct ax_packed_gemm p = {.a = ax_tensor_rows(&o->x, at, rows),
                                         .codes = o->codes,
                                         .scale = o->scale,
                                         .c = ax_tensor_rows(got, at, rows),
                                         .bias = o->bias,
                                         .block = s->block,
                                         .kind = s->kind};
        assert_int_equal(ax_run_packed_gemm(m->q, &p), AX_OK);
    }
}

static void expect_same(const struct sizes *s, const struct ax_tensor *want,
                        const struct ax_tensor *got, int64_t rows, const char *as) {
    const size_t bytes = (size_t)(MOST / rows * rows * s->n) * ax_dtype_size(want->dtype);
    if (memcmp(want->data, got->data, bytes) != 0)
        fail_msg("kind %d, %d rows of [%d][%d]: other bits than %s", (int)s->kind, (int)rows,
                 (int)s->n, (int)s->k, as);
}

static void check(struct machine *m, const struct sizes *s, enum ax_dtype dtype, int64_t rows) {
    struct operands o = make(s, dtype);
    const struct ax_tensor want = take(dtype, MOST, s->n), got = take(dtype, MOST, s->n);
    const struct ax_dequantize d = {
        .out = o.values, .codes = o.codes, .scale = o.scale, .block = s->block, .kind = s->kind};
    assert_int_equal(ax_run_dequantize(m->q, &d), AX_OK);
    const struct ax_gemm g = {
        .a = o.x, .b = o.values, .c = want, .bias = o.bias, .trans_b = true, .alpha = 1};
    assert_int_equal(ax_run_gemm(m->q, &g), AX_OK);
    multiply(m, s, &o, rows, &got);
    expect_same(s, &want, &got, rows, "of unpacked weights");
    ax_free(want.data);
    ax_free(got.data);
    release(&o);
}

/* What a code means, without its scale. */
static double meaning(const struct sizes *s, const unsigned char *codes, int64_t i) {
    const float *values = ax_quant_info(s->kind)->values;
    double t = values ? 0 : (signed char)codes[i];
    if (values)
        ax_store(AX_BF16, &t, 0, (double)values[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4]);
    return values ? ax_load(AX_BF16, &t, 0) : t;
}

/* Against sums in double, of row r and column n. */
static void expect_near(const struct sizes *s, const struct operands *o, int64_t r, int64_t n,
                        double got) {
    double sum = ax_load(AX_BF16, o->bias.data, n), size = fabs(sum);
    for (int64_t k = 0; k < s->k; k++) {
        const double scale = (double)((const float *)o->scale.data)[(n * s->k + k) / s->block];
        const double w = meaning(s, o->codes.data, n * s->k + k) * scale;
        sum += ax_load(AX_BF16, o->x.data, r * s->k + k) * w;
        size += fabs(ax_load(AX_BF16, o->x.data, r * s->k + k) * w);
    }
    if (!(fabs(got - sum) <= 1e-6 * size)) /* a rounded weight is off by up to 2e-3 */
        fail_msg("kind %d, row %d, column %d: %g, expected %g", (int)s->kind, (int)r, (int)n, got,
                 sum);
}

static void check_panels(struct machine *m, const struct sizes *s) {
    struct operands o = make(s, AX_BF16), rows = make(s, AX_BF16);
    const struct ax_tensor want = take(AX_F32, MOST, s->n), got = take(AX_F32, MOST, s->n);
    to_panels(m, s, &o);
    multiply(m, s, &o, 1, &want);
    for (int64_t i = 0; i < MOST * s->n; i++)
        expect_near(s, &rows, i / s->n, i % s->n, ax_load(AX_F32, want.data, i));
    for (int64_t n = 2; n <= MOST; n += n < 10 ? 1 : 10) {
        multiply(m, s, &o, n, &got);
        expect_same(s, &want, &got, n, "one row at a time");
    }
    ax_free(want.data);
    ax_free(got.data);
    release(&o);
    release(&rows);
}

static void all_cases(const char *backend, int threads) {
    struct machine m;
    machine_open(&m, backend, threads);
    int fit = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sizes *s = &cases[i];
        const bool panels = ax_code_panels_fit(s->kind, s->n, s->k, s->block);
        fit += panels;
        for (int64_t rows = 1; rows <= MOST; rows += rows < 10 ? 1 : 10) {
            check(&m, s, AX_BF16, rows);
            check(&m, s, AX_F32, rows);
        }
        if (panels)
            check_panels(&m, s);
    }
    assert_int_equal(fit, 6);
    machine_close(&m);
}

static void cpu_has_them(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    all_cases("cpu", 1);
    all_cases("cpu", 3);
}

#if defined(__x86_64__)
/* kernels/cpu/vec/gemm/packed_panels.h */
void ax_packed_panels_avx512bf16(const struct ax_packed_gemm *a, const struct ax_gemm *g, bool vbmi,
                                 int threads);

static void multiply_panels(const struct sizes *s, const struct operands *o, int64_t rows,
                            bool vbmi, const struct ax_tensor *got) {
    const struct ax_packed_gemm p = {.a = ax_tensor_rows(&o->x, 0, rows),
                                     .codes = o->codes,
                                     .scale = o->scale,
                                     .c = ax_tensor_rows(got, 0, rows),
                                     .bias = o->bias,
                                     .block = s->block,
                                     .kind = s->kind};
    const struct ax_gemm g = {.a = p.a, .c = p.c, .bias = p.bias, .trans_b = true, .alpha = 1};
    ax_packed_panels_avx512bf16(&p, &g, vbmi, 1);
}

static void conversion_has_the_bits_of_look_ups(void **state) {
    (void)state;
    struct machine m;
    int compared = 0;
    if (!ax_cpu_has(AX_CPU_AVX512BF16) || !ax_cpu_has_vbmi())
        skip_because("hardware, AVX-512 VBMI");
    machine_open(&m, "ref", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sizes *s = &cases[i];
        if (s->kind != AX_QUANT_INT8 || !ax_code_panels_fit(s->kind, s->n, s->k, s->block))
            continue;
        struct operands o = make(s, AX_BF16);
        const struct ax_tensor want = take(AX_F32, MOST, s->n), got = take(AX_F32, MOST, s->n);
        to_panels(&m, s, &o);
        for (int64_t rows = 1; rows <= 9; rows++, compared++) {
            multiply_panels(s, &o, rows, false, &want);
            multiply_panels(s, &o, rows, true, &got);
            assert_memory_equal(want.data, got.data, (size_t)(rows * s->n) * sizeof(float));
        }
        ax_free(want.data);
        ax_free(got.data);
        release(&o);
    }
    assert_int_equal(compared, 2 * 9);
    machine_close(&m);
}
#endif

static void ref_has_them(void **state) {
    (void)state;
    all_cases("ref", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_has_them),
#if defined(__x86_64__)
        cmocka_unit_test(conversion_has_the_bits_of_look_ups),
#endif
        cmocka_unit_test(ref_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
