/* Products with packed weights: the bits of unpacking first, whatever the number of rows, and those of a
 * row do not depend on the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/panels.h"
#include "kernels/scheme.h"
#include "tests/kernels/harness.h"

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
    for (int64_t i = 0; i < codes.shape[1]; i++)
        ((unsigned char *)codes.data)[i] = (unsigned char)(i * 37 % 125);
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

static void check(struct machine *m, const struct sizes *s, enum ax_dtype dtype, int64_t rows,
                  bool panels) {
    struct operands o = make(s, dtype);
    const struct ax_tensor want = take(dtype, MOST, s->n), got = take(dtype, MOST, s->n);
    const struct ax_dequantize d = {
        .out = o.values, .codes = o.codes, .scale = o.scale, .block = s->block, .kind = s->kind};
    assert_int_equal(ax_run_dequantize(m->q, &d), AX_OK);
    const struct ax_gemm g = {
        .a = o.x, .b = o.values, .c = want, .bias = o.bias, .trans_b = true, .alpha = 1};
    assert_int_equal(ax_run_gemm(m->q, &g), AX_OK);
    if (panels)
        to_panels(m, s, &o);
    for (int64_t at = 0; at + rows <= MOST; at += rows) {
        const struct ax_packed_gemm p = {.a = ax_tensor_rows(&o.x, at, rows),
                                         .codes = o.codes,
                                         .scale = o.scale,
                                         .c = ax_tensor_rows(&got, at, rows),
                                         .bias = o.bias,
                                         .block = s->block,
                                         .kind = s->kind};
        assert_int_equal(ax_run_packed_gemm(m->q, &p), AX_OK);
    }
    const size_t bytes = (size_t)(MOST / rows * rows * s->n) * ax_dtype_size(dtype);
    if (memcmp(want.data, got.data, bytes) != 0)
        fail_msg("kind %d, %d rows of [%d][%d]: other bits than of unpacked weights", (int)s->kind,
                 (int)rows, (int)s->n, (int)s->k);
    ax_free(want.data);
    ax_free(got.data);
    release(&o);
}

static void the_bits_of_unpacked_weights(const char *backend, int threads) {
    struct machine m;
    machine_open(&m, backend, threads);
    int fit = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sizes *s = &cases[i];
        const bool panels = ax_code_panels_fit(s->kind, s->n, s->k, s->block);
        fit += panels;
        for (int64_t rows = 1; rows <= MOST; rows += rows < 10 ? 1 : 10) {
            check(&m, &cases[i], AX_BF16, rows, false);
            check(&m, &cases[i], AX_F32, rows, false);
            if (panels)
                check(&m, &cases[i], AX_BF16, rows, true);
        }
    }
    assert_int_equal(fit, 6);
    machine_close(&m);
}

static void cpu_has_them(void **state) {
    (void)state;
    if (!have_cpu())
        skip();
    the_bits_of_unpacked_weights("cpu", 1);
    the_bits_of_unpacked_weights("cpu", 3);
}

static void ref_has_them(void **state) {
    (void)state;
    the_bits_of_unpacked_weights("ref", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_has_them),
                                       cmocka_unit_test(ref_has_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
